"""The native extension: what it takes, what it refuses, and that damaged tables do no harm."""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.cpu import plugin
from aioinfer.backends.cpu.native import extension
from aioinfer.backends.cpu.native import step_runner as native
from aioinfer.backends.cpu.native.extension import INTERFACE, native_extension
from aioinfer.backends.cpu.native.step_runner import (
    KIND_END,
    KIND_KERNEL,
    KIND_PARTS,
    KIND_PRIMITIVE,
    STATUS_BUFFER,
    STATUS_INDEX,
    STATUS_STOPPED,
    STATUS_TABLE,
    StepRunner,
    failure_text,
    mismatch_text,
    step_runner,
)
from aioinfer.backends.cpu.onednn.bindings import (
    ARG,
    ELTWISE,
    FORWARD_INFERENCE,
    Attributes,
    ExecArg,
    Memory,
    OneDnnError,
    Primitive,
    PrimitiveDesc,
    open_engine,
)
from aioinfer.backends.cpu.onednn.numbers import INVALID_ARGUMENTS
from aioinfer.errors import DeviceError
from aioinfer.runtime.graph import DType

END = [KIND_END, 2]


@pytest.fixture(scope="module")
def by() -> StepRunner:
    return step_runner(open_engine())


def table(*words: int, buffers: Sequence[Any] = (), inputs: int = 0) -> np.ndarray:
    """Write a table for buffers of a call, of which so many are only read."""
    head = [len(buffers), inputs, *(memoryview(buffer).nbytes for buffer in buffers)]
    return np.array([*head, *words], np.int64)


def run_table(
    by: StepRunner, words: Sequence[int], buffers: tuple[np.ndarray, ...], *times: np.ndarray
) -> tuple[int, int] | None:
    """Run a table that is made for these buffers."""
    return by.run(table(*words, buffers=buffers), buffers, 1, None, *times)


def step(
    by: StepRunner, kernel: str, references: Sequence[tuple[int, int]], *parameters: int
) -> Any:
    flat = [word for reference in references for word in reference]
    payload = [len(references), *flat, *parameters]
    return [by.kinds[kernel], 2 + len(payload), *payload]


def copy_step(by: StepRunner, source: int, target: int, count: int) -> list[int]:
    return list(step(by, "copy", [(source, 0), (target, 0)], 4, 1, count, 4, 4))


def test_a_table_without_steps_does_nothing(by: StepRunner) -> None:
    assert by.run(table(0, *END), (), 1) is None


def test_a_copy_between_buffers(by: StepRunner) -> None:
    source, target = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    assert run_table(by, [0, *copy_step(by, 1, 2, 5), *END], (source, target)) is None
    np.testing.assert_array_equal(target, source)


def test_a_copy_backwards(by: StepRunner) -> None:
    source, target = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    words = step(by, "copy", [(1, 20), (2, 0)], 4, 2, 2, -12, 12, 3, -4, 4)
    assert run_table(by, [0, *words, *END], (source, target)) is None
    np.testing.assert_array_equal(target, source[::-1])


@pytest.mark.parametrize("count", [16, 17, 100, 1000])
def test_there_may_be_many_buffers(by: StepRunner, count: int) -> None:
    buffers = tuple(np.full(1, index, np.float32) for index in range(count))
    words = copy_step(by, count, 1, 1)
    assert run_table(by, [0, *words, *END], buffers) is None
    assert buffers[0][0] == count - 1


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ((20, 24), None),
        ((19, 24), 0),
        ((21, 24), 0),
        ((20, 23), 1),
        ((20, 48), 1),
        ((0, 0), 0),
        ((20,), 1),
        ((), 0),
        ((20, 24, 24), 2),
    ],
)
def test_buffers_are_as_long_as_the_table_says(
    by: StepRunner, given: tuple[int, ...], wrong: int | None
) -> None:
    wanted = (np.zeros(20, np.uint8), np.zeros(24, np.uint8))
    buffers = tuple(np.zeros(length, np.uint8) for length in given)
    made = table(0, *step(by, "fill", [(2, 0)], 4, 6, -1), *END, buffers=wanted, inputs=1)
    failure = by.run(made, buffers, 1)
    assert failure == (None if wrong is None else (STATUS_BUFFER, wrong))
    if wrong is not None:
        assert not any(buffer.any() for buffer in buffers)  # nothing has been run


