"""Padding rows change nothing wherever the analysis follows rows through several operators.

Rows move between axes and into products of lengths and back, and operators work along any axis.
What is drawn is often refused; what is not has to be right.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.runtime.plans.batch_axis import BatchAxis, find_batch_axis
from exhaustive import drawn
from unit.runtime.plans.batch_axis.padded_rows import assert_padding_changes_nothing

EXAMPLES = settings(
    max_examples=drawn(250),
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SHAPE = (2, 3, 4)
"""Of the input; the first length is the batch."""
BOUND = 1e-5
ROWS_ELSEWHERE = re.compile(r"output '(\w+)' has its rows along axis (\d+)")


class Drawn:
    """A chain of nodes that grows; ``values`` are names with their shapes for a batch of 2."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.values: list[tuple[str, tuple[int, ...]]] = [("x", SHAPE)]

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def constant(self, content: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(content, dtype), name))
        return name

    def add(self, op: str, *inputs: str, shape: tuple[int, ...], **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        self.values.append((name, shape))

    def grow(self) -> None:
        """Add a node that works on the latest value, or on two."""
        steps = (
            *(self.transpose, self.merge, self.split, self.softmax, self.reduce, self.double),
            *(self.slice, self.pick, self.meet, self.multiply, self.unsqueeze, self.expand),
        )
        steps[self.number(0, len(steps) - 1)](*self.values[-1])

    def transpose(self, x: str, shape: tuple[int, ...]) -> None:
        order = list(self.draw(st.permutations(range(len(shape)))))
        self.add("Transpose", x, shape=tuple(shape[axis] for axis in order), perm=order)

    def merge(self, x: str, shape: tuple[int, ...]) -> None:
        if len(shape) < 2:
            return
        axis = self.number(0, len(shape) - 2)
        rest = shape[axis + 2 :]
        target = self.constant([*[0] * axis, -1, *rest])
        length = shape[axis] * shape[axis + 1]
        self.add("Reshape", x, target, shape=(*shape[:axis], length, *rest))

    def split(self, x: str, shape: tuple[int, ...]) -> None:
        if len(shape) > 4:
            return
        axis = self.number(0, len(shape) - 1)
        factors = [factor for factor in (1, 2, 3, 4) if shape[axis] % factor == 0]
        factor = factors[self.number(0, len(factors) - 1)]
        other, rest = shape[axis] // factor, shape[axis + 1 :]
        pair, lengths = ([factor, -1], (factor, other))
        if self.number(0, 1):
            pair, lengths = [-1, factor], (other, factor)
        target = self.constant([*[0] * axis, *pair, *rest])
        self.add("Reshape", x, target, shape=(*shape[:axis], *lengths, *rest))

    def softmax(self, x: str, shape: tuple[int, ...]) -> None:
        self.add("Softmax", x, shape=shape, axis=self.number(0, len(shape) - 1))

    def reduce(self, x: str, shape: tuple[int, ...]) -> None:
        axis, keeps = self.number(0, len(shape) - 1), self.number(0, 1)
        left = (*shape[:axis], *[1] * keeps, *shape[axis + 1 :])
        if left:
            self.add("ReduceMax", x, self.constant([axis]), shape=left, keepdims=keeps)

    def double(self, x: str, shape: tuple[int, ...]) -> None:
        axis = self.number(0, len(shape) - 1)
        made = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
        self.add("Concat", x, x, shape=made, axis=axis)

    def slice(self, x: str, shape: tuple[int, ...]) -> None:
        axis = self.number(0, len(shape) - 1)
        bounds = [self.constant([number]) for number in (0, max(1, shape[axis] - 1), axis)]
        made = (*shape[:axis], max(1, shape[axis] - 1), *shape[axis + 1 :])
        self.add("Slice", x, *bounds, shape=made)

    def pick(self, x: str, shape: tuple[int, ...]) -> None:
        axis = self.number(0, len(shape) - 1)
        indices: Any = [[0, 0], [0], 0][self.number(0, 2)]
        made = (*shape[:axis], *np.shape(indices), *shape[axis + 1 :])
        if made:
            self.add("Gather", x, self.constant(indices), shape=made, axis=axis)

    def meet(self, x: str, shape: tuple[int, ...]) -> None:
        other, its = self.values[self.number(0, len(self.values) - 1)]
        try:
            made = np.broadcast_shapes(shape, its)
        except ValueError:
            return
        self.add("Sub", x, other, shape=made)

    def multiply(self, x: str, shape: tuple[int, ...]) -> None:
        if len(shape) < 2:
            return
        if self.number(0, 1):
            weights = self.constant(np.ones((shape[-1], 2)) + np.arange(2), np.float32)
            self.add("MatMul", x, weights, shape=(*shape[:-1], 2))
            return
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        self.add("Transpose", x, shape=tuple(shape[axis] for axis in order), perm=order)
        turned, _ = self.values[-1]
        self.add("MatMul", x, turned, shape=(*shape[:-1], shape[-2]))

    def unsqueeze(self, x: str, shape: tuple[int, ...]) -> None:
        axis = self.number(0, len(shape))
        if len(shape) < 5:
            made = (*shape[:axis], 1, *shape[axis:])
            self.add("Unsqueeze", x, self.constant([axis]), shape=made)

    def expand(self, x: str, shape: tuple[int, ...]) -> None:
        target = [2 if length == 1 and self.number(0, 1) else 1 for length in shape]
        made = tuple(np.broadcast_shapes(shape, tuple(target)))
        self.add("Expand", x, self.constant(target), shape=made)

    def model(self) -> Any:
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *SHAPE[1:]])],
            [helper.make_empty_tensor_value_info(self.values[-1][0])],
            self.constants,
        )
        opset = helper.make_opsetid("", 21)
        return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def test_padding_rows_of_a_chain_change_no_other(core: Core) -> None:
    accepted = 0

    @EXAMPLES
    @given(data=st.data(), count=st.integers(1, 7))
    def check(data: st.DataObject, count: int) -> None:
        nonlocal accepted
        drawn = Drawn(data.draw)
        for _ in range(count):
            drawn.grow()
        found = find_batch_axis(core.read_model(drawn.model().SerializeToString()))
        elsewhere = ROWS_ELSEWHERE.fullmatch(found) if isinstance(found, str) else None
        if elsewhere:  # so let them lead
            name, shape = drawn.values[-1]
            axis = int(elsewhere[2])
            order = [axis, *(place for place in range(len(shape)) if place != axis)]
            made = tuple(shape[place] for place in order)
            drawn.add("Transpose", name, shape=made, perm=order)
            found = find_batch_axis(core.read_model(drawn.model().SerializeToString()))
        if isinstance(found, BatchAxis):
            accepted += 1
            with core.load_network(drawn.model(), "REFERENCE") as network:
                for rows in (1, 2, 5):
                    shape = (rows, *SHAPE[1:])
                    x = np.random.default_rng(rows).standard_normal(shape, np.float32)
                    assert_padding_changes_nothing(network, found, {"x": x}, BOUND)

    check()
    assert accepted >= EXAMPLES.max_examples // 10
