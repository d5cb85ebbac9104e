"""If, Loop, Scan and SequenceMap: the nodes that run bodies.

A body is called with a row of values: the node's inputs, and behind them what its bodies capture.
Nothing is copied on the way; states and captured values are handed on by reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...errors import GraphError, TensorError
from ..graph import Dim, Node, SequenceType, Shape, TensorType, Value, ValueType
from ..type_inference.dims import is_contradiction, merge

__all__ = ["CONTROL_FLOW", "Body", "ControlFlow", "MakeFlow", "Run"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What a run hands to everything inside it.

    ``stop`` raises when the run is to end early; ``lengths`` are what symbols stand for in it.
    """

    stop: Callable[[], None] | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)


class Runnable(Protocol):
    """A compiled body."""

    def execute(self, inputs: Sequence[Any], captured: Sequence[Any], run: Run) -> list[Any]: ...


class Body(NamedTuple):
    """A compiled body, and the places of the values that it captures in the row of its node."""

    steps: Runnable
    captured: tuple[int, ...]

    def __call__(self, inputs: Sequence[Any], row: Sequence[Any], run: Run) -> list[Any]:
        return self.steps.execute(inputs, [row[place] for place in self.captured], run)


class ControlFlow(Protocol):
    """Runs a node over its row of values."""

    def __call__(self, row: Sequence[Any], run: Run) -> Sequence[Any]: ...


class If:
    """Runs one of two branches."""

    def __init__(self, node: Node, bodies: Mapping[str, Body]) -> None:
        self._where = f"{node.op} (node {node.name!r})"
        self._then, self._else = bodies["then_branch"], bodies["else_branch"]

    def __call__(self, row: Sequence[Any], run: Run) -> Sequence[Any]:
        branch = self._then if _truth(row[0], self._where) else self._else
        return branch((), row, run)


class Loop:
    """Runs its body while a condition holds, up to a given count; either may be missing."""

    def __init__(self, node: Node, bodies: Mapping[str, Body]) -> None:
        body = node.attributes["body"]
        self._where = f"{node.op} (node {node.name!r})"
        self._body = bodies["body"]
        self._input_count = len(node.inputs)
        self._state_count = max(len(body.inputs) - 2, 0)
        if len(body.outputs) < 1 + self._state_count or self._input_count - 2 > self._state_count:
            raise GraphError(
                f"{self._where} has {self._input_count} inputs, and a body with "
                f"{len(body.inputs)} inputs and {len(body.outputs)} outputs; these do not fit"
            )
        self._counter_shape = _declared_rank_one(body.inputs[0]) if body.inputs else ()
        collected = body.outputs[1 + self._state_count :]
        self._scanned = _scanned(node, collected, self._state_count, [0] * len(collected))

    def __call__(self, row: Sequence[Any], run: Run) -> Sequence[Any]:
        limit = None if row[0] is None else _integer(row[0], self._where)
        condition = np.array(True) if self._input_count < 2 or row[1] is None else row[1]
        states = list(row[2 : self._input_count])
        states += [None] * (self._state_count - len(states))
        collected: list[list[Any]] = [[] for _ in self._scanned]
        count = 0
        while (limit is None or count < limit) and _truth(condition, self._where):
            counter = np.full(self._counter_shape, count, np.int64)
            condition, *outputs = self._body((counter, condition, *states), row, run)
            states = outputs[: self._state_count]
            for items, output in zip(collected, outputs[self._state_count :], strict=True):
                items.append(output)
            count += 1
        stacked = [
            _stack(items, 0, value, self._where, run)
            for items, value in zip(collected, self._scanned, strict=True)
        ]
        return [*states, *stacked]


