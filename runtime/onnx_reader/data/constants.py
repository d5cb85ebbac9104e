"""The content of a Constant node, from whichever attribute holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....errors import ModelError
from ...graph import Attribute

__all__ = ["constant_array"]

_KINDS: Mapping[str, tuple[type, type | tuple[type, ...], bool]] = {
    "value_float": (np.float32, float, False),
    "value_floats": (np.float32, float, True),
    "value_int": (np.int64, int, False),
    "value_ints": (np.int64, int, True),
    "value_string": (object, (str, bytes), False),
    "value_strings": (object, (str, bytes), True),
}
"""What each attribute makes, what its items are, and whether it is a list of them."""


def constant_array(node: str, attributes: Mapping[str, Attribute]) -> np.ndarray[Any, Any]:
    """Return what a Constant holds; read-only. Raises ModelError if that is not one value."""
    if len(attributes) != 1:
        raise ModelError(f"Constant {node!r} needs one value")
    [(name, content)] = attributes.items()
    if name == "value" and isinstance(content, np.ndarray):
        return content
    if name not in _KINDS:
        raise ModelError(f"Constant {node!r} has {name!r}, which is no constant's")
    dtype, item_type, is_list = _KINDS[name]
    items = content if isinstance(content, list) else [content]
    if isinstance(content, list) != is_list or not all(isinstance(i, item_type) for i in items):
        raise ModelError(f"Constant {node!r} has a {name!r} of another kind")
    array: np.ndarray[Any, Any] = np.array(content, dtype=dtype)
    array.flags.writeable = False
    return array
