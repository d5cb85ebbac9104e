"""The properties of CUDA beyond the standard ones."""

from __future__ import annotations

from dataclasses import replace

from ...executors.late_imports import late_imports
from ...runtime.properties.properties import Property
from ...runtime.properties.property_parsers import parse_boolean, parse_choice, parse_pass_names
from ..accelerator.properties import BATCH_BUCKETS, BUCKETS_TO_256

__all__ = ["CUDA_DISABLED_PASSES", "CUDA_GRAPHS", "CUDA_PROPERTIES", "CUDA_SPIN_WAIT", "may_spin"]

_SPARE_CPUS = 4
"""With fewer, a core that spins is missing elsewhere."""


def _pass_names() -> tuple[str, ...]:
    with late_imports:
        from ...runtime.passes.model_passes import model_passes
        from ..accelerator.passes import plan_passes
        from .passes import PASS_NAMES

    shared = (item.name for item in (*model_passes(), *plan_passes()))
    return tuple(dict.fromkeys((*shared, *PASS_NAMES)))


CUDA_GRAPHS = Property(
    "CUDA_GRAPHS",
    parse_boolean,
    True,
    "Whether each slot captures a plan's launches once, as a CUDA graph, and runs replay it; else, "
    "and with PERF_COUNT, every run enqueues launch by launch.",
)
CUDA_DISABLED_PASSES: Property[tuple[str, ...]] = Property(
    "CUDA_DISABLED_PASSES",
    parse_pass_names(_pass_names),
    (),
    "Fusions to leave out, by name, separated by commas: to find the one behind a wrong answer.",
    only_at_load=True,
)
CUDA_SPIN_WAIT = Property(
    "CUDA_SPIN_WAIT",
    parse_choice("AUTO", "YES", "NO"),
    "AUTO",
    "Whether the thread that waits for a run of up to 1 ms keeps a core busy, which answers some "
    "70 us sooner; AUTO: with PERFORMANCE_HINT LATENCY where four whole CPUs are allowed.",
)


def may_spin(wait: str, hint: str, cpu_count: int) -> bool:
    """Return whether threads that wait for runs may keep a core busy. Pure."""
    if wait == "AUTO":
        return hint == "LATENCY" and cpu_count >= _SPARE_CPUS
    return wait == "YES"


CUDA_PROPERTIES = (
    replace(BATCH_BUCKETS, default=BUCKETS_TO_256),
    CUDA_DISABLED_PASSES,
    CUDA_GRAPHS,
    CUDA_SPIN_WAIT,
)