class Scan:
    """Runs its body over slices of its inputs, and stacks slices of its outputs."""

    def __init__(self, node: Node, bodies: Mapping[str, Body]) -> None:
        body = node.attributes["body"]
        self._where = f"{node.op} (node {node.name!r})"
        self._body = bodies["body"]
        self._input_count = len(node.inputs)
        count = int(node.attributes["num_scan_inputs"])
        self._state_count = self._input_count - count
        if self._state_count < 0 or len(body.inputs) != self._input_count:
            raise GraphError(
                f"{self._where} has {self._input_count} inputs, {count} of them scanned, and a "
                f"body with {len(body.inputs)} inputs; these do not fit"
            )
        collected = body.outputs[self._state_count :]
        outputs = len(collected)
        self._input_axes = _numbers(node, "scan_input_axes", count)
        self._input_directions = _numbers(node, "scan_input_directions", count)
        self._output_axes = _numbers(node, "scan_output_axes", outputs)
        self._output_directions = _numbers(node, "scan_output_directions", outputs)
        self._scanned = _scanned(node, collected, self._state_count, self._output_axes)

    def __call__(self, row: Sequence[Any], run: Run) -> Sequence[Any]:
        states = list(row[: self._state_count])
        slices = self._slices(row[self._state_count : self._input_count])
        collected: list[list[Any]] = [[] for _ in self._scanned]
        for index in range(len(slices[0])):
            current = [item[index, ...] for item in slices]
            outputs = self._body((*states, *current), row, run)
            states = outputs[: self._state_count]
            for items, output in zip(collected, outputs[self._state_count :], strict=True):
                items.append(output)
        stacked = [
            _stack(items[::-1] if backward else items, axis, value, self._where, run)
            for items, axis, backward, value in zip(
                collected, self._output_axes, self._output_directions, self._scanned, strict=True
            )
        ]
        return [*states, *stacked]

    def _slices(self, inputs: Sequence[Array]) -> list[Array]:
        """View each input with its scan axis first and in its direction."""
        views = []
        for array, axis, backward in zip(
            inputs, self._input_axes, self._input_directions, strict=True
        ):
            if not -array.ndim <= axis < array.ndim:
                raise TensorError(
                    f"{self._where} scans axis {axis} of an input of shape {array.shape}; give an "
                    f"input with that axis"
                )
            view = np.moveaxis(array, axis, 0)
            views.append(view[::-1] if backward else view)
        lengths = [len(view) for view in views]
        if len(set(lengths)) > 1:
            raise TensorError(
                f"{self._where} scans inputs of different lengths {lengths}; give them one length"
            )
        return views


class SequenceMap:
    """Runs its body for each item of a sequence; other sequences are walked beside it."""

    def __init__(self, node: Node, bodies: Mapping[str, Body]) -> None:
        self._where = f"{node.op} (node {node.name!r})"
        self._body = bodies["body"]
        self._input_count = len(node.inputs)
        self._output_count = len(node.attributes["body"].outputs)

    def __call__(self, row: Sequence[Any], run: Run) -> Sequence[Any]:
        inputs = row[: self._input_count]
        length = len(inputs[0])
        lengths = [len(item) for item in inputs if isinstance(item, list)]
        if any(other != length for other in lengths):
            raise TensorError(
                f"{self._where} maps sequences of different lengths {lengths}; give them one length"
            )
        mapped: list[list[Any]] = [[] for _ in range(self._output_count)]
        for index in range(length):
            current = [item[index] if isinstance(item, list) else item for item in inputs]
            for items, output in zip(mapped, self._body(current, row, run), strict=True):
                items.append(output)
        return mapped


MakeFlow = Callable[[Node, Mapping[str, Body]], ControlFlow]
"""Makes what runs a node from the node and its compiled bodies."""

CONTROL_FLOW: dict[tuple[str, str], MakeFlow] = {
    ("", "If"): If,
    ("", "Loop"): Loop,
    ("", "Scan"): Scan,
    ("", "SequenceMap"): SequenceMap,
}


def _truth(value: Any, where: str) -> bool:
    array = np.asarray(value)
    if value is None or array.size != 1:
        found = "nothing" if value is None else f"shape {array.shape}"
        raise TensorError(f"{where} needs one element as its condition, and got {found}")
    return bool(array.item())


