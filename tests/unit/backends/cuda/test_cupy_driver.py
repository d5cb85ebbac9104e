"""Devices, memory, programs and launch graphs of CUDA's driver, on a GPU that is none."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.launching.kernel_source import program_text
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind, LaunchGraph, Queue
from aioinfer.backends.cuda import cupy_driver
from aioinfer.backends.cuda.cupy_driver import CupyDriver
from aioinfer.backends.cuda.cupy_facts import refuse_without_driver
from aioinfer.errors import DeviceError
from aioinfer.executors import hop
from unit.backends.cuda.fake_cupy import FakeCupy
from unit.backends.cuda.fake_gpu import SPOILT, FakeGpu
from unit.backends.cuda.opened_gpu import BREAK, ONE, OpenedGpu

COUNT = 64
GRID = (COUNT,), (32,)


@pytest.fixture
def opened() -> OpenedGpu:
    return OpenedGpu()


def test_a_device_says_what_it_is() -> None:
    first, second = CupyDriver(
        FakeCupy(FakeGpu(), FakeGpu(1 << 30)), lambda: frozenset({"cublas"})
    ).find_devices()
    assert (first.index, second.index) == (0, 1)
    assert second.name == "Fake GPU"
    assert second.platform_version == "CUDA 13.2, compute capability 9.0"
    assert second.driver_version == "CUDA 13.0"
    assert second.kind == "discrete"
    assert second.memory_bytes == second.largest_buffer_bytes == 1 << 30
    assert second.compute_capability == (9, 0)
    assert second.has_float16
    assert second.libraries == {"cublas"}
    assert second.can_capture


def without_driver(cupy: FakeCupy) -> None:
    cupy.start_error, cupy.driver_version = 35, 0


def with_old_driver(cupy: FakeCupy) -> None:
    cupy.start_error, cupy.driver_version = 35, 12040


def without_gpu(cupy: FakeCupy) -> None:
    cupy.start_error = 100


def with_empty_list(cupy: FakeCupy) -> None:
    cupy.gpus = ()


def with_broken_driver(cupy: FakeCupy) -> None:
    cupy.start_error = 803


def without_compiler(cupy: FakeCupy) -> None:
    cupy.nvrtc_error = RuntimeError("CuPy failed to load libnvrtc.so.13")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (without_driver, "driver is not installed .* install the one of your GPU"),
        (with_old_driver, r"has CUDA 12\.4, and CuPy needs 13\.2; install a newer .*cupy-cuda12x"),
        (without_gpu, "sees no GPU .*CUDA_VISIBLE_DEVICES"),
        (with_empty_list, "sees no GPU .*CUDA_VISIBLE_DEVICES"),
        (with_broken_driver, "does not start .*803.* nvidia-smi"),
        (without_compiler, "cannot be loaded .*libnvrtc.* 'pip install nvidia-cuda-nvrtc'"),
    ],
)
def test_a_device_that_is_missing_is_missed_with_the_way_out(
    spoil: Callable[[FakeCupy], None], text: str
) -> None:
    cupy = FakeCupy()
    spoil(cupy)
    with pytest.raises(DeviceError, match=text):
        CupyDriver(cupy, frozenset).find_devices()


def test_a_gpu_that_does_not_answer_is_named() -> None:
    cupy = FakeCupy(FakeGpu(), FakeGpu())
    cupy.gpus[1].status = 46
    with pytest.raises(DeviceError, match=r"GPU 1 does not say .*46.*CUDA_VISIBLE_DEVICES"):
        CupyDriver(cupy, frozenset).find_devices()


def test_a_missing_cupy_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(cupy_driver, "refuse_without_driver", lambda: None)
    with pytest.raises(DeviceError, match=r"cannot be imported .*pip install 'aioinfer\[cuda\]'"):
        CupyDriver()


def test_without_the_drivers_library_cupy_is_not_even_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(cupy_driver, "refuse_without_driver", partial(refuse_without_driver, load))
    with pytest.raises(DeviceError, match=r"NVIDIA's driver is not installed .*container toolkit"):
        CupyDriver()
    refuse_without_driver(lambda name: object())


def test_importing_the_driver_imports_no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    importlib.reload(importlib.import_module("aioinfer.backends.cuda.cupy_facts"))
    importlib.reload(importlib.import_module("aioinfer.backends.cuda.libraries"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from aioinfer.backends.cuda import cupy_driver

    driver = CupyDriver(FakeCupy(), frozenset)
    driver.find_devices()
    mark = cupy_driver._first_use.mark
    assert mark is not None
    monkeypatch.setattr(mark, "is_current", False)
    with pytest.raises(DeviceError, match=r"before fork.*'spawn'"):
        driver.find_devices()


def test_memory_goes_back_when_it_is_released(opened: OpenedGpu) -> None:
    memory = opened.context.buffer(100)
    part = memory.part(32, 8)
    opened.bytes_of(part)[:] = 7
    assert (opened.bytes_of(memory)[32:40] == 7).all()
    assert opened.bytes_of(memory)[40] == SPOILT
    part.release()
    assert opened.gpu.blocks
    memory.release()
    assert not opened.gpu.blocks
    memory.release()


def test_memory_that_there_is_no_room_for_is_refused_as_such() -> None:
    opened = OpenedGpu(FakeGpu(memory_bytes=100))
    kept = opened.context.buffer(80)
    with pytest.raises(DriverError) as raised:
        opened.context.buffer(80)
    assert raised.value.kind is ErrorKind.OUT_OF_MEMORY
    kept.release()
    opened.context.buffer(80)


def test_memory_of_a_lost_device_is_released_without_a_word(opened: OpenedGpu) -> None:
    memory = opened.context.buffer(100)
    opened.gpu.status = 700
    memory.release()


def test_host_memory_is_pinned_until_nothing_sees_it(opened: OpenedGpu) -> None:
    host = opened.context.host_memory(100)
    array = host.array
    assert array.nbytes == 100
    assert array.ctypes.data in opened.gpu.pinned
    host.release()
    assert host.array.nbytes == 0
    array[:] = 1  # still there
    del array
    assert not opened.gpu.pinned


def test_memory_of_the_second_gpu_lies_there() -> None:
    opened = OpenedGpu(FakeGpu(), FakeGpu())
    memory, host = opened.context.buffer(10), opened.context.host_memory(10)
    assert len(opened.gpu.blocks) == len(opened.gpu.pinned) == 1
    memory.release()
    host.release()
    assert not opened.gpu.blocks
    assert not opened.gpu.pinned
    assert opened.cupy.current == 0


def test_a_program_is_compiled_at_once_on_its_device() -> None:
    opened = OpenedGpu(FakeGpu(), FakeGpu())
    program = opened.context.program(ONE.text)
    ((code, options),) = opened.cupy.compiled
    assert "#define __kernel" in code
    assert "-arch=sm_90" in options
    (module,) = opened.cupy.modules
    assert module.index == 1
    program.kernel(ONE.name)
    with pytest.raises(DriverError, match="500"):
        program.kernel("another")


def captured(opened: OpenedGpu) -> LaunchGraph:
    """Capture a kernel that nothing else has."""
    kernel = opened.kernel(ONE, opened.context.buffer(COUNT), COUNT)
    return opened.context.capture(lambda queue: queue.launch(kernel, *GRID))


def test_a_program_is_unloaded_with_the_last_kernel_of_it(opened: OpenedGpu) -> None:
    held: list[object] = [captured(opened)]
    assert len(opened.cupy.modules) == 1
    with ThreadPoolExecutor(1) as other:  # which has no context yet
        other.submit(held.clear).result(20.0)
    assert opened.cupy.modules == []


def test_inside_a_stage_a_program_is_left_to_the_next_one(opened: OpenedGpu) -> None:
    held: list[object] = [captured(opened)]
    hop(held.clear)  # to unload it would wait for the device
    (left,) = opened.cupy.modules
    made = opened.context.program(program_text([BREAK]))
    assert left not in opened.cupy.modules
    assert len(opened.cupy.modules) == 1
    del made
    assert opened.cupy.modules == []


def test_a_program_that_is_left_goes_with_the_context(opened: OpenedGpu) -> None:
    held: list[object] = [captured(opened)]
    hop(held.clear)
    opened.context.close()
    assert opened.cupy.modules == []


def test_a_program_of_a_lost_device_goes_without_a_word(opened: OpenedGpu) -> None:
    program = opened.context.program(program_text([ONE]))
    opened.gpu.status = 700
    del program
    assert len(opened.cupy.modules) == 1


def test_what_was_compiled_before_is_loaded_from_disk(opened: OpenedGpu) -> None:
    for _ in range(2):
        opened.context.program(program_text([ONE]))
    assert len(opened.cupy.compiled) == 1


def test_code_on_disk_that_does_not_load_is_compiled_again(
    opened: OpenedGpu, caplog: pytest.LogCaptureFixture
) -> None:
    opened.context.program(program_text([ONE]))
    opened.cupy.compiled.clear()  # a driver that does not take it any more
    program = opened.context.program(program_text([ONE]))
    assert len(opened.cupy.compiled) == 1
    assert "compiling kernels again" in caplog.text
    program.kernel(ONE.name)


def test_a_thread_that_never_used_the_device_makes_kernels(opened: OpenedGpu) -> None:
    program = opened.context.program(program_text([ONE]))
    with ThreadPoolExecutor(1) as other:
        made = other.submit(program.kernel, ONE.name).result(20.0)
    memory = opened.context.buffer(COUNT)
    made.set_arguments([memory, COUNT])
    queue = opened.context.queue("compute")
    queue.write(memory, np.full(COUNT, 1, np.uint8))
    queue.launch(made, *GRID)
    queue.marker([], is_last=True).wait()
    assert (opened.bytes_of(memory) == 2).all()


def test_a_program_that_does_not_compile_says_what_the_compiler_says(opened: OpenedGpu) -> None:
    with pytest.raises(DriverError, match='identifier "missing" is undefined') as raised:
        opened.context.program("missing")
    assert raised.value.kind is ErrorKind.OTHER


def test_a_launch_graph_runs_its_launches_in_order_with_the_arguments_of_then(
    opened: OpenedGpu,
) -> None:
    memory = opened.context.buffer(COUNT)
    kernel = opened.kernel(ONE, memory, COUNT)

    def enqueue(queue: Queue) -> None:
        for _ in range(3):
            queue.launch(kernel, *GRID)

    launch_graph = opened.context.capture(enqueue)
    kernel.set_arguments([opened.context.buffer(1), 1])
    queue = opened.context.queue("compute")
    queue.write(memory, np.zeros(COUNT, np.uint8))
    queue.replay(launch_graph)
    queue.replay(launch_graph)
    queue.marker([], is_last=True).wait()
    assert (opened.bytes_of(memory) == 6).all()
    assert gc.isenabled()


def test_nothing_is_left_of_a_launch_graph(opened: OpenedGpu) -> None:
    kernel = opened.kernel(ONE, opened.context.buffer(1), 1)
    opened.context.capture(lambda queue: queue.launch(kernel, *GRID))
    assert opened.gpu.done.count("upload") == 1
    assert not any(stream.commands for stream in opened.gpu.streams)


def test_nothing_is_left_of_a_launch_graph_that_is_refused(opened: OpenedGpu) -> None:
    memory = opened.context.buffer(COUNT)
    kernel = opened.kernel(ONE, memory, COUNT)

    def enqueue(queue: Queue) -> None:
        queue.launch(kernel, *GRID)
        queue.marker([])

    with pytest.raises(DriverError, match="launches and copies alone"):
        opened.context.capture(enqueue)
    assert opened.gpu.done.count("launch") == 1
    assert not any(stream.commands for stream in opened.gpu.streams)


def test_a_launch_graph_copies_what_pinned_memory_has_when_it_is_replayed(
    opened: OpenedGpu,
) -> None:
    memory, pinned = opened.context.buffer(COUNT), opened.context.host_memory(2 * COUNT)
    given, made = pinned.array[:COUNT], pinned.array[COUNT:]
    kernel, queue = opened.kernel(ONE, memory, COUNT), opened.context.queue("compute")

    def enqueue(capturing: Queue) -> None:
        capturing.write(memory, given)
        capturing.launch(kernel, *GRID)
        capturing.read(made, memory)

    launch_graph = opened.context.capture(enqueue)
    for value in (3, 8):
        given[:] = value
        queue.replay(launch_graph)
        queue.marker([], is_last=True).wait()
        assert set(made.tolist()) == {value + 1}


def test_a_launch_graph_has_launches_and_copies_alone(opened: OpenedGpu) -> None:
    memory, queue = opened.context.buffer(COUNT), opened.context.queue("compute")
    marker = queue.marker([])
    attempts: list[Callable[[Any], object]] = [
        lambda capturing: capturing.copy(memory, memory, 1),
        lambda capturing: capturing.wait_for([marker]),
        lambda capturing: capturing.marker([]),
        lambda capturing: capturing.launch(opened.kernel(ONE, memory, 1), *GRID).wait(),
    ]
    for attempt in attempts:
        with pytest.raises(DriverError, match="launches and copies alone"):
            opened.context.capture(attempt)


def test_a_capture_that_fails_is_ended_and_the_next_one_works(opened: OpenedGpu) -> None:
    memory = opened.context.buffer(COUNT)
    kernel = opened.kernel(ONE, memory, COUNT)
    rounds: list[str] = []

    def spoil(queue: Queue) -> None:
        rounds.append("round")
        queue.launch(kernel, *GRID)
        if len(rounds) == 2:
            opened.context.buffer(1)

    with pytest.raises(DriverError, match="900"):
        opened.context.capture(spoil)
    assert not opened.cupy.capturing
    assert gc.isenabled()
    queue = opened.context.queue("compute")
    queue.write(memory, np.zeros(COUNT, np.uint8))
    launch_graph = opened.context.capture(lambda capturing: capturing.launch(kernel, *GRID))
    queue.write(memory, np.zeros(COUNT, np.uint8))
    queue.replay(launch_graph)
    queue.marker([], is_last=True).wait()
    assert (opened.bytes_of(memory) == 1).all()


def test_a_kernel_that_breaks_the_device_while_it_is_recorded_is_told(opened: OpenedGpu) -> None:
    kernel = opened.kernel(BREAK)
    with pytest.raises(DriverError) as raised:
        opened.context.capture(lambda queue: queue.launch(kernel, *GRID))
    assert raised.value.kind is ErrorKind.LOST


def test_capturing_leaves_the_collector_as_it_was(opened: OpenedGpu) -> None:
    kernel = opened.kernel(ONE, opened.context.buffer(1), 1)
    gc.disable()
    try:
        opened.context.capture(lambda queue: queue.launch(kernel, *GRID))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_context_of_a_lost_device_is_closed_without_a_word(opened: OpenedGpu) -> None:
    opened.gpu.status = 719
    opened.context.close()


def test_a_closed_context_lets_go_of_its_events(opened: OpenedGpu) -> None:
    queue = opened.context.queue("compute")
    queue.marker([], is_last=True).wait()
    del queue
    opened.context.close()
    assert not any(opened.context._pool.free.values())
