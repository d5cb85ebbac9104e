"""The error classes: one root, and messages that name the thing, the place and the way out.

What a handler may need besides the text is an attribute of the error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "AioInferError",
    "BlobError",
    "ClosedError",
    "DeadlineExceededError",
    "DeviceError",
    "GraphError",
    "ModelError",
    "NotSupportedError",
    "OverloadedError",
    "PropertyError",
    "RequestBusyError",
    "RequestCancelledError",
    "RequestStateError",
    "TensorError",
    "UnsupportedOpError",
    "nearest",
]


class AioInferError(Exception):
    """The root of every error that aioinfer raises on purpose."""


class ModelError(AioInferError):
    """A model file cannot be read, or what it says is not a valid model."""


class GraphError(AioInferError):
    """An invariant of the graph, or a precondition of a graph algorithm, does not hold."""


class NotSupportedError(AioInferError):
    """This device, or this build, cannot do what was asked for."""


class UnsupportedOpError(NotSupportedError):
    """A device has no kernel for a node of the model."""

    def __init__(
        self, node: str, op: str, device: str, reason: str, way_out: str | None = None
    ) -> None:
        way_out = way_out or _way_out(device, node)
        super().__init__(f"{device} cannot run {op} (node {node!r}): {reason}; {way_out}")
        self.node, self.op, self.device, self.reason = node, op, device, reason

    def told_to(self, device: str) -> UnsupportedOpError:
        """Return this refusal with a way out for the device that the user named."""
        way_out = _way_out(device, self.node)
        return UnsupportedOpError(self.node, self.op, self.device, self.reason, way_out)


def _way_out(device: str, node: str) -> str:
    """Return how a node can run that this device refuses; never on the same device."""
    kind, _, listed = device.partition(":")
    if listed:
        return (
            f"give the node to another device with AFFINITY={{{node!r}: ...}}, or change the list "
            f"of {device!r}"
        )
    if kind.partition(".")[0] == "REFERENCE":
        return "add the operator with Core.add_extension"
    return f"try device 'HETERO:{device},REFERENCE'"


class DeviceError(AioInferError):
    """A device is unknown, missing, cannot start, was lost, or lacks memory, threads or files."""


class PropertyError(AioInferError):
    """A property key is unknown, read-only, or was given a bad value."""

    def __init__(self, message: str, key: str = "", device: str = "") -> None:
        super().__init__(message)
        self.key, self.device = key, device


class TensorError(AioInferError):
    """An input or output has the wrong name, dtype or shape."""


class RequestStateError(AioInferError):
    """A request is in a state in which the call is not allowed."""


class RequestBusyError(RequestStateError):
    """The request runs; wait for it, cancel it, or use another request."""


class RequestCancelledError(RequestStateError):
    """The run was cancelled before it finished."""


class DeadlineExceededError(AioInferError, TimeoutError):
    """The run did not finish before its deadline."""


class OverloadedError(AioInferError):
    """The network's admission queue is full."""


class ClosedError(AioInferError):
    """The object was closed, or was made before a fork."""


class BlobError(AioInferError):
    """An exported network is damaged, foreign, or of another version."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that is meant, for the end of an error message; empty without one."""
    names = sorted(known)
    matches = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if not matches:
        matches = difflib.get_close_matches(
            word.casefold(), [name.casefold() for name in names], n=1, cutoff=0.5
        )
        matches = [name for name in names if matches and name.casefold() == matches[0]]
    return f"; did you mean {matches[0]!r}?" if matches else ""