def test_only_inputs_may_be_read_only(by: StepRunner) -> None:
    source, target = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    source.flags.writeable = False
    made = table(0, *copy_step(by, 1, 2, 5), *END, buffers=(source, target), inputs=1)
    assert by.run(made, (source, target), 1) is None
    with pytest.raises((BufferError, ValueError)):
        by.run(made, (source, source), 1)


@pytest.mark.parametrize("words", [[], [0], [1, 0], [-1, 0], [2**62, 0], [1025, 0, *[0] * 1030]])
def test_a_head_that_is_damaged_is_refused(by: StepRunner, words: list[int]) -> None:
    failure = by.run(np.array(words, np.int64), (), 1)
    assert failure is not None
    assert failure[0] == STATUS_TABLE


def test_too_many_buffers_are_refused(by: StepRunner) -> None:
    one = np.zeros(1, np.float32)
    with pytest.raises(ValueError, match="at most 1024 buffers, not 1025"):
        run_table(by, [0, *END], (one,) * 1025)


def byte_copy(by: StepRunner, source: int, address: int) -> list[int]:
    return list(step(by, "copy", [(source, 0), (0, address)], 1, 1, 1, 1, 1))


@pytest.mark.parametrize("at", [0, 1, 3])
def test_no_step_begins_once_the_stop_word_is_set(by: StepRunner, at: int) -> None:
    """The step before the ``at``-th sets the word itself; so no clock decides."""
    word = bytearray(1)
    address = np.frombuffer(word, np.uint8).ctypes.data
    source, made = np.ones(4, np.uint8), [np.zeros(4, np.uint8) for _ in range(4)]
    words: list[int] = []
    for index in range(4):
        if index == at:
            words += byte_copy(by, 1, address)
        words += copy_step(by, 1, 2 + index, 1)
    buffers = (source, *made)
    whole = table(0, *words, *END, buffers=buffers)
    assert by.run(whole, buffers, 1, word) == (STATUS_STOPPED, at)
    assert [bool(item.all()) for item in made] == [index < at for index in range(4)]
    word[0] = 0
    spared = table(0, *copy_step(by, 1, 5, 1), *END, buffers=buffers)
    assert by.run(spared, buffers, 1, word) is None


def test_a_stop_word_that_is_set_before_the_call_keeps_all_steps_back(by: StepRunner) -> None:
    source, target = np.ones(4, np.uint8), np.zeros(4, np.uint8)
    whole = table(0, *copy_step(by, 1, 2, 1), *END, buffers=(source, target))
    assert by.run(whole, (source, target), 1, bytearray(b"\1")) == (STATUS_STOPPED, 0)
    assert not target.any()


def test_another_thread_stops_a_table_amid_its_steps(by: StepRunner) -> None:
    word, started = bytearray(1), np.zeros(4, np.uint8)
    source, target = np.ones(4 << 18, np.uint8), np.zeros(4 << 18, np.uint8)
    buffers = (source, target, started)
    copies = copy_step(by, 1, 2, 1 << 18)
    count = 100_000  # a minute, if it went to its end
    words = np.array([*copy_step(by, 1, 3, 1), *copies * count, *END], np.int64)
    whole = np.concatenate([table(0, buffers=buffers), words])

    def stop() -> None:
        while not started.any():
            pass
        word[0] = 1

    other = threading.Thread(target=stop)
    other.start()
    failure = by.run(whole, buffers, 1, word)
    other.join()
    assert failure is not None
    assert failure[0] == STATUS_STOPPED
    assert 0 < failure[1] < count


