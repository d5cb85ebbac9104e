"""Which pools oneDNN computes, which the native kernel does, and which are refused."""

import numpy as np
import pytest
from onnx import helper

from aioinfer.errors import UnsupportedOpError
from unit.backends.cpu.comparing import assert_same_as_reference, model_of, run
from unit.backends.cpu.compiled_plans import plan_of

CEIL = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
STEM = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
SIZE = 1 << 25


def drawn(shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pool_of(op, shape, attributes):
    return model_of([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": drawn(shape)})


def between_convolutions(op, rank, attributes, *, channels=32):
    """A pool with a pointwise convolution on each side; the first is followed by Relu."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node(op, ["r"], ["p"], **attributes),
        helper.make_node("Conv", ["p", "w"], ["y"]),
    ]
    inputs = {"x": drawn((1, channels, *[14] * rank))}
    weights = {"w": drawn((channels, channels, *[1] * rank), 1)}
    return model_of(nodes, inputs, constants=weights), inputs


COMPILED = {
    "stem of ResNet-50": ("MaxPool", 2, STEM),
    "head of ResNet-50 and MobileNetV2": ("GlobalAveragePool", 2, {}),
    "transition of DenseNet": ("AveragePool", 2, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "branch of Inception": (
        "AveragePool",
        2,
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "ceil without padding that counts": ("AveragePool", 2, CEIL),
    "one axis": ("MaxPool", 1, {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    "three axes": ("MaxPool", 3, {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
}
NATIVE = {
    "dilated": ("MaxPool", 2, {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    "ceil with padding that counts": ("AveragePool", 2, {**CEIL, "count_include_pad": 1}),
    "dilated one axis": ("MaxPool", 1, {"kernel_shape": [3], "dilations": [3]}),
}


def pools_of(plan, op) -> list[str]:
    return [step.implementation for step in plan.steps if step.origin.op == op]


@pytest.mark.parametrize("name", COMPILED)
def test_ordinary_pools_are_compiled_by_onednn(core, name) -> None:
    op, _, _ = COMPILED[name]
    model, inputs = between_convolutions(*COMPILED[name])
    (implementation,) = pools_of(plan_of(core, model, inputs), op)
    assert implementation.startswith("jit")
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("name", [*COMPILED, *NATIVE])
@pytest.mark.parametrize("channels", [32, 20])
def test_no_pool_in_a_network_adds_a_reorder(core, name, channels) -> None:
    op, rank, attributes = {**COMPILED, **NATIVE}[name]
    model, inputs = between_convolutions(op, rank, attributes, channels=channels)
    steps = plan_of(core, model, inputs).steps
    nodes = [step.origin.op.split(":")[-1] for step in steps]
    first = nodes.index(op)
    assert nodes[:first] == ["Conv", "Conv"]  # channels last, and the convolution
    assert [name for name in nodes[first:] if name != "Output"] == [op, "Conv"]


@pytest.mark.parametrize("name", NATIVE)
def test_what_onednn_only_loops_over_is_native(core, name) -> None:
    op, _, _ = NATIVE[name]
    model, inputs = between_convolutions(*NATIVE[name])
    assert pools_of(plan_of(core, model, inputs), op) == ["native:pool"]
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("attributes", [STEM, {"kernel_shape": [2, 3], "dilations": [3, 1]}])
def test_integers_in_row_major_order_are_native(core, dtype, attributes) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.random.default_rng(0).integers(low, high + 1, (2, 3, 9, 10)).astype(dtype)
    model = model_of([helper.make_node("MaxPool", ["x"], ["y"], **attributes)], {"x": x})
    assert pools_of(plan_of(core, model, {"x": x}), "MaxPool") == ["native:pool"]
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize(
    ("dilations", "seen"),
    [([1, 1], [np.finfo(np.float32).min] * 2 + [5.0]), ([2, 2], [-np.inf, np.nan, np.nan])],
)
def test_what_is_seen_of_infinities_and_nan(core, dilations, seen) -> None:
    """oneDNN's pool starts at the lowest finite number and sees no NaN; the native one is right."""
    x = np.full((1, 16, 4, 4), -np.inf, np.float32)
    x[0, 1] = np.nan
    x[0, 2], x[0, 2, 1:3, 1:3] = np.nan, 5.0
    attributes = {"kernel_shape": [2, 2], "dilations": dilations}
    model = model_of([helper.make_node("MaxPool", ["x"], ["y"], **attributes)], {"x": x})
    if pools_of(plan_of(core, model, {"x": x}), "MaxPool") == ["native:pool"]:
        assert_same_as_reference(core, model, {"x": x})
        return
    found = run(core, model, "CPU", {"x": x})["y"]
    for channel, number in zip(found[0], seen, strict=False):
        np.testing.assert_array_equal(channel, np.full_like(channel, number))


FAR = {
    "window": {"kernel_shape": [SIZE, 1], "pads": [SIZE - 4, 0, SIZE - 4, 0]},
    "reach": {"kernel_shape": [3, 1], "dilations": [SIZE, 1], "pads": [SIZE, 0, SIZE, 0]},
    "stride": {"kernel_shape": [2, 2], "strides": [SIZE, 1]},
    "overflow": {
        "kernel_shape": [1 << 62, 1],
        "dilations": [4, 1],
        "strides": [1 << 62, 1],
        "pads": [(1 << 63) - 1, 0, (1 << 63) - 1, 0],
    },
}


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_what_reaches_far_beyond_every_image_is_refused(core, op, name) -> None:
    overflows = name == "overflow"
    limit = "cannot count beyond 2147483647" if overflows else "of up to 16777216 elements"
    with pytest.raises(UnsupportedOpError, match=limit):
        core.load_network(pool_of(op, (1, 2, 8, 8), FAR[name]), "CPU")


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_windows_that_are_mostly_padding_look_at_what_is_there(core, op) -> None:
    size = 1 << 20
    attributes = {"kernel_shape": [size, 3], "strides": [size, 2], "pads": [size - 4, 1] * 2}
    dilated = {**attributes, "dilations": [1, 2]}  # for which oneDNN has nothing compiled
    x = drawn((1, 3, 8, 8))
    model = pool_of(op, x.shape, dilated)
    assert pools_of(plan_of(core, model, {"x": x}), op) == ["native:pool"]
    found = run(core, model, "CPU", {"x": x})["y"]
    rows = np.stack([x[:, :, :4], x[:, :, 4:]], axis=2)
    reduced = rows.max(axis=3) if op == "MaxPool" else rows.mean(axis=3)
    taps = [[place + tap for tap in (0, 2, 4)] for place in (-1, 1, 3)]
    seen = [reduced[..., [at for at in place if 0 <= at < 8]] for place in taps]
    wanted = [part.max(axis=-1) if op == "MaxPool" else part.mean(axis=-1) for part in seen]
    np.testing.assert_allclose(found, np.stack(wanted, axis=-1), rtol=1e-5, atol=1e-6)


def test_what_an_average_counts_has_a_closed_form(core) -> None:
    """Every window is counted without a look at its elements, with gaps and with pads."""
    for step in (1, 2, 3):
        for pads in ([0, 0], [1, 2], [4, 4]):
            attributes = {"kernel_shape": [5], "dilations": [step], "strides": [2], "pads": pads}
            for counts_padding in (0, 1):
                given = {**attributes, "count_include_pad": counts_padding, "ceil_mode": 1}
                x = drawn((1, 2, 14))
                assert_same_as_reference(core, pool_of("AveragePool", x.shape, given), {"x": x})
