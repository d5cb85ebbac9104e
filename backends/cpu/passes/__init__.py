"""Rewrites for the CPU: what folds into weights, once a model; what oneDNN fuses, once a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from ....runtime.graph import DType, Graph, Node, TensorType
from ....runtime.passes import Pass
from ....runtime.passes import __name__ as shared_by_devices
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.model_passes import model_passes
from ....runtime.passes.precision.half_widening import HalfWidening
from ....runtime.passes.rewriting.late_pass import LatePass
from ..kernels.registry import KERNELS
from ..onednn.post_ops import CPU_DOMAIN
from . import fused_types as fused_types
from .eltwise_fusion import EltwiseFusion
from .epilogue_fusion import EpilogueFusion
from .quantization_facts import is_int8_weights, suits_int8, suits_native_kernels

__all__ = [
    "INT8_FUSION",
    "PASS_NAMES",
    "first_passes",
    "has_half_constants",
    "is_kept_for_plans",
    "plan_passes",
    "shapeless_passes",
    "shared_passes",
    "writing_passes",
]

INT8_FUSION = "int8 fusion"
_LAYER_NORMALIZATION, _ACTIVATIONS = "layer normalization fusion", "activation fusion"

_own = partial(LatePass, __name__)
_shared = partial(LatePass, shared_by_devices)


def first_passes(disabled: Collection[str] = (), *, reads_halves: bool = True) -> tuple[Pass, ...]:
    """List what looks at weights as the file has them, before anything is unpacked or folded.

    ``reads_halves`` says that matmuls of few rows read weights of 16 bits.
    """
    packed = _own("packed_fusion:PackedFusion", "packed weights", "DequantizeLinear MatMulNBits")
    halves = _own("half_fusion:HalfFusion", "half matmuls", "Gemm MatMul")
    return _enabled((packed, halves) if reads_halves else (packed,), disabled)


def has_half_constants(graph: Graph) -> bool:
    """True if nodes of the graph have constants of float16 or bfloat16. O(nodes)."""
    for node in graph.nodes:
        for value in node.inputs:
            if value is None or value.constant is None:
                continue
            if isinstance(value.type, TensorType) and value.type.dtype in _HALVES:
                return True
    return False


def writing_passes() -> tuple[Pass, ...]:
    """List what writes rare operators, and products of integers, with ones that have kernels."""
    return (
        _shared(
            "fusion.standard_operators:StandardOperators",
            "standard operators",
            "MeanVarianceNormalization NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
        ),
        _shared("fusion.integer_slices:IntegerSlices", "integer slices", "ConvInteger"),
        _shared(
            "fusion.integer_products:IntegerProducts",
            "integer products",
            "ConvInteger MatMulInteger",
        ),
        _shared(
            "fusion.quantized_operators:QuantizedOperators",
            "quantized operators",
            "QLinearConv QLinearMatMul",
        ),
    )


def shared_passes(disabled: Collection[str] = ()) -> tuple[Pass, ...]:
    """List the ``model_passes``, behind what has them see float32 alone, and what bodies hold.

    ``disabled`` are names of passes to leave out.
    """
    scans = _shared("fusion.scan_batching:ScanBatching", "scan batching", "Scan", _has_kernel)
    return _enabled((scans, HalfWidening(), *model_passes()), disabled)


def plan_passes(
    disabled: Collection[str] = (),
    cache: ConstantCache | None = None,
    *,
    keep_nan: bool = False,
    has_int8: bool = True,
    slow: Collection[str] = (),
    has_native_int8: bool = False,
) -> tuple[Pass, ...]:
    """List what runs on every specialised copy, with nodes of the CPU's own domain as a result.

    The passes of one list share ``cache``, by default a new one: make the list once for a network,
    so that its plans share the constants in it. ``disabled`` are names of passes to leave out;
    ``keep_nan`` fuses nothing in which oneDNN loses NaN; ``has_int8`` says that matmuls of stored
    numbers are computed as they are, and ``has_native_int8`` that native kernels do it; ``slow``
    are steps that are no post-ops of matmuls and ConvTranspose.
    """
    cache = ConstantCache() if cache is None else cache
    passes: tuple[Pass, ...] = (
        *(_int8_passes(cache, has_native_int8, keep_nan) if has_int8 else ()),
        _own("rounding_fusion:RoundingFusion", "rounding fusion", "QuantizeLinear"),
        _own(
            "distance_fusion:DistanceFusion", "distance fusion", "ReduceL1 ReduceL2 ReduceSumSquare"
        ),
        _shared(
            "fusion.layer_normalization_fusion:LayerNormalizationFusion",
            _LAYER_NORMALIZATION,
            "Pow Sqrt",
            cache,
            domain=CPU_DOMAIN,
        ),
        _shared("fusion.flat_gemm_fusion:FlatGemmFusion", "flat gemm fusion", "Gemm"),
        _own("activation_fusion:ActivationFusion", _ACTIVATIONS, "Div Mul"),
        _own("shared_input_fusion:SharedInputFusion", "shared input fusion", "MatMul", cache),
        _shared(
            "attention.attention_fusion:AttentionFusion",
            "attention fusion",
            "Attention Softmax",
            CPU_DOMAIN,
        ),
        _own(
            "batch_normalization_scaling:BatchNormalizationScaling",
            "batch normalization scaling",
            "BatchNormalization",
            cache,
        ),
        EpilogueFusion(cache, keep_nan=keep_nan, slow=slow),
        EltwiseFusion(),
    )
    return _enabled(passes, disabled)


def _int8_passes(cache: ConstantCache, has_native_int8: bool, keep_nan: bool) -> tuple[Pass, ...]:
    suits = suits_native_kernels if has_native_int8 else suits_int8
    stored = "DequantizeLinear"
    return (
        _own(
            "int8_fusion:Int8Fusion",
            INT8_FUSION,
            stored,
            cache,
            suits,
            takes_rows=not has_native_int8,
        ),
        _own("stored_rows:StoredRows", "stored rows", stored),
        _own(
            "int8_dynamic_fusion:Int8DynamicFusion",
            "dynamic int8 fusion",
            stored,
            cache,
            keep_nan=keep_nan,
        ),
        _own("int8_movement:Int8Movement", "int8 movement", "QuantizeLinear"),
        _own("int8_tables:Int8Tables", "int8 tables", "QuantizeLinear"),
    )


def is_kept_for_plans(
    passes: Iterable[Pass], *, has_native_int8: bool
) -> Callable[[Node], bool] | None:
    """Return what is true of a DequantizeLinear of weights that these passes may read as they are.

    None where they want none. It holds no pass, and so no weights.
    """
    if INT8_FUSION not in [item.name for item in passes]:
        return None
    return partial(_is_kept, suits_native_kernels if has_native_int8 else suits_int8)


def _is_kept(suits: Callable[[Node], bool], node: Node) -> bool:
    return is_int8_weights(node) and all(suits(user) for user, _ in node.outputs[0].uses)


def shapeless_passes(passes: Iterable[Pass]) -> tuple[Pass, ...]:
    """Choose those passes of a plan that find most of what they look for without shapes."""
    return tuple([item for item in passes if item.name in _SHAPELESS])


def _has_kernel(node: Node) -> bool:
    """True for what plans have; what is in float16 or bfloat16 comes to them in float32."""
    values = (*node.inputs, *node.outputs)
    types = [value.type for value in values if value is not None]
    if any(isinstance(kind, TensorType) and kind.dtype in _HALVES for kind in types):
        return KERNELS.find_kernel(node) is not None
    return KERNELS.find_refusal(node) is None


def _enabled(passes: tuple[Pass, ...], disabled: Collection[str]) -> tuple[Pass, ...]:
    return tuple(item for item in passes if item.name not in disabled) if disabled else passes


_HALVES = (DType.FLOAT16, DType.BFLOAT16)
PASS_NAMES = tuple(item.name for item in (*first_passes(), *shared_passes(), *plan_passes()))
"""Every name that ``disabled`` may hold."""

_SHAPELESS = frozenset({_LAYER_NORMALIZATION, _ACTIVATIONS})
