"""onnx's C++ parts, called in a helper process, since a damaged model makes them end theirs.

Theory of operation. Shape inference, and the converter and inliner, which use it, index and divide
by what a model says: about one random bit flip in a few thousand ends the process by a signal, and
a damaged length makes them take all memory. So they run in a process of their own. It gets protos
without their weights, which are small, is started with the first model and ends on its own when
idle. If it dies, the call is an error, and the next call starts another. One call at a time; the
caller's thread waits without holding the GIL.

Where no process can be started (a frozen program, a sandbox), the calls run in this process.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import onnx
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter

from ...errors import ModelError

__all__ = ["convert_version", "infer_shapes", "inline_functions", "start_helper"]

LIMIT_S = 20.0
LIMIT_BYTES_PER_S = 10_000  # the converter's time grows with the square: 0.6 MB took it 15 s
_PROGRAM = Path(__file__).with_name("native_program.py")
_INFER, _CONVERT, _INLINE = range(3)


def infer_shapes(model: onnx.ModelProto, data_prop: bool) -> onnx.ModelProto:
    """Call onnx's shape inference; raises ModelError with its reason if it fails."""
    return _call(_INFER, model, int(data_prop))


def convert_version(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Call onnx's version converter; raises ModelError with its reason if it fails."""
    return _call(_CONVERT, model, target)


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Call onnx's function inliner; raises ModelError with its reason if it fails."""
    return _call(_INLINE, model, 0)


def start_helper() -> None:
    """Start the helper process, if it does not run, and do not wait until it is loaded."""
    with _state.lock:
        _state.start()


def _call(call: int, model: onnx.ModelProto, argument: int) -> onnx.ModelProto:
    with _state.lock:
        helper = _state.helper()
        if helper is not None:
            answer = onnx.ModelProto()
            answer.ParseFromString(helper.call(call, argument, model.SerializeToString()))
            return answer
    try:
        if call == _INFER:
            return onnx.shape_inference.infer_shapes(model, data_prop=bool(argument))
        if call == _CONVERT:
            return onnx.version_converter.convert_version(model, argument)
        return onnx.inliner.inline_local_functions(model)
    except Exception as error:  # RuntimeError, IndexError, InferenceError: the C++ parts' choice
        raise ModelError(str(error) or type(error).__name__) from error


class _EndedError(Exception):
    """The helper process is no more."""


class _Helper:
    """One helper process, and the pipes to it. Not thread-safe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_PROGRAM), json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=os.name == "posix",  # Ctrl-C is for the program, not for its helper
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._is_loaded = False

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_loaded(self) -> None:
        """Wait for its first answer; raises _EndedError if there is none."""
        if not self._is_loaded:
            self._receive(time.monotonic() + LIMIT_S)
            self._is_loaded = True

    def call(self, call: int, argument: int, content: bytes) -> bytes:
        """Send a request and wait for the answer; raises ModelError if there is no good one."""
        deadline = time.monotonic() + LIMIT_S + len(content) / LIMIT_BYTES_PER_S
        try:
            self._send(struct.pack("<BqQ", call, argument, len(content)) + content)
            is_good, answer = self._receive(deadline)
        except _EndedError as ended:
            raise ModelError(
                f"onnx's own code {ended}; the model is damaged, or onnx has a bug"
            ) from ended
        except BaseException:  # an interrupt: an answer may be on its way that nobody waits for
            self.close()
            raise
        if not is_good:
            raise ModelError(answer.decode("utf-8", "replace"))
        return answer

    def _send(self, content: bytes) -> None:
        view = memoryview(content)
        try:
            while view:
                view = view[self._stdin.write(view) :]
        except OSError:
            raise self._ended() from None

    def _receive(self, deadline: float) -> tuple[bool, bytes]:
        is_good, size = struct.unpack("<?Q", self._read(struct.calcsize("<?Q"), deadline))
        return is_good, self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        content = bytearray()
        while len(content) < size:
            if not self._wait_readable(deadline - time.monotonic()):
                self.close()
                raise _EndedError("did not come to an end in time")
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

    def _ended(self) -> _EndedError:
        code = self.close()
        if code < 0:
            return _EndedError(f"ended its process by {signal.Signals(-code).name}")
        return _EndedError(f"ended its process with code {code}")

    def close(self) -> int:
        """End the process and wait for it; returns its exit code."""
        self._stdin.close()
        try:
            return self._process.wait(timeout=0.5)  # without input it ends on its own
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._stdout.close()

    def forget(self) -> None:
        """Close this process's ends of the pipes; the process is another one's child."""
        self._stdin.close()
        self._stdout.close()
        self._process.returncode = 0


class _State:
    """The helper of this process, made again in the child after a fork."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._helper: _Helper | None = None
        self._is_impossible = bool(getattr(sys, "frozen", False)) or not sys.executable

    def helper(self) -> _Helper | None:
        """Give the helper, alive and loaded; None where there cannot be one. Under the lock."""
        self.start()
        try:
            if self._helper is not None:
                self._helper.wait_until_loaded()
        except _EndedError:
            self._helper, self._is_impossible = None, True
        return self._helper

    def start(self) -> None:
        """Let there be a helper, perhaps still loading, if there can be one. Under the lock."""
        if self._is_impossible or (self._helper is not None and self._helper.is_alive()):
            return
        self.close()
        try:
            self._helper = _Helper()
        except OSError:
            self._is_impossible = True

    def forget(self) -> None:
        """Leave the helper to the parent of this forked process."""
        if self._helper is not None:
            self._helper.forget()

    def close(self) -> None:
        """End the helper if there is one."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()


_state = _State()


def _after_fork() -> None:
    global _state
    _state.forget()
    _state = _State()


def _at_exit() -> None:
    _state.close()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
