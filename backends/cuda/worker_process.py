"""One process that answers requests over pipes, and how it may end."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["EndedError", "WorkerProcess"]

_log = logging.getLogger("aioinfer")

_LENGTHS = struct.Struct("<QQ")
_ENDING_S = 2.0  # that a process may take to end which has closed its pipes


class EndedError(Exception):
    """The process is no more; ``was_idle`` if it had ended by itself, before the request."""

    def __init__(self, text: str, was_idle: bool = False) -> None:
        super().__init__(text)
        self.was_idle = was_idle


class WorkerProcess:
    """A program that reads requests from its input and writes answers to its output.

    The program gets this process's module path and ``idle_s`` as JSON. What it prints on its
    standard error goes to ours where the log is at INFO, else nowhere. One ``call`` at a time,
    from any thread; ``kill`` may come from another one meanwhile. Raises OSError if it cannot be
    started.
    """

    def __init__(self, program: Path, idle_s: float) -> None:
        python = [sys.executable, "-I", "-X", "faulthandler"]
        self._process = subprocess.Popen(
            [*python, str(program), json.dumps([sys.path, idle_s])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if _log.isEnabledFor(logging.INFO) else subprocess.DEVNULL,
            bufsize=0,
            start_new_session=os.name == "posix",  # Ctrl-C is for the program, not for its workers
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def is_alive(self) -> bool:
        """True if it has not ended."""
        return self._process.poll() is None

    def call(self, request: dict[str, Any], limit_s: float) -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for its answer, without the GIL; EndedError if there is none.

        After an error or an interrupt the process has ended.
        """
        deadline = time.monotonic() + limit_s
        content = json.dumps(request).encode()
        try:
            self._send(_LENGTHS.pack(len(content), 0) + content)
            size, rest = _LENGTHS.unpack(self._read(_LENGTHS.size, deadline))
            return _parsed(self._read(size, deadline)), self._read(rest, deadline)
        except BaseException:  # also an interrupt: an answer may be on its way
            self.close()
            raise

    def kill(self) -> None:
        """Kill it; a ``call`` that waits for it then fails. From any thread."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def close(self) -> int:
        """End it and close its pipes; returns its exit code. Not during a ``call``."""
        self.kill()
        code = self._process.wait()
        self.forget()
        return code

    def forget(self) -> None:
        """Close the pipes; in a forked child the process is another one's."""
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def disown(self) -> None:
        """Keep a forked child from waiting for it and warning of it."""
        self.forget()
        self._process.returncode = 0

    def _send(self, content: bytes) -> None:
        view = memoryview(content)
        try:
            while view:
                view = view[self._stdin.write(view) :]
        except OSError:
            raise self._ended() from None

    def _read(self, size: int, deadline: float) -> bytes:
        content = bytearray()
        while len(content) < size:
            if not self._wait_readable(deadline - time.monotonic()):
                raise EndedError("gave no answer in time")
            part = self._stdout.read(size - len(content))
            if not part:
                raise self._ended()
            content += part
        return bytes(content)

    def _wait_readable(self, timeout_s: float) -> bool:
        if os.name != "posix":
            return True  # pipes cannot be waited for
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            return bool(selector.select(max(0.0, timeout_s)))

    def _ended(self) -> EndedError:
        try:
            code = self._process.wait(timeout=_ENDING_S)
        except subprocess.TimeoutExpired:
            return EndedError("closed its pipes")
        if code == 0:
            return EndedError("had nothing to do and ended", was_idle=True)
        if code < 0:
            return EndedError(f"was ended by {signal.Signals(-code).name}")
        return EndedError(f"ended with code {code}")


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise EndedError("gave an answer that is none") from error
    if not isinstance(fields, dict):
        raise EndedError("gave an answer that is none")
    return fields
