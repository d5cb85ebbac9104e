"""A Scan whose iterations know nothing of each other, as operators on all slices at once.

Theory of operation. Where each state leaves the body as it came, an iteration depends on its own
slices and on nothing that an earlier one made. What the body computes of a slice is then computed
of all of them, along a first axis of its own; what it computes of states, constants and captured
values is the same in all iterations, and broadcasts along that axis. A body is taken only if each
of its operators is known to treat elements, or axes that are given, by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ...decompositions import Composition, CompositionError
from ...graph import DType, Graph, Node, Value, is_static
from ...type_inference import ShapeContent
from ...type_inference.made_types import types_of_made
from ..decomposing import patch_of
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import integers_of, is_scalar, is_standard, made_by, only_user
from ..rewriting.pass_base import Pass

__all__ = ["DISTANCES", "ScanBatching"]

DISTANCES = frozenset({"ReduceL1", "ReduceL2", "ReduceSumSquare"})
"""Reductions of a difference that need not be in memory."""

_ELEMENTWISE = frozenset(
    {
        *("Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Equal", "Erf", "Exp"),
        *("Floor", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "Max"),
        *("Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Sigmoid", "Sign"),
        *("Sin", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor"),
    }
)
_REDUCTIONS = DISTANCES | {"ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"}
_HALVES_AND_SINGLE = frozenset({DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32})
_AXES = ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions")


class ScanBatching(Pass):
    """Write such a Scan as what its body computes, with an axis more.

    Slices are along the first axis, and forwards. No value may take more memory for an iteration
    than the slices and results of one do, as all of them are there at once; the difference that a
    distance is made of may, as kernels for these keep none. ``has_kernel`` is asked of each node
    that this would make; a Scan stays where one has none.
    """

    name = "scan batching"
    wanted_ops = frozenset({"Scan"})

    def __init__(self, has_kernel: Callable[[Node], bool] = lambda node: True) -> None:
        self._has_kernel = has_kernel

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes_of("Scan"):
            if node.graph is graph and not node.domain:
                patch = _patch(node, self._has_kernel)
                if patch is not None:
                    yield patch


def _patch(node: Node, has_kernel: Callable[[Node], bool]) -> GraphPatch | None:
    body = node.attributes.get("body")
    is_plain = not any(any(_numbers(node, name)) for name in _AXES)
    if not isinstance(body, Graph) or not is_plain or len(body.inputs) != len(node.inputs):
        return None
    made = Composition(node, node.inputs, types_of_made(ShapeContent()))
    try:
        outputs = _Batched(made, body).outputs()
        if not all(map(has_kernel, made.nodes)):
            raise CompositionError("what its body computes has no kernel")
    except CompositionError:
        made.discard()
        return None
    return patch_of(made, outputs)


def _numbers(node: Node, name: str) -> list[int]:
    found = node.attributes.get(name, [])
    return [int(item) for item in found] if isinstance(found, list) else [int(str(found))]


class _Batched:
    """What the values of a body are outside of it; ``_batched`` has the slices' axis."""

    def __init__(self, made: Composition, body: Graph) -> None:
        self._made, self._body = made, body
        scanned = int(made.node.attributes["num_scan_inputs"])
        self._state_count = len(body.inputs) - scanned
        self._outside: dict[Value, Value] = {}
        self._batched: set[Value] = set()
        for index, inner in enumerate(body.inputs):
            self._outside[inner] = made.given(index)
        self._batched.update(body.inputs[self._state_count :])

    def outputs(self) -> list[Value | None]:
        """Add all nodes and return what stands for the Scan's outputs."""
        self._check_lengths()
        states = zip(self._body.inputs, self._body.outputs[: self._state_count], strict=False)
        if self._state_count >= len(self._body.outputs) or self._state_count < 0:
            raise CompositionError("it makes no slices")
        if any(_origin(last) is not first for first, last in states):
            raise CompositionError("an iteration changes a state")
        for node in self._body.nodes:
            self._add(node)
        results = self._body.outputs[self._state_count :]
        if any(result not in self._batched for result in results):
            raise CompositionError("its iterations make the same")
        self._check_sizes(results)
        found: list[Value | None] = []
        for index, old in enumerate(self._made.node.outputs):
            is_used = bool(old.uses) or old.is_graph_output
            inner = self._body.outputs[index]
            found.append(self._made.add("Identity", self._outside[inner]) if is_used else None)
        return found

    def _check_lengths(self) -> None:
        """Refuse inputs of which a run may bring different numbers of slices: those broadcast."""
        inputs = self._body.inputs[self._state_count :]
        lengths = [(self._made.shape(self._outside[value]) or (None,))[0] for value in inputs]
        if len(set(lengths)) != 1 or (len(lengths) > 1 and lengths[0] is None):
            raise CompositionError("its inputs may have different numbers of slices")

    def _add(self, node: Node) -> None:
        if node.domain or len(node.outputs) != 1 or node.user_kernel is not None:
            raise CompositionError(f"its body has {node.op}")
        given = [None if value is None else self._known(value) for value in node.inputs]
        is_batched = any(value in self._batched for value in node.inputs)
        attributes = dict(node.attributes)
        if is_standard(node, "Clip"):
            if any(value in self._batched for value in node.inputs[1:]):
                raise CompositionError("its iterations have bounds of their own")
        elif is_standard(node, *_ELEMENTWISE):
            given = self._aligned(node, given)
        elif is_standard(node, *_REDUCTIONS):
            axes = self._axes(node, is_batched)
            given = [given[0], axes]
        else:
            raise CompositionError(f"its body has {node.op}")
        (result,) = node.outputs
        self._outside[result] = self._made.add(node.op_type, *given, **attributes)
        if is_batched:
            self._batched.add(result)

    def _known(self, value: Value) -> Value:
        """Return what stands for a value; what no node of the body makes is its own stand-in."""
        if value not in self._outside:
            content = value.constant
            self._outside[value] = value if content is None else self._made.constant(content)
        return self._outside[value]

    def _aligned(self, node: Node, given: list[Value | None]) -> list[Value | None]:
        """Put axes of 1 behind that of the slices, where others have more axes."""
        ranks = [self._rank(value) for value in node.inputs if value is not None]
        most, found = max(ranks), list(given)
        for index, value in enumerate(node.inputs):
            outside = given[index]
            if value is None or outside is None or value not in self._batched:
                continue
            lacking = most - self._rank(value)
            if lacking:
                axes = self._made.integers(*range(1, 1 + lacking))
                found[index] = self._made.add("Unsqueeze", outside, axes)
        return found

    def _axes(self, node: Node, is_batched: bool) -> Value:
        """Return the axes of a reduction, each known; those of the slices are one further."""
        (source, listed), rank = (node.input_at(0), node.input_at(1)), 0
        if source is None:
            raise CompositionError("a reduction reduces nothing")
        rank = self._rank(source)
        axes = integers_of(listed) if listed is not None else ()
        if axes is None or not rank or (not axes and node.attributes.get("noop_with_empty_axes")):
            raise CompositionError("the axes of a reduction are not known")
        if any(not -rank <= axis < rank for axis in axes):
            raise CompositionError("a reduction has no such axis")
        counted = [axis % rank for axis in axes] or list(range(rank))
        return self._made.integers(*(axis + is_batched for axis in counted))

    def _rank(self, value: Value) -> int:
        return self._made.rank(self._known(value)) - (value in self._batched)

    def _check_sizes(self, results: list[Value]) -> None:
        """Refuse a value that may be larger than slices and results; lengths need not be known."""
        free = {*self._body.inputs[self._state_count :], *results}
        sizes = [self._size(value) for value in free]
        most = None if None in sizes else sum(size for size in sizes if size is not None)
        for value in self._batched - free:
            size = self._size(value)
            is_small = size is not None and most is not None and size <= most
            if not is_small and not _is_no_larger(value) and not self._is_of_a_distance(value):
                raise CompositionError("its iterations need more memory than they give")

    def _size(self, value: Value) -> int | None:
        """Return how many elements an iteration has of a value, if that is known."""
        lengths = self._made.shape(self._known(value))[1:]
        return math.prod(lengths) if is_static(lengths) else None

    def _is_of_a_distance(self, value: Value) -> bool:
        """True for rows less each slice, of which a reduction of the last axis alone is read."""
        user, maker = only_user(value), value.producer
        if user is None or maker is None or not is_standard(maker, "Sub"):
            return False
        if not is_standard(user, *DISTANCES) or user.attributes.get("keepdims", 1):
            return False
        if self._made.dtype(self._known(value)) not in _HALVES_AND_SINGLE:
            return False
        slices, rows = sorted(maker.inputs, key=lambda item: item not in self._batched)
        if slices is None or rows is None or rows in self._batched or self._rank(rows) != 2:
            return False
        first, second = (self._made.shape(self._known(item)) for item in (slices, rows))
        is_row = first[1:-1] in ((), (1,)) and first[-1] is not None and first[-1] == second[-1]
        return is_row and integers_of(user.input_at(1)) in ((1,), (-1,))


def _is_no_larger(value: Value) -> bool:
    """True if a value has at most as many elements as one that it is made of."""
    maker = value.producer
    if maker is None or maker.op_type in _REDUCTIONS:
        return maker is not None
    return sum(item is not None and not is_scalar(item) for item in maker.inputs) == 1


def _origin(value: Value) -> Value:
    while (maker := made_by(value, "Identity")) is not None and maker.inputs[0] is not None:
        value = maker.inputs[0]
    return value
