"""Shape arithmetic between pieces: nodes in a row are one step, on Python's own numbers.

What lies between a Shape and what wants its lengths are lists of two or three numbers, for which
numpy takes as long as for a hundred. Nodes that follow each other in the order of a graph and make
nothing but such lists are joined: as neighbours there, no way leads out of them and back. Where a
number does not fit, or is not there, they are computed one by one as any others are: that gives
what they give, or says which of them failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....runtime.graph import DType, Node, TensorType, Value
from ....runtime.interpretation.control_flow import Body, Run
from ....runtime.operators import Operator, make_operator
from ....runtime.operators.kernel_failure import explain
from .division import Piece
from .size_rules import LIMIT, Function, find_rule

__all__ = ["SizeRun", "SizeSteps", "join_sizes"]

Array = np.ndarray[Any, Any]


class SizeRun(NamedTuple):
    """Nodes of shape arithmetic, in the order in which they run."""

    nodes: tuple[Node, ...]


def join_sizes(items: Sequence[Piece | Node]) -> list[Piece | Node | SizeRun]:
    """Join neighbours that make sizes alone; their order stays. O(nodes + uses)."""
    made: list[Piece | Node | SizeRun] = []
    run: dict[Node, None] = {}
    for item in items:
        if isinstance(item, Node) and _makes_sizes(item, run):
            run[item] = None
            continue
        made += _joined(run)
        made.append(item)
        run = {}
    return made + _joined(run)


def _joined(run: Mapping[Node, None]) -> list[Piece | Node | SizeRun]:
    return [SizeRun(tuple(run))] if len(run) > 1 else [*run]


def _makes_sizes(node: Node, run: Mapping[Node, None]) -> bool:
    """True for a node with a rule whose operands are sizes: those of a run, constants or others."""
    rule = find_rule(node)
    if rule is None or _lengths(node.outputs[0]) is None:
        return False
    operands = [node.inputs[place] for place in rule.operands]
    if node.op_type == "Shape":
        return all(value is not None and value.producer not in run for value in operands)
    return all(value is not None and _is_short(value, run) for value in operands)


def _is_short(value: Value, run: Mapping[Node, None]) -> bool:
    lengths = _lengths(value)
    if lengths is None:
        return False
    is_bounded = all(isinstance(length, int) and length <= LIMIT for length in lengths)
    return is_bounded or value.producer in run


def _lengths(value: Value) -> Sequence[object] | None:
    """Return the shape of an int64 or of a list of them; None for anything else."""
    kind = value.type
    if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is not DType.INT64:
        return None
    return kind.shape if len(kind.shape) < 2 else None


class _Step(NamedTuple):
    """A node by its slots: as a function of numbers, and as an operator on arrays."""

    function: Function
    operands: tuple[int, ...]
    operator: Operator
    inputs: tuple[int, ...]
    made: int
    name: str
    op: str


class SizeSteps:
    """Computes a run, in any thread; a row has ``inputs``, and what is made are ``outputs``."""

    implementation = "python"

    def __init__(
        self,
        run: SizeRun,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        opsets: Mapping[str, int],
    ) -> None:
        self._slots: dict[Value | None, int] = {value: at for at, value in enumerate(inputs)}
        self._arrays: list[Any] = [None] * len(inputs)
        """What stands in the slots of arrays before a run: constants."""
        self._numbers: list[Any] = [None] * len(inputs)
        self._shapes: dict[int, int] = {}
        """Of inputs whose shape is asked for: where that stands, a slot for numbers alone."""
        self._lists: dict[int, int] = {}
        """Of inputs whose numbers are asked for: their rank."""
        self._steps = [self._plan(node, opsets, len(inputs)) for node in run.nodes]
        self._results = tuple([self._slots[value] for value in outputs])
        self._slots = {}

    def _plan(self, node: Node, opsets: Mapping[str, int], input_count: int) -> _Step:
        rule = find_rule(node)
        assert rule is not None
        inputs = tuple([self._slot(value) for value in node.inputs])
        operands = tuple([inputs[place] for place in rule.operands])
        if node.op_type == "Shape":
            operands = (self._shapes.setdefault(operands[0], len(self._numbers)),)
            self._add(None)
        else:
            for place, slot in zip(rule.operands, operands, strict=True):
                value = node.inputs[place]
                if slot < input_count and value is not None:
                    self._lists[slot] = len(_lengths(value) or ())
        made = self._slots[node.outputs[0]] = self._add(None)
        operator = make_operator(node, opsets)
        return _Step(rule.function, operands, operator, inputs, made, node.name, node.op)

    def _slot(self, value: Value | None) -> int:
        if value not in self._slots:
            constant = None if value is None or value.constant is None else value.constant
            self._slots[value] = self._add(None if constant is None else np.array(constant))
        return self._slots[value]

    def _add(self, array: Array | None) -> int:
        self._arrays.append(array)
        self._numbers.append(None if array is None else array.tolist())
        return len(self._arrays) - 1

    def make_flow(self, node: Node, _bodies: Mapping[str, Body]) -> Callable[..., list[Any]]:
        """Return what computes the run in the place of a node."""
        return self

    def __call__(self, row: Sequence[Any], run: Run) -> list[Any]:
        """Compute the run. Raises what its nodes do, with the node's name.

        New arrays come out, but of nodes that are computed one by one also views of those of the
        row and of constants.
        """
        try:
            return self._by_numbers(row)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            return self._one_by_one(row)

    def _by_numbers(self, row: Sequence[Any]) -> list[Any]:
        numbers = self._numbers.copy()
        for place, slot in self._shapes.items():
            numbers[slot] = row[place].shape
        for place, rank in self._lists.items():
            array = row[place]
            if array.ndim != rank or array.size > LIMIT or array.dtype != np.int64:
                raise ValueError("an input is not what the graph declares")
            numbers[place] = array.tolist()
        for function, operands, _, _, made, _, _ in self._steps:
            numbers[made] = function(*[numbers[slot] for slot in operands])
        return [np.array(numbers[slot], np.int64) for slot in self._results]

    def _one_by_one(self, row: Sequence[Any]) -> list[Any]:
        arrays = self._arrays.copy()
        arrays[: len(row)] = row
        for step in self._steps:
            given = [arrays[slot] for slot in step.inputs]
            try:
                (arrays[step.made],) = step.operator(*given)
            except Exception as error:
                raise explain(error, step.name, step.op, given) from error
        return [arrays[slot] for slot in self._results]
