"""The properties of AUTO."""

from __future__ import annotations

from typing import Any

from ...runtime.properties.properties import Property, parse_boolean, parse_choice

__all__ = [
    "AUTO_PROPERTIES",
    "ENABLE_RUNTIME_FALLBACK",
    "ENABLE_STARTUP_FALLBACK",
    "MODEL_PRIORITY",
    "PRIORITIES",
]

PRIORITIES = ("LOW", "MEDIUM", "HIGH")

ENABLE_STARTUP_FALLBACK = Property(
    "ENABLE_STARTUP_FALLBACK",
    parse_boolean,
    True,
    "Whether the processor serves requests while an accelerator still compiles.",
)
ENABLE_RUNTIME_FALLBACK = Property(
    "ENABLE_RUNTIME_FALLBACK",
    parse_boolean,
    True,
    "Whether another device goes on when an accelerator fails. Given as true, also when any other "
    "device does, at the price of a second queue.",
)
MODEL_PRIORITY = Property(
    "MODEL_PRIORITY",
    parse_choice(*PRIORITIES),
    "MEDIUM",
    "A model keeps off devices that models of a higher priority have, while another one is left.",
)
AUTO_PROPERTIES: tuple[Property[Any], ...] = (
    ENABLE_STARTUP_FALLBACK,
    ENABLE_RUNTIME_FALLBACK,
    MODEL_PRIORITY,
)
