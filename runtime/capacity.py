"""Refusing a model that could never run here, before a kernel tries."""

from __future__ import annotations

import functools
import os

from ..errors import DeviceError
from .graph import Graph, size_bytes

__all__ = ["refuse_what_cannot_fit"]


def refuse_what_cannot_fit(graph: Graph, limit_bytes: int | None = None) -> None:
    """Raise DeviceError for a value that alone is larger than the memory, naming node and type.

    Numpy might not fail but compute for days, or be ended by the operating system. Looks at the
    static types of the main graph; ``limit_bytes`` is the machine's memory if None.
    """
    limit = _memory_bytes() if limit_bytes is None else limit_bytes
    for node in graph.nodes:
        for value in node.outputs:
            needed = size_bytes(value.type)
            if limit is not None and needed is not None and needed > limit:
                raise DeviceError(
                    f"{node.op} (node {node.name!r}) would make {value.name!r}, {value.type}, of "
                    f"{needed >> 20} MiB, and there are {limit >> 20} MiB of memory; use smaller "
                    f"inputs, or look whether the model file is damaged"
                )


@functools.cache
def _memory_bytes() -> int | None:
    """Tell how much memory the machine has; None where that cannot be asked."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