def test_times_get_a_reading_before_and_after_each_step(by: StepRunner) -> None:
    source, target = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    words = copy_step(by, 1, 2, 5) * 3
    times = np.zeros(4, np.int64)
    assert run_table(by, [0, *words, *END], (source, target), times) is None
    readings = times.tolist()
    assert readings[0] > 0
    assert readings == sorted(readings)


def test_times_that_are_too_short_are_not_overrun(by: StepRunner) -> None:
    one = np.zeros(1, np.float32)
    times = np.zeros(4, np.int64)
    words = copy_step(by, 1, 1, 0) * 5
    assert run_table(by, [0, *words, *END], (one,), times[:2]) is None
    assert (times[:2] > 0).all()
    assert times[2:].tolist() == [0, 0]


def test_an_index_out_of_range_names_the_step(by: StepRunner) -> None:
    source, target = np.arange(3, dtype=np.float32), np.zeros(2, np.float32)
    index = np.array([0, 3], np.int64)
    good = copy_step(by, 1, 1, 0)
    words = step(by, "gather", [(1, 0), (2, 0), (3, 0)], 1, 3, 2, 4, 8)
    buffers = (source, index, target)
    assert run_table(by, [0, *good, *words, *END], buffers) == (STATUS_INDEX, 1)
    index[1] = -3
    assert run_table(by, [0, *good, *words, *END], buffers) is None
    assert target.tolist() == [0, 0]


def test_the_team_of_the_thread_is_as_before(by: StepRunner) -> None:
    engine = open_engine()
    seen: list[tuple[int, int]] = []

    def work() -> None:
        before = engine.thread_count
        by.run(table(0, *END), (), before + 5)
        seen.append((before, engine.thread_count))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    ((before, after),) = seen
    assert before == after


UNKNOWN = 1000

DAMAGED = {
    "empty": [],
    "no end": [0],
    "half an end": [0, 0],
    "bindings missing": [5, 1, 1],
    "a negative count of bindings": [-1, *END],
    "more bindings than words can be": [2**62, *END],
    "binding to no buffer": [1, 1, 7, 0, *END],
    "a negative buffer": [1, 1, -2, 0, *END],
    "unknown kind": [0, UNKNOWN, 3, 0, *END],
    "negative kind": [0, -1, 3, 0, *END],
    "no progress": [0, KIND_KERNEL, 0, *END],
    "backwards": [0, KIND_KERNEL, -2, *END],
    "too long a step": [0, KIND_KERNEL, 100, *END],
    "a primitive of wrong length": [0, KIND_PRIMITIVE, 4, 0, 0, *END],
    "parts without a count": [0, KIND_PARTS, 5, 0, 0, 0, *END],
    "parts with half a move": [0, KIND_PARTS, 8, 0, 0, 0, 1, 0, 0, *END],
    "parts in a buffer that is not there": [0, KIND_PARTS, 10, 0, 0, 0, 1, 0, 99, 0, 4, *END],
    "a kernel without references": [0, KIND_KERNEL, 2, *END],
    "a negative count of references": [0, KIND_KERNEL, 3, -1, *END],
    "more references than words": [0, KIND_KERNEL, 5, 2, 0, 0, *END],
    "more references than fit": [0, KIND_KERNEL, 203, 100, *[0] * 200, *END],
    "a reference to no buffer": [0, KIND_KERNEL, 5, 1, 9, 0, *END],
    "a reference to a negative buffer": [0, KIND_KERNEL, 5, 1, -9, 0, *END],
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_table_is_refused(by: StepRunner, case: str) -> None:
    buffer = np.zeros(1, np.float32)
    failure = run_table(by, DAMAGED[case], (buffer,))
    assert failure is not None
    assert failure[0] == STATUS_TABLE


def test_unknown_kinds_are_refused(by: StepRunner) -> None:
    assert by.run(table(0, UNKNOWN, 3, 0, *END), (), 1) == (STATUS_TABLE, 0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        ((1, (), 1), TypeError),
        ((None, (), 1), TypeError),
        (("text", (), 1), TypeError),
        ((table(0, *END), [], 1), TypeError),
        ((table(0, *END), None, 1), TypeError),
        ((table(0, *END), (1,), 1), TypeError),
        ((table(0, *END), (b"read-only",), 1), (BufferError, ValueError)),
        ((table(0, *END), (np.zeros((2, 2)).T,), 1), (ValueError, BufferError)),
        ((table(0, *END), (np.zeros(1), "text"), 1), TypeError),
        ((table(0, *END), (), "1"), TypeError),
        ((table(0, *END), (), 2**40), OverflowError),
        ((table(0, *END), (), 1, 5), TypeError),
        ((table(0, *END), (), 1, None, 5), TypeError),
        ((table(0, *END), (), 1, None, b"read-only"), (BufferError, ValueError)),
        ((table(0, *END), (), 1, bytearray()), TypeError),
        ((table(0, *END), (), 1, b"read-only"), TypeError),
        ((table(0, *END), (), 1, None, None, None, None), TypeError),
        ((table(0, *END)[::2], (), 1), (ValueError, BufferError)),
    ],
)
def test_wrong_arguments_raise(by: StepRunner, arguments: tuple[Any, ...], error: Any) -> None:
    with pytest.raises(error):
        by.run(*arguments)


