"""onnx's backend suite cut as finely as can be: every compute node alternately on two devices.

The same names pass as on one REFERENCE device, and the report (how many models had two nodes or
more, how many values crossed) may not fall. Collected with DEVICE=REFERENCE only (``conftest.py``).
"""

from collections.abc import Callable, Iterator

import onnx
import pytest

import aioinfer
from aioinfer.backends.hetero.executable_network import HeteroNetwork
from onnx_backend.cases import Suite, passing_names

DEVICES = ("REFERENCE.0", "REFERENCE.1")
LEAST_PARTITIONED_MODEL_COUNT = 370
LEAST_CROSSING_VALUE_COUNT = 3263

_crossing: list[int] = []
"""For each model that had two nodes or more: how many of its values crossed."""


def _load(core: aioinfer.Core, proto: onnx.ModelProto) -> aioinfer.ExecutableNetwork:
    model = core.read_model(proto)
    names = [node.name for node in model.graph.nodes]
    affinity = {name: DEVICES[index % 2] for index, name in enumerate(names)}
    network = core.load_network(model, f"HETERO:{','.join(DEVICES)}", {"AFFINITY": affinity})
    if len(names) > 1:
        assert isinstance(network, HeteroNetwork)
        _crossing.append(network.partition.crossing_value_count)
    return network


SUITE = Suite(_load)


@pytest.fixture(scope="module", autouse=True)
def _closed_core() -> Iterator[None]:
    yield
    SUITE.core.close()


@pytest.mark.parametrize("name", passing_names("REFERENCE"))
def test_a_case_that_passes_on_one_device_passes_on_two(name: str) -> None:
    SUITE.run(name)


def test_the_suite_was_really_cut(record_property: Callable[[str, object], None]) -> None:
    model_count, value_count = len(_crossing), sum(_crossing)
    print(f"{model_count} models had two nodes or more, {value_count} values crossed")
    record_property("models with two nodes or more", model_count)
    record_property("values that crossed", value_count)
    assert model_count >= LEAST_PARTITIONED_MODEL_COUNT
    assert value_count >= LEAST_CROSSING_VALUE_COUNT
