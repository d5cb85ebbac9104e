"""float16 and bfloat16 models in float32, for a device that computes in that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...graph import DType, Graph, Model, Node, TensorType, Value
from ...graph.mapped_file import forget_pages, hold_pages
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import dtype_of, is_standard, made_by
from ..rewriting.node_traits import is_unused
from ..rewriting.pass_base import Pass

__all__ = ["HalfWidening"]

_HALVES = frozenset({DType.FLOAT16, DType.BFLOAT16})
_HALF_NUMBERS = frozenset(dtype.value for dtype in _HALVES)

_TYPE_ATTRIBUTES = frozenset(
    {
        "dtype",
        "output_datatype",
        "output_dtype",
        "precision",
        "softmax_precision",
        "stash_type",
        "to",
    }
)
"""Attributes whose integer is an element type."""

_CASTS = ("Cast", "CastLike")

_READS_BITS = frozenset({"BitCast"})

_MOVERS = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Reshape",
        "ScatterElements",
        "ScatterND",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "TensorScatter",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
    }
)
"""What only moves elements. Of stored numbers it moves them as they are: tables of embeddings and
caches of keys and values stay half as large, and only what is taken from them is widened."""


class HalfWidening(Pass):
    """Compute in float32 what a model stores in float16 or bfloat16.

    Inputs and outputs of the graph keep their types, behind a Cast. Constants are widened, once.
    Between computing nodes nothing is rounded, also not by a Cast of the file's, so that a number
    beyond float16's range becomes infinite only where it leaves the graph. But whole numbers that
    are made of what a Cast of the file's has rounded are made of that. What moves elements of
    stored numbers stays as it is, and so do nodes that are no tensor operators of ONNX's, such as
    control flow or a user's: they are given what they were.
    """

    name = "half widening"
    requires = frozenset({"topological order"})
    enters_bodies = False

    def bind(self, model: Model) -> Pass:
        return _BoundWidening()

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        return _BoundWidening().find(graph)


class _BoundWidening(Pass):
    """The pass over one graph: what is known of its values between patches."""

    name = HalfWidening.name

    def __init__(self) -> None:
        self._wide: dict[Value, Value] = {}
        """Stored value -> the same in float32."""

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        if not any(_has_half(node) for node in graph.nodes):
            return
        stored = _nodes_as_stored(graph)
        for node in list(graph.nodes):
            if node.graph is not graph or node in stored:
                continue
            patch: GraphPatch | None = None
            if is_standard(node, *_CASTS):
                patch = self._cast(node, graph, stored)
            elif _has_half(node):
                patch = self._computed(node, graph, stored)
            if patch is not None:
                yield patch

    def _cast(self, node: Node, graph: Graph, stored: set[Node]) -> GraphPatch | None:
        """Take a conversion between stored and wide numbers as the same value twice."""
        source, (made,) = node.inputs[0], node.outputs
        assert source is not None
        given, wanted = dtype_of(source), dtype_of(made)
        if given is DType.FLOAT32 and wanted in _HALVES:
            if _is_read_as_stored(made, graph, stored):
                self._wide[made] = source
                return None
            return GraphPatch(f"round nothing by {node.name!r}").replace(made, source).remove(node)
        if given in _HALVES and wanted is DType.FLOAT32:
            wide = self._wide.setdefault(source, made)
            if wide is made:
                return None
            if not made.is_graph_output:
                patch = GraphPatch(f"take what {node.name!r} widens as it is")
                return patch.replace(made, wide).remove(node)
        if given is wanted is DType.FLOAT32 and not made.is_graph_output:  # widened before
            return GraphPatch(f"leave out {node.name!r}").replace(made, source).remove(node)
        return self._computed(node, graph, stored) if _has_half(node) else None

    def _computed(self, node: Node, graph: Graph, stored: set[Node]) -> GraphPatch:
        """Give a node its operands in float32, and what reads its results as stored a Cast."""
        patch = GraphPatch(f"widen {node.op_type} {node.name!r}")
        inputs = [self._widened(value, node, patch) for value in node.inputs]
        results = []
        for old in node.outputs:
            dtype = dtype_of(old)
            if dtype not in _HALVES:
                made = Value(old.name, old.type)
                patch.replace(old, made)
            else:
                assert isinstance(old.type, TensorType)
                made = Value(f"{old.name}_f32", TensorType(DType.FLOAT32, old.type.shape))
            results.append(made)
        wide = Node(
            "Cast" if is_standard(node, "CastLike") else node.op_type,
            inputs[:1] if is_standard(node, "CastLike") else inputs,
            results,
            _wide_attributes(node),
            name=node.name,
            metadata=node.metadata,
        )
        patch.add(wide, node, (node,))
        for old, made in zip(node.outputs, results, strict=True):
            if dtype_of(old) in _HALVES:
                self._hand_on(old, made, node, patch, _is_read_as_stored(old, graph, stored))
        return patch.remove(node)

    def _hand_on(
        self, old: Value, wide: Value, node: Node, patch: GraphPatch, is_read_as_stored: bool
    ) -> None:
        if not is_read_as_stored:
            patch.replace(old, wide)
            return
        dtype = dtype_of(old)
        assert dtype is not None
        narrow = Value(old.name, old.type)
        cast = Node("Cast", [wide], [narrow], {"to": dtype.value}, name=f"{node.name}_narrow")
        patch.add(cast, node, (node,)).replace(old, narrow)
        self._wide[narrow] = wide

    def _widened(self, value: Value | None, node: Node, patch: GraphPatch) -> Value | None:
        """Return a value in float32; what makes it of a stored one is added to the patch."""
        if value is None or dtype_of(value) not in _HALVES:
            return value
        found = self._wide.get(value)
        if found is not None:
            return found
        assert isinstance(value.type, TensorType)
        kind = TensorType(DType.FLOAT32, value.type.shape)
        if value.constant is not None:
            made = Value(f"{value.name}_f32", kind, _in_float32(value.constant))
            patch.add_constant(made)
        else:
            made = Value(f"{value.name}_f32", kind)
            cast = Node(
                "Cast", [value], [made], {"to": DType.FLOAT32.value}, name=f"{value.name}_widen"
            )
            patch.add(cast, node, (node,))
        self._wide[value] = made
        return made


def _has_half(node: Node) -> bool:
    for value in (*node.inputs, *node.outputs):  # noqa: SIM110 (asked of every node, many times)
        if dtype_of(value) in _HALVES:
            return True
    return False


def _nodes_as_stored(graph: Graph) -> set[Node]:
    """Find the nodes that get what they were given: movers of stored numbers, and strangers."""
    found: set[Node] = set()
    for node in graph.nodes:
        if (
            not _is_ours(node)
            or (node.op_type in _MOVERS and _moves_stored(node, found))
            or _counts_rounded(node)
        ):
            found.add(node)
    return found


def _counts_rounded(node: Node) -> bool:
    """True for a Cast to whole numbers, or bool, of what a Cast of other numbers has rounded."""
    if not is_standard(node, *_CASTS) or dtype_of(node.inputs[0]) not in _HALVES:
        return False
    made = dtype_of(node.outputs[0])
    rounding = made_by(node.inputs[0], *_CASTS)
    if made is None or made.is_floating or rounding is None:
        return False
    return dtype_of(rounding.inputs[0]) not in _HALVES


def _is_ours(node: Node) -> bool:
    """True for a tensor operator of ONNX's that computes with numbers."""
    if node.domain or node.op_type in _READS_BITS or node.user_kernel is not None:
        return False
    if node.type_rule is not None or node.bodies():
        return False
    given = [value for value in node.inputs if value is not None]
    made = [value for value in node.outputs if not is_unused(value)]
    return all(isinstance(value.type, TensorType) for value in (*given, *made))