def test_failed_calls_release_what_they_held(by: StepRunner) -> None:
    held = bytearray(8)
    for _ in range(3):
        with pytest.raises(TypeError):
            by.run(table(0, *END), (held, 1), 1)
        with pytest.raises(TypeError):
            by.run(table(0, *END), (held,) * 20 + (1,), 1)
    held.append(1)  # BufferError while somebody holds its memory


def test_memory_objects_are_bound_to_the_buffers_of_each_run(by: StepRunner) -> None:
    engine = open_engine()
    desc = engine.desc((4,), DType.FLOAT32)
    memory = Memory(engine, desc, 0)
    for _ in range(2):
        buffer = np.zeros(4, np.float32)
        assert run_table(by, [1, memory.handle, 1, 4, *END], (buffer,)) is None


def test_memory_objects_are_made_many_at_a_time(by: StepRunner) -> None:
    engine = open_engine()
    desc = engine.desc((4,), DType.FLOAT32)
    buffers = (np.zeros(4, np.float32), np.ones(4, np.float32))
    addresses = np.array([buffer.ctypes.data for buffer in buffers])
    memories = by.memories(engine, np.array([desc.handle] * 2), addresses)
    reorder = engine.primitive_desc("reorder", desc, engine, desc, engine, None).create()
    arguments = (ExecArg * 2)(
        ExecArg(ARG.SRC, int(memories.handles[1])), ExecArg(ARG.DST, int(memories.handles[0]))
    )
    words = [KIND_PRIMITIVE, 5, reorder.handle, 2, ctypes.addressof(arguments)]
    assert by.run(table(0, *words, *END), (), 1) is None
    assert buffers[0].tolist() == [1, 1, 1, 1]


PARTS = np.array([1.1, 2.2, 3.3, 4.4, 5.5, 6.6], np.float32)


