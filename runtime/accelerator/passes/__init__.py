"""Rewrites for accelerators: what is fused, once a plan."""

from __future__ import annotations

from ...passes import Pass
from .chain_fusion import ChainFusion
from .epilogue_fusion import EpilogueFusion

__all__ = ["plan_passes"]


def plan_passes() -> tuple[Pass, ...]:
    """List what runs on every specialised copy, with nodes of a domain of their own as a result."""
    return (ChainFusion(), EpilogueFusion())
