"""One helper process, and the pipes to it: alive and in step with its holder, or gone.

A helper belongs to one thread at a time. A request and its answer are one exchange, and a thread
that did not see it through, for a deadline or an interrupt, ends the helper and never gives it on:
an answer might be on its way that no thread waits for. The process is killed, not asked, and
reaped, at the latest when no thread holds it any more.

The process has three pipes. Neither side reads or writes the third: the kernel signals the process
when this end of it is closed, which is when ours ends, by whatever means
(``program.end_with_parent``). Waiting takes no further descriptor.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["EndedError", "Helper"]

START_LIMIT_S = 60.0
MOST_ANSWER_BYTES = 1 << 30  # models without their weights
PROGRAM = Path(__file__).with_name("program.py")
READY = b"onnx is loaded"
_REQUEST, _ANSWER = struct.Struct("<BqQQ"), struct.Struct("<?Q")
_PIECE_BYTES = 1 << 16


class EndedError(Exception):
    """The helper process is no more; ``code`` is what it ended with, if it did so by itself."""

    def __init__(self, what: str, code: int | None = None) -> None:
        super().__init__(what)
        self.code = code


_READABLE, _WRITABLE = (select.POLLIN, select.POLLOUT) if hasattr(select, "poll") else (1, 4)
_LONGEST_POLL_S = 5.0
_REASONS = {
    "SIGXCPU": " (it has used up its time)",
    "SIGKILL": " (by another process, or the machine is out of memory)",
}


class Helper:
    """A process that calls onnx. For one thread at a time."""

    is_loaded = False
    """It has said that it is ready for requests."""
    is_ended = False
    _process: _Process | None = None

    def start(self) -> None:
        """Start the process and do not wait for it; raises OSError, ValueError or RuntimeError."""
        path = [os.fspath(item) for item in sys.path if isinstance(item, str | os.PathLike)]
        self._process = process = _Process(
            [sys.executable, "-I", str(PROGRAM), json.dumps(path), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=os.name == "posix",  # Ctrl-C is for the program, not for its helper
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._requests, self._answers = process.stdin.fileno(), process.stdout.fileno()
        if os.name == "posix":
            os.set_blocking(self._requests, False)

    def is_usable(self) -> bool:
        """True if it is alive, and says nothing that it was not asked."""
        if self._process is None or self._process.poll() is not None:
            return False
        return not (self.is_loaded and self._is_ready(self._answers, _READABLE, 0))

    def wait_until_loaded(self) -> None:
        """Wait for its first answer; raises EndedError if it is not what a helper says."""
        if not self.is_loaded:
            if self._receive(time.monotonic() + START_LIMIT_S) != (True, READY):
                raise EndedError("is not what was to be started")
            self.is_loaded = True

    def exchange(
        self, call: int, argument: int, content: bytes, limit_s: float
    ) -> tuple[bool, bytes]:
        """Send a request and wait for the answer: whether it went well, and what came of it.

        ``limit_s`` bounds the time of its CPU, and twice that the time it is waited for. Raises
        EndedError.
        """
        deadline = time.monotonic() + 2 * limit_s
        self._send(_REQUEST.pack(call, argument, int(limit_s) + 1, len(content)), deadline)
        self._send(content, deadline)
        return self._receive(deadline)

    def end(self) -> None:
        """Kill the process, if it lives, and reap it. Twice is fine."""
        self.is_ended = True
        if self._process is not None:
            self._process.end()

    def forget(self) -> None:
        """Close this process's ends of the pipes: after a fork it is another one's child."""
        self.is_ended = True
        if self._process is not None:
            self._process.forget()

    def _send(self, content: bytes, deadline: float) -> None:
        view = memoryview(content)
        while view:
            self._wait(self._requests, _WRITABLE, deadline)
            try:
                view = view[os.write(self._requests, view[:_PIECE_BYTES]) :]
            except BlockingIOError:  # less room than the piece has
                continue
            except OSError:
                raise self._ended() from None

    def _receive(self, deadline: float) -> tuple[bool, bytes]:
        is_good, size = _ANSWER.unpack(self._read(_ANSWER.size, deadline))
        if size > MOST_ANSWER_BYTES:
            raise EndedError(f"gave an answer of {size} bytes")
        return is_good, self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        content = bytearray()
        while len(content) < size:
            self._wait(self._answers, _READABLE, deadline)
            part = os.read(self._answers, min(size - len(content), _PIECE_BYTES))
            if not part:
                raise self._ended()
            content += part
        return bytes(content)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        while not self._is_ready(descriptor, event, deadline - time.monotonic()):
            if time.monotonic() >= deadline:
                raise EndedError("did not come to an end in time")

    def _is_ready(self, descriptor: int, event: int, timeout_s: float) -> bool:
        if os.name != "posix":
            return event == _WRITABLE or timeout_s > 0  # pipes cannot be waited for
        poll = select.poll()
        poll.register(descriptor, event)
        return bool(poll.poll(max(0.0, min(timeout_s, _LONGEST_POLL_S)) * 1000))

    def _ended(self) -> EndedError:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=_LONGEST_POLL_S)
        except subprocess.TimeoutExpired:  # it has closed its pipes and lives
            return EndedError("closed its pipes")
        if code < 0:
            name = signal.Signals(-code).name
            return EndedError(f"ended its process by {name}{_REASONS.get(name, '')}", code)
        last_words = self._last_words()
        return EndedError(f"ended its process with code {code}{last_words}", code)

    def _last_words(self) -> str:
        """The last line that it wrote before it was loaded, where a Python program says why."""
        if self.is_loaded or os.name != "posix":
            return ""
        assert self._process is not None
        assert self._process.stderr is not None
        descriptor = self._process.stderr.fileno()
        os.set_blocking(descriptor, False)
        try:
            text = os.read(descriptor, _PIECE_BYTES).decode("utf-8", "replace").strip()
        except BlockingIOError:
            return ""
        return f" ({text.splitlines()[-1]})" if text else ""


class _Process(subprocess.Popen[bytes]):
    """A process that does not outlive its object."""

    def end(self) -> None:
        """Kill it, close the pipes and reap it. Twice is fine."""
        if self.returncode is None:
            self.kill()
            self._close_pipes()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(timeout=_LONGEST_POLL_S)
        self._close_pipes()

    def forget(self) -> None:
        """Close the pipes, and leave it to the process that it is a child of."""
        if self.returncode is None:
            self.returncode = 0
        self._close_pipes()

    def __del__(self) -> None:
        # Popen would keep it, and its pipes, until it has ended by itself.
        try:
            if self._child_created:  # type: ignore[attr-defined]
                self.end()
        finally:
            super().__del__()

    def _close_pipes(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
