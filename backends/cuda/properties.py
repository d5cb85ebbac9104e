"""The properties of CUDA beyond the standard ones."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.properties.properties import Property
from ...runtime.properties.property_parsers import parse_boolean, parse_pass_names
from ..accelerator.properties import BATCH_BUCKETS, BUCKETS_TO_256

__all__ = ["CUDA_DISABLED_PASSES", "CUDA_GRAPHS", "CUDA_PROPERTIES"]


def _pass_names() -> tuple[str, ...]:
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
CUDA_PROPERTIES = (
    replace(BATCH_BUCKETS, default=BUCKETS_TO_256),
    CUDA_DISABLED_PASSES,
    CUDA_GRAPHS,
)
