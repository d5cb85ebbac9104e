import pytest

from aioinfer.backends.cpu.onednn.post_ops import UNARY, PostOp
from aioinfer.backends.cpu.plans.elementwise_parameters import (
    FLOAT_STEPS,
    elementwise_axes,
    elementwise_parameters,
    where_parameters,
)
from aioinfer.backends.cpu.plans.operand_layout import Layout
from aioinfer.errors import GraphError
from aioinfer.runtime.graph import DType

pytestmark = pytest.mark.needs_no_library

F32, I8 = DType.FLOAT32, DType.INT8


def layout(*shape, dtype=F32, strides=None):
    return Layout.plain(shape, dtype, strides)


def axes_of(*layouts):
    return [(axis.length, axis.strides) for axis in elementwise_axes(layouts)]


def test_dense_operands_are_one_axis() -> None:
    assert axes_of(layout(2, 3, 4), layout(2, 3, 4)) == [(24, (4, 4))]


def test_the_result_gives_the_order_of_the_walk() -> None:
    channels_last = layout(2, 8, 5, 5, strides=(200, 1, 40, 8))
    assert axes_of(channels_last, channels_last) == [(400, (4, 4))]
    plain = layout(2, 8, 5, 5)
    assert axes_of(channels_last, plain) == [
        (2, (800, 800)),
        (8, (4, 100)),
        (25, (32, 4)),
    ]


def test_what_is_missing_or_of_length_one_repeats() -> None:
    assert axes_of(layout(4), layout(2, 3, 4)) == [(6, (0, 16)), (4, (4, 4))]
    assert axes_of(layout(3, 1), layout(2, 3, 4)) == [(2, (0, 48)), (3, (4, 16)), (4, (0, 4))]
    assert axes_of(layout(), layout(2, 3)) == [(6, (0, 4))]


def test_what_does_not_broadcast_is_refused() -> None:
    with pytest.raises(GraphError, match=r"\[3\] does not broadcast to \[2, 4\]"):
        elementwise_axes([layout(3), layout(2, 4)])
    with pytest.raises(GraphError, match="does not broadcast"):
        elementwise_axes([layout(1, 1, 4), layout(2, 4)])


def test_one_number_may_be_a_list() -> None:
    assert axes_of(layout(1), layout()) == axes_of(layout(), layout())
    assert axes_of(layout(1, 1, 1), layout(2, 3)) == axes_of(layout(), layout(2, 3))


def test_strides_count_bytes_of_each_operand() -> None:
    assert axes_of(layout(6, dtype=I8), layout(6)) == [(6, (1, 4))]


def test_a_fused_group_has_at_least_two_axes() -> None:
    layouts = [layout(), layout()]
    words = elementwise_parameters(
        "float_elementwise", layouts, elementwise_axes(layouts), [PostOp("abs")]
    )
    assert words == [2, 2, 1, 1, 1, 1, 0, 0, 1, 0, 0, FLOAT_STEPS.index("abs"), 0, 0, 0]


def test_numbers_of_integer_steps_are_integers() -> None:
    layouts = [layout(3, dtype=I8)] * 2
    words = elementwise_parameters(
        "integer_elementwise", layouts, elementwise_axes(layouts), [PostOp("relu", 7.0)]
    )
    assert words[-4:] == [5, 0, 7, 0]


def test_where_lists_four_strides_an_axis() -> None:
    layouts = [layout(3, dtype=DType.BOOL), layout(2, 3), layout(), layout(2, 3)]
    words = where_parameters(layouts, elementwise_axes(layouts))
    assert words == [4, 2, 2, 3, 0, 12, 0, 12, 1, 4, 0, 4]


def test_every_unary_post_op_is_a_step() -> None:
    assert set(UNARY) <= set(FLOAT_STEPS)
