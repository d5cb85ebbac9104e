from __future__ import annotations

import gc
import random

import numpy as np
import pytest

from aioinfer.backends.opencl.device_health import DeviceHealth
from aioinfer.backends.opencl.driver import DriverError
from aioinfer.backends.opencl.queue_stream import QueueStream
from aioinfer.errors import DeviceError
from unit.backends.opencl.fake_driver import FACTS, FakeContext, FakeDriver


@pytest.fixture
def context() -> FakeContext:
    FakeContext.dropped.clear()
    made = FakeDriver(is_eager=False).open(FACTS)
    assert isinstance(made, FakeContext)
    return made


def stream_of(context: FakeContext, name: str = "download") -> QueueStream:
    device = context
    return QueueStream(
        name, device, context.queue(name), DeviceHealth("FAKE.0"), lambda event: None
    )


def test_a_copy_nobody_holds_is_kept_until_the_device_has_passed_it(context: FakeContext) -> None:
    stream = stream_of(context)
    stream.read(np.zeros(4, np.uint8), context.buffer(4))
    event = stream.record_event()
    gc.collect()
    assert (FakeContext.dropped, stream.unfinished_count) == ([], 1)
    context.run_all()
    event.wait()
    assert stream.unfinished_count == 0


def test_an_error_reaches_the_event_behind_it_and_the_stages_after(context: FakeContext) -> None:
    upload, compute = stream_of(context, "upload"), stream_of(context, "compute")
    context.driver.fails["upload: write"] = DriverError(-9999, "broken")
    upload.write(context.buffer(4), np.zeros(4, np.uint8))
    compute.wait_event(upload.record_event())
    last = compute.record_event()
    context.run_all(random.Random(1))
    with pytest.raises(DriverError, match="broken"):
        last.wait()


def test_the_next_run_of_the_stream_knows_nothing_of_that_error(context: FakeContext) -> None:
    stream = stream_of(context, "upload")
    context.driver.fails["upload: write"] = DriverError(-9999, "broken")
    memory = context.buffer(4)
    for _ in range(2):
        stream.write(memory, np.zeros(4, np.uint8))
        event = stream.record_event()
    context.run_all()
    event.wait()


def test_what_the_driver_refuses_is_an_error_of_the_device(context: FakeContext) -> None:
    class Refusing:
        def write(self, target: object, source: object) -> None:
            raise DriverError(-5, "OUT_OF_RESOURCES")

    stream = QueueStream("upload", context, Refusing(), DeviceHealth("FAKE.0"), lambda event: None)
    with pytest.raises(DeviceError, match="failed while uploading on upload: OUT_OF_RESOURCES"):
        stream.write(context.buffer(1), np.zeros(1, np.uint8))
