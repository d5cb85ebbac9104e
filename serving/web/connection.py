"""HTTP connections under bounds: the length and time of a head, and what may come ahead.

uvicorn bounds none of them with httptools, httptools keeps what it has of a header, and of several
requests on one connection uvicorn tells only the last one that the client has gone. What one read
of a socket holds is bounded while it is parsed: it may be thousands of headers or requests, and the
loop waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from ..protocol.http_response import refusal_body
from ..protocol.limits import Limits
from .answers import WHOLE_ANSWER
from .bodies import BODY_SINK, Sink
from .followers import Followers
from .joined_writes import JoinedWrites

__all__ = ["connection_class"]

_AHEAD_COUNT = 64
_AHEAD_BYTES = 1 << 20
"""What may come of later requests while one is under way; no task waits for their answers yet."""
_PIECE_COUNT = 4096
"""Into how many chunks the part of a body that is read at once may be cut."""


class _BeyondBoundError(Exception):
    """Stops the parser where it is."""


def connection_class(limits: Limits) -> type[asyncio.Protocol]:
    """Make the class of connections for uvicorn's ``http``."""
    followers = Followers()
    head_bytes, header_count = limits.head_bytes, limits.header_count

    class BoundedConnection(HttpToolsProtocol):
        """One connection; closed when a head is too long or too slow, or an answer is not read."""

        _head_bytes = 0
        _parsed_bytes = 0
        _piece_count = 0
        _is_in_head = False
        _is_offer = False  # of another protocol, in the head that was parsed last
        _is_deaf = False  # what comes now cannot be read
        _refusal: tuple[int, str] | None = None
        _sink: Sink | None = None  # of the body that is parsed
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
            self._sink = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._is_deaf:
                return
            was_in_head = self._is_in_head
            self._unset_keepalive_if_required()
            self._piece_count = 0
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._parse_without_offer(data[offer.args[0] :])
            except httptools.HttpParserError:
                self._end_unreadable()
            if self.transport.is_closing() or self._is_deaf:
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

        def _parse_without_offer(self, data: bytes) -> None:
            """Parse a head anew that offers to speak another protocol, and what follows it."""
            try:
                while True:
                    data = self._head_without_offer() + data
                    self._is_offer = False
                    self.parser = httptools.HttpRequestParser(self)
                    try:
                        self.parser.feed_data(data)
                        return
                    except httptools.HttpParserUpgrade as offer:
                        data = data[offer.args[0] :]
            except httptools.HttpParserError:
                self._end_unreadable()

        def _end_unreadable(self) -> None:
            self._end(*(self._refusal or (400, "what was sent is no HTTP request")))

        def _head_without_offer(self) -> bytes:
            """Return the head that was parsed last, whose body httptools took for the protocol."""
            version = self.parser.get_http_version().encode()
            lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
            lines += [b"%b: %b" % each for each in self.headers if each[0] != b"upgrade"]
            return b"\r\n".join([*lines, b"", b""])

        def on_message_begin(self) -> None:
            if len(self.pipeline) > _AHEAD_COUNT:
                raise _BeyondBoundError
            self._is_in_head, self._head_bytes, self._parsed_bytes = True, 0, 0
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            self._parsed_bytes += len(url)
            if self._parsed_bytes > head_bytes:
                self._stop_head()
            self.url += url

        def on_header(self, name: bytes, value: bytes) -> None:
            """Do what uvicorn does; each call counts here."""
            headers = self.headers
            self._parsed_bytes += len(name) + len(value)
            if self._parsed_bytes > head_bytes or len(headers) >= header_count:
                self._stop_head()
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            headers.append((name, value))

        def _stop_head(self) -> None:
            if self._parsed_bytes > head_bytes:
                self._refusal = 431, f"a head of more than {head_bytes} bytes"
            else:
                self._refusal = 431, f"more than {header_count} headers"
            raise _BeyondBoundError

        def on_body(self, body: bytes) -> None:
            self._piece_count += 1
            if self._piece_count > _PIECE_COUNT:
                self._refusal = 400, "the body comes in too many chunks"
                raise _BeyondBoundError
            if self._sink is None or self.cycle.response_complete:
                super().on_body(body)
            elif not self._sink(body):
                self.cycle.message_event.set()

        def _send_to(self, cycle: RequestResponseCycle, sink: Sink) -> bool:
            """Have the rest of a request's body go there; False where it has come already."""
            if self.cycle is not cycle or not cycle.more_body:
                return False
            self._sink = sink
            return True

        def on_message_complete(self) -> None:
            self._sink = None
            if not self._is_offer:
                super().on_message_complete()

        def on_headers_complete(self) -> None:
            if self.parser.should_upgrade():
                self._is_offer = True
                if self.parser.get_method() == b"CONNECT":
                    raise _BeyondBoundError
                return
            self._is_in_head = False
            self._stop_head_timer()
            super().on_headers_complete()
            while self._cycles and self._cycles[0].response_complete:
                self._cycles.popleft()
            if self.cycle is not None:
                self._cycles.append(self.cycle)
                self.scope["extensions"] = {
                    WHOLE_ANSWER: {"write": self._write_whole},
                    BODY_SINK: {"send_to": partial(self._send_to, self.cycle)},
                }

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

        def on_response_complete(self) -> None:
            """Begin the next request of the connection when it is its turn."""
            if not self.pipeline or self.transport.is_closing():
                super().on_response_complete()
                return
            self.server_state.total_requests += 1
            followers.add(self.loop, self._begin_next)

        def _begin_next(self) -> None:
            if self.pipeline and not self.transport.is_closing():
                self.flow.resume_reading()
                self._start_asgi_task(*self.pipeline.pop())

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._write_timer is None:
                self._write_timer = self.loop.call_later(limits.body_s, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_write_timer()

        def _has_answered(self) -> bool:
            """Return whether nothing is under way: uvicorn's own timer ended with what came now."""
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
            """Answer what is not for the application, and close.

            Requests that came whole before it are answered first, and it is not, then.
            """
            self._stop_head_timer()
            if len(self.pipeline) > _AHEAD_COUNT:
                self.transport.abort()
                return
            waiting = [each for each in self._cycles if not each.response_complete]
            if waiting and not waiting[-1].more_body:
                self._is_deaf, waiting[-1].keep_alive = True, False
                return
            if len(waiting) < 2 and not any(each.response_started for each in waiting):
                body = refusal_body(message)
                head = (
                    f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n"
                    f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
                )
                self.transport.write(head.encode() + body)
                for each in waiting:
                    each.disconnected = True
            self.transport.close()

    return BoundedConnection
