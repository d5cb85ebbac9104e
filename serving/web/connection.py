"""HTTP connections under bounds: the length and time of a head, and what may come ahead.

uvicorn bounds none of them with httptools, httptools keeps what it has of a header, and of several
requests on one connection uvicorn tells only the last one that the client has gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from ..protocol.http_response import refusal_body
from ..protocol.limits import Limits
from .answers import WHOLE_ANSWER
from .joined_writes import JoinedWrites

__all__ = ["connection_class"]

_AHEAD_COUNT = 64
_AHEAD_BYTES = 1 << 20
"""What may come of later requests while one is under way; no task waits for their answers yet."""


def connection_class(limits: Limits) -> type[asyncio.Protocol]:
    """Make the class of connections for uvicorn's ``http``."""

    class BoundedConnection(HttpToolsProtocol):
        """One connection; closed when a head is too long or too slow, or an answer is not read."""

        _head_bytes = 0
        _is_in_head = False
        _ahead_bytes = 0
        _head_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._cycles: deque[RequestResponseCycle] = deque()

        def connection_made(self, transport: Any) -> None:
            self._joined = JoinedWrites(transport, self.loop)
            super().connection_made(self._joined)  # type: ignore[arg-type]
            if len(self.connections) > limits.connection_count:
                self._end(503, "too many connections")
                return
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_head_timer()
            self._stop_write_timer()
            self.pipeline.clear()
            for cycle in self._cycles:
                if not cycle.response_complete:
                    cycle.disconnected = True
                cycle.message_event.set()
            self._cycles.clear()
            if self.cycle is not None:
                self.scope.pop("extensions", None)  # which hold this connection
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            was_in_head = self._is_in_head
            super().data_received(data)
            if self.transport.is_closing():
                return
            if self._is_in_head:
                self._head_bytes += len(data) if was_in_head else 0
                if self._head_bytes > limits.head_bytes:
                    self._end(431, f"a head of more than {limits.head_bytes} bytes")
            self._ahead_bytes = self._ahead_bytes + len(data) if self.pipeline else 0
            if self._ahead_bytes > _AHEAD_BYTES or len(self.pipeline) > _AHEAD_COUNT:
                self.transport.abort()
                return
            if self.pipeline:  # a client that is not read is not seen to go
                self.flow.resume_reading()
            if self._head_timer is None and (self._is_in_head or self._has_answered()):
                self._await_head()

        def on_message_begin(self) -> None:
            self._is_in_head, self._head_bytes = True, 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._is_in_head = False
            self._stop_head_timer()
            super().on_headers_complete()
            while self._cycles and self._cycles[0].response_complete:
                self._cycles.popleft()
            if self.cycle is not None:
                self._cycles.append(self.cycle)
                self.scope["extensions"] = {WHOLE_ANSWER: {"write": self._write_whole}}

        def _write_whole(self, headers: bytes, body: bytes) -> bool:
            """Do what ``send`` of the request under way does of two messages, as a WriteWhole."""
            if self.flow.write_paused:
                return False
            cycle = next((each for each in self._cycles if not each.response_complete), None)
            if cycle is None or cycle.disconnected:
                return True
            cycle.response_started = cycle.response_complete = True
            head = [STATUS_LINE[200]]
            head += [b"%b: %b\r\n" % header for header in cycle.default_headers]
            head += (headers, b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
            self._joined.write_whole(b"".join(head), body)
            cycle.message_event.set()
            if not cycle.keep_alive:
                self.transport.close()
            cycle.on_response()
            return True

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._write_timer is None:
                self._write_timer = self.loop.call_later(limits.body_s, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_write_timer()

        def _has_answered(self) -> bool:
            """Tell whether nothing is under way: uvicorn's own timer ended with what came now."""
            return self.cycle is not None and self.cycle.response_complete

        def _stop_write_timer(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

        def _await_head(self) -> None:
            self._head_timer = self.loop.call_later(limits.head_s, self._head_is_late)

        def _stop_head_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _head_is_late(self) -> None:
            if self.transport.is_closing():
                return
            if self._is_in_head or self.cycle is None:
                self._end(408, f"the head did not come within {limits.head_s:g} s")
            else:  # the rest of a body that was answered already
                self.transport.close()

        def _end(self, status: int, message: str) -> None:
            """Answer without asking the application, unless an answer is under way."""
            self._stop_head_timer()
            if self.cycle is None or self.cycle.response_complete:
                body = refusal_body(message)
                head = (
                    f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n"
                    f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
                )
                self.transport.write(head.encode() + body)
            self.transport.close()

    return BoundedConnection
