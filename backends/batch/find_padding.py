"""How a model's sequences are padded, by what its user says, checked before it is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import PropertyError, nearest
from ...runtime.graph import Model, TensorType, Value, shape_text
from ...runtime.plans.batch_axis import BatchAxis, find_length_axes, input_axes
from ...runtime.properties.properties import Configuration
from ...runtime.tensors.tensor import Port
from .length_padding import LengthAxes, LengthPadding
from .properties import (
    LENGTH_BUCKETS,
    LENGTH_DIMENSION,
    LENGTH_PROPERTIES,
    MASK_INPUT,
    PADDING_VALUES,
)

__all__ = ["find_padding", "imported_padding", "refuse_alone"]


def find_padding(model: Model, axis: BatchAxis, config: Configuration) -> LengthPadding | str:
    """Return how sequences are padded, or why an output cannot be cut back to a request's length.

    ``axis`` is that of the model's batch; LENGTH_BUCKETS is not empty. Raises PropertyError for
    what the user says and the model contradicts. Pure.
    """
    dimension = _dimension(model, axis, config)
    found = input_axes(model.inputs, dimension)
    buckets: tuple[int, ...] = config[LENGTH_BUCKETS]
    lengths = [*buckets, 1, *(bucket - 1 for bucket in buckets if bucket > 1)]
    outputs = find_length_axes(model, dimension, lengths)
    if isinstance(outputs, str):
        return f"it pads {dimension!r} ({LENGTH_BUCKETS.key}), and {outputs}"
    dtypes = {
        value.name: value.type.dtype.numpy
        for value in model.inputs
        if isinstance(value.type, TensorType)
    }
    values = _padding_values(found, dtypes, config)
    return LengthPadding(buckets, LengthAxes(found, outputs), values)


def imported_padding(
    axes: LengthAxes | None, inputs: Sequence[Port], config: Configuration
) -> LengthPadding | None:
    """Return how sequences of an imported network are padded, whose blob says where they are.

    Raises PropertyError as ``find_padding``, and where the network was exported without buckets.
    """
    if not config[LENGTH_BUCKETS]:
        refuse_alone(config)
        return None
    if axes is None:
        raise _error(
            config,
            LENGTH_BUCKETS.key,
            "the network was exported without, and does not know which lengths are padded; load "
            "the model with it",
        )
    dtypes = {port.name: port.dtype for port in inputs if port.dtype is not None}
    return LengthPadding(config[LENGTH_BUCKETS], axes, _padding_values(axes.inputs, dtypes, config))


def refuse_alone(config: Configuration) -> None:
    """Raise PropertyError for properties that mean nothing without LENGTH_BUCKETS."""
    for declared in LENGTH_PROPERTIES:
        if config[declared]:
            raise _error(
                config,
                declared.key,
                f"it says how sequences are padded, and {LENGTH_BUCKETS.key} does not say to which "
                f"lengths; give both or none",
            )


def _dimension(model: Model, axis: BatchAxis, config: Configuration) -> str:
    """Name the dimension to pad: the one that the user names, or the only one that there is."""
    wanted = config[LENGTH_DIMENSION]
    named, unnamed = _open_dimensions(model.inputs, axis)
    shapes = ", ".join(f"{value.name!r} {_shape(value)}" for value in model.inputs)
    if wanted:
        if wanted in named:
            return str(wanted)
        raise _error(
            config,
            LENGTH_DIMENSION.key,
            f"no input has a dimension {wanted!r} behind its batch{nearest(wanted, named)}; the "
            f"inputs are {shapes}",
        )
    if len(named) == 1 and not unnamed:
        return named[0]
    if unnamed:
        name, place = unnamed[0]
        why = (
            f"dimension {place} of input {name!r} is open and has no name; give it one with "
            f"Model.reshape, or say with {LENGTH_DIMENSION.key} which one is padded"
        )
    elif named:
        why = f"{' and '.join(map(repr, named))} are open; {LENGTH_DIMENSION.key} says which one"
    else:
        why = "no dimension of an input is open behind the batch"
    raise _error(config, LENGTH_BUCKETS.key, f"{why}; the inputs are {shapes}")


def _open_dimensions(
    inputs: Sequence[Value], axis: BatchAxis
) -> tuple[list[str], list[tuple[str, int]]]:
    """List the open dimensions behind the batch: the names, and where those without one are."""
    named: dict[str, None] = {}
    unnamed: list[tuple[str, int]] = []
    for value in inputs:
        shape = (value.type.shape or ()) if isinstance(value.type, TensorType) else ()
        for place, dim in enumerate(shape):
            if place == 0 and value.name in axis.inputs:
                continue
            if dim is None:
                unnamed.append((value.name, place))
            elif isinstance(dim, str):
                named[dim] = None
    return list(named), unnamed


def _padding_values(
    axes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, np.dtype[Any]], config: Configuration
) -> dict[str, int | float | str]:
    """Return what each of these inputs is padded with; raises PropertyError for what cannot be."""
    mask, given = str(config[MASK_INPUT]), config[PADDING_VALUES]
    padded = ", ".join(map(repr, axes))
    for key, names in ((MASK_INPUT.key, [mask] if mask else []), (PADDING_VALUES.key, given)):
        for name in names:
            if name not in axes:
                raise _error(
                    config,
                    key,
                    f"input {name!r} is none of those that are padded{nearest(name, axes)}; they "
                    f"are {padded}",
                )
    if mask and given.get(mask):
        raise _error(
            config,
            PADDING_VALUES.key,
            f"{given[mask]!r} for {mask!r}, which is the {MASK_INPUT.key} and padded with 0",
        )
    values: dict[str, int | float | str] = {}
    for name in axes:
        dtype = dtypes[name]
        if name not in given and not mask:
            raise _error(
                config,
                PADDING_VALUES.key,
                f"nothing is said of input {name!r}; without a {MASK_INPUT.key} each padded input "
                f"needs a value that the model takes for padding: {padded}",
            )
        default = "" if dtype.hasobject else 0
        values[name] = given.get(name, default)
        if not _holds(dtype, values[name]):
            raise _error(
                config,
                PADDING_VALUES.key,
                f"input {name!r} is {'string' if dtype.hasobject else dtype}, which cannot hold "
                f"{values[name]!r}",
            )
    return values


def _holds(dtype: np.dtype[Any], value: int | float | str) -> bool:
    """True if a value is a number, or a text, of this type."""
    if dtype.hasobject or isinstance(value, str):
        return dtype.hasobject and isinstance(value, str)
    try:
        with np.errstate(all="ignore"):
            back = np.array(value).astype(dtype).item()
            is_finite = math.isfinite(back)
    except (OverflowError, ValueError, TypeError):
        return False
    if isinstance(back, float):
        return is_finite == math.isfinite(value)
    return bool(back == value)


def _shape(value: Value) -> str:
    return shape_text(value.type.shape) if isinstance(value.type, TensorType) else "no tensor"


def _error(config: Configuration, key: str, why: str) -> PropertyError:
    return PropertyError(
        f"{config.device}: {key} does not fit the model: {why}",
        key,
        config.device,
        value=config[key],
    )
