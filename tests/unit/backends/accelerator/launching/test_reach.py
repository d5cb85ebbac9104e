"""No launch is put into a plan that leaves an operand, and no operand that leaves its buffer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.accelerator.launching.reach import Reach, box, elements, find_overrun, whole
from aioinfer.backends.accelerator.memory.host_arrays import staging_copies
from aioinfer.backends.accelerator.operand import Buffer, Operand
from aioinfer.backends.accelerator.plan_builder import PlanBuilder
from aioinfer.errors import GraphError, TensorError
from aioinfer.runtime.graph import DType, Node
from unit.backends.accelerator.opened import Opened, typed

ROW = Operand(Buffer("arena", 48), (3, 4), DType.FLOAT32)
SOURCE = KernelSource.of("any", "__kernel void $name() {}")


@pytest.mark.parametrize(
    ("lengths", "strides", "first", "found"),
    [
        ((3, 4), (4, 1), 0, (0, 12)),
        ((3, 4), (-4, 1), 8, (0, 12)),
        ((3, 4), (-4, 1), 0, (-8, 4)),
        ((3, 4), (0, 0), 5, (5, 6)),
        ((3, 0), (4, 1), 7, (0, 0)),
        ((), (), 2, (2, 3)),
    ],
)
def test_a_box_reaches_from_its_lowest_to_its_highest_element(
    lengths: tuple[int, ...], strides: tuple[int, ...], first: int, found: tuple[int, int]
) -> None:
    reach = box(lengths, strides, DType.FLOAT32, first)
    assert (reach.low, reach.high) == found


@pytest.mark.parametrize(
    "reach", [whole(ROW), elements(0, DType.INT64), Reach(3, 6, 8), elements(48, DType.UINT8)]
)
def test_what_stays_within_an_operand_is_fine(reach: Reach) -> None:
    assert find_overrun(ROW, reach) is None


@pytest.mark.parametrize(
    ("operand", "reach"),
    [
        (ROW, elements(13, DType.FLOAT32)),
        (ROW, elements(7, DType.INT64)),
        (ROW, Reach(-1, 4, 4)),
        (ROW, Reach(0, 2**31, 1)),
        (replace(ROW, offset_bytes=4), elements(1, DType.FLOAT32)),
        (replace(ROW, offset_bytes=-4), elements(1, DType.FLOAT32)),
        (ROW.viewed((3, 5)), elements(1, DType.FLOAT32)),
        (ROW.viewed((-3, -4)), elements(1, DType.FLOAT32)),
        (ROW.viewed((2**20, 2**20)), elements(1, DType.FLOAT32)),
    ],
)
def test_what_leaves_an_operand_or_its_buffer_is_told(operand: Operand, reach: Reach) -> None:
    assert find_overrun(operand, reach) is not None


@pytest.mark.parametrize(
    ("reaches", "size", "number", "text"),
    [
        ((elements(4, DType.FLOAT32), elements(5, DType.FLOAT32)), 4, 1, "0 to 5 of 4 bytes"),
        ((elements(9, DType.FLOAT32), elements(4, DType.FLOAT32)), 4, 1, "0 to 9 of 4 bytes"),
        ((elements(4, DType.FLOAT32),) * 2, 4, 2**31, "cannot count to 2147483648"),
        ((elements(4, DType.FLOAT32),) * 2, 2**31, 1, "no numbers of work-items"),
    ],
)
def test_a_launch_that_leaves_an_operand_is_refused_with_the_nodes_name(
    reaches: tuple[Reach, Reach], size: int, number: int, text: str, opened: Opened
) -> None:
    def lower(node: Node, builder: PlanBuilder) -> None:
        (source,) = node.inputs
        assert source is not None
        operands = builder.operand(source), builder.result(node.outputs[0])
        builder.launch(SOURCE, [*operands, number], (size,), (4,), reaches)

    model = typed("g (float[4] x) => (float[4] y) { [sign] y = Sign(x) }")
    with pytest.raises(GraphError, match=f"Sign .node 'sign'. .*{text}"):
        opened.builder(model).build(lower)


@pytest.mark.parametrize(("shape", "is_fit"), [((4,), True), ((3,), False), ((1, 4), False)])
def test_a_value_lies_only_where_its_shape_does(
    shape: tuple[int, ...], is_fit: bool, opened: Opened
) -> None:
    model = typed("g (float[4] x) => (float[4] y) { [sign] y = Sign(x) }")
    builder = opened.builder(model)
    (value,) = model.graph.outputs
    place = builder.temporary(shape, DType.FLOAT32)
    if is_fit:
        assert builder.define(value, place) is place
        return
    with pytest.raises(GraphError, match="'y'"):
        builder.define(value, place)


def test_a_view_has_as_many_elements(opened: Opened) -> None:
    builder = opened.builder(typed("g (float[4] x) => (float[4] y) { y = Sign(x) }"))
    place = builder.temporary((3, 4), DType.FLOAT32)
    assert builder.view(place, (2, 6)).shape == (2, 6)
    for shape in ((2, 2), (2, 3000), (-3, -4)):
        with pytest.raises(GraphError, match="another number of elements"):
            builder.view(place, shape)


@pytest.mark.parametrize("given", [np.zeros(3, np.float32), np.zeros((1, 1), np.float32)])
def test_an_array_is_not_spread_over_an_input_that_it_does_not_fill(given: np.ndarray) -> None:
    for rows in (None, 2):
        with pytest.raises(TensorError, match=r"'x' is float32\[.*for float32\[[25],3\]"):
            staging_copies("x", given, np.zeros((5, 3), np.float32), rows)