def _moves_stored(node: Node, stored: set[Node]) -> bool:
    """True if a half that it moves comes from outside or from a node that is left as it is."""
    halves = [value for value in node.inputs if value is not None and dtype_of(value) in _HALVES]
    moved = [value for value in halves if value.constant is None]
    return bool(halves) and all(
        value.producer is None or value.producer in stored for value in moved[:1]
    )


def _is_read_as_stored(value: Value, graph: Graph, stored: set[Node]) -> bool:
    """True if something wants the value in the type that the file gives it."""
    users = (node for node, _ in value.uses)
    return value.is_graph_output or any(
        node in stored or node.graph is not graph or bool(node.bodies()) for node in users
    )


def _wide_attributes(node: Node) -> Mapping[str, Any]:
    if is_standard(node, "CastLike"):
        dtype = dtype_of(node.outputs[0])
        assert dtype is not None
        to = DType.FLOAT32 if dtype in _HALVES else dtype
        return {**node.attributes, "to": to.value}
    return {name: _wide_attribute(name, item) for name, item in node.attributes.items()}


def _wide_attribute(name: str, item: Any) -> Any:
    if name in _TYPE_ATTRIBUTES and isinstance(item, int) and item in _HALF_NUMBERS:
        return DType.FLOAT32.value
    if isinstance(item, np.ndarray) and item.dtype != object and DType.of(item.dtype) in _HALVES:
        return item.astype(np.float32)
    return item


def _in_float32(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    hold_pages(array)
    wide = np.asarray(array).astype(np.float32)
    forget_pages(array)
    return wide
