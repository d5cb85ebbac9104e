"""The properties of CPU beyond the standard ones."""

from __future__ import annotations

from typing import Any

from ...executors.late_imports import late_imports
from ...runtime.properties.properties import DEVICE_SHARE, Property
from ...runtime.properties.property_parsers import parse_boolean, parse_choice, parse_pass_names

__all__ = [
    "CPU_ADAPTIVE_TEAMS",
    "CPU_DISABLED_PASSES",
    "CPU_KEEP_NAN",
    "ENABLE_CPU_PINNING",
    "EXECUTION_MODE_HINT",
    "PROPERTIES",
]


def _pass_names() -> tuple[str, ...]:
    with late_imports:
        from .passes import PASS_NAMES

    return PASS_NAMES


ENABLE_CPU_PINNING = Property(
    "ENABLE_CPU_PINNING",
    parse_boolean,
    False,
    "Keep each stream's thread on CPUs of its own.",
)
EXECUTION_MODE_HINT = Property(
    "EXECUTION_MODE_HINT",
    parse_choice("PERFORMANCE", "ACCURACY"),
    "ACCURACY",
    "PERFORMANCE computes in the smallest type that this CPU is fast in, unless "
    "INFERENCE_PRECISION_HINT says which; ACCURACY keeps float32.",
)
CPU_ADAPTIVE_TEAMS = Property(
    "CPU_ADAPTIVE_TEAMS",
    parse_boolean,
    True,
    "Compute with fewer threads where a CPU quota would not last; NO keeps INFERENCE_NUM_THREADS, "
    "for results that are the same bits in every run.",
    only_at_load=True,
)
CPU_DISABLED_PASSES: Property[tuple[str, ...]] = Property(
    "CPU_DISABLED_PASSES",
    parse_pass_names(_pass_names),
    (),
    "Fusions to leave out, by name, separated by commas: to find the one behind a wrong answer.",
    only_at_load=True,
)

CPU_KEEP_NAN = Property(
    "CPU_KEEP_NAN",
    parse_boolean,
    False,
    "Give NaN and infinities as ONNX does also in MaxPool and behind Conv and MatMul, where Relu, "
    "Clip and some others then take a step of their own.",
    only_at_load=True,
)

PROPERTIES: tuple[Property[Any], ...] = (
    CPU_ADAPTIVE_TEAMS,
    CPU_DISABLED_PASSES,
    CPU_KEEP_NAN,
    DEVICE_SHARE,
    ENABLE_CPU_PINNING,
    EXECUTION_MODE_HINT,
)
