"""Rewrites for the CPU: what folds into weights, once a model; what oneDNN fuses, once a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ....runtime.graph import DType, Node, TensorType
from ....runtime.passes import Pass
from ....runtime.passes.attention.attention_fusion import AttentionFusion
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.fusion.flat_gemm_fusion import FlatGemmFusion
from ....runtime.passes.fusion.layer_normalization_fusion import LayerNormalizationFusion
from ....runtime.passes.fusion.scan_batching import ScanBatching
from ....runtime.passes.model_passes import model_passes
from ....runtime.passes.precision.half_widening import HalfWidening
from ..kernels.registry import KERNELS
from ..onednn.post_ops import CPU_DOMAIN
from . import fused_types as fused_types
from .activation_fusion import ActivationFusion
from .batch_normalization_scaling import BatchNormalizationScaling
from .distance_fusion import DistanceFusion
from .eltwise_fusion import EltwiseFusion
from .epilogue_fusion import EpilogueFusion
from .int8_dynamic_fusion import Int8DynamicFusion
from .int8_fusion import Int8Fusion
from .int8_movement import Int8Movement
from .int8_tables import Int8Tables
from .packed_fusion import PackedFusion
from .quantization_facts import suits_native_kernels
from .rounding_fusion import RoundingFusion
from .shared_input_fusion import SharedInputFusion

__all__ = ["PASS_NAMES", "first_passes", "plan_passes", "shapeless_passes", "shared_passes"]


def first_passes(disabled: Collection[str] = ()) -> tuple[Pass, ...]:
    """List what looks at weights as the file has them, before anything is unpacked or folded."""
    return _enabled((PackedFusion(),), disabled)


def shared_passes(disabled: Collection[str] = ()) -> tuple[Pass, ...]:
    """List the ``model_passes``, behind what has them see float32 alone, and what bodies hold.

    ``disabled`` are names of passes to leave out.
    """
    return _enabled((ScanBatching(_has_kernel), HalfWidening(), *model_passes()), disabled)


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
    fusion = Int8Fusion(cache, suits_native_kernels) if has_native_int8 else Int8Fusion(cache)
    passes: tuple[Pass, ...] = (
        *((fusion, Int8DynamicFusion(cache), Int8Movement(), Int8Tables()) if has_int8 else ()),
        RoundingFusion(),
        DistanceFusion(),
        LayerNormalizationFusion(cache, domain=CPU_DOMAIN),
        FlatGemmFusion(),
        ActivationFusion(),
        SharedInputFusion(cache),
        AttentionFusion(CPU_DOMAIN),
        BatchNormalizationScaling(cache),
        EpilogueFusion(cache, keep_nan=keep_nan, slow=slow),
        EltwiseFusion(),
    )
    return _enabled(passes, disabled)


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

_SHAPELESS = frozenset({LayerNormalizationFusion.name, ActivationFusion.name})
