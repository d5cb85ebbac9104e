"""Well-known networks on OPENCL, alone and with CPU; some in small, some of smaller inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from models import Inputs, images, sentences
from networks import language, vision

from aioinfer import Core
from aioinfer.errors import DeviceError
from exhaustive import all_but
from unit.backends.accelerator.comparing import assert_close, assert_same_as_reference, run
from unit.benchmarks.small_networks import BATCH, MODELS, SMALL, TOKENS, inputs_of

BOUND = 1e-3
WHOLE = ("resnet50", "mobilenet_v2", "minilm_l6", "yolo")
"""What OPENCL runs alone."""
CUT = ("lstm_tagger",)
"""What has operators that OPENCL does not run."""

IMAGE, SENTENCE = 64, 16
"""What whole networks are tested on: pixels along an edge, and tokens."""
ARCHITECTURES: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[..., Inputs]]] = {
    "resnet50": (lambda: vision.resnet50(size=IMAGE), images(IMAGE)),
    "mobilenet_v2": (lambda: vision.mobilenet_v2(size=IMAGE), images(IMAGE)),
    "minilm_l6": (
        lambda: language.minilm_l6(sequence=SENTENCE),
        sentences(SENTENCE, 30_522),
    ),
}


def _model(name: str) -> onnx.ModelProto:
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    return SMALL[name](batch=BATCH, **sequence)


@pytest.mark.parametrize("name", all_but(CUT, [*WHOLE, *CUT]))
def test_a_network_on_opencl_and_cpu_gives_what_cpu_gives(
    quick_core: Core,
    name: str,
) -> None:
    try:
        quick_core.resolve_device("CPU")
    except DeviceError as error:
        pytest.skip(str(error))
    model, inputs = _model(name), inputs_of(name)
    found = run(quick_core, model, "HETERO:OPENCL,CPU", inputs)
    for key, expected in run(quick_core, model, "CPU", inputs).items():
        assert_close(key, found[key], expected, BOUND)


@pytest.mark.parametrize("name", WHOLE)
def test_opencl_refuses_nothing_of_a_network(core: Core, name: str) -> None:
    answers = core.query_network(_model(name), "OPENCL")
    assert {node: answer.reason for node, answer in answers.items() if not answer.supported} == {}


@pytest.mark.parametrize("name", CUT)
def test_opencl_refuses_a_part_of_a_network_that_is_cut(core: Core, name: str) -> None:
    answers = core.query_network(_model(name), "OPENCL").values()
    assert {answer.supported for answer in answers} == {True, False}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_whole_architecture_gives_what_reference_gives(core: Core, name: str) -> None:
    build, inputs = ARCHITECTURES[name]
    drawn = inputs(np.random.default_rng(1), 1)
    assert_same_as_reference(core, build(), drawn, bound=BOUND)
