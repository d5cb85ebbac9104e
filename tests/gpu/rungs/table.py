"""Which rung is climbed by which function; each is loaded when it is climbed."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Mapping

__all__ = ["RUNGS", "climb"]

RUNGS: Mapping[str, tuple[str, str]] = {
    "facts": ("facts", "tell_facts"),
    "queues": ("driver_calls", "write_launch_read"),
    "capture": ("driver_calls", "capture_and_replay"),
    "perceptron-kernels": ("networks", "perceptron_by_kernels"),
    "perceptron-cublas": ("networks", "perceptron_by_cublas"),
    "perceptron-cublaslt": ("networks", "perceptron_by_cublaslt"),
    "conv-f16": ("networks", "convolution_in_half"),
    "conv-f32": ("networks", "convolution_in_strict_float32"),
    "attention": ("networks", "attention"),
    "attention-mask": ("networks", "attention_with_mask"),
    "resnet50-f16": ("networks", "resnet50_in_half"),
}
"""By name, in their order: the module and its function."""


def climb(name: str) -> int:
    """Climb a rung; returns the exit status."""
    module, function = RUNGS[name]
    try:
        status: int = getattr(importlib.import_module(f"gpu.rungs.{module}"), function)() or 0
    except BaseException:  # also when it is interrupted at its limit
        traceback.print_exc()
        print(f"{name}: FAILED", flush=True)
        return 1
    print(f"{name}: {'unfit' if status else 'right'}", flush=True)
    return status
