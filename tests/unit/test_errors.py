"""Errors carry what they say, through pickle and copies; one table for all classes."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251 (of our own errors only)
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from aioinfer import errors
from aioinfer.errors import AioInferError

PLACE = {"network": "resnet", "device": "CPU", "model": "m.onnx", "node": "relu_3", "op": "Relu"}

CARRIED: dict[type[AioInferError], dict[str, Any]] = {
    errors.AioInferError: PLACE,
    errors.ModelError: PLACE,
    errors.GraphError: PLACE,
    errors.NotSupportedError: PLACE,
    errors.DeviceError: {
        **PLACE,
        "resource": "memory",
        "needed_bytes": 9,
        "limit_bytes": 5,
        "install": "pip install aioinfer[cpu]",
    },
    errors.PropertyError: {
        "key": "NUM_STREAMS",
        "value": -3,
        "device": "CPU",
        "network": "resnet",
    },
    errors.TensorError: {
        **PLACE,
        "tensor": "image",
        "shape": (1, 3),
        "wanted_shape": ("N", 4),
        "dtype": "int64",
        "wanted_dtype": "float32",
    },
    errors.RequestStateError: {**PLACE, "request_id": 7, "state": "idle", "stage": ""},
    errors.RequestBusyError: {**PLACE, "request_id": 7, "state": "busy", "stage": "compute"},
    errors.RequestCancelledError: {**PLACE, "request_id": 7, "state": "", "stage": "compute"},
    errors.DeadlineExceededError: {
        **PLACE,
        "deadline_s": 0.5,
        "elapsed_s": 0.51,
        "stage": "compute",
        "request_id": 7,
    },
    errors.OverloadedError: {**PLACE, "waiting_count": 4, "limit": 4},
    errors.ClosedError: {**PLACE, "is_after_fork": True},
    errors.BlobError: {**PLACE, "version": 1, "wanted_version": 2},
}
"""What each class is given by name, and has as attributes of these names."""


REFUSAL = {"node": "relu_3", "op": "Relu", "device": "CPU", "reason": "no bool"}
MAKERS: list[tuple[Callable[..., AioInferError], dict[str, Any]]] = [
    *((partial(kind, "what, where, the way out"), carried) for kind, carried in CARRIED.items()),
    (errors.UnsupportedOpError, REFUSAL),
    (errors.UnsupportedOpError, {**REFUSAL, "way_out": "wait"}),
]
WAYS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda error: error,
    "pickled": lambda error: pickle.loads(pickle.dumps(error)),  # noqa: S301
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
}


def test_the_table_has_every_class() -> None:
    public = {getattr(errors, name) for name in errors.__all__}
    kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, Exception)}
    assert {type(make(**carried)) for make, carried in MAKERS} == kinds


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("make", "carried"), MAKERS)
def test_an_error_carries_what_it_was_given(
    make: Callable[..., AioInferError], carried: dict[str, Any], way: str
) -> None:
    error = make(**carried)
    error.add_note("item 3 of the stream")
    found = WAYS[way](error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert {name: getattr(found, name) for name in carried} == carried
    assert vars(found) == vars(error)
    assert found.__notes__ == ["item 3 of the stream"]


@pytest.mark.parametrize(("make", "carried"), MAKERS)
def test_what_an_error_carries_is_in_its_docstring(
    make: Callable[..., AioInferError], carried: dict[str, Any]
) -> None:
    error = make(**carried)
    kinds = [kind for kind in type(error).__mro__ if issubclass(kind, AioInferError)]
    text = "".join(kind.__doc__ or "" for kind in kinds)
    assert [name for name in vars(error) if f"``{name}``" not in text] == []


def test_an_error_without_anything_but_words_has_empty_attributes() -> None:
    for kind in CARRIED:
        error = kind("words")
        assert [value for value in vars(error).values() if value] in ([], ["words"])


def test_a_place_that_is_named_already_stays() -> None:
    error = errors.TensorError("x is wrong", tensor="x", network="inner")
    error.within(network="outer", device="CPU")
    assert (error.network, error.device, error.tensor) == ("inner", "CPU", "x")
