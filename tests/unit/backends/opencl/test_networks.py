"""Well-known networks in small: on OPENCL and CPU they give what CPU gives."""

from __future__ import annotations

import onnx
import pytest

from aioinfer import Core
from aioinfer.errors import DeviceError
from unit.backends.opencl.comparing import assert_close, run
from unit.benchmarks.small_networks import BATCH, MODELS, SMALL, TOKENS, inputs_of

BOUND = 1e-3
WHOLE = ("resnet50", "mobilenet_v2", "minilm_l6")
"""What OPENCL runs alone."""
CUT = ("yolo", "lstm_tagger")
"""What has operators for each of the two."""


def _model(name: str) -> onnx.ModelProto:
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    return SMALL[name](batch=BATCH, **sequence)


@pytest.mark.parametrize("name", [*WHOLE, *CUT])
def test_a_network_on_opencl_and_cpu_gives_what_cpu_gives(core: Core, name: str) -> None:
    try:
        core.resolve_device("CPU")
    except DeviceError as error:
        pytest.skip(str(error))
    model, inputs = _model(name), inputs_of(name)
    found = run(core, model, "HETERO:OPENCL,CPU", inputs)
    for key, expected in run(core, model, "CPU", inputs).items():
        assert_close(key, found[key], expected, BOUND)


@pytest.mark.parametrize("name", WHOLE)
def test_opencl_refuses_nothing_of_a_network(core: Core, name: str) -> None:
    answers = core.query_network(_model(name), "OPENCL")
    assert {node: answer.reason for node, answer in answers.items() if not answer.supported} == {}
