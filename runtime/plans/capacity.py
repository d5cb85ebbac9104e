"""Refusing a model that could never run here, before a kernel tries."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence

from ...errors import DeviceError
from ..graph import Graph, Node, TensorType, Value, size_bytes

__all__ = ["COUNTED_IN_32_BITS", "find_uncountable", "memory_bytes", "refuse_what_cannot_fit"]

COUNTED_IN_32_BITS = 2**31 - 1
"""The longest axis, stride or window of kernels that count in 32 bits."""

_MOST_AXES = 64
"""What an array of numpy may have, and so what comes into a network and goes out of it."""
_MOST_BYTES = 2**63 - 1
"""What one array may have on any device, axes of length 0 left out."""

_COUNTS = {
    "block_size",
    "blocksize",
    "dilations",
    "group",
    "hidden_size",
    "kernel_shape",
    "output_padding",
    "output_shape",
    "pads",
    "size",
    "strides",
}
"""Attributes that count elements along an axis."""


def refuse_what_cannot_fit(
    graph: Graph, limit_bytes: int | None = None, most_length: int | None = None
) -> None:
    """Raise DeviceError for what this device can never hold or count, naming node and type.

    That is a value which alone is larger than the memory: numpy might not fail but compute for
    days, or be ended by the operating system. Looks at the static types of the main graph;
    ``limit_bytes`` is the machine's memory if None. ``most_length`` bounds lengths, for a device
    whose kernels do not count in 64 bits.
    """
    limit = memory_bytes() if limit_bytes is None else limit_bytes
    for value, lead in _values(graph):
        _refuse_uncountable(value, lead, most_length)
    for node in graph.nodes:
        for value in node.outputs:
            needed = size_bytes(value.type)
            if limit is not None and needed is not None and needed > limit:
                raise DeviceError(
                    f"{node.op} (node {node.name!r}) would make {value.name!r}, {value.type}, of "
                    f"{needed >> 20} MiB, and there are {limit >> 20} MiB of memory; use smaller "
                    f"inputs, or look whether the model file is damaged",
                    resource="memory",
                    needed_bytes=needed,
                    limit_bytes=limit,
                    node=node.name,
                    op=node.op,
                )


def find_uncountable(node: Node, most_length: int) -> str | None:
    """Return which attribute of a node is beyond what kernels count to, or None."""
    for name, found in node.attributes.items():
        numbers: Sequence[object] = found if isinstance(found, list) else [found]
        if name in _COUNTS and any(
            isinstance(number, int) and abs(number) > most_length for number in numbers
        ):
            return f"{name} is {found}, and this device cannot count beyond {most_length}"
    return None


def _values(graph: Graph) -> Iterator[tuple[Value, str]]:
    """Walk what goes into a graph and what its nodes make, with words on where it is from."""
    for value in graph.inputs:
        yield value, "the network has"
    for value in graph.initializers.values():
        yield value, "the network has"
    for node in graph.nodes:
        for value in node.outputs:
            yield value, f"{node.op} (node {node.name!r}) would make"


def _refuse_uncountable(value: Value, lead: str, most_length: int | None) -> None:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.shape is None:
        return
    if len(kind.shape) > _MOST_AXES:
        raise DeviceError(
            f"{lead} {value.name!r} with {len(kind.shape)} axes, and no array has more than "
            f"{_MOST_AXES}; look whether the model file is damaged"
        )
    lengths = [dim for dim in kind.shape if isinstance(dim, int) and dim]
    count = kind.dtype.item_bytes
    for length in lengths:
        count *= length
    if count > _MOST_BYTES:
        raise DeviceError(
            f"{lead} {value.name!r}, {kind}, and no array can be that large; look whether the "
            f"model file is damaged"
        )
    if most_length is not None and any(length > most_length for length in lengths):
        raise DeviceError(
            f"{lead} {value.name!r}, {kind}, and this device has no axes longer than "
            f"{most_length}; use smaller inputs, or the device REFERENCE"
        )


@functools.cache
def memory_bytes() -> int | None:
    """Return how much memory the machine has; None where that cannot be asked."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
