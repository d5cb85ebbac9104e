"""Finds the batch of a graph, and whether padding rows could change what the others give.

Theory of operation. The batch is the symbol that leads the shapes of inputs. A walk in topological
order follows where its rows are: every value is either the same whatever the rows are, or has them
along one axis, or holds numbers that count them, as shape arithmetic does. A rule for each operator
says what it makes of that, or refuses: then padding is not safe, and the reason is kept. Whatever
has no rule is refused once it meets rows, so that an operator without a rule costs speed,
never a result. Types are inferred anew from the inputs, because a file may say the wrong ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...graph import Model, Node, TensorType, Value
from ...type_inference import infer_graph_types
from .axis_rules import AXIS_RULES
from .elementwise_rules import ELEMENTWISE_RULES
from .matmul_rules import MATMUL_RULES
from .movement_rules import MOVEMENT_RULES
from .size import BATCH, Size, length_of, unknown_length
from .size_rules import SIZE_RULES
from .traced_value import NotApartError, Rule, Traced, free_value, of_constant

__all__ = ["BatchAxis", "Walk", "batch_of", "find_batch_axis", "forget_types"]

_RULES: Mapping[str, Rule] = {
    **ELEMENTWISE_RULES,
    **MOVEMENT_RULES,
    **MATMUL_RULES,
    **AXIS_RULES,
}
_COUNTING_INPUTS: Mapping[str, Collection[int]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (3,),
    "Slice": (2,),
    "Tile": (1,),
}
"""Inputs that may hold the size of the batch; anywhere else it would enter the results."""
_LENGTHS_ALONE = frozenset({"Shape", "Size"})


@dataclass(frozen=True)
class BatchAxis:
    """The inputs and the outputs, by name, whose first dimension is the batch.

    Row ``r`` of each of these outputs depends on row ``r`` of these inputs alone; an output may
    have several lines for each row. Other outputs do not depend on the rows.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def find_batch_axis(model: Model, shape_tensors: Collection[str] = ()) -> BatchAxis | str:
    """Find the batch, or say why no rows may be added to it. Pure; the model is not changed.

    ``shape_tensors`` are those whose content a plan is made for. O(nodes).
    """
    try:
        symbol, inputs = batch_of(model.inputs)
        for name in inputs:
            if name in shape_tensors:
                raise NotApartError(f"plans depend on the content of input {name!r}")
    except NotApartError as refused:
        return str(refused)
    copied = model.copy()
    try:
        if not infer_graph_types(copied.graph):
            forget_types(copied)
        return BatchAxis(inputs, Walk(copied, symbol).outputs())
    except NotApartError as refused:
        return str(refused)
    finally:
        copied.dispose()


def batch_of(inputs: Sequence[Value]) -> tuple[str, tuple[str, ...]]:
    """Find the symbol that leads inputs, and is nowhere else; a lone open length has none: ''."""
    leading: dict[str, list[str]] = {}
    for value in inputs:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        if shape is None:
            raise NotApartError(f"the rank of input {value.name!r} is not known")
        if shape and not isinstance(shape[0], int):
            leading.setdefault(shape[0] or f" {value.name}", []).append(value.name)
    if not leading:
        raise NotApartError("no input has an open first dimension")
    if len(leading) > 1:
        firsts = ", ".join(repr(names[0]) for names in leading.values())
        raise NotApartError(f"the first dimensions of {firsts} are not one symbol")
    ((symbol, names),) = leading.items()
    for value in inputs:
        if isinstance(value.type, TensorType) and symbol in (value.type.shape or ())[1:]:
            raise NotApartError(f"input {value.name!r} has the batch in another place than first")
    return symbol, tuple(names)


def forget_types(model: Model) -> None:
    """Leave of the types of all that nodes make the element types, in the model itself."""
    for node in model.graph.nodes:
        for value in node.outputs:
            if isinstance(value.type, TensorType):
                value.type = TensorType(value.type.dtype)


