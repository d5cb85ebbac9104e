"""The operators that onnx.reference lacks or gets wrong."""

import math
import warnings
from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import make_operator
from aioinfer.runtime.operators.own.own_operators import top_k
from unit.runtime.operators.beside_peers import by_onnxruntime


def evaluate(op_type, *inputs, domain="", **attributes):
    names = [Value(f"x{index}") for index in range(len(inputs))]
    node = Node(op_type, names, [Value("y")], attributes, name="n", domain=domain)
    return make_operator(node, {"": 26, "ai.onnx.ml": 5})(*inputs)[0]


@pytest.mark.parametrize(
    ("attributes", "dtype", "content"),
    [
        ({"value": np.array([1, 2], np.int8)}, np.int8, [1, 2]),
        ({"value_float": 1.5}, np.float32, 1.5),
        ({"value_floats": [1.5, 2.0]}, np.float32, [1.5, 2.0]),
        ({"value_int": 3}, np.int64, 3),
        ({"value_ints": [3, 4]}, np.int64, [3, 4]),
        ({"value_string": "a"}, object, "a"),
        ({"value_strings": ["a", "b"]}, object, ["a", "b"]),
    ],
)
def test_a_constant_gives_its_attribute(attributes, dtype, content) -> None:
    made = evaluate("Constant", **attributes)
    assert made.dtype == dtype
    assert made.tolist() == content


def test_a_constant_cannot_be_written_into() -> None:
    array = np.array([1, 2])
    assert not evaluate("Constant", value=array).flags.writeable
    assert array.flags.writeable


@pytest.mark.parametrize("op_type", ["Sqrt", "Pow"])
def test_a_domain_error_is_nan_and_warns_nobody(op_type) -> None:
    inputs = [np.array([-1.0, 4.0])] + ([np.array([0.5, 0.5])] if op_type == "Pow" else [])
    filters = list(warnings.filters)
    made = evaluate(op_type, *inputs)
    assert math.isnan(made[0])
    assert made[1] == 2.0
    assert warnings.filters == filters


def test_a_power_has_the_type_of_its_base() -> None:
    made = evaluate("Pow", np.array([2, 3], np.int32), np.array([2.0, 2.0], np.float32))
    assert (made.dtype, made.tolist()) == (np.int32, [4, 9])


def test_softplus_of_a_large_number_is_that_number() -> None:
    x = np.array([-np.inf, -200, 0, 88, 89, 3e38, np.inf, np.nan], np.float32)
    wanted = [0, 0, math.log(2), 88, 89, np.float32(3e38), np.inf, np.nan]
    np.testing.assert_allclose(evaluate("Softplus", x), wanted, rtol=1e-6)
    assert evaluate("Softplus", x[:4].astype(np.float16)).dtype == np.float16


def test_prelu_multiplies_only_what_is_below_zero() -> None:
    x = np.array([[-1, -0.0, 0, 2, np.inf, np.nan]], np.float32)
    for slope in (np.inf, np.nan):
        made = evaluate("PRelu", x, np.float32([slope]))
        np.testing.assert_array_equal(made, [[-slope, 0, 0, 2, np.inf, np.nan]])
    channels = evaluate("PRelu", -np.ones((1, 2, 3), np.float32), np.array([2, 3], np.float32))
    assert channels.tolist() == [[[-2] * 3, [-3] * 3]]
    assert evaluate("PRelu", np.array([-3, 4]), np.array([2])).tolist() == [-6, 4]


def test_prelu_refuses_slopes_that_would_change_the_shape() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        evaluate("PRelu", np.float32([-1]), np.float32([1, 2, 3]))


def test_a_logarithm_of_softmax_is_right_where_softmax_vanishes() -> None:
    x = np.array([[5, 19], [120, -np.inf]], np.float32)
    np.testing.assert_allclose(evaluate("LogSoftmax", x, axis=0), [[-115, 0], [0, -np.inf]])
    assert evaluate("LogSoftmax", x[:0]).shape == (0, 2)
    assert evaluate("LogSoftmax", x.astype(np.float16)).dtype == np.float16


def test_a_sum_of_exponentials_knows_infinities_and_nothing() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 1], [1000, 1000], [np.nan, 0]], np.float32)
    wanted = np.array([-np.inf, np.inf, 1000 + math.log(2), np.nan], np.float32)
    made = evaluate("ReduceLogSumExp", x, np.array([1]), keepdims=0)
    np.testing.assert_allclose(made, wanted, rtol=1e-6)
    assert evaluate("ReduceLogSumExp", x[:0]).tolist() == [[-math.inf]]
    assert evaluate("ReduceLogSumExp", x, keepdims=0).shape == ()
    assert evaluate("ReduceLogSumExp", x, noop_with_empty_axes=1) is x


