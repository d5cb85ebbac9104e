"""Models cut between CUDA and the processor give what REFERENCE gives, however they are cut."""

from __future__ import annotations

import pytest

from aioinfer import Core
from aioinfer.errors import DeviceError
from gpu.device import DEVICE
from unit.backends.comparing import assert_close, run
from unit.benchmarks.small_networks import BATCH, MODELS, SMALL, TOKENS, inputs_of

BOUND = 1e-4
"""Of the largest value; both devices compute in float32."""


@pytest.fixture
def other(core: Core) -> str:
    """CPU, or REFERENCE where its library is missing."""
    try:
        core.resolve_device("CPU")
    except DeviceError:
        return "REFERENCE"
    return "CPU"


def small(name: str) -> object:
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    return SMALL[name](batch=BATCH, **sequence)


@pytest.mark.parametrize("name", SMALL)
def test_both_together_give_what_reference_gives(core: Core, name: str, other: str) -> None:
    model, inputs = small(name), inputs_of(name)
    found = run(core, model, f"HETERO:{DEVICE},{other}", inputs)
    for key, wanted in run(core, model, "REFERENCE", inputs).items():
        assert_close(key, found[key], wanted, BOUND)


@pytest.mark.parametrize("period", [1, 3, 7])
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "minilm_l6"])
def test_a_fine_cut_gives_what_reference_gives(
    core: Core, name: str, period: int, other: str
) -> None:
    inputs = inputs_of(name)
    model = core.read_model(small(name))
    able = {
        kind: {node for node, answer in core.query_network(model, kind).items() if answer.supported}
        for kind in (DEVICE, other)
    }
    affinity = {}
    for index, node in enumerate(node.name for node in model.graph.nodes):
        first, second = (DEVICE, other) if index // period % 2 else (other, DEVICE)
        affinity[node] = first if node in able[first] else second
    wanted = run(core, model, "REFERENCE", inputs)
    found = run(core, model, f"HETERO:{DEVICE},{other}", inputs, AFFINITY=affinity)
    for key, array in wanted.items():
        assert_close(key, found[key], array, BOUND)
