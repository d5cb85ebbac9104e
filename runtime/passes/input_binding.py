"""Giving symbols the lengths that the shapes of given inputs imply."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from ...errors import TensorError, nearest
from ..graph import Dim, Shape, TensorType, Value, shape_text

__all__ = ["bind_shape", "bound_input_shapes", "symbol_bindings"]


def symbol_bindings(
    inputs: Sequence[Value], input_shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Find the length of every symbol that the given shapes determine.

    ``inputs`` are those of the model; not all need a shape. Pure. Raises TensorError for a name
    that is no input (with the nearest one), an input that is no tensor, a rank or length that
    contradicts the model, and a symbol that would have two lengths.
    """
    known = {value.name: value for value in inputs}
    bound: dict[str, int] = {}
    origin: dict[str, str] = {}
    for name, given in input_shapes.items():
        if name not in known:
            raise TensorError(
                f"the model has no input {name!r}{nearest(name, known)}; it has {sorted(known)}",
                tensor=name,
            )
        lengths = _lengths(name, given)
        for axis, dim in enumerate(_declared(known[name], lengths)):
            length = lengths[axis]
            if isinstance(dim, int) and dim != length:
                raise TensorError(
                    f"input {name!r} cannot have the shape {shape_text(lengths)}: axis {axis} of "
                    f"{known[name].type} is {dim}",
                    tensor=name,
                    shape=lengths,
                    wanted_shape=_declared(known[name], lengths),
                )
            if isinstance(dim, str) and bound.setdefault(dim, length) != length:
                raise TensorError(
                    f"symbol {dim!r} would be {bound[dim]} (from input {origin[dim]!r}) and "
                    f"{length} (axis {axis} of input {name!r}); give shapes that agree",
                    tensor=name,
                    shape=lengths,
                )
            if isinstance(dim, str):
                origin.setdefault(dim, name)
    return bound


def bound_input_shapes(
    inputs: Sequence[Value], input_shapes: Mapping[str, Sequence[int]]
) -> dict[str, Shape]:
    """Return the shape of every tensor input whose rank is known, with the given lengths put in.

    Pure; raises what ``symbol_bindings`` raises. An input without a given shape gets the lengths of
    the symbols that others determine, and may keep some that stay open.
    """
    bindings = symbol_bindings(inputs, input_shapes)
    shapes: dict[str, Shape] = {}
    for value in inputs:
        if value.name in input_shapes:
            shapes[value.name] = _lengths(value.name, input_shapes[value.name])
        elif isinstance(value.type, TensorType) and value.type.shape is not None:
            shapes[value.name] = bind_shape(value.type.shape, bindings)
    return shapes


def bind_shape(shape: Sequence[Dim], bindings: Mapping[str, Dim]) -> Shape:
    """Put in what symbols have become; the others stay."""
    return tuple(bindings.get(dim, dim) if isinstance(dim, str) else dim for dim in shape)


def _lengths(name: str, given: Sequence[int]) -> tuple[int, ...]:
    try:
        lengths = tuple(
            length if isinstance(length, int) else operator.index(length) for length in given
        )
    except TypeError as error:
        raise TensorError(
            f"the shape of input {name!r} is no list of lengths: {error}", tensor=name
        ) from error
    if any(length < 0 for length in lengths):
        text = f"input {name!r} cannot have the shape {shape_text(lengths)}: below zero"
        raise TensorError(text, tensor=name, shape=lengths)
    return lengths


def _declared(value: Value, lengths: Sequence[int]) -> Shape:
    """Return the shape that the model declares; unknown lengths where it declares none."""
    if value.type is None:
        return (None,) * len(lengths)
    if not isinstance(value.type, TensorType):
        raise TensorError(
            f"input {value.name!r} is {value.type} and has no shape to give", tensor=value.name
        )
    if value.type.shape is None:
        return (None,) * len(lengths)
    if len(value.type.shape) != len(lengths):
        raise TensorError(
            f"input {value.name!r} cannot have the shape {shape_text(lengths)}: the model wants "
            f"{len(value.type.shape)} axes, {value.type}",
            tensor=value.name,
            shape=tuple(lengths),
            wanted_shape=value.type.shape,
        )
    return value.type.shape
