"""onnx's C++ parts, called in a helper process, since a damaged model makes them end theirs.

Shape inference, and the converter and inliner, which use it, index and divide by what a model says:
about one random bit flip in a few thousand ends the process by a signal, and a damaged length makes
them take all memory. So they run in processes of their own. Those get protos without their weights,
which are small, are started with the first model and end on their own when idle. If one dies, the
call is an error, and the next call starts another. Calls of several threads have a process each, up
to a bound; they wait without holding the GIL.

Where no process can be started (a frozen program, a sandbox), what needs them is refused. Setting
AIOINFER_ONNX_IN_PROCESS=1 makes the calls in this process instead, for programs that trust their
models.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

import onnx
import onnx.defs
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter
from google.protobuf.message import DecodeError

from ...errors import DeviceError, ModelError, NotSupportedError
from ...executors.shortage import find_shortage
from .helper_pool import HelperPool
from .helper_process import EndedError, Helper

__all__ = ["convert_version", "infer_shapes", "inline_functions", "start_helper"]

IN_PROCESS = "AIOINFER_ONNX_IN_PROCESS"
LIMIT_S = 20.0
LIMIT_BYTES_PER_S = 10_000  # the converter's time grows with the square: 0.6 MB took it 15 s
_INFER, _CONVERT, _INLINE = range(3)
_START_ERRORS = (OSError, ValueError, RuntimeError)


def infer_shapes(model: onnx.ModelProto, data_prop: bool) -> onnx.ModelProto:
    """Call onnx's shape inference; raises ModelError with its reason if it fails.

    This and the others raise NotSupportedError where no helper process can be started, DeviceError
    where that is for want of files, memory or processes, and OverloadedError where all stay busy
    with other models.
    """
    return _call(_INFER, model, int(data_prop))


def convert_version(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Call onnx's version converter; raises ModelError with its reason if it fails."""
    return _call(_CONVERT, model, target)


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Call onnx's function inliner; raises ModelError with its reason if it fails."""
    return _call(_INLINE, model, 0)


def start_helper() -> None:
    """Start a helper process, if none is idle, and do not wait until it is loaded.

    Where none can be started, the call that needs one will say so.
    """
    if not (_is_in_process() or _refusal()):
        with contextlib.suppress(*_START_ERRORS):
            _pool.start_one()


def _call(call: int, model: onnx.ModelProto, argument: int) -> onnx.ModelProto:
    if _is_in_process():
        return _call_here(call, model, argument)
    content = _ask(call, argument, model.SerializeToString())
    answer = onnx.ModelProto()
    try:
        answer.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(
            "onnx's own code gave an answer that cannot be read; the model is damaged, or onnx "
            "has a bug"
        ) from error
    return answer


def _ask(call: int, argument: int, content: bytes) -> bytes:
    limit_s = LIMIT_S + len(content) / LIMIT_BYTES_PER_S
    for is_last in (False, True):
        helper = _take()
        try:
            is_good, answer = helper.exchange(call, argument, content, limit_s)
        except EndedError as ended:
            helper.end()
            if ended.code == 0 and not is_last:
                continue  # it was idle for so long that it ended just now
            raise ModelError(
                f"onnx's own code {ended}; the model is damaged, or onnx has a bug"
            ) from ended
        except BaseException:  # an interrupt: an answer may be on its way that no thread reads
            helper.end()
            raise
        _pool.give_back(helper)
        break
    if not is_good:
        raise ModelError(answer.decode("utf-8", "replace"))
    return answer


def _take() -> Helper:
    refusal = _refusal()
    if refusal:
        raise _cannot_start(refusal)
    try:
        helper = _pool.take()
    except _START_ERRORS as error:
        raise _start_error(error) from error
    try:
        helper.wait_until_loaded()
    except EndedError as ended:
        helper.end()
        raise _cannot_start(f"it {ended}") from ended
    except BaseException:
        helper.end()
        raise
    return helper


def _refusal() -> str:
    """Return why a helper cannot be started here, if that is known without trying."""
    if getattr(sys, "frozen", False):
        return "this is a frozen program, which has no Python to start"
    return "" if sys.executable else "sys.executable is not set"


def _start_error(error: Exception) -> NotSupportedError | DeviceError:
    lacking = find_shortage(error, "starting a helper process for onnx's own code")
    return _cannot_start(str(error)) if lacking is None else lacking


def _cannot_start(reason: str) -> NotSupportedError:
    return NotSupportedError(
        f"the model needs onnx's own code (for an older opset, functions, or types that only onnx "
        f"can tell), which runs in a helper process since damaged models can crash it, and that "
        f"cannot be started: {reason}. Convert the model to opset "
        f"{onnx.defs.onnx_opset_version()} beforehand, or set {IN_PROCESS}=1 in the environment "
        f"if you trust all models that you load"
    )


def _is_in_process() -> bool:
    return os.environ.get(IN_PROCESS, "0") not in ("", "0")


def _call_here(call: int, model: onnx.ModelProto, argument: int) -> onnx.ModelProto:
    try:
        if call == _INFER:
            return onnx.shape_inference.infer_shapes(model, data_prop=bool(argument))
        if call == _CONVERT:
            return onnx.version_converter.convert_version(model, argument)
        return onnx.inliner.inline_local_functions(model)
    except Exception as error:  # RuntimeError, IndexError, InferenceError: the C++ parts' choice
        raise ModelError(str(error) or type(error).__name__) from error


_pool = HelperPool()


def _after_fork() -> None:
    global _pool
    _pool.forget_all()
    _pool = HelperPool()


def _at_exit() -> None:
    for helper in _pool.helpers():
        helper.end()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