def copied_parts(by: StepRunner, stop: bytearray | None, count: int, target: np.ndarray) -> Any:
    """Copy rows of two floats to every third place of what is given, by a primitive for one."""
    engine = open_engine()
    desc = engine.desc((2,), DType.FLOAT32)
    memories = by.memories(engine, np.array([desc.handle] * 2), np.zeros(2, np.int64))
    source, result = memories.handles.tolist()
    copy = engine.primitive_desc("reorder", desc, engine, desc, engine, None).create()
    arguments = (ExecArg * 2)(ExecArg(ARG.SRC, source), ExecArg(ARG.DST, result))
    moves = [source, 1, 0, 8, result, 2, 0, 12]
    words = [KIND_PARTS, 14, copy.handle, 2, ctypes.addressof(arguments), count, *moves]
    buffers = (PARTS[: 2 * count], target)
    return by.run(table(0, *words, *END, buffers=buffers), buffers, 1, stop)


def test_a_primitive_is_executed_for_each_part(by: StepRunner) -> None:
    target = np.zeros(9, np.float32)
    assert copied_parts(by, None, 3, target) is None
    rows = target.reshape(3, 3)
    assert rows[:, :2].tolist() == PARTS.reshape(3, 2).tolist()
    assert not rows[:, 2].any()


def test_parts_behind_the_one_that_sets_the_stop_word_are_left(by: StepRunner) -> None:
    """The result lies in the stop word's own memory."""
    word = bytearray(36)
    target = np.frombuffer(word, np.float32)
    assert copied_parts(by, word, 3, target) == (STATUS_STOPPED, 0)
    assert target.tolist() == [*PARTS[:2].tolist(), *[0] * 7]


def test_of_memory_objects_that_onednn_refuses_none_is_left(by: StepRunner) -> None:
    engine = open_engine()
    desc = engine.desc((4,), DType.FLOAT32)
    unplaced = engine.any_desc((4,), DType.FLOAT32)
    with pytest.raises(OneDnnError, match="dnnl_memory_create failed: invalid arguments"):
        by.memories(engine, np.array([desc.handle, unplaced.handle]), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="differ in length"):
        by.memories(engine, np.array([desc.handle]), np.zeros(2, np.int64))


def relu_desc(length: int) -> PrimitiveDesc:
    engine = open_engine()
    desc = engine.desc((length,), DType.FLOAT32)
    algorithm, zero = ctypes.c_int(ELTWISE["relu"]), ctypes.c_float(0)
    forward = ctypes.c_int(FORWARD_INFERENCE)
    return engine.primitive_desc(
        "eltwise_forward", engine, forward, algorithm, desc, desc, zero, zero, Attributes(engine)
    )


@pytest.mark.parametrize("thread_count", [1, 2, 16])
def test_primitives_are_compiled_side_by_side(by: StepRunner, thread_count: int) -> None:
    engine, lengths = open_engine(), range(1000, 1060)
    made = by.primitives(engine, [relu_desc(length) for length in lengths], thread_count)
    assert len({primitive.handle for primitive in made}) == len(lengths)
    for length, primitive in zip(lengths, made, strict=True):
        source, target = np.linspace(-1, 1, length, dtype=np.float32), np.ones(length, np.float32)
        desc = engine.desc((length,), DType.FLOAT32)
        memories = [Memory(engine, desc, array.ctypes.data) for array in (source, target)]
        engine.execute(primitive, list(zip((ARG.SRC, ARG.DST), memories, strict=True)))
        np.testing.assert_array_equal(target, np.maximum(source, 0))
    assert by.primitives(engine, [], thread_count) == []


def test_helpers_that_come_too_late_find_nothing_to_do(by: StepRunner) -> None:
    descs = [relu_desc(3000 + index) for index in range(3)]
    handles = np.array([desc.handle for desc in descs], np.int64)
    for count in [0, 1, 2, 3] * 25:
        made = np.zeros(count, np.int64)
        assert by._steps.make_primitives(handles[:count], made, 1, 7) is None
        primitives = [Primitive(open_engine(), handle) for handle in made.tolist()]
        assert len({primitive.handle for primitive in primitives} - {0}) == count


