"""Arrays of every datatype of the protocol, sent with Triton's clients to the model of ``echo``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aioinfer.serving.protocol.datatypes import DATATYPES
from unit.serving.models import OF_DATATYPE

Array = np.ndarray[Any, Any]


def every_datatype(
    make_input: Callable[[str, list[int], str], Any],
) -> tuple[dict[int, Array], list[Any]]:
    """Make an array (1, 3) of each datatype, by the number of its type, and the client's inputs."""
    arrays, inputs = {}, []
    for datatype, number in OF_DATATYPE.items():
        array = np.array([[0, 1, 2]]).astype(DATATYPES[datatype].numpy)
        if datatype == "BYTES":
            array = np.array([["", "ü", "b"]], object)
        arrays[int(number)] = array
        given = make_input(f"in_{int(number)}", [1, 3], datatype)
        given.set_data_from_numpy(array)
        inputs.append(given)
    return arrays, inputs


def assert_echoed(told: Any, arrays: dict[int, Array]) -> None:
    """Check that a client's result holds each array as it was sent."""
    for number, array in arrays.items():
        got = told.as_numpy(f"out_{number}")
        if array.dtype == object:
            assert [item.decode() for item in got.ravel()] == array.ravel().tolist()
        else:
            np.testing.assert_array_equal(got.astype(array.dtype), array)
