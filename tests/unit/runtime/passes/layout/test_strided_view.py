import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinfer.runtime.passes.layout.strided_view import StridedView, apply_node, merge_pieces
from unit.runtime.passes.transformer_models import run, typed


def indices(view: StridedView) -> np.ndarray:
    """Where each element of the view lies in its source."""
    flat = np.array(view.offset)
    for axis in view.axes:
        inside = np.array(0)
        for length, stride in axis:
            inside = inside[..., None] + np.arange(length) * stride
        flat = flat[..., None] + inside.reshape(-1)
    return flat


@given(st.data())
def test_a_view_follows_what_numpy_does(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    array = np.arange(math.prod(shape)).reshape(shape)
    view = StridedView.whole(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["transpose", "reshape", "narrow"]))
        following: StridedView | None
        if kind == "transpose":
            order = data.draw(st.permutations(range(array.ndim)))
            following, array = view.transpose(order), array.transpose(order)
        elif kind == "reshape":
            factors = [2] * 3 + [3]
            cut = data.draw(st.sampled_from(factors))
            inner = cut if array.size % cut == 0 else 1
            following, array = view.reshape([array.size // inner, inner]), array.reshape(-1, inner)
        else:
            axis = data.draw(st.integers(0, array.ndim - 1))
            start = data.draw(st.integers(0, array.shape[axis] - 1))
            length = data.draw(st.integers(1, array.shape[axis] - start))
            following = view.narrow(axis, start, length)
            array = array.take(range(start, start + length), axis)
        if following is None:
            return
        view = following
        assert view.shape == array.shape
        np.testing.assert_array_equal(indices(view), array)


def test_pieces_have_one_form() -> None:
    assert merge_pieces([(1, 99), (2, 12), (3, 4), (4, 1), (1, 7)]) == ((24, 1),)
    assert merge_pieces([(2, 12), (4, 1), (3, 4)]) == ((2, 12), (4, 1), (3, 4))
    assert merge_pieces([(1, 5)]) == ()


def test_a_reshape_that_cuts_a_piece_unevenly_is_no_view() -> None:
    view = StridedView.whole((2, 3, 4)).transpose((1, 0, 2))
    assert view.reshape((3, 8)) is not None
    assert view.reshape((4, 6)) is None
    assert view.reshape((5, 5)) is None


CHAINS = [
    "y = Transpose<perm=[2,0,1]>(x)",
    "y = Transpose(x)",
    "y = Reshape(x, six)",
    "y = Flatten<axis=2>(x)",
    "a = Unsqueeze(x, one) y = Squeeze(a, one)",
    "y = Gather<axis=1>(x, two)",
    "y = Gather<axis=-1>(x, minus)",
    "y = Slice(x, one, three, one)",
    "y = Slice(x, minus_one, three, one)",
    "y = Slice(x, one, three, last, one)",
    "z, y = Split<axis=1>(x, lengths)",
    "z, y = Split<axis=2,num_outputs=2>(x)",
    "a = Transpose<perm=[2,0,1]>(x) b = Reshape(a, four) y = Gather<axis=1>(b, two)",
]
HEAD = """g (float[2,3,4] x) => (y) <
    int64[2] six = {6, 4}, int64[2] four = {4, 6},
    int64[1] one = {1}, int64[1] three = {3}, int64[1] last = {-1},
    int64[1] minus_one = {-2}, int64 two = {2}, int64 minus = {-1}, int64[2] lengths = {1, 2},
    int64[1] by_two = {2}, int64[2] both = {0, 1}
> {"""


def follow(text: str) -> tuple[StridedView | None, np.ndarray]:
    model = typed(f"{HEAD} {text} }}".replace("=> (y)", "=> (float y)"))
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (expected,) = run(model, {"x": array}).values()
    view: StridedView | None = StridedView.whole(array.shape)
    for node in model.graph.nodes:
        view = None if view is None else apply_node(view, node, len(node.outputs) - 1)
    return view, expected


@pytest.mark.parametrize("text", CHAINS)
def test_nodes_are_followed(text: str) -> None:
    view, expected = follow(text)
    assert view is not None
    np.testing.assert_array_equal(indices(view), expected)


@pytest.mark.parametrize("index", [3, -4, 7])
def test_a_position_outside_is_not_followed(index: int) -> None:
    model = typed(
        f"g (float[2,3,4] x) => (float[2,4] y) <int64 at = {{{index}}}> "
        "{ y = Gather<axis=1>(x, at) }"
    )
    (gather,) = model.graph.nodes
    assert apply_node(StridedView.whole((2, 3, 4)), gather) is None


@pytest.mark.parametrize(
    "text",
    [
        "y = Neg(x)",
        "y = Slice(x, one, three, one, by_two)",
        "y = Gather<axis=1>(x, both)",
        "a = Transpose<perm=[1,0,2]>(x) b = Reshape(a, six) y = Gather(b, two)",
    ],
)
def test_a_node_that_does_more_is_not_followed(text: str) -> None:
    assert follow(text)[0] is None
