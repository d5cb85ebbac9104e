"""Rewrites for CUDA: what is fused beyond what all accelerators fuse, once a plan."""

from __future__ import annotations

from collections.abc import Collection

from ....runtime.passes import Pass
from ...accelerator.passes.elementwise_fusion import ElementwiseFusion
from .batch_normalization_steps import BatchNormalizationSteps
from .channels_last import ChannelsLast

__all__ = ["PASS_NAMES", "cuda_plan_passes"]

_BY_LIBRARY: dict[str, tuple[Pass, ...]] = {"cudnn": (ChannelsLast(),)}
"""What runs only where a library works."""


def cuda_plan_passes(libraries: frozenset[str], disabled: Collection[str] = ()) -> tuple[Pass, ...]:
    """List what runs on every specialised copy, for a GPU where these libraries work.

    They come after what all accelerators fuse. ``disabled`` are names of passes to leave out.
    """
    passes: list[Pass] = [BatchNormalizationSteps(), ElementwiseFusion()]
    for library, own in _BY_LIBRARY.items():
        passes += own if library in libraries else ()
    return tuple(item for item in passes if item.name not in disabled)


PASS_NAMES = tuple(item.name for item in cuda_plan_passes(frozenset(_BY_LIBRARY)))
"""Every name that ``disabled`` may hold."""
