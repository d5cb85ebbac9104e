"""What a server takes from a client at most; looked at before memory is taken."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AT_ONCE_BYTES", "VIEWED_BYTES", "Limits"]

AT_ONCE_BYTES = 64 << 10
"""What is read or written on the event loop; more of it goes to a thread."""
VIEWED_BYTES = 4 << 20
"""What is viewed there where no element need be read, or copied where it is not aligned."""


@dataclass(frozen=True)
class Limits:
    """Bounds on what one client may send; sizes in bytes, times in seconds.

    ``body_bytes``: a whole body or gRPC message. ``bodies_bytes``: all of them that are in memory
    together. ``json_bytes``: its JSON part, which takes some 30
    times that while it is read. ``json_list_count``: its lists and objects, each of which costs
    time of the whole process. ``json_depth``: how deep they nest. ``tensor_bytes``: one tensor
    in memory. ``tensor_count``: inputs, and requested outputs, of one request. ``rank``: dimensions
    of one tensor. ``head_bytes`` and ``header_count``: of an HTTP request's head. ``head_s`` and
    ``body_s``: how long a client may take to send it. ``connection_count``: open connections
    of HTTP, and as many of gRPC. ``call_count``: gRPC calls under way. ``stream_idle_s``: how long
    a stream of gRPC, which is one of them, may be without a request. ``sequence_count``:
    open sequences and generations under way; ``sequence_idle_s``: when one that is not used ends.
    ``region_count``: registered regions of shared memory, where that is switched on.
    """

    body_bytes: int = 64 << 20
    bodies_bytes: int = 512 << 20
    json_bytes: int = 16 << 20
    json_list_count: int = 200_000
    json_depth: int = 32
    tensor_bytes: int = 64 << 20
    tensor_count: int = 256
    rank: int = 16
    head_bytes: int = 64 << 10
    header_count: int = 100
    head_s: float = 10.0
    body_s: float = 60.0
    connection_count: int = 1024
    call_count: int = 1024
    stream_idle_s: float = 300.0
    sequence_count: int = 256
    sequence_idle_s: float = 60.0
    region_count: int = 64
