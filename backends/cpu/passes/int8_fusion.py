"""Conv, ConvTranspose, Gemm and MatMul between DequantizeLinear and QuantizeLinear, in int8.

Theory of operation. A matmul of what was dequantised by one scale and weights that are int8 around
0 is a sum of products of small integers, times a scale for each channel. The zero point of the data
is taken out of the sums with the bias, since weights are known; pads, which stand for the real 0,
then have to hold it. What is stored in 8 bits again is shifted and scaled to its own numbers along
with that: a Relu costs nothing where it is where the type ends. A ConvTranspose is a convolution of
its phases (phases.py), which are then moved as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ....runtime.graph import DType, Graph, Node, Value
from ....runtime.lowering.window import Window
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.rewriting.matching import dtype_of, static_shape
from ..kernels.windows.phases import Phases
from ..onednn.post_ops import CPU_DOMAIN, PostOp
from .elementwise_steps import MAX_POST_OPS
from .int8_epilogue import Int8Epilogue, follow, tidied
from .int8_windows import (
    added_constant,
    conv_window,
    padded,
    phased,
    phases_value,
    seen_weights,
    shuffled,
)
from .quantization_facts import (
    RANGES,
    Quantization,
    Weights,
    dequantized,
    signed,
    suits_int8,
    weights_of,
)

__all__ = [
    "FIRST_OPERAND",
    "Int8Fusion",
    "channel_axis",
    "fits_sums",
    "is_plain",
]

Array = np.ndarray[Any, Any]

FIRST_OPERAND = 4
"""Operands of steps come after data, weights, shifts and scales."""

_LEFT_OUT = frozenset({"alpha", "auto_pad", "beta", "output_padding", "output_shape", "transA"})
_MOST = 2**31 - 1
"""That oneDNN's sums hold."""


class Int8Fusion(Pass):
    """Make ``Int8Conv`` and ``Int8MatMul`` of what multiplies stored numbers.

    Inputs: data as they are stored, int8 weights, a float32 shift for each channel, float32 scales
    (one, or one for each channel), and operands of steps. Result: steps(sum * scale + shift),
    rounded and kept in range where its type has 8 bits. Attributes are those of Conv, ``transB``,
    and ``post_ops``. ``cache`` keeps what is computed of constants, once for all plans; ``suits``
    is asked whether a node is to be computed so. ``takes_rows``: matmuls have steps with a row.
    """

    name = "int8 fusion"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset({"DequantizeLinear"})

    def __init__(
        self,
        cache: ConstantCache,
        suits: Callable[[Node], bool] = suits_int8,
        *,
        takes_rows: bool = True,
    ) -> None:
        self._cache, self._suits, self._takes_rows = cache, suits, takes_rows

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        nodes = list(graph.nodes)
        for node in nodes:
            if node.graph is not graph or node.domain:
                continue
            if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
                continue
            if not self._suits(node):
                continue
            patch = _patch(node, self._cache, self._takes_rows)
            if patch is not None:
                yield patch


def _patch(node: Node, cache: ConstantCache, takes_rows: bool) -> GraphPatch | None:
    source, weights = dequantized(node.inputs[0]), weights_of(node)
    if source is None or weights is None or not is_plain(node):
        return None
    data, facts = source
    product = _product_of(node, data, weights, cache)
    if product is None or not fits_sums(product.weights, product.axis, facts.dtype, cache):
        return None
    weights, window, phases = product.weights, product.window, product.phases
    rows = takes_rows and window is None
    epilogue = follow(node, takes_sums=phases is None, takes_rows=rows)
    terms = _Terms(product, facts, epilogue)
    if len(terms.steps) > MAX_POST_OPS:
        epilogue = Int8Epilogue((node,))
        terms = _Terms(product, facts, epilogue)
    result = Value(epilogue.result.name, epilogue.result.type)
    made = result if phases is None else phases_value(result, phases)
    shifts, scales = terms.constants(cache)
    if not (np.isfinite(shifts).all() and np.isfinite(scales).all()):
        return None
    patch = GraphPatch(f"compute {node.op_type} {node.name!r} in int8")
    attributes = {name: item for name, item in node.attributes.items() if name not in _LEFT_OUT}
    if terms.steps:
        attributes["post_ops"] = [step.text(FIRST_OPERAND) for step in terms.steps]
    if window is not None:
        if facts.zero_point and any((*window.pads_begin, *window.pads_end)):
            data = padded(patch, node, data, window, facts.zero_point)
            window = window.unpadded()
        attributes["kernel_shape"] = list(window.kernel)
        attributes["strides"], attributes["dilations"] = [*window.strides], [*window.dilations]
        attributes["pads"] = [*window.pads_begin, *window.pads_end]
    array = cache.get("int8", (weights.array,), lambda: signed(weights.array))
    constants = [
        added_constant(patch, f"{node.name}_{what}", content)
        for what, content in (("weights", array), ("shifts", shifts), ("scales", scales))
    ]
    kind = "Int8MatMul" if window is None else "Int8Conv"
    fused = Node(
        kind,
        (data, *constants, *epilogue.operands),
        (made,),
        attributes,
        name=node.name,
        domain=CPU_DOMAIN,
    )
    patch.add(fused, epilogue.nodes[-1], epilogue.nodes)
    if phases is not None and made is not result:
        shuffle = shuffled(node, made, result, phases)
        patch.add(shuffle, epilogue.nodes[-1], epilogue.nodes)
    patch.replace(epilogue.result, result)
    for gone in epilogue.nodes:
        patch.remove(gone)
    return patch


