"""What HETERO says of a partition before anything is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aioinfer
from aioinfer.backends.hetero.executable_network import HeteroNetwork
from aioinfer.errors import AioInferError, UnsupportedOpError
from aioinfer.runtime.graph import Model
from aioinfer.runtime.properties.properties import Configuration
from aioinfer.testing import MockPlugin
from unit.backends.hetero.small_graphs import affinity, graph

CHAIN = "a@0 = Relu(p)\nb@1 = Neg(a)\nc@0 = Exp(b)"
DEVICE = "HETERO:MOCK.0,MOCK.1"


@pytest.mark.usefixtures("mock")
def test_a_division_says_what_the_network_says(core: aioinfer.Core) -> None:
    model, config = core.read_model(graph(CHAIN, "c")), {"AFFINITY": affinity(CHAIN, "MOCK")}
    division = core.divide_network(model, DEVICE, config)
    with core.load_network(model, DEVICE, config) as network:
        assert isinstance(network, HeteroNetwork)
        assert division.partition == network.partition
        assert division.explain() == network.explain()
        assert division.diagram("dot") == network.diagram("dot")
        assert division.diagram("svg") == network.diagram("svg")
        devices = [device for device, _ in network.subgraph_models()]
    assert [device for device, _ in division.subgraph_models()] == devices


@pytest.mark.usefixtures("mock")
def test_a_division_compiles_nothing(core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_network(plugin: MockPlugin, model: Model, config: Configuration) -> Any:
        raise AssertionError(f"{plugin.name} compiles {model.name}")

    monkeypatch.setattr(MockPlugin, "compile_network", compile_network)
    assert core.divide_network(graph(CHAIN, "c"), DEVICE).partition.node_count == 3


def test_a_division_honours_what_it_is_given(core: aioinfer.Core, tmp_path: Path) -> None:
    model, device = graph(CHAIN, "c"), "HETERO:REFERENCE.0,REFERENCE.1"
    core.divide_network(model, device, {"DUMP_GRAPH": str(tmp_path / "drawn")})
    assert len(list((tmp_path / "drawn").iterdir())) == 4
    with pytest.raises(AioInferError, match="nothing"):
        core.divide_network(model, device, {"INPUT_SHAPES": {"nothing": (1,)}})


def test_a_node_that_no_device_takes_divides_no_model(core: aioinfer.Core) -> None:
    with pytest.raises(UnsupportedOpError, match="Swirl"):
        core.divide_network(graph("a@0 = Swirl(p)", "a"), "HETERO:REFERENCE.0,REFERENCE.1")
