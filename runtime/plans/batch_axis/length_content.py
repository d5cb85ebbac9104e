"""Where a length enters what is computed, which padding would change.

Theory of operation. A walk in topological order follows which values hold a length that is padded
(what ``Shape`` and ``Size`` make of it), as far as their numbers tell, and else by their inputs.
Such a value may say how long something is, at inputs of the nodes that want just that. Where it
meets what depends on the content of the model's inputs, the answer depends on the length, and is
another one for a padded sequence. So are means along the sequence, and places that are counted
from its end, which need no ``Shape``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...graph import Model, Node, Value
from .analysis import Walk
from .size import Size, length_of
from .traced_value import NotApartError, Traced, axis_at, integer, known_integers

__all__ = ["check_length_content"]

_SAYING_HOW_LONG: Mapping[str, Collection[int]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Range": (1,),
    "Reshape": (1,),
    "Slice": (2,),
    "Tile": (1,),
}
"""Inputs that change how much is made, and nothing of what was there."""
_LENGTHS_ALONE = frozenset({"Shape", "Size"})


def check_length_content(model: Model, walk: Walk, dimension: str, told: Collection[str]) -> None:
    """Raise NotApartError for a node that computes with the length of this dimension.

    ``walk`` is one through the model; ``told`` are the symbols of lengths that callers choose. A
    branch or loop is refused that looks at the length at all. Pure; O(nodes).
    """
    found = _Content(walk, length_of(dimension), frozenset(told))
    found.depending.update(model.inputs)
    for node in model.graph.nodes:
        try:
            found.follow(node)
        except NotApartError as refused:
            raise NotApartError(f"{node.op} (node {node.name!r}): {refused}") from None
    for value in model.outputs:
        if value in found.holding:
            raise NotApartError(f"output {value.name!r} holds the length itself")


class _Content:
    """What the content of values depends on, for the nodes that were followed."""

    def __init__(self, walk: Walk, length: Size, told: frozenset[str]) -> None:
        self._walk, self._length, self._told = walk, length, told
        self.holding: set[Value] = set()
        """Values whose content changes with the length, and with no other content."""
        self.depending: set[Value] = set()
        """Values whose content depends on that of the model's inputs."""

    def follow(self, node: Node) -> None:
        """Note what a node's outputs hold; raises NotApartError."""
        inputs = [None if value is None else self._traced(value) for value in node.inputs]
        captured = node.captures()
        if not node.domain:
            _refuse_from_end(node, inputs, self._length)
            _refuse_means(node, inputs, self._length)
            if node.op_type in _LENGTHS_ALONE:
                self.holding.update(filter(self._may_hold, node.outputs))
                return
        allowed = () if node.domain else _SAYING_HOW_LONG.get(node.op_type, ())
        depends = any(value in self.depending for value in (*node.inputs, *captured))
        holds = any(value in self.holding for value in captured) or any(
            value in self.holding and index not in allowed
            for index, value in enumerate(node.inputs)
        )
        if holds and (depends or captured):
            raise NotApartError("it computes with the length of the sequence")
        if depends:
            self.depending.update(node.outputs)
        elif holds:
            self.holding.update(filter(self._may_hold, node.outputs))

    def _may_hold(self, value: Value) -> bool:
        """True unless its numbers are known, and none of them is made of the length."""
        traced = self._traced(value)
        if traced is None or traced.numbers is None:
            return True
        symbols = {name for number in traced.numbers for name in number.symbols}
        return not (symbols <= self._told and symbols.isdisjoint(self._length.symbols))

    def _traced(self, value: Value) -> Traced | None:
        try:
            return self._walk.of(value)
        except NotApartError:
            return None


def _refuse_from_end(node: Node, inputs: Sequence[Traced | None], length: Size) -> None:
    """Refuse places of the sequence that are counted from its end."""
    data = inputs[0] if inputs else None
    if data is None or data.dims is None:
        return
    places: dict[int, bool] = {}
    if node.op_type == "Gather" and data.rank:
        indices = known_integers(inputs[1]) or []
        axis = axis_at(integer(node, "axis", 0), data.rank)
        places[axis] = any(index < 0 for index in indices)
    elif node.op_type == "Slice" and len(inputs) > 2:
        starts = known_integers(inputs[1]) or []
        axes = known_integers(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else None
        for axis, start in zip(axes or range(data.rank), starts, strict=False):
            places[axis_at(axis, data.rank)] = start < 0
    for axis, is_from_end in places.items():
        if is_from_end and axis < data.rank and data.dims[axis] == length:
            raise NotApartError("it takes places that are counted from the end of the sequence")


def _refuse_means(node: Node, inputs: Sequence[Traced | None], length: Size) -> None:
    """Refuse sums along the sequence that are divided by its length."""
    data = inputs[0] if inputs else None
    if data is None or data.dims is None:
        return
    axes: Sequence[int] = ()
    if node.op_type == "GlobalAveragePool":
        axes = range(2, data.rank)
    elif node.op_type == "ReduceMean":
        given = inputs[1] if len(inputs) > 1 else None
        named = node.attributes.get("axes") if given is None else known_integers(given)
        axes = [axis_at(int(axis), data.rank) for axis in named or ()]
        if not axes and not integer(node, "noop_with_empty_axes", 0):
            axes = range(data.rank)
    if any(data.dims[axis] == length for axis in axes if axis < data.rank):
        raise NotApartError("it divides by the length of the sequence")