def test_the_logarithm_of_a_sum_of_integers_is_one_of_that_type() -> None:
    made = evaluate("ReduceLogSum", np.array([[20, 1], [400, 4]]), np.array([1]), keepdims=0)
    assert (made.dtype, made.tolist()) == (np.int64, [3, 6])


@pytest.mark.parametrize(
    ("p", "wanted"), [(1, [[-0.75, 0.25], [0, 0]]), (2, [[-0.6, 0.8], [0, 0]])]
)
def test_a_norm_counts_what_is_below_zero_as_it_does_what_is_above(p, wanted) -> None:
    x = np.array([[-3, 4 if p == 2 else 1], [0, 0]], np.float32)
    np.testing.assert_allclose(evaluate("LpNormalization", x, p=p), wanted, rtol=1e-6)


@pytest.mark.parametrize("align_corners", [0, 1])
def test_cubic_samples_repeat_the_border_for_neighbours_outside(align_corners) -> None:
    ramp = np.tile(np.arange(4, dtype=np.float32) ** 2, (1, 1, 4, 1))
    wide = np.pad(ramp, ((0, 0), (0, 0), (4, 4), (4, 4)), "edge")
    points = np.array([-1.2, -0.9, -0.3, 0, 0.6, 1, 1.1], np.float32)
    grid = np.stack(np.meshgrid(points, points), -1)[None]
    # The same places, in a picture whose border is elements and not padding.
    share = 3 / 11 if align_corners else 4 / 12
    attributes = {"mode": "cubic", "align_corners": align_corners}
    inner = evaluate("GridSample", wide, grid * np.float32(share), **attributes)
    made = evaluate("GridSample", ramp, grid, padding_mode="border", **attributes)
    np.testing.assert_allclose(made, inner, atol=1e-4)


def test_the_error_function_keeps_double_precision() -> None:
    x = np.array([0.1, -0.7, 2.0])
    np.testing.assert_allclose(evaluate("Erf", x), [math.erf(value) for value in x], rtol=1e-15)
    assert evaluate("Erf", np.zeros((0, 2), np.float32)).shape == (0, 2)


def test_gathering_nothing_keeps_the_other_axes() -> None:
    made = evaluate("Gather", np.zeros((3, 4), np.float32), np.zeros((0, 2), np.int64), axis=1)
    assert made.shape == (3, 0, 2)


def test_gathering_by_a_view_of_indices() -> None:
    indices = np.array([[0, 9], [-1, 9]])[:, 0]
    assert evaluate("Gather", np.arange(4), indices).tolist() == [0, 3]


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (600,), (0,)])
def test_slices_are_taken_one_by_one(shape: tuple[int, ...], axis: int) -> None:
    chance = np.random.default_rng(len(shape))
    x = chance.integers(-9, 9, (4, 700, 3)).astype(object)
    length = x.shape[axis]
    start = chance.integers(0, max(1, length - 600))
    for indices in (
        chance.integers(-length, length, shape),
        np.full(shape, -1),
        (start + np.arange(math.prod(shape)).reshape(shape)) % length,
    ):
        lines = np.moveaxis(x, axis, 0)
        taken = np.array([lines[place] for place in indices.ravel()], object)
        taken = taken.reshape((*shape, *lines.shape[1:]))
        order = list(range(len(shape), taken.ndim))
        order[axis % 3 : axis % 3] = range(len(shape))
        for dtype in (np.int32, np.int64):
            made = evaluate("Gather", x, indices.astype(dtype), axis=axis)
            np.testing.assert_array_equal(made, taken.transpose(order))


@pytest.mark.parametrize("count", [None, 1, 3, 600])
def test_slices_outside_of_an_axis_are_refused(count: int | None) -> None:
    x = np.zeros((2, 5))
    for place in (5, -6, 2**40):
        indices = np.array(place) if count is None else np.array([0] * (count - 1) + [place])
        with pytest.raises(IndexError):
            evaluate("Gather", x, indices, axis=1)
    for axis in (2, -3):
        with pytest.raises(IndexError):
            evaluate("Gather", x, np.zeros(() if count is None else count, np.int64), axis=axis)


