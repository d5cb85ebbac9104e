"""Post-ops as text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinfer.backends.cpu.onednn.bindings import ELTWISE
from aioinfer.backends.cpu.onednn.post_ops import BINARY, UNARY, PostOp, parse_post_ops, slow_steps
from aioinfer.errors import GraphError

pytestmark = pytest.mark.needs_no_library

NUMBERS = st.floats(allow_nan=False)
POST_OPS = st.one_of(
    st.builds(
        lambda name, numbers: PostOp.unary(name, *numbers),
        st.sampled_from(sorted(UNARY)),
        st.lists(NUMBERS, max_size=2),
    ),
    st.builds(PostOp.binary, st.sampled_from(sorted(BINARY)), st.integers(0, 99)),
)


@given(st.lists(POST_OPS, max_size=8))
def test_what_was_written_is_read(chain: list[PostOp]) -> None:
    assert parse_post_ops({"post_ops": [str(post_op) for post_op in chain]}) == tuple(chain)


@pytest.mark.parametrize(
    ("post_op", "text"),
    [
        (PostOp.unary("relu"), "relu"),
        (PostOp.unary("clip", 0, 6), "clip(0.0,6.0)"),
        (PostOp.unary("relu", 0.1), "relu(0.1,0.0)"),
        (PostOp.unary("hardsigmoid", 0.2, 0.5), "hardsigmoid"),
        (PostOp.binary("sum", 3), "sum(3)"),
    ],
)
def test_texts(post_op: PostOp, text: str) -> None:
    assert str(post_op) == text


@pytest.mark.parametrize(
    "text", ["", "rely", "relu(", "relu(x)", "relu(1,2,3)", "sum", "sum(x)", "sum(1,2)", "relu(1) "]
)
def test_bad_texts_are_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(GraphError, match=r"is no post-op; unary: .*'relu'.*; binary: .*'sum'"):
        parse_post_ops({"post_ops": [text]})


def test_a_node_without_post_ops_has_none() -> None:
    assert parse_post_ops({}) == ()


def test_every_unary_name_is_an_algorithm_of_onednn() -> None:
    assert {algorithm for algorithm, _, _ in UNARY.values()} <= set(ELTWISE)


@pytest.mark.parametrize(
    ("instruction_set", "names"),
    [(0x7, {"gelu_tanh", "tanh"}), (0xF, {"gelu_tanh", "tanh"}), (0x27, set()), (0x1EF, set())],
)
def test_steps_that_look_their_coefficients_up_are_slow_before_avx512(
    instruction_set: int, names: set[str]
) -> None:
    assert slow_steps(instruction_set) == names
