"""The content of a Constant node, from whichever attribute holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ModelError
from ..graph import Attribute

__all__ = ["constant_array"]

_DTYPES: Mapping[str, type] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


def constant_array(node: str, attributes: Mapping[str, Attribute]) -> np.ndarray[Any, Any]:
    """Give what a Constant holds; read-only. Raises ModelError if that is not one value."""
    if len(attributes) != 1:
        raise ModelError(f"Constant {node!r} needs one value")
    [(name, content)] = attributes.items()
    if name == "value" and isinstance(content, np.ndarray):
        return content
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise ModelError(f"Constant {node!r} has {name!r}, which is no constant's")
    array: np.ndarray[Any, Any] = np.array(content, dtype=dtype)
    array.flags.writeable = False
    return array
