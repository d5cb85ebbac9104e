"""GatherND, ScatterND and ScatterElements: elements read and written at places that arrays say.

onnx.reference does it in loops over elements, and takes any index for a good one. numpy looks at
all indices before it goes by them, without its lock: it is given copies, since a caller's own array
may change in between.
"""

from __future__ import annotations

import numpy as np

from ..plain_operators import Array, plain

__all__ = [
    "gather_nd",
    "own_places",
    "places_by_axis",
    "scatter_elements",
    "scatter_nd",
    "sequence_places",
    "tensor_scatter",
    "write_elements",
    "write_nd",
]

_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
}


@plain("GatherND", since=11, later={"batch_dims": 12})
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """Take what lies at each place; the first ``batch_dims`` axes of both go together.

    indices: (..., K), places on the K axes behind. Raises IndexError for one outside.
    """
    if batch_dims == 0 and indices.shape[-1] == 1 and x.ndim:
        return x.take(indices[..., 0], 0)  # which looks at each index once, as it goes by it
    if indices.shape[:batch_dims] != x.shape[:batch_dims]:
        raise ValueError(f"shapes {x.shape} and {indices.shape} differ in their batch")
    rank = indices.ndim - 1
    own = [
        np.arange(length).reshape([-1 if at == axis else 1 for at in range(rank)])
        for axis, length in enumerate(x.shape[:batch_dims])
    ]
    return np.asarray(x[(*own, *places_by_axis(indices))])


@plain("ScatterElements", since=11, later={"reduction": 16})
def scatter_elements(
    x: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none"
) -> Array:
    """Copy, and do as ``write_elements`` does."""
    return write_elements(x.copy(), indices, updates, axis=axis, reduction=reduction)


def write_elements(
    made: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none"
) -> Array:
    """Write or accumulate in place an update for each index along an axis; gives ``made``.

    Raises IndexError for an index outside, and for an axis that is not there; ValueError for
    updates that are not as many as the indices.
    """
    along = range(made.ndim)[axis]
    _expect_shape(updates, indices.shape)
    others = [at for at in range(made.ndim) if at != along]
    is_inside = all(indices.shape[at] <= made.shape[at] for at in others)
    lines = _line_places(indices, along) if reduction == "none" and is_inside else None
    if lines is not None:
        _write_lines(made, indices.shape, lines, updates, along)
        return made
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = own_places(indices)
    return _write(made, tuple(places), updates, reduction)


def _line_places(indices: Array, axis: int) -> Array | None:
    """Return the places along an axis if they are the same everywhere, as an Expand makes them.

    Comparing them is an eighth of the time that places of their own take.
    """
    if not indices.size:
        return None
    first = [slice(None) if at == axis else slice(1) for at in range(indices.ndim)]
    lines = own_places(indices[tuple(first)])
    strides = [*indices.strides]
    del strides[axis]
    is_repeated = not any(strides) or bool((indices == lines).all())
    return lines.reshape(-1) if is_repeated else None


def _write_lines(
    made: Array, counts: tuple[int, ...], lines: Array, updates: Array, axis: int
) -> None:
    """Write whole lines, of ``counts`` elements on the other axes."""
    part = made[tuple([slice(None if at == axis else n) for at, n in enumerate(counts)])]
    np.moveaxis(part, axis, 0)[lines] = np.moveaxis(updates, axis, 0)


@plain("ScatterND", since=11, later={"reduction": 16})
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """Copy, and do as ``write_nd`` does."""
    return write_nd(x.copy(), indices, updates, reduction=reduction)


def write_nd(made: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """Write or accumulate in place an update at each place.

    Raises IndexError for a place outside, ValueError for updates that are not as many.
    """
    _expect_shape(updates, indices.shape[:-1] + made.shape[indices.shape[-1] :])
    return _write(made, places_by_axis(indices), updates, reduction)


@plain("TensorScatter", since=24)
def tensor_scatter(
    cache: Array,
    update: Array,
    write_indices: Array | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Array:
    """Copy a cache, and write an update along an axis: of each sequence from its place on.

    A circular one goes on at its beginning. Raises IndexError for a place outside.
    """
    places = sequence_places(cache, update, write_indices, axis, mode)
    return _write(cache.copy(), places, update, "none")


def sequence_places(
    cache: Array, update: Array, write_indices: Array | None, axis: int, mode: str
) -> tuple[Array, ...]:
    """Return where TensorScatter writes an update into a cache, as an index for numpy."""
    axis %= cache.ndim
    lengths = *cache.shape[:axis], update.shape[axis], *cache.shape[axis + 1 :]
    if update.shape != lengths or update.shape[axis] > cache.shape[axis]:
        raise ValueError(f"an update {list(update.shape)} for a cache {list(cache.shape)}")
    places: list[Array] = list(np.indices(update.shape, sparse=True))
    if write_indices is not None:
        starts = own_places(write_indices)
        if starts.shape != cache.shape[:1]:
            raise ValueError(f"{list(starts.shape)} places for {cache.shape[0]} sequences")
        if (starts < 0).any():
            raise IndexError(f"place {starts.min()} is before the beginning of a cache")
        places[axis] = places[axis] + starts.reshape(-1, *[1] * (cache.ndim - 1))
    if mode == "circular":
        places[axis] = places[axis] % cache.shape[axis]
    return tuple(places)


def _expect_shape(updates: Array, shape: tuple[int, ...]) -> None:
    """Refuse what numpy would repeat."""
    if updates.shape != shape:
        raise ValueError(f"updates are of shape {list(updates.shape)}, and {list(shape)} is wanted")


def own_places(indices: Array) -> Array:
    """Copy indices, so that what was found to be inside is what is gone by."""
    return np.array(indices, np.intp)


def places_by_axis(indices: Array) -> tuple[Array, ...]:
    """Return places (..., K) as an index for numpy: a copy for each of the K axes."""
    own = own_places(indices)
    return tuple([own[..., axis] for axis in range(own.shape[-1])])


def _write(made: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    if reduction == "none":
        made[places] = updates
    else:
        _REDUCTIONS[reduction].at(made, places, updates)
    return made