class _Product(NamedTuple):
    """What is multiplied and added; the result's channels are ``axis`` of the weights."""

    weights: Weights
    bias: Array | None
    axis: int
    window: Window | None = None
    phases: Phases | None = None


def _product_of(node: Node, data: Value, weights: Weights, cache: ConstantCache) -> _Product | None:
    """Return what a node multiplies, as a matmul or a convolution; None for what is refused."""
    axis = channel_axis(node)
    channels, value = weights.array.shape[axis], node.input_at(2)
    if node.op_type == "ConvTranspose":
        channels *= int(node.attributes.get("group", 1))
    if value is not None and (value.constant is None or value.constant.shape != (channels,)):
        return None
    bias = None if value is None else value.constant
    if node.op_type not in ("Conv", "ConvTranspose"):
        return _Product(weights, bias, axis)
    window = conv_window(node, data)
    if window is None:
        return None
    if node.op_type == "Conv":
        weights, window = seen_weights(node, data, weights, window, cache)
        return _Product(weights, bias, axis, window)
    weights, bias, phases = phased(node, data, weights, bias, window, cache)
    return _Product(weights, bias, 0, phases.window, phases)


class _Terms:
    """What is added to sums and multiplied with them, and the steps that remain."""

    def __init__(self, product: _Product, data: Quantization, epilogue: Int8Epilogue) -> None:
        self._product, self._data = product, data
        steps, stored = epilogue.steps, epilogue.stored
        if stored is not None:
            storing = PostOp.unary("linear", 1.0 / stored.scale, float(stored.zero_point))
            steps = (*steps, storing)
        steps = tidied(steps, stored)
        self._factor, self._shift = 1.0, 0.0
        if steps and steps[0].name == "linear":
            (_, self._factor, self._shift, _), *rest = steps
            steps = tuple(rest)
        self.steps = steps

    def constants(self, cache: ConstantCache) -> tuple[Array, Array]:
        """Compute shifts and scales, once for all plans."""
        numbers = (*self._data[:2], self._factor, self._shift, self._product.axis)
        sources = [*self._product.weights]
        if self._product.bias is not None:
            sources.append(self._product.bias)
        return (
            cache.get(f"int8 shifts {numbers}", sources, self._shifts),
            cache.get(f"int8 scales {numbers}", sources, self._scales),
        )

    def _wide_scales(self) -> Array:
        scales = self._product.weights.scales.astype(np.float64).reshape(-1)
        wide: Array = scales * self._data.scale * self._factor
        return wide

    def _scales(self) -> Array:
        return _rounded(self._wide_scales())

    def _shifts(self) -> Array:
        array, bias = self._product.weights.array, self._product.bias
        others = tuple(axis for axis in range(array.ndim) if axis != self._product.axis)
        sums = signed(array).sum(axis=others, dtype=np.int64)
        shifts: Array = -self._data.zero_point * sums * self._wide_scales() + self._shift
        if bias is not None:
            shifts = shifts + bias.astype(np.float64) * self._factor
        return _rounded(shifts)


def _rounded(numbers: Array) -> Array:
    """Return numbers in float32: infinite, without a warning, where it cannot hold them."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def is_plain(node: Node) -> bool:
    """True for what one primitive computes, and for a result that is float32."""
    if len(node.outputs) != 1 or dtype_of(node.outputs[0]) is not DType.FLOAT32:
        return False
    shapes = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    if shapes[0] is None or shapes[1] is None or 0 in shapes[0] or 0 in shapes[1]:
        return False
    if node.op_type == "MatMul":
        return len(shapes[0]) >= 2
    numbers = [float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta")]
    return numbers == [1.0, 1.0] and not node.attributes.get("transA", 0)


def fits_sums(weights: Weights, axis: int, dtype: DType, cache: ConstantCache) -> bool:
    """True if no data of this type make a sum that int32 cannot hold, where it would wrap.

    The result's channels are ``axis`` of the weights, which are those that are multiplied.
    """
    largest, array = max(map(abs, RANGES[dtype])), weights.array
    if largest * 128 * (array.size // max(array.shape[axis], 1)) <= _MOST:
        return True

    def add_up() -> Array:
        others = tuple(other for other in range(array.ndim) if other != axis)
        sums = np.abs(signed(array), dtype=np.int16).sum(axis=others, dtype=np.int64)
        return np.array(sums.max(initial=0))

    return largest * int(cache.get(f"int8 sizes {axis}", (array,), add_up)) <= _MOST


def channel_axis(node: Node) -> int:
    """Return the axis of the weights of a Conv, Gemm or MatMul that the result's channels are."""
    return 0 if node.op_type == "Conv" or node.attributes.get("transB", 0) else 1
