"""Doing ahead what the first request of some shapes would pay for.

Inputs of ones are run like those of a request, on all devices of a network. What each stream or
slot keeps for itself is made by a run on each: the network knows where. A run in every slot takes
all slots before the first run starts, so that none gets two.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ...errors import ClosedError
from ...executors import HostReady, Ready, Then
from ..graph import DType, SequenceType, TensorType, Value, ValueType, shape_text
from ..passes import bound_input_shapes
from ..runs.admission import ticket_of
from ..runs.bindings import WARMING, Bindings
from ..runs.stage import Stop
from ..tensors.tensor import Port

__all__ = ["made_up_inputs", "run_in_slots", "shapes_to_warm_up", "warm_up_network"]

_log = logging.getLogger("aioinfer")

Shapes = Mapping[str, Sequence[int]]


class WarmedNetwork(Protocol):
    """What is asked of a network."""

    name: str
    device: str
    model_inputs: tuple[Port, ...]

    def start_run(self, bindings: Bindings, stop: Stop, after: Ready, then: Then) -> None:
        """Send a run to the device as soon as a slot is free."""

    def begin_ahead(self, count: int) -> None:
        """Make room for the plans of that number of signatures."""

    def end_ahead(self) -> list[str]:
        """Return what is lost of what was asked for since, if any."""

    def run_everywhere(self, inputs: Mapping[str, Any], stop: Stop) -> None:
        """Run these inputs wherever a run may find something missing."""


def shapes_to_warm_up(
    ports: Sequence[Port], wanted: Iterable[Shapes]
) -> list[dict[str, tuple[int, ...]]]:
    """Complete signatures for all tensor inputs: what stays open is 1. Pure.

    Raises TensorError for shapes that contradict the model or each other.
    """
    values = [Value(port.name, port.type) for port in ports]
    return [
        {
            name: tuple(dim if isinstance(dim, int) else 1 for dim in shape)
            for name, shape in bound_input_shapes(values, shapes).items()
        }
        for shapes in wanted
    ]


def made_up_inputs(
    ports: Sequence[Port],
    shapes: Shapes,
    contents: Mapping[str, Any] | None = None,
    *,
    integer: int = 0,
) -> dict[str, Any]:
    """Make inputs of these shapes: real numbers are 1, integers 0, which every table has a row for.

    ``contents`` are known already; optional inputs are left empty. Pure.
    """
    known = contents or {}
    return {
        port.name: known[port.name]
        if port.name in known
        else _value(port.type, shapes.get(port.name), integer)
        for port in ports
    }


def warm_up_network(network: WarmedNetwork, wanted: Sequence[Shapes], stop: Stop) -> list[str]:
    """Run made up inputs of each signature, everywhere; list what failed and why. Blocks.

    Raises TensorError for shapes that contradict the model, ClosedError.
    """
    signatures = shapes_to_warm_up(network.model_inputs, wanted)
    network.begin_ahead(len(signatures))
    try:
        failures = _run_signatures(network, signatures, stop)
    finally:
        losses = network.end_ahead()
    for loss in losses:
        failures.append(f"network {network.name!r} on {network.device} is warm in part: {loss}")
        _log.warning("%s", failures[-1])
    return failures


def _run_signatures(
    network: WarmedNetwork, signatures: Sequence[Mapping[str, tuple[int, ...]]], stop: Stop
) -> list[str]:
    failures = []
    for shapes in signatures:
        error = _run_signature(network, shapes, 0, stop)
        if error is not None and _run_signature(network, shapes, 1, stop) is not None:
            texts = ", ".join(f"{name!r} {shape_text(dims)}" for name, dims in shapes.items())
            failures.append(
                f"network {network.name!r} on {network.device} fails on made up inputs, ones and "
                f"zeros of {texts or 'no tensor'}, so the first request of these shapes may take "
                f"longer: {error}"
            )
            _log.warning("%s", failures[-1])
    return failures


def run_in_slots(network: WarmedNetwork, inputs: Mapping[str, Any], count: int, stop: Stop) -> None:
    """Run the same inputs in several slots at once, and wait for all; raises the first error."""
    start = HostReady()
    ended = threading.Semaphore(0)
    errors: list[BaseException] = []

    def settle(error: BaseException | None) -> None:
        if error is not None:
            errors.append(error)
        ended.release()

    def then(ready: Ready, error: BaseException | None) -> None:
        ready.when_ready(lambda late: settle(error or late))

    started = 0
    try:
        for _ in range(count):
            bindings = Bindings(dict(inputs), ticket_of(0), arrived_ns=WARMING)
            network.start_run(bindings, stop, start, then)
            started += 1
    finally:
        try:
            start.fire()
        except MemoryError:  # for that call: what was started waits for it
            start.fire()
        for _ in range(started):
            ended.acquire()
    if errors:
        raise errors[0]


def _run_signature(
    network: WarmedNetwork, shapes: Mapping[str, tuple[int, ...]], integer: int, stop: Stop
) -> Exception | None:
    try:
        inputs = made_up_inputs(network.model_inputs, shapes, integer=integer)
        run_in_slots(network, inputs, 1, stop)
        stop.raise_if_set()
        network.run_everywhere(inputs, stop)
    except ClosedError:
        raise
    except Exception as error:  # the model's own, or the device's: a load must not fail by it
        return error
    return None


def _value(kind: ValueType | None, shape: Sequence[int] | None, integer: int) -> Any:
    if isinstance(kind, TensorType):
        if shape is None:
            shape = [dim if isinstance(dim, int) else 1 for dim in kind.shape or ()]
        if kind.dtype is DType.STRING:
            return np.full(shape, "", object)
        is_real = kind.dtype.numpy.kind not in "iub"
        return np.full(shape, 1 if is_real else integer, kind.dtype.numpy)
    if isinstance(kind, SequenceType):
        return [_value(kind.element, None, integer)]
    return None