@pytest.mark.parametrize("axis", [1, -1])
def test_elements_are_gathered_along_any_axis_however_long(axis: int) -> None:
    x = np.arange(300).reshape(3, 100)
    indices = np.array([[99, -1, 0], [70, -100, 1]])
    made = evaluate("GatherElements", x, indices, axis=axis)
    np.testing.assert_array_equal(made, [[99, 99, 0], [170, 100, 101]])
    assert evaluate("GatherElements", x, np.zeros((2, 0), np.int64), axis=axis).shape == (2, 0)


def test_the_softsign_of_a_scalar_keeps_its_type() -> None:
    made = evaluate("Softsign", np.array(-3, np.float16))
    assert (made, made.dtype, made.shape) == (-0.75, np.float16, ())


def test_strings_expand() -> None:
    made = evaluate("Expand", np.array([["a"], ["b"]], object), np.array([1, 2]))
    assert made.tolist() == [["a", "a"], ["b", "b"]]


def test_the_global_norm_is_over_all_spatial_axes() -> None:
    x = np.array([[[[3.0, 0.0], [0.0, -4.0]]]], np.float32)
    assert evaluate("GlobalLpPool", x).tolist() == [[[[5.0]]]]
    assert evaluate("GlobalLpPool", x, p=1).tolist() == [[[[7.0]]]]


class TestGroupNormalization:
    X = np.array([[1, 3, 5, 9], [2, 2, 4, 4]], np.float64).reshape(2, 4, 1)
    NORMALIZED = np.array([[-1, 1, -1, 1], [0, 0, 0, 0]], np.float64).reshape(2, 4, 1)

    def normalize(self, x, scale, bias, **attributes):
        scale, bias = (np.array(item, x.dtype) for item in (scale, bias))
        return evaluate("GroupNormalization", x, scale, bias, epsilon=1e-9, **attributes)

    def test_a_scale_for_each_channel(self) -> None:
        made = self.normalize(self.X, [1, 2, 3, 4], [0, 0, 10, 20], num_groups=2)
        wanted = [[-1, 2, 7, 24], [0, 0, 10, 20]]
        np.testing.assert_allclose(made[..., 0], wanted, atol=1e-6)

    def test_a_scale_for_each_group_as_in_opset_18(self) -> None:
        made = self.normalize(self.X, [1, 3], [0, 10], num_groups=2)
        np.testing.assert_allclose(made[..., 0], [[-1, 1, 7, 13], [0, 0, 10, 10]], atol=1e-6)

    def test_it_is_computed_in_the_type_that_is_named(self) -> None:
        x = np.array([[[1, 1 + 2**-30]]])  # the same number in float32
        exact, rounded = (
            self.normalize(x, [1], [0], num_groups=1, stash_type=kind) for kind in (11, 1)
        )
        assert exact.dtype == rounded.dtype == np.float64
        assert exact[0, 0, 1] > 0
        assert not rounded.any()

    def test_small_floats_and_empty_inputs_keep_type_and_shape(self) -> None:
        made = self.normalize(self.X.astype(np.float16), [1, 1], [0, 0], num_groups=2)
        assert made.dtype == np.float16
        np.testing.assert_allclose(made, self.NORMALIZED, atol=1e-3)
        for shape in ((0, 4, 3), (2, 4, 0)):
            x = np.zeros(shape, np.float32)
            assert self.normalize(x, [1, 1], [0, 0], num_groups=2).shape == shape

    @pytest.mark.parametrize(
        ("scale", "groups", "message"),
        [([1, 1], 3, "4 channels cannot be 3 groups"), ([1, 1, 1], 2, "4 channels, or of 2")],
    )
    def test_what_does_not_fit_is_refused(self, scale, groups, message) -> None:
        with pytest.raises(ValueError, match=message):
            self.normalize(self.X, scale, scale, num_groups=groups)


def test_a_region_is_pooled_in_a_grid_of_its_cells() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    rois = np.array([[0, 0, 0, 6, 6], [0, 4, 4, 4, 4]], np.float32)
    made = evaluate("MaxRoiPool", x, rois, pooled_shape=[2, 2], spatial_scale=0.5)
    assert made.shape == (2, 1, 2, 2)
    assert made[0, 0].tolist() == [[5.0, 7.0], [13.0, 15.0]]
    assert made[1, 0].tolist() == [[10.0] * 2] * 2