def _integer(value: Any, where: str) -> int:
    array = np.asarray(value)
    if array.size != 1:
        raise TensorError(f"{where} needs one number as its trip count, and got {array.shape}")
    return int(array.item())


def _declared_rank_one(value: Value) -> tuple[int, ...]:
    """Return the shape in which a body wants its counter: () or (1,)."""
    declared = value.type.shape if isinstance(value.type, TensorType) else None
    return (1,) if declared is not None and len(declared) == 1 else ()


def _numbers(node: Node, key: str, count: int) -> list[int]:
    numbers = [int(number) for number in node.attributes.get(key) or [0] * count]
    if len(numbers) != count:
        raise GraphError(
            f"{node.op} (node {node.name!r}) needs {count} numbers in {key!r}, not {len(numbers)}"
        )
    return numbers


def _scanned(
    node: Node, body_outputs: Sequence[Value], state_count: int, axes: Sequence[int]
) -> list[TensorType | None]:
    """Find the types of what is collected, one iteration's; None where nothing says it.

    ``axes``: along which each is stacked.
    """
    found: list[TensorType | None] = []
    for index, (value, axis) in enumerate(zip(body_outputs, axes, strict=True), state_count):
        inner = value.type
        if isinstance(inner, SequenceType):
            raise GraphError(
                f"{node.op} (node {node.name!r}) collects {value.name!r}, a sequence; only tensors "
                f"can be stacked"
            )
        outer = node.outputs[index].type if index < len(node.outputs) else None
        found.append(_one_iteration(inner, outer, axis))
    return found


def _one_iteration(
    inner: ValueType | None, outer: ValueType | None, axis: int
) -> TensorType | None:
    """Join what a body and its node say of what is stacked; the body's word counts more."""
    if not isinstance(outer, TensorType):
        return inner if isinstance(inner, TensorType) else None
    shape = _without_axis(outer.shape, axis)
    if not isinstance(inner, TensorType):
        return TensorType(outer.dtype, shape)
    if inner.shape is None or shape is None:
        return TensorType(inner.dtype, shape if inner.shape is None else inner.shape)
    if is_contradiction(inner.shape, shape):  # a false declaration, as of any other node
        return inner
    return TensorType(inner.dtype, merge(inner.shape, shape))


def _without_axis(shape: Shape | None, axis: int) -> Shape | None:
    """Leave out the axis along which something is stacked."""
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    return (*shape[:axis], *shape[axis + 1 :])


def _stack(
    items: list[Any], axis: int, item_type: TensorType | None, where: str, run: Run
) -> Array:
    """Put the items of all iterations beside each other; of none, make an empty tensor."""
    shape = items[0].shape if items else None if item_type is None else item_type.shape
    if shape is not None and not -len(shape) - 1 <= axis <= len(shape):
        raise TensorError(
            f"{where} stacks outputs along axis {axis}, and they have {len(shape)} axes; give one "
            f"from {-len(shape) - 1} to {len(shape)}"
        )
    if items:
        try:
            return np.stack(items, axis=axis)
        except ValueError as error:
            shapes = list(dict.fromkeys(item.shape for item in items))
            raise TensorError(
                f"{where} collects outputs of different shapes {shapes[:4]}; they cannot be stacked"
            ) from error
    if item_type is None:
        raise TensorError(
            f"{where} ran no iteration, and nothing says the type of what it collects; declare the "
            f"types of its body's outputs"
        )
    lengths = [_length(dim, run.lengths) for dim in shape or ()]
    lengths.insert(axis if axis >= 0 else axis + len(lengths) + 1, 0)
    return np.empty(lengths, item_type.dtype.numpy)


def _length(dim: Dim, lengths: Mapping[str, int]) -> int:
    """Return a length of what was never made: 0 where nothing tells it."""
    return dim if isinstance(dim, int) else 0 if dim is None else lengths.get(dim, 0)
