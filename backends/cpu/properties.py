"""The properties of CPU beyond the standard ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...errors import nearest
from ...runtime.properties import Property
from ...runtime.property_parsers import parse_boolean, parse_choice

__all__ = ["CPU_DISABLED_PASSES", "ENABLE_CPU_PINNING", "EXECUTION_MODE_HINT", "PROPERTIES"]


def _parse_pass_names(given: Any) -> tuple[str, ...]:
    from .passes import PASS_NAMES

    there_are = f"there are {', '.join(PASS_NAMES)}"
    names = given.split(",") if isinstance(given, str) else given
    is_collection = isinstance(names, Collection) and not isinstance(names, bytes | Mapping)
    if not is_collection or not all(isinstance(name, str) for name in names):
        raise ValueError(f"names of passes, separated by commas, are wanted; {there_are}")
    wanted = tuple(name.strip() for name in names if name.strip())
    for name in wanted:
        if name not in PASS_NAMES:
            raise ValueError(f"there is no pass {name!r}{nearest(name, PASS_NAMES)}; {there_are}")
    return wanted


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
CPU_DISABLED_PASSES: Property[tuple[str, ...]] = Property(
    "CPU_DISABLED_PASSES",
    _parse_pass_names,
    (),
    "Fusions to leave out, by name, separated by commas: to find the one behind a wrong answer.",
    only_at_load=True,
)

PROPERTIES: tuple[Property[Any], ...] = (
    CPU_DISABLED_PASSES,
    ENABLE_CPU_PINNING,
    EXECUTION_MODE_HINT,
)