@pytest.mark.parametrize("scale", [0.7, 0.0625, 1.0])
@pytest.mark.parametrize("grid", [[7, 7], [13, 11]])
def test_cells_of_a_region_end_where_those_of_onnxruntime_do(scale: float, grid: list[int]) -> None:
    draws = np.random.default_rng(5)
    x = draws.normal(size=(1, 2, 40, 40)).astype(np.float32)
    corners = np.sort(draws.random((60, 2, 2)) * 39 / scale, 1).reshape(60, 4)
    rois = np.insert(corners, 0, 0, axis=1)
    for regions in (rois, np.round(rois * 2 * scale) / 2 / scale):  # edges between two pixels
        given = {"pooled_shape": grid, "spatial_scale": float(np.float32(scale))}
        regions = regions.astype(np.float32)
        expected = by_onnxruntime("MaxRoiPool", x, regions, **given)
        np.testing.assert_array_equal(evaluate("MaxRoiPool", x, regions, **given), expected)


def test_a_region_outside_of_the_image_gives_zero() -> None:
    x = np.ones((1, 2, 4, 4), np.float32)
    rois = np.array([[0, 8, 8, 9, 9]], np.float32)
    assert not evaluate("MaxRoiPool", x, rois, pooled_shape=[1, 1]).any()


class TestMultinomial:
    LOGITS = np.log(np.array([[0.5, 0.5, 1e-30], [1e-30, 1e-30, 1.0]], np.float32))

    def test_classes_are_drawn_by_their_probabilities(self) -> None:
        made = evaluate("Multinomial", self.LOGITS, sample_size=400, seed=1.0)
        assert (made.shape, made.dtype) == ((2, 400), np.int32)
        assert set(made[0].tolist()) == {0, 1}
        assert 120 < int((made[0] == 0).sum()) < 280
        assert set(made[1].tolist()) == {2}

    def test_a_seed_fixes_the_draw(self) -> None:
        first, second = (
            evaluate("Multinomial", self.LOGITS, sample_size=20, seed=2.0, dtype=7)
            for _ in range(2)
        )
        assert first.dtype == np.int64
        np.testing.assert_array_equal(first, second)


def test_categories_map_both_ways() -> None:
    table = {"cats_int64s": [7, 8], "cats_strings": ["cat", "dog"]}
    names = np.array([["dog"], ["cow"]], object)
    made = evaluate("CategoryMapper", names, domain="ai.onnx.ml", **table)
    assert (made.dtype, made.tolist()) == (np.int64, [[8], [-1]])
    back = evaluate("CategoryMapper", np.array([7, 9]), domain="ai.onnx.ml", **table)
    assert back.tolist() == ["cat", "_Unused"]


@pytest.mark.parametrize("rank", [3, 40, 64])
def test_an_array_of_any_rank_expands(rank: int) -> None:
    x = np.arange(3, dtype=np.float32).reshape(3, *(1,) * (rank - 1))
    made = evaluate("Expand", x, np.array([2, 1]))
    assert made.shape == (3, *(1,) * (rank - 3), 2, 1)
    assert made.reshape(3, 2).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert evaluate("Expand", x[:1], np.array([5] + [1] * (rank - 1))).shape[0] == 5


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8])
def test_the_largest_and_smallest_are_those_of_onnx_reference(
    dtype: Any, axis: int, largest: int
) -> None:
    from onnx.reference.ops.op_topk import TopK_11

    x = np.random.default_rng(3).integers(0, 9, (6, 7)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[2, 3] = np.nan
        x[4, 1:3] = np.inf
    for count in range(x.shape[axis] + 1):
        k = np.array([count], np.int64)
        wanted = TopK_11._common_run(None, x, [k], axis=axis, largest=largest)
        for found, right in zip(top_k(x, k, axis=axis, largest=largest), wanted, strict=True):
            np.testing.assert_array_equal(found, right, strict=True)


@pytest.mark.parametrize("counts", [[-1], [8], [1, 2], []])
def test_counts_that_an_axis_has_not_are_refused(counts: list[int]) -> None:
    with pytest.raises((IndexError, ValueError), match=r"kept|counts"):
        top_k(np.zeros((6, 7), np.float32), np.array(counts, np.int64))


def test_lengths_below_minus_one_are_no_shape() -> None:
    from aioinfer.runtime.operators.plain.plain_movement import reshape

    with pytest.raises(ValueError, match="-2 is no length"):
        reshape(np.zeros((3, 4)), np.array([-2, 6]))
