"""The error classes: one root, and messages that name the thing, the place and the way out.

What a message names is an attribute of the error, too: a handler need not read texts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Self, TypedDict, Unpack

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
    "Place",
    "PropertyError",
    "RequestBusyError",
    "RequestCancelledError",
    "RequestStateError",
    "TensorError",
    "UnsupportedOpError",
    "nearest",
    "placed",
]

Shape = tuple[int | str | None, ...]


class Place(TypedDict, total=False):
    """Where an error belongs, as far as its message names it."""

    network: str
    device: str
    model: str
    node: str
    op: str


class AioInferError(Exception):
    """The root of every error that aioinfer raises on purpose.

    ``network``, ``device``, ``model`` (its file), ``node`` and ``op`` (the node's operator) say
    where it belongs, as far as that was known, and are "" otherwise; numbers and shapes of the
    classes below are None then. An error can be pickled and copied: what it carries goes along, its
    cause does not.
    """

    def __init__(self, message: str = "", **place: Unpack[Place]) -> None:
        super().__init__(message)
        self.network = place.get("network", "")
        self.device = place.get("device", "")
        self.model = place.get("model", "")
        self.node = place.get("node", "")
        self.op = place.get("op", "")

    def within(self, **place: Unpack[Place]) -> None:
        """Note what it does not name yet of the place that it passes on its way to the caller."""
        for name, value in place.items():
            if not getattr(self, name):
                setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[AioInferError], args: tuple[Any, ...]) -> AioInferError:
    error = kind.__new__(kind)
    error.args = args
    return error


class ModelError(AioInferError):
    """A model file cannot be read, or what it says is not a valid model.

    ``reason``: the message without the name of the model.
    """

    def __init__(self, message: str = "", **place: Unpack[Place]) -> None:
        super().__init__(message, **place)
        self.reason = message

    def of_model(self, label: str, model: str) -> Self:
        """Return the same error with what the model is called before its message."""
        named = copy.copy(self)
        named.args, named.model = (f"{label}: {self.reason}",), model
        return named


class GraphError(AioInferError):
    """An invariant of the graph, or a precondition of a graph algorithm, does not hold."""


class NotSupportedError(AioInferError):
    """This device, or this build, cannot do what was asked for."""


class UnsupportedOpError(NotSupportedError):
    """A device has no kernel for a node of the model.

    ``reason``: why the device refuses it; ``way_out``: what to do instead.
    """

    def __init__(
        self, node: str, op: str, device: str, reason: str, way_out: str | None = None
    ) -> None:
        way_out = way_out or _way_out(device, node, op)
        text = f"{device} cannot run {op} (node {node!r}): {reason}; {way_out}"
        super().__init__(text, node=node, op=op, device=device)
        self.reason, self.way_out = reason, way_out

    def told_to(self, device: str) -> UnsupportedOpError:
        """Return this refusal with a way out for the device that the user named."""
        way_out = _way_out(device, self.node, self.op)
        return UnsupportedOpError(self.node, self.op, self.device, self.reason, way_out)


_MADE_OF_DEVICES = ("AUTO", "HETERO")
_ONNX_DOMAINS = ("", "ai.onnx.ml")


def _way_out(device: str, node: str, op: str) -> str:
    """Return how a node can run that this device refuses; never on the same device."""
    kind, _, listed = device.partition(":")
    if listed:
        return (
            f"give the node to another device with AFFINITY={{{node!r}: ...}}, or change the list "
            f"of {device!r}"
        )
    if kind.partition(".")[0] == "REFERENCE":
        return "add the operator with Core.add_extension"
    if kind in _MADE_OF_DEVICES:
        return "change the list of its devices, in MULTI_DEVICE_PRIORITIES"
    domain, _, _ = op.rpartition("::")
    given = (
        ""
        if domain in _ONNX_DOMAINS
        else ", with the operator given to REFERENCE by Core.add_extension"
    )
    return f"try device 'HETERO:{device},REFERENCE'{given}"


class DeviceError(AioInferError):
    """A device is unknown, missing, cannot start, was lost, or lacks memory, threads or files.

    ``resource``: what there is too little of, "memory", "threads" or "files"; "" for other reasons.
    ``needed_bytes`` and ``limit_bytes``: how much memory is wanted, and how much there may be.
    ``install``: the command that installs what a device lacks to be there, "" for other reasons.
    """

    def __init__(
        self,
        message: str = "",
        *,
        resource: Literal["memory", "threads", "files", ""] = "",
        needed_bytes: int | None = None,
        limit_bytes: int | None = None,
        install: str = "",
        **place: Unpack[Place],
    ) -> None:
        super().__init__(message, **place)
        self.resource, self.needed_bytes, self.limit_bytes = resource, needed_bytes, limit_bytes
        self.install = install


class PropertyError(AioInferError):
    """A property key is unknown, read-only, or was given a bad value.

    ``key``: the property's, or the argument's name; ``value``: what was given for it.
    """

    def __init__(
        self,
        message: str = "",
        key: str = "",
        device: str = "",
        *,
        value: Any = None,
        network: str = "",
    ) -> None:
        super().__init__(message, device=device, network=network)
        self.key, self.value = key, value


class TensorError(AioInferError):
    """An input or output has the wrong name, dtype or shape, or a node fails on what it is given.

    ``tensor``: the name of the input or output. ``shape`` and ``wanted_shape``, ``dtype`` and
    ``wanted_dtype``: what was given, and what is wanted, where these do not fit.
    """

    def __init__(
        self,
        message: str = "",
        *,
        tensor: str = "",
        shape: Shape | None = None,
        wanted_shape: Shape | None = None,
        dtype: str = "",
        wanted_dtype: str = "",
        **place: Unpack[Place],
    ) -> None:
        super().__init__(message, **place)
        self.tensor = tensor
        self.shape, self.wanted_shape = shape, wanted_shape
        self.dtype, self.wanted_dtype = dtype, wanted_dtype


class RequestStateError(AioInferError):
    """A request is in a state in which the call is not allowed.

    ``request_id``: which request or run of the network; ``state``: "idle", "busy" or "cancelled";
    ``stage``: where its run is, "" outside of one.
    """

    def __init__(
        self,
        message: str = "",
        *,
        request_id: int | None = None,
        state: str = "",
        stage: str = "",
        **place: Unpack[Place],
    ) -> None:
        super().__init__(message, **place)
        self.request_id, self.state, self.stage = request_id, state, stage


class RequestBusyError(RequestStateError):
    """The request runs; wait for it, cancel it, or use another request."""


class RequestCancelledError(RequestStateError):
    """The run was cancelled before it finished; ``stage`` is where it was then."""


class DeadlineExceededError(AioInferError, TimeoutError):
    """The run did not finish before its deadline.

    ``deadline_s``: what it was given; ``elapsed_s``: how long after its start it was stopped;
    ``stage``: where it was then, "" while it waited for a slot; ``request_id``: which run it was.
    """

    def __init__(
        self,
        message: str = "",
        *,
        deadline_s: float | None = None,
        elapsed_s: float | None = None,
        stage: str = "",
        request_id: int | None = None,
        **place: Unpack[Place],
    ) -> None:
        super().__init__(message, **place)
        self.deadline_s, self.elapsed_s = deadline_s, elapsed_s
        self.stage, self.request_id = stage, request_id


class OverloadedError(AioInferError):
    """As many wait already as may: runs of a network for a slot, or models for a helper process.

    ``waiting_count``: how many waited; ``limit``: how many may (MAX_QUEUED_REQUESTS).
    """

    def __init__(
        self,
        message: str = "",
        *,
        waiting_count: int | None = None,
        limit: int | None = None,
        **place: Unpack[Place],
    ) -> None:
        super().__init__(message, **place)
        self.waiting_count, self.limit = waiting_count, limit


class ClosedError(AioInferError):
    """The object was closed, or was made before a fork.

    ``is_after_fork``: it is that of the parent process, which may still have it open.
    """

    def __init__(
        self, message: str = "", *, is_after_fork: bool = False, **place: Unpack[Place]
    ) -> None:
        super().__init__(message, **place)
        self.is_after_fork = is_after_fork


class BlobError(AioInferError):
    """An exported network is damaged, foreign, or of another version.

    ``version`` and ``wanted_version``: of the blob's format, where these differ.
    """

    def __init__(
        self,
        message: str = "",
        *,
        version: int | None = None,
        wanted_version: int | None = None,
        **place: Unpack[Place],
    ) -> None:
        super().__init__(message, **place)
        self.version, self.wanted_version = version, wanted_version


@contextmanager
def placed(**place: Unpack[Place]) -> Iterator[None]:
    """Note on errors of ours that pass what they do not name yet of this place."""
    try:
        yield
    except AioInferError as error:
        error.within(**place)
        raise


_LONGEST_WORD = 200  # a stranger's word of a megabyte would take half a second to compare


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that is meant, for the end of an error message; empty without one."""
    if len(word) > _LONGEST_WORD:
        return ""
    import difflib

    names = sorted(known)
    matches = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if not matches:
        matches = difflib.get_close_matches(
            word.casefold(), [name.casefold() for name in names], n=1, cutoff=0.5
        )
        matches = [name for name in names if matches and name.casefold() == matches[0]]
    return f"; did you mean {matches[0]!r}?" if matches else ""
