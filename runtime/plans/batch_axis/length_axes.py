"""Where a length that inputs share, such as that of a sequence, comes back in the outputs.

Lengths are followed through the nodes as symbols, as the batch is. Where that does not tell (a
table of positions that is cut to the sequence is as long as the shorter of both), the shapes of all
values are computed for the lengths in question: what is as long as the sequence for every one of
them is taken to be so, and what is the same for all not to depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count

from ...graph import Model, Shape, TensorType, Value
from ...type_inference import ContradictionError, infer_graph_types
from .analysis import Walk, batch_of, forget_types
from .length_content import check_length_content
from .size import BATCH, Size, length_of, unknown_length
from .traced_value import NotApartError

__all__ = ["find_length_axes", "input_axes"]


def input_axes(inputs: Sequence[Value], dimension: str) -> dict[str, tuple[int, ...]]:
    """Return which axes of which inputs have a dimension of this name."""
    found = {}
    for value in inputs:
        axes = tuple(axis for axis, dim in enumerate(_shape(value)) if dim == dimension)
        if axes:
            found[value.name] = axes
    return found


def find_length_axes(
    model: Model, dimension: str, lengths: Collection[int]
) -> Mapping[str, tuple[int, ...]] | str:
    """Find the axes of each output that are as long as this dimension of inputs, or say why not.

    ``lengths`` are some that it will have. Outputs without such an axis are left out. What the file
    says of its outputs proves nothing. Refused is an output of which a length is unknown, or
    depends on the dimension in another way, a node that computes with the length, and a length that
    contradicts the model. For a model in which ``find_batch_axis`` has found a batch. Pure; the
    model is not changed. O(nodes) for each of the lengths.
    """
    told = _told_symbols(model.inputs)
    copied = model.copy()
    try:
        if not infer_graph_types(copied.graph):
            forget_types(copied)
        symbol, _ = batch_of(copied.inputs)
        walk = Walk(copied, symbol)
        check_length_content(copied, walk, dimension, told)
        computed = {length: _output_shapes(model, dimension, length) for length in lengths}
        axes = {}
        for value in copied.outputs:
            shapes = {length: found[value.name] for length, found in computed.items()}
            found = _axes_of(value.name, walk.of(value).dims, length_of(dimension), told, shapes)
            if found:
                axes[value.name] = found
        return axes
    except NotApartError as refused:
        return str(refused)
    finally:
        copied.dispose()


def _shape(value: Value) -> Shape:
    return (value.type.shape or ()) if isinstance(value.type, TensorType) else ()


def _told_symbols(inputs: Sequence[Value]) -> frozenset[str]:
    """List the symbols of lengths that callers choose: none of them is made of another."""
    told = {BATCH}
    for value in inputs:
        for axis, dim in enumerate(_shape(value)):
            size = unknown_length(value.name, axis) if dim is None else length_of(dim)
            told.update(size.symbols)
    return frozenset(told)


def _output_shapes(model: Model, dimension: str, length: int) -> dict[str, Shape | None]:
    """Compute the shapes of outputs for this length, others of inputs chosen at will.

    None where shapes depend on data. Raises NotApartError for a length that the model contradicts.
    """
    copied, fresh = model.copy(), count(2)
    chosen: dict[object, int] = {dimension: length}
    try:
        for value in copied.inputs:
            if isinstance(value.type, TensorType) and value.type.shape is not None:
                dims = [
                    dim
                    if isinstance(dim, int)
                    else chosen.setdefault(dim or (value.name, axis), next(fresh))
                    for axis, dim in enumerate(value.type.shape)
                ]
                value.type = TensorType(value.type.dtype, tuple(dims))
        forget_types(copied)
        if not infer_graph_types(copied.graph):
            return dict.fromkeys(value.name for value in copied.outputs)
        return {value.name: _static(value) for value in copied.outputs}
    except ContradictionError as contradiction:
        raise NotApartError(f"a length of {length} contradicts the model: {contradiction}") from (
            contradiction
        )
    finally:
        copied.dispose()


def _static(value: Value) -> Shape | None:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return shape if shape is not None and all(isinstance(dim, int) for dim in shape) else None


def _axes_of(
    output: str,
    dims: tuple[Size, ...] | None,
    length: Size,
    told: frozenset[str],
    shapes: Mapping[int, Shape | None],
) -> tuple[int, ...]:
    """Return the axes of an output that are as long as the dimension."""
    known = [shape for shape in shapes.values() if shape is not None]
    ranks = {len(shape) for shape in known} if dims is None else {len(dims)}
    if len(ranks) != 1 or (dims is None and len(known) < len(shapes)):
        raise NotApartError(f"the rank of output {output!r} is unknown")
    axes = []
    for axis in range(ranks.pop()):
        dim = None if dims is None else dims[axis]
        if dim == length:
            axes.append(axis)
        elif dim is None or not told.issuperset(dim.symbols):
            made = {size: shape[axis] for size, shape in shapes.items() if shape is not None}
            if len(made) == len(shapes) and all(found == size for size, found in made.items()):
                axes.append(axis)
            elif len(made) < len(shapes) or len(set(made.values())) > 1:
                raise NotApartError(
                    f"it is not known whether dimension {axis} of output {output!r} is as long"
                )
        elif not set(length.symbols).isdisjoint(dim.symbols):
            raise NotApartError(f"dimension {axis} of output {output!r} is made of it and others")
    return tuple(axes)
