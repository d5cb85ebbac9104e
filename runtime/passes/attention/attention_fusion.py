"""Queries, keys and values of many heads as one attention."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterator, Sequence

import numpy as np

from ...graph import DType, Graph, Node, TensorType, Value
from ...graph.sym_array import array_of_numbers
from ...graph.sym_int import identity_of
from ...type_inference.dims import broadcast_lengths
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import dtype_of, is_standard, static_shape
from ..rewriting.pass_base import Pass
from ..rewriting.patch_check import have_one_affinity
from .attention_conversion import CausalMasks, convert_attention
from .attention_match import AttentionMatch, find_removable, match_attention
from .attention_scores import MaskStep, mask_shape

__all__ = ["AttentionFusion"]

_Masks = dict[Hashable, Value]
"""Type, batch, heads and the steps -> the mask that was made for them."""


class AttentionFusion(Pass):
    """Fuse what exporters write for multi-head attention, in ``dtypes`` and of known shapes.

    From the split into heads to their merge: scaled matmuls of queries and keys, masks added or
    chosen by a Where, Softmax, the matmul with the values. How the heads are split off does not
    matter, only which element ends up where: also from one packed value, by Split, Gather or Slice.
    What others use, too, stays beside the new node; an attention whose scores or probabilities are
    used elsewhere stays as it is. ONNX's own Attention becomes the same node where it does no more.

    The node is Attention(query, key, value, mask or nothing) of ``domain``, which is a device's
    own. Each is (batch, rows, width) but for the mask, which broadcasts to (batch, heads, queries,
    keys) and is added. ``num_heads`` and ``scale`` are always there; ``zero_empty_rows`` = 1 asks
    for zeros, not NaN, for a query whose probabilities are NaN, as where its scores are all minus
    infinity.
    """

    name = "attention fusion"
    requires = frozenset({"topological order"})
    wanted_ops = frozenset({"Attention", "Softmax"})

    def __init__(self, domain: str, dtypes: Collection[DType] = (DType.FLOAT32,)) -> None:
        self._domain, self._dtypes = domain, frozenset(dtypes)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        masks: _Masks = {}
        causal: CausalMasks = {}
        for node in list(graph.nodes):
            if node.graph is not graph:
                continue
            if is_standard(node, "Attention"):
                patch = convert_attention(node, causal, self._domain)
                if patch is not None:
                    yield patch
            if not is_standard(node, "Softmax"):
                continue
            found = match_attention(node, graph, self._dtypes)
            if found is None:
                continue
            removed = find_removable(found)
            if have_one_affinity(found.nodes) and removed.issuperset(found.essential):
                gone = [node for node in found.nodes if node in removed]
                yield _Rewrite(found, gone, masks, self._domain).patch


class _Rewrite:
    """Collects the patch for one attention: its inputs, its mask, itself, its shape."""

    def __init__(
        self, found: AttentionMatch, removed: Sequence[Node], masks: _Masks, domain: str
    ) -> None:
        self._found = found
        self._domain = domain
        self._removed = removed
        self._name = found.scores.matmul.name
        self.patch = GraphPatch(f"fuse the attention around {self._name!r}")
        query, key, value = self._operands()
        inputs = [query, key, value]
        if found.scores.steps:
            inputs.append(self._mask(masks))
        self._finish(inputs)
        for node in removed:
            self.patch.remove(node)

    def _operands(self) -> list[Value]:
        found, layout = self._found, self._found.layout
        parts = [
            (found.query, layout.rows),
            (found.key, found.key_count),
            (found.value, found.key_count),
        ]
        packed: dict[Value, set[int]] = {}
        for columns, _ in parts:
            if columns.pitch != layout.width:
                packed.setdefault(columns.source, set()).add(columns.offset)
        shaped: dict[Value, Value] = {}
        pieces: dict[Value, dict[int, Value]] = {}
        operands = []
        for columns, rows in parts:
            source = columns.source
            if source not in shaped:
                shaped[source] = self._shaped(source, (layout.batch, rows, columns.pitch))
                if source in packed:
                    pieces[source] = self._split(shaped[source], packed[source], columns.pitch)
            operands.append(pieces[source][columns.offset] if source in pieces else shaped[source])
        return operands

    def _shaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        if static_shape(value) == shape:
            return value
        target = self._constant("shape", array_of_numbers(shape, is_scalar=False, dtype=np.int64))
        return self._add(
            "Reshape", (value, target), [Value(f"{value.name}_rows", self._type(shape))]
        )

    def _split(self, value: Value, offsets: set[int], pitch: int) -> dict[int, Value]:
        """Split a packed value's last axis; parts not needed become outputs without use."""
        width = self._found.layout.width
        batch, rows, _ = static_shape(value) or (0, 0, 0)
        edges = {0, pitch, *offsets, *(offset + width for offset in offsets)}
        cuts = sorted(edges)
        sizes = [end - start for start, end in itertools.pairwise(cuts)]
        made = [Value(f"{value.name}_part", self._type((batch, rows, size))) for size in sizes]
        lengths = self._constant("sizes", np.array(sizes, np.int64))
        self._add("Split", (value, lengths), made, {"axis": -1})
        return dict(zip(cuts, made, strict=False))

    def _mask(self, masks: _Masks) -> Value:
        """Make one value to add to the scores; attentions with the same masks share it."""
        layout, steps = self._found.layout, self._found.scores.steps
        mask: Value | None = None
        for count, step in enumerate(steps, 1):
            sizes = identity_of(layout.batch), identity_of(layout.heads)
            key = (self._found.dtype, *sizes, steps[:count])
            if key not in masks:
                masks[key] = self._masked(mask, step)
            mask = masks[key]
        assert mask is not None  # only called with steps
        return mask

    def _masked(self, before: Value | None, step: MaskStep) -> Value:
        operand = self._four_axes(step)
        if step.fill is None:
            return operand if before is None else self._add_mask("Add", before, operand)
        if before is None:
            before = self._constant("zero", np.zeros((), self._found.dtype.numpy))
        fill = self._constant("fill", np.array(step.fill, self._found.dtype.numpy))
        pair = (before, fill) if step.is_kept_where_true else (fill, before)
        return self._add_mask("Where", operand, *pair)

    def _four_axes(self, step: MaskStep) -> Value:
        """Divide a first axis that is batch times heads."""
        layout, mask = self._found.layout, step.operand
        shape = mask_shape(step, (layout.batch, layout.heads))
        if shape is None or len(shape) == len(static_shape(mask) or ()):
            return mask
        target = self._constant("shape", array_of_numbers(shape, is_scalar=False, dtype=np.int64))
        kind = TensorType(dtype_of(mask) or self._found.dtype, shape)
        made = Value(f"{mask.name}_heads", kind)
        return self._add("Reshape", (mask, target), [made], before=self._found.softmax)

    def _add_mask(self, op_type: str, *inputs: Value) -> Value:
        shape = broadcast_lengths(static_shape(value) or () for value in inputs)
        made = Value(f"{self._name}_mask", self._type(shape))
        return self._add(op_type, inputs, [made], before=self._found.softmax)

    def _finish(self, inputs: Sequence[Value]) -> None:
        found, layout = self._found, self._found.layout
        shape = (layout.batch, layout.rows, layout.width)
        old = found.result
        made = Value(old.name, self._type(shape))
        attributes = {"num_heads": layout.heads, "scale": found.scale}
        if found.has_guard:
            attributes["zero_empty_rows"] = 1
        attention = Node(
            "Attention",
            inputs,
            [made],
            attributes,
            name=f"{self._name}_attention",
            domain=self._domain,
        )
        self.patch.add(attention, before=found.last, stands_for=self._removed)
        if static_shape(old) != shape:
            target = self._constant("shape", np.array(static_shape(old), np.int64))
            made = self._add("Reshape", (made, target), [Value(old.name, old.type)])
        self.patch.replace(old, made)

    def _add(
        self,
        op_type: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        attributes: dict[str, int] | None = None,
        before: Node | None = None,
    ) -> Value:
        node = Node(op_type, inputs, outputs, attributes, name=f"{self._name}_{op_type}")
        self.patch.add(node, before=before or self._found.last, stands_for=self._removed)
        return outputs[0]

    def _type(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self._found.dtype, shape)

    def _constant(self, name: str, array: np.ndarray) -> Value:
        kind = TensorType(DType.of(array.dtype), array.shape)
        value = Value(f"{self._name}_{name}", kind, array)
        self.patch.add_constant(value)
        return value