def test_of_primitives_that_onednn_refuses_none_is_left(by: StepRunner) -> None:
    known = relu_desc(2000)
    handles = np.array([known.handle, 0, known.handle], np.int64)
    made = np.ones(3, np.int64)
    assert by._steps.make_primitives(handles, made, 1, 1) == INVALID_ARGUMENTS
    assert not made.any()
    with pytest.raises(ValueError, match="differ in length"):
        by._steps.make_primitives(handles, made[:2], 1, 1)
    with pytest.raises(ValueError, match="0 to 7 helpers"):
        by._steps.make_primitives(handles, made, 1, 8)


def test_primitives_are_not_begun_where_memory_is_short(
    by: StepRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_size_bytes: int) -> None:
        raise MemoryError("none")

    monkeypatch.setattr(native, "check_memory", refuse)
    with pytest.raises(MemoryError):
        by.primitives(open_engine(), [relu_desc(2001)], 2)


def test_a_kernel_that_an_old_extension_lacks_is_named() -> None:
    old = StepRunner(SimpleNamespace(run=lambda *arguments: None, kernels=["copy"]))
    assert old.kind("copy") == native.KIND_KERNEL
    with pytest.raises(DeviceError, match="no native kernel 'fill': the native extension"):
        old.kind("fill")


def test_statuses_are_put_in_words() -> None:
    assert failure_text(STATUS_INDEX) == "an index in the data is out of range"
    assert failure_text(STATUS_TABLE).startswith("the step table is damaged: the native extension")
    assert failure_text(STATUS_BUFFER) == "an array is not as long as it should be"
    assert failure_text(5) == "oneDNN's status 5"


def test_an_extension_that_is_older_than_its_sources_is_told_with_the_way_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "__file__", str(tmp_path / "step_runner.py"))
    (tmp_path / "teams").mkdir()
    for name, time_s in (("_steps.abi3.so", 20), ("steps.c", 10), ("teams/team.h", 30)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time_s, time_s))
    told = failure_text(STATUS_TABLE)
    assert "does not match its sources, of which team.h changed after it was built" in told
    assert "run 'pip install --no-deps -e .'" in told
    (tmp_path / "teams/team.h").unlink()
    assert failure_text(STATUS_TABLE).endswith("sources; reinstall aioinfer")
    (tmp_path / "_steps.abi3.so").unlink()
    assert "of which steps.c changed" in mismatch_text()


@pytest.mark.parametrize(
    ("numbers", "found"), [({}, 0), ({"interface": INTERFACE + 1}, INTERFACE + 1)]
)
def test_an_extension_of_another_interface_is_refused_when_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, numbers: dict[str, int], found: int
) -> None:
    stale = SimpleNamespace(kernels=(), **numbers)
    monkeypatch.setattr(extension.importlib, "import_module", lambda *names: stale)
    message = rf"interface {found}, wanted {INTERFACE}\); run `pip install -e \.` again"
    with pytest.raises(DeviceError, match=message):
        native_extension.__wrapped__()


def test_an_extension_whose_functions_take_something_else_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = SimpleNamespace(configure=lambda one: None, run=None, kernels=())
    monkeypatch.setattr(native, "native_extension", lambda: old)
    with pytest.raises(DeviceError, match=r"CPU cannot be used .*: the native extension"):
        step_runner.__wrapped__(open_engine())


def test_without_the_extension_the_device_says_why_it_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == "._steps":
            raise ImportError("No module named '_steps'")
        return real(name, package)

    monkeypatch.setattr(native, "step_runner", step_runner.__wrapped__)
    monkeypatch.setattr(plugin, "step_runner", step_runner.__wrapped__)
    monkeypatch.setattr(native, "native_extension", native_extension.__wrapped__)
    monkeypatch.setattr(extension.importlib, "import_module", without)
    with Core() as core:
        with pytest.raises(DeviceError, match=r"without its native extension .*'_steps'.*compiler"):
            core.resolve_device("CPU")
        assert not [name for name in core.available_devices if name.startswith("CPU")]
