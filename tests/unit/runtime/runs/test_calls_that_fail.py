"""Want of memory in any one call on a run's way into a network and out again: it ends all the same.

A trace function raises at the start of one call of the package after another, as Python does that
has no memory for the frame.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx.parser
import pytest

from aioinfer import Core
from aioinfer.errors import AioInferError
from aioinfer.runtime import runs

PACKAGE = str(Path(runs.__file__).parents[1])
WAIT_S = 20
MODEL = """<ir_version: 10, opset_import: ["": 21]>
    g (float[b, 64] x) => (float[b, 64] y) { a = Relu (x)
        y = Neg (a) }"""
X = np.ones((2, 64), np.float32)


class FailingCall:
    """Raises MemoryError at the start of the call with this number, of those on this thread."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""

    def __enter__(self) -> FailingCall:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name.startswith("<") or code.co_name == "__del__":
            return  # Python 3.11 may lose what a comprehension begins with, and what __del__ raises
        if code.co_filename.startswith(PACKAGE):
            self.left -= 1
            if self.left < 0 and not self.where:
                self.where = f"{code.co_filename}:{frame.f_lineno}"
                raise MemoryError(f"for {code.co_name}")


def start(request: Any) -> None:
    request.start_async({"x": X})


def infer(request: Any) -> None:
    request.infer_sync({"x": X})


def wait(request: Any) -> None:
    assert request.wait(WAIT_S), "it never ended"


def nothing(request: Any) -> None:
    """There is nothing to wait for."""


@pytest.mark.parametrize(
    ("device", "config"),
    [("CPU", {"INFERENCE_NUM_THREADS": 1}), ("REFERENCE", {}), ("BATCH:CPU(4)", {})],
)
@pytest.mark.parametrize(("begin", "end"), [(infer, nothing), (start, wait)])
def test_a_run_ends_whichever_call_finds_no_memory(
    core: Core,
    device: str,
    config: dict[str, Any],
    begin: Callable[[Any], None],
    end: Callable[[Any], None],
) -> None:
    computing = device.rpartition(":")[2].partition("(")[0]
    if computing not in {name.partition(".")[0] for name in core.available_devices}:
        pytest.skip(f"{computing} is not there")
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    with core.load_network(model, device, config) as network:
        admission, request = network.admission, network.create_infer_request()
        for number in range(1000):
            infer(request)
            if network.atomic_route is not None:
                network.atomic_route.forget()  # a run that is one call of C has no others
            with FailingCall(number) as failing, suppress(AioInferError, MemoryError):
                begin(request)
            with suppress(AioInferError, MemoryError):
                end(request)
            results = request.infer_sync({"x": X}, deadline_s=WAIT_S)
            np.testing.assert_array_equal(results["y"], -X, err_msg=failing.where)
            assert admission.wait_until_over(WAIT_S), failing.where
            assert len(admission._idle) == admission.slot_count, failing.where
            if not failing.where:
                break
        assert not failing.where
        assert number > 10, "calls were not seen"
