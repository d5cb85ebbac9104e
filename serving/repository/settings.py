"""``model.toml``: how one model is loaded. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import PropertyError, nearest
from ..protocol.generation import Generation

__all__ = ["ModelSettings", "VersionPolicy", "read_settings", "wanted_versions"]

VersionPolicy = Literal["latest", "all"] | tuple[int, ...]
_KEYS = (
    "device",
    "generate",
    "postprocess",
    "preprocess",
    "properties",
    "versions",
    "warm_up",
)
_GENERATE_KEYS = ("feed", "steps", "end")


@dataclass(frozen=True)
class ModelSettings:
    """How a model is loaded; what the file leaves out is as the server's options say.

    ``device``: None is the server's. ``properties``: go before the server's. ``versions``: which
    are served. ``warm_up``: run made up inputs first. ``generation``: how it generates.
    ``preprocess`` and ``postprocess``: names of functions before and behind it.
    """

    device: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    versions: VersionPolicy = "latest"
    warm_up: bool = False
    generation: Generation | None = None
    preprocess: str | None = None
    postprocess: str | None = None


def read_settings(text: str) -> ModelSettings:
    """Read the text of a ``model.toml``. Raises PropertyError that names the key."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PropertyError(f"model.toml: {error}") from None
    except RecursionError:
        raise PropertyError("model.toml: it nests too deep") from None
    for key in values:
        if key not in _KEYS:
            hint = nearest(key, _KEYS) or f"; known are {', '.join(_KEYS)}"
            raise PropertyError(f"model.toml: unknown key {key!r}{hint}", key)
    device = values.get("device")
    if device is not None and not isinstance(device, str):
        raise _wrong("device", "a text such as 'CPU'", device)
    properties = values.get("properties", {})
    if not isinstance(properties, dict):
        raise _wrong("properties", "a table", properties)
    warm_up = values.get("warm_up", False)
    if not isinstance(warm_up, bool):
        raise _wrong("warm_up", "true or false", warm_up)
    versions = _versions(values.get("versions", "latest"))
    generation = _generation(values["generate"]) if "generate" in values else None
    return ModelSettings(
        device,
        properties,
        versions,
        warm_up,
        generation,
        _function(values, "preprocess"),
        _function(values, "postprocess"),
    )


def _function(values: Mapping[str, object], key: str) -> str | None:
    name = values.get(key)
    if name is not None and not isinstance(name, str):
        raise _wrong(key, "a name such as 'module:function'", name)
    return name


def _generation(value: object) -> Generation:
    if not isinstance(value, dict) or not value.keys() <= set(_GENERATE_KEYS):
        raise _wrong("generate", f"a table with {', '.join(_GENERATE_KEYS)}", value)
    feed, steps, end = value.get("feed"), value.get("steps"), value.get("end", {})
    if not isinstance(feed, dict) or not all(isinstance(name, str) for name in feed.values()):
        raise _wrong("generate.feed", "a table output = 'input'", feed)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise _wrong("generate.steps", "a number of 1 or more", steps)
    if not isinstance(end, dict) or not all(
        isinstance(item, int | float) and not isinstance(item, bool) for item in end.values()
    ):
        raise _wrong("generate.end", "a table output = number", end)
    return Generation(feed, steps, end)


def _versions(value: object) -> VersionPolicy:
    if value == "latest":
        return "latest"
    if value == "all":
        return "all"
    if isinstance(value, list) and value:
        numbers = [item for item in value if isinstance(item, int) and not isinstance(item, bool)]
        if len(numbers) == len(value) and min(numbers) > 0:
            return tuple(numbers)
    raise _wrong("versions", "'latest', 'all' or a list of numbers above 0", value)


def _wrong(key: str, wanted: str, value: object) -> PropertyError:
    return PropertyError(f"model.toml: {key} is {value!r}; give {wanted}", key, value=value)


def wanted_versions(policy: VersionPolicy, there: list[int]) -> list[int]:
    """Return which of the versions that are there are served."""
    if policy == "all":
        return sorted(there)
    if policy == "latest":
        return [max(there)] if there else []
    return sorted(set(policy) & set(there))
