"""Rewrites for accelerators: what is fused, once a plan."""

from __future__ import annotations

from ....runtime.passes import Pass
from ....runtime.passes.attention.attention_fusion import AttentionFusion
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.fusion.flat_gemm_fusion import FlatGemmFusion
from ....runtime.passes.fusion.gelu_fusion import GeluFusion
from ....runtime.passes.fusion.layer_normalization_fusion import LayerNormalizationFusion
from ..elementwise.c_types import FLOATS
from ..elementwise.fused_step import ACCELERATOR_DOMAIN
from .attention_inputs import AttentionMatmulFusion, PackedAttention
from .elementwise_fusion import ElementwiseFusion
from .epilogue_fusion import EpilogueFusion

__all__ = ["plan_passes"]


def plan_passes() -> tuple[Pass, ...]:
    """List what runs on every specialised copy, with nodes of a domain of their own as a result.

    First what exporters spell out gets its name, and then the rest is joined. The list is for one
    network: the plans share constants that passes make, which live as long as the list.
    """
    return (
        LayerNormalizationFusion(dtypes=FLOATS),
        FlatGemmFusion(),
        GeluFusion(FLOATS),
        AttentionFusion(ACCELERATOR_DOMAIN, FLOATS),
        AttentionMatmulFusion(ConstantCache()),
        PackedAttention(),
        ElementwiseFusion(),
        EpilogueFusion(),
    )
