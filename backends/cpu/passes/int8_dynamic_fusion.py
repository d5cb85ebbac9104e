"""Gemm and MatMul of data whose scale the run finds, in int8.

Scales and shifts of the columns are then computed in each run: a few numbers of each weight's
column, times scale and zero point of the data. The matmul itself is that of ``int8_fusion.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.rewriting.matching import commuted, dtype_of, is_standard
from ..onednn.post_ops import CPU_DOMAIN, PostOp, loses_nan
from .elementwise_steps import MAX_POST_OPS
from .int8_epilogue import Int8Epilogue, activated, next_of, tidied
from .int8_fusion import (
    FIRST_OPERAND,
    channel_axis,
    fits_sums,
    is_plain,
)
from .int8_windows import added_constant
from .quantization_facts import Weights, dynamically_dequantized, signed, weights_of

__all__ = ["Int8DynamicFusion"]

Array = np.ndarray[Any, Any]


class Int8DynamicFusion(Pass):
    """Make ``Int8MatMul`` of matmuls whose data DynamicQuantizeLinear, or a caller, has stored.

    A bias and activations behind it become part of it; the result is float32. ``cache`` keeps what
    is computed of constants, once for all plans. Data with a NaN have a scale that is none: with
    ``keep_nan``, steps in which oneDNN loses it are left to others.
    """

    name = "dynamic int8 fusion"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset({"DequantizeLinear"})

    def __init__(self, cache: ConstantCache, *, keep_nan: bool = False) -> None:
        self._cache, self._is_left = cache, loses_nan if keep_nan else _is_none

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or not is_standard(node, "Gemm", "MatMul"):
                continue
            patch = _patch(node, self._cache, self._is_left)
            if patch is not None:
                yield patch


def _is_none(_step: PostOp) -> bool:
    return False


def _patch(
    node: Node, cache: ConstantCache, is_left: Callable[[PostOp], bool]
) -> GraphPatch | None:
    source, weights = dynamically_dequantized(node.inputs[0]), weights_of(node)
    if source is None or weights is None or not is_plain(node):
        return None
    stored, scale = source.inputs[:2]
    assert stored is not None
    assert scale is not None
    dtype = dtype_of(stored)
    if dtype is None or not fits_sums(weights, channel_axis(node), dtype, cache):
        return None
    channels = weights.array.shape[channel_axis(node)]
    bias = node.input_at(2)
    if bias is not None and (bias.constant is None or bias.constant.shape != (channels,)):
        return None
    found = Int8Epilogue((node,))
    if bias is None:
        found, bias = _biased(found, channels)
    longer = activated(found, is_left)
    steps = tidied(longer.steps, None)
    if len(steps) > MAX_POST_OPS:
        longer, steps = found, ()
    patch = GraphPatch(f"compute {node.op_type} {node.name!r} in int8, by the run's scale")
    terms = _Terms(patch, node, longer.nodes, cache)
    scales, shifts = terms.factors(source, weights, bias)
    attributes: dict[str, Any] = {}
    if node.attributes.get("transB", 0):
        attributes["transB"] = 1
    if steps:
        attributes["post_ops"] = [step.text(FIRST_OPERAND) for step in steps]
    return _finished(terms, longer, (stored, scales, shifts), weights, attributes)


def _finished(
    terms: _Terms,
    found: Int8Epilogue,
    operands: tuple[Value, Value, Value],
    weights: Weights,
    attributes: dict[str, Any],
) -> GraphPatch:
    patch, node = terms.patch, terms.node
    stored, scales, shifts = operands
    array = terms.cache.get("int8", (weights.array,), lambda: signed(weights.array))
    given = added_constant(patch, f"{node.name}_weights", array)
    made = Value(found.result.name, found.result.type)
    fused = Node(
        "Int8MatMul",
        (stored, given, shifts, scales),
        (made,),
        attributes,
        name=node.name,
        domain=CPU_DOMAIN,
    )
    patch.add(fused, found.nodes[-1], found.nodes).replace(found.result, made)
    for gone in found.nodes:
        patch.remove(gone)
    return patch


def _biased(found: Int8Epilogue, channels: int) -> tuple[Int8Epilogue, Value | None]:
    """Take an Add of a number for each column, if one follows."""
    user = next_of(found)
    if user is None or not is_standard(user, "Add"):
        return found, None
    for value, other in commuted(user):
        array = other.constant
        if value is found.result and array is not None and array.shape == (channels,):
            return replace(found, nodes=(*found.nodes, user)), other
    return found, None


class _Terms:
    """Adds the nodes that compute scales and shifts in each run, before the last of ``nodes``."""

    def __init__(
        self, patch: GraphPatch, node: Node, nodes: Sequence[Node], cache: ConstantCache
    ) -> None:
        self.patch, self.node, self.cache = patch, node, cache
        self._place = nodes[-1]

    def factors(self, source: Node, weights: Weights, bias: Value | None) -> tuple[Value, Value]:
        """Return scales, one or one for each column, and shifts, one for each."""
        axis = channel_axis(self.node)
        arrays = (weights.array, weights.scales)
        scale, zero = source.inputs[1], source.input_at(2)
        own = self._constant("scales", weights.scales.reshape(-1))
        one = self._row(scale, "scale")
        scales = self._add("Mul", "factors", own.type, one, own)

        def offsets() -> Array:
            sums = signed(weights.array).sum(axis=1 - axis, dtype=np.int64)
            wide: Array = -sums * weights.scales.astype(np.float64).reshape(-1)
            return wide.astype(np.float32)

        columns = TensorType(DType.FLOAT32, (weights.array.shape[axis],))
        if zero is None:
            if bias is not None:
                return scales, bias
            none = self.cache.get(f"int8 no shifts {axis}", arrays, lambda: 0 * offsets())
            return scales, self._constant("shifts", none)
        array = self.cache.get(f"int8 offsets {axis}", arrays, offsets)
        real = self._add("Cast", "zero", None, self._row(zero, "point"), to=DType.FLOAT32.value)
        moved = self._add("Mul", "moved", real.type, real, one)
        shifts = self._add("Mul", "shifts", columns, moved, self._constant("offsets", array))
        if bias is not None:
            shifts = self._add("Add", "biased", columns, shifts, bias)
        return scales, shifts

    def _row(self, value: Value | None, what: str) -> Value:
        """View one number as a row of one."""
        assert value is not None
        dtype = dtype_of(value)
        assert dtype is not None
        shape = self._constant(f"{what}_shape", np.array([1], np.int64))
        return self._add("Reshape", what, TensorType(dtype, (1,)), value, shape)

    def _constant(self, what: str, array: Array) -> Value:
        return added_constant(self.patch, f"{self.node.name}_{what}", array)

    def _add(self, op_type: str, what: str, known: Any, *inputs: Value, **attributes: Any) -> Value:
        name = f"{self.node.name}_{what}"
        made = Value(name, known or TensorType(DType.FLOAT32, (1,)))
        self.patch.add(
            Node(op_type, inputs, (made,), attributes, name=name), self._place, (self.node,)
        )
        return made
