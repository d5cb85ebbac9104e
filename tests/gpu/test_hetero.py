"""Models cut between CUDA and CPU give what REFERENCE gives, however they are cut."""

from __future__ import annotations

import pytest

from aioinfer import Core
from aioinfer.errors import DeviceError
from gpu.device import DEVICE
from unit.backends.comparing import assert_close, run
from unit.benchmarks.small_networks import BATCH, MODELS, SMALL, TOKENS, inputs_of

BOUND = 1e-4
"""Of the largest value; both devices compute in float32."""


def on_both(core: Core) -> str:
    try:
        core.resolve_device("CPU")
    except DeviceError as error:
        pytest.skip(str(error))
    return f"HETERO:{DEVICE},CPU"


def small(name: str) -> object:
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    return SMALL[name](batch=BATCH, **sequence)


@pytest.mark.parametrize("name", SMALL)
def test_cuda_and_cpu_together_give_what_reference_gives(core: Core, name: str) -> None:
    device, model, inputs = on_both(core), small(name), inputs_of(name)
    found = run(core, model, device, inputs)
    for key, wanted in run(core, model, "REFERENCE", inputs).items():
        assert_close(key, found[key], wanted, BOUND)


@pytest.mark.parametrize("period", [1, 3, 7])
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "minilm_l6"])
def test_a_fine_cut_gives_what_reference_gives(core: Core, name: str, period: int) -> None:
    device, inputs = on_both(core), inputs_of(name)
    model = core.read_model(small(name))
    able = {
        kind: {node for node, answer in core.query_network(model, kind).items() if answer.supported}
        for kind in (DEVICE, "CPU")
    }
    affinity = {}
    for index, node in enumerate(node.name for node in model.graph.nodes):
        first, second = (DEVICE, "CPU") if index // period % 2 else ("CPU", DEVICE)
        affinity[node] = first if node in able[first] else second
    wanted = run(core, model, "REFERENCE", inputs)
    found = run(core, model, device, inputs, AFFINITY=affinity)
    for key, array in wanted.items():
        assert_close(key, found[key], array, BOUND)
