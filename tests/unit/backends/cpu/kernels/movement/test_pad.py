"""Pad on CPU equals numpy's pad, in every mode and for every type."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from aioinfer.errors import AioInferError
from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.stepping import implementations

EXAMPLES = settings(max_examples=drawn(40), derandomize=True)
MODES = ["constant", "edge", "reflect", "wrap"]
DTYPES = [
    np.bool_,
    np.int8,
    np.uint8,
    np.int16,
    np.float16,
    ml_dtypes.bfloat16,
    np.int32,
    np.float32,
    np.int64,
    np.uint64,
    np.float64,
    np.complex64,
]


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1


def pad(x, pads, *, mode="constant", value=None, axes=None, dynamic=False):
    """Make a model of one Pad."""
    constants = {"pads": np.array(pads, np.int64)}
    if value is not None:
        constants["value"] = np.array(value, x.dtype)
    if axes is not None:
        constants["axes"] = np.array(axes, np.int64)
    names = ["x", *(name if name in constants else "" for name in ("pads", "value", "axes"))]
    while not names[-1]:
        names.pop()
    node = helper.make_node("Pad", names, ["y"], mode=mode)
    return model_of([node], {"x": x}, ["y"], constants, dynamic=dynamic)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pads", [(0, 0, 1, 2, 0, 0, 2, 1), (0, 1, 0, 0, 0, 1, 0, 0), (0,) * 8])
def test_modes(core: Core, mode: str, threads: int, pads: tuple) -> None:
    x = numbers(2, 3, 4, 5)
    model = pad(x, pads, mode=mode, dynamic=True)
    assert_same_as_reference(core, model, {"x": x}, INFERENCE_NUM_THREADS=threads)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_types(core: Core, dtype: type, mode: str) -> None:
    x = numbers(2, 3).astype(dtype)
    value = np.ones((), dtype)
    got = run(core, pad(x, (1, 0, 0, 2), mode=mode, value=value), "CPU", {"x": x})["y"]
    assert got.dtype == x.dtype
    rest = {"constant_values": value} if mode == "constant" else {}
    np.testing.assert_array_equal(got, np.pad(x, ((1, 0), (0, 2)), mode=mode, **rest))


@pytest.mark.parametrize("value", [None, 0.0, -2.5, np.inf, -np.inf])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_values(core: Core, value: float | None, precision: str) -> None:
    x = numbers(1, 2, 3, 3)
    model = pad(x, (0, 0, 1, 1, 0, 0, 1, 1), value=value)
    config = {"INFERENCE_PRECISION_HINT": precision}
    assert_same_as_reference(core, model, {"x": x}, bound=BF16_BOUND, **config)


@pytest.mark.parametrize("mode", MODES)
def test_some_axes(core: Core, mode: str) -> None:
    x = numbers(2, 3, 4)
    assert_same_as_reference(core, pad(x, (1, 2, 0, 1), mode=mode, axes=(-1, 1)), {"x": x})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pads", [(-1, 0, 0, -2), (-1, 2, 1, -1), (0, -2, 0, 2), (-2, 3, 3, -3)])
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_negative_pads_take_away_what_does_not_come_back(
    core: Core, device: str, mode: str, pads: tuple
) -> None:
    x = numbers(3, 4)
    kept = x[-min(0, pads[0]) : 3 + min(0, pads[2]), -min(0, pads[1]) : 4 + min(0, pads[3])]
    widths = [(max(0, pads[axis]), max(0, pads[axis + 2])) for axis in range(2)]
    np.testing.assert_array_equal(
        run(core, pad(x, pads, mode=mode), device, {"x": x})["y"], np.pad(kept, widths, mode=mode)
    )


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("pads", [(2, -3), (-3, 2), (-1, -3), (-4, 5)])
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_pads_that_leave_nothing_to_repeat_are_refused(
    core: Core, device: str, mode: str, pads: tuple
) -> None:
    with pytest.raises(AioInferError, match=r"repeat|more|empty"):
        run(core, pad(numbers(3), pads, mode=mode, dynamic=True), device, {"x": numbers(3)})


def test_everything_may_be_padding(core: Core) -> None:
    x = numbers(0, 2)
    got = run(core, pad(x, (1, 0, 1, 1), value=7.0), "CPU", {"x": x})["y"]
    np.testing.assert_array_equal(got, np.full((2, 3), 7, np.float32))
    empty = run(core, pad(x, (0, 1, 0, 1)), "CPU", {"x": x})["y"]
    assert empty.shape == (0, 4)


def test_pads_may_be_an_input(core: Core) -> None:
    x = numbers(2, 2)
    node = helper.make_node("Pad", ["x", "pads"], ["y"])
    model = model_of([node], {"x": x, "pads": np.zeros(4, np.int64)}, dynamic=True)
    with core.load_network(model, "CPU") as network:
        for pads in ((0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 1, 1)):
            array = np.array(pads, np.int64)
            got = network.create_infer_request().infer_sync({"x": x, "pads": array})["y"]
            widths = ((pads[0], pads[2]), (pads[1], pads[3]))
            np.testing.assert_array_equal(got, np.pad(x, widths))
        assert network.get_metric("PLAN_COUNT") == 2


def test_no_step_is_a_call_of_numpy(core: Core) -> None:
    x = numbers(1, 2, 3, 4)
    for mode in MODES:
        steps = implementations(core, pad(x, (0, 0, 1, 1, 0, 0, 1, 1), mode=mode), {"x": x})
        assert all(name.startswith("native:") for _, name in steps), steps


@given(data=st.data())
@EXAMPLES
def test_random_pads(core: Core, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 5))
    x = numbers(*data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank)))
    mode = data.draw(st.sampled_from(MODES))
    # Beyond one repetition numpy and ONNX's wording part.
    limits = {"constant": 3, "edge": 3, "reflect": None, "wrap": None}
    pads = [
        data.draw(st.integers(0, (length - 1) if limits[mode] is None else limits[mode]))
        for length in (*x.shape, *x.shape)
    ]
    assert_same_as_reference(core, pad(x, pads, mode=mode), {"x": x})


@pytest.mark.parametrize("pads", [(-4, 0, 3, 0), (-5, 0, 2, 1), (0, 2, 0, -5), (0, 5, 0, -8)])
def test_an_axis_that_is_taken_away_whole_is_filled(core: Core, pads: tuple) -> None:
    x = numbers(3, 4)
    model = pad(x, pads, dynamic=True)
    shape = (3 + pads[0] + pads[2], 4 + pads[1] + pads[3])
    assert_same_as_reference(core, model, {"x": x})
    made = run(core, model, "CPU", {"x": x})["y"]
    np.testing.assert_array_equal(made, np.zeros(shape, np.float32))
