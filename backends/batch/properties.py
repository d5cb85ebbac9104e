"""The properties of BATCH."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...runtime.properties.properties import (
    Property,
    parse_boolean,
    parse_integer,
    parse_mapping,
    parse_text,
)
from ...runtime.properties.property_parsers import parse_ascending

__all__ = [
    "ALLOW_UNBATCHED",
    "AUTO_BATCH_TIMEOUT",
    "LENGTH_BUCKETS",
    "LENGTH_DIMENSION",
    "LENGTH_PROPERTIES",
    "MASK_INPUT",
    "PADDING_VALUES",
]

MOST_TIMEOUT_MS = 60_000
"""Longer than anybody waits for company: what a blob says is waited for, too."""

AUTO_BATCH_TIMEOUT = Property(
    "AUTO_BATCH_TIMEOUT",
    parse_integer(0, high=MOST_TIMEOUT_MS),
    0,
    "How many milliseconds, up to 60,000, a run that is not full may wait for more requests "
    "although the device is idle; 0: requests share a run only if they come while the device is "
    "busy.",
)
ALLOW_UNBATCHED = Property(
    "ALLOW_UNBATCHED",
    parse_boolean,
    False,
    "Whether a model whose requests cannot share runs is loaded on the device itself, where they "
    "run one by one, instead of refused; explain() and the metric BATCHING_REFUSAL say why.",
)
LENGTH_BUCKETS: Property[tuple[int, ...]] = Property(
    "LENGTH_BUCKETS",
    parse_ascending("lengths"),
    (),
    "Lengths, such as '16,32,64', that sequences are padded to so that requests of several lengths "
    "share a run: each up to the next one; above the last one, and with '', only equal lengths do.",
    only_at_load=True,
)
LENGTH_DIMENSION = Property(
    "LENGTH_DIMENSION",
    parse_text,
    "",
    "The name of the dimension that LENGTH_BUCKETS is for, as the inputs' shapes have it, such as "
    "'sequence'; '': the only open one beside the batch.",
    only_at_load=True,
)
MASK_INPUT = Property(
    "MASK_INPUT",
    parse_text,
    "",
    "The input that says which places of a sequence count: LENGTH_BUCKETS pads it with 0.",
    only_at_load=True,
)


def _parse_values(given: Any) -> Mapping[str, int | float | str]:
    parsed: dict[str, int | float | str] = {}
    for name, value in parse_mapping(given).items():
        plain = value.item() if hasattr(value, "item") else value
        if not isinstance(plain, bool | int | float | str):
            raise ValueError(f"one number or text for each input is wanted; {name!r} has {value!r}")
        parsed[name] = plain
    return MappingProxyType(parsed)


PADDING_VALUES: Property[Mapping[str, int | float | str]] = Property(
    "PADDING_VALUES",
    _parse_values,
    MappingProxyType({}),
    "What LENGTH_BUCKETS pads inputs with, such as {'input_ids': 1}; 0 where nothing is said and "
    "there is a MASK_INPUT.",
    only_at_load=True,
)
LENGTH_PROPERTIES: tuple[Property[Any], ...] = (
    LENGTH_BUCKETS,
    LENGTH_DIMENSION,
    MASK_INPUT,
    PADDING_VALUES,
)
