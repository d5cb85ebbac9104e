"""Tensors that lie in shared memory, and how a request names their places. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .fields import Fields
from .refusal import RefusedError

__all__ = ["Place", "Regions", "SharedInput", "place_parameters", "read_place"]

_REGION, _OFFSET, _SIZE = (
    "shared_memory_region",
    "shared_memory_offset",
    "shared_memory_byte_size",
)


class Place(Protocol):
    """Bytes of a region that a client registered, within its bounds; read and written by copies.

    Both methods raise RefusedError where the memory is not there any more. Used on any thread.
    """

    @property
    def region(self) -> str: ...

    @property
    def offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    def read(self) -> memoryview: ...

    def write(self, data: memoryview) -> None: ...


class Regions(Protocol):
    """What clients have registered."""

    def place(self, region: str, offset: int, size: int, field: str) -> Place:
        """Find bytes of a region. Raises RefusedError for what is not within one."""
        ...


class SharedInput(NamedTuple):
    """An input that is still in shared memory; ``field`` is where in the request it is named."""

    name: str
    datatype: str
    shape: Sequence[int]
    place: Place
    field: str


def read_place(parameters: Fields, regions: Regions | None) -> Place | None:
    """Return where a tensor's parameters say that it lies; None: in the request.

    regions: None: the server has none, and all are refused. Raises RefusedError.
    """
    if not parameters.has(_REGION):
        return None
    field = parameters.field(_REGION)
    if regions is None:
        raise RefusedError("is not served here", field=field)
    if not parameters.has(_SIZE):
        raise RefusedError("is missing", field=parameters.field(_SIZE))
    name = parameters.text(_REGION)
    return regions.place(name, parameters.count(_OFFSET), parameters.count(_SIZE), field)


def place_parameters(place: Place, size: int) -> dict[str, str | int]:
    """Return the parameters of an output that was written there."""
    told: dict[str, str | int] = {_REGION: place.region, _SIZE: size}
    return {**told, _OFFSET: place.offset} if place.offset else told