class Walk:
    """One walk through a graph whose batch is this symbol."""

    def __init__(self, model: Model, symbol: str) -> None:
        self._outputs = model.outputs
        self._traced: dict[Value, Traced] = {}
        for value in model.inputs:
            self._traced[value] = _of_input(value, symbol)
        for node in model.graph.nodes:
            try:
                found = self._follow(node)
            except NotApartError as refused:
                raise NotApartError(f"{node.op} (node {node.name!r}): {refused}") from refused
            for value, traced in zip(node.outputs, found, strict=False):
                self._traced[value] = traced

    def outputs(self) -> tuple[str, ...]:
        """Return the names of outputs that have rows; those must be along their first axis."""
        found = []
        for value in self._outputs:
            traced = self.of(value)
            if traced.counts_rows:
                raise NotApartError(f"output {value.name!r} holds the size of the batch")
            if traced.axis is not None:
                if traced.axis:
                    axis = traced.axis
                    raise NotApartError(f"output {value.name!r} has its rows along axis {axis}")
                found.append(value.name)
        return tuple(found)

    def of(self, value: Value) -> Traced:
        """Return what is known of a value."""
        if value.constant is not None and value not in self._traced:
            self._traced[value] = of_constant(value.constant)
        try:
            return self._traced[value]
        except KeyError:
            raise NotApartError("one of its inputs is made by a node without a rule") from None

    def _follow(self, node: Node) -> list[Traced]:
        inputs = [None if value is None else self.of(value) for value in node.inputs]
        captured = [self.of(value) for value in node.captures()]
        having_rows = [item for item in inputs if item is not None and item.axis is not None]
        is_free = all(item is None or item.is_free for item in (*inputs, *captured))
        if is_free or not (having_rows or captured) or _is_of_lengths(node):
            numbers = None if node.domain else self._numbers(node, inputs)
            if is_free or numbers is not None:
                return [_made(value, numbers) for value in node.outputs]
        rule = None if node.domain or captured else _RULES.get(node.op_type)
        if rule is None:
            raise NotApartError("it is not known to keep rows apart")
        self._check_counts(node, inputs)
        found = rule(node, inputs)
        results = [found] if isinstance(found, Traced) else found
        for value in node.outputs[len(results) :]:
            if value.uses or value.is_graph_output:
                raise NotApartError(f"its output {value.name!r} is not known to keep rows apart")
        return results

    def _numbers(self, node: Node, inputs: Sequence[Traced | None]) -> tuple[Size, ...] | None:
        rule = SIZE_RULES.get(node.op_type)
        return None if rule is None else rule(node, inputs)

    def _check_counts(self, node: Node, inputs: Sequence[Traced | None]) -> None:
        allowed = _COUNTING_INPUTS.get(node.op_type, ())
        for index, item in enumerate(inputs):
            if item is not None and item.counts_rows and index not in allowed:
                raise NotApartError("it computes with the size of the batch")


def _is_of_lengths(node: Node) -> bool:
    return not node.domain and node.op_type in _LENGTHS_ALONE


def _made(value: Value, numbers: tuple[Size, ...] | None) -> Traced:
    """Describe a result that has no rows; a list of numbers is kept if it is short and flat."""
    made = free_value(value, numbers)
    if made.numbers is None or (made.dims is not None and len(made.dims) > 1):
        if any(number.has_batch for number in numbers or ()):
            raise NotApartError("what it makes of the size of the batch is no flat list")
        return Traced(made.dims)
    return made


def _of_input(value: Value, symbol: str) -> Traced:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    assert shape is not None
    dims: list[Size] = []
    for axis, dim in enumerate(shape):
        is_batch = axis == 0 and not isinstance(dim, int) and symbol == (dim or f" {value.name}")
        if is_batch:
            dims.append(Size(1, (BATCH,)))
        else:
            dims.append(unknown_length(value.name, axis) if dim is None else length_of(dim))
    if dims and dims[0].has_batch:
        return Traced(tuple(dims), 0)
    return free_value(value)
