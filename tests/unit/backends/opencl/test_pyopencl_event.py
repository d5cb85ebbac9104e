from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.opencl import pyopencl_driver
from aioinfer.backends.opencl.pyopencl_event import PyOpenClEvent


class LibraryError(Exception):
    code = -14


def name_of(status: int) -> str:
    names = {-5: "OUT_OF_RESOURCES"}
    if status not in names:
        raise ValueError(status)
    return names[status]


LIBRARY = SimpleNamespace(Error=LibraryError, status_code=SimpleNamespace(to_string=name_of))


class Raw:
    """As much of a library's event as is asked for its end."""

    def __init__(self, status: int) -> None:
        self.command_execution_status = status

    def wait(self) -> None:
        if self.command_execution_status < 0:
            raise LibraryError("clWaitForEvents failed")


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (-5, ErrorKind.OUT_OF_RESOURCES, r"OUT_OF_RESOURCES \(-5\)"),
        (-2, ErrorKind.LOST, "-2"),
        (-36, ErrorKind.LOST, "-36"),
        (-4, ErrorKind.OUT_OF_MEMORY, "-4"),
        (-1093, ErrorKind.OTHER, "the driver's error -1093"),
    ],
)
def test_a_failed_command_knows_why_and_who_waits_for_it_does_not(
    status: int, kind: ErrorKind, text: str
) -> None:
    event = PyOpenClEvent(LIBRARY, Raw(status))
    with pytest.raises(DriverError) as caught:
        event.wait()
    assert caught.value.kind is ErrorKind.WAITED_FOR_FAILURE
    failure = event.failure
    assert failure is not None
    assert (failure.kind, event.is_over) == (kind, True)
    with pytest.raises(DriverError, match=text):
        raise failure


@pytest.mark.parametrize(("status", "is_over"), [(3, False), (1, False), (0, True)])
def test_a_command_that_has_not_failed_has_no_failure(status: int, is_over: bool) -> None:
    event = PyOpenClEvent(LIBRARY, Raw(status))
    assert (event.is_over, event.failure) == (is_over, None)


def test_a_query_that_the_driver_refuses_is_a_driver_error() -> None:
    class Lost:
        @property
        def command_execution_status(self) -> int:
            raise LibraryError("INVALID_EVENT")

    with pytest.raises(DriverError, match="INVALID_EVENT"):
        _ = PyOpenClEvent(LIBRARY, Lost()).failure


def test_the_driver_begins_with_what_was_enqueued_before_a_marker_that_it_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flushed: list[str] = []

    def refuse(*arguments: Any, **named: Any) -> None:
        raise LibraryError("OUT_OF_HOST_MEMORY")

    library = SimpleNamespace(
        Error=LibraryError,
        command_queue_properties=SimpleNamespace(PROFILING_ENABLE=2),
        CommandQueue=lambda *_, **__: SimpleNamespace(flush=lambda: flushed.append("queue")),
        enqueue_marker=refuse,
    )
    monkeypatch.setattr(pyopencl_driver, "_library", lambda: library)
    queue = pyopencl_driver._Queue(library, None)
    with pytest.raises(DriverError, match="OUT_OF_HOST_MEMORY"):
        queue.marker([])
    assert flushed == ["queue"]
