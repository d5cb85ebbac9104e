"""Which of cuBLASLt's algorithms is taken, timed on a device that computes by the host's clock."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError
from aioinfer.backends.cuda.libraries import cublaslt_matmul
from aioinfer.backends.cuda.libraries.cublaslt_library import MatmulPlan
from aioinfer.backends.cuda.plan_files import PlanFiles, StoredPlan
from unit.backends.cuda.libraries.column_memory import matmul_operation
from unit.backends.cuda.libraries.timed_cublaslt import Machine, algorithm_of


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_the_fastest_algorithm_is_taken_and_launched(machine: Machine) -> None:
    plan = machine.plan()
    assert algorithm_of(plan) == 12
    left, right, made = (np.ones(size, np.float32) for size in (15, 20, 12))
    plan.enqueue([left.ctypes.data, right.ctypes.data, made.ctypes.data, 0], 7)
    assert machine.library.launches[-1]["algorithm"] == 12
    assert made.tolist() == [5.0] * 12


def test_among_equals_the_first_of_the_heuristics_is_taken(machine: Machine) -> None:
    machine.library.seconds = {11: 0.002, 12: 0.001, 13: 0.000995}
    assert machine.taken() == 12
    assert {launch["algorithm"] for launch in machine.library.launches} == {11, 12, 13}


def test_at_most_eight_algorithms_compete(machine: Machine) -> None:
    machine.library.seconds = {number: 1.0 / number for number in range(1, 12)}
    machine.library.algorithms = [(number, 0) for number in machine.library.seconds]
    assert machine.taken() == 8


def test_what_gives_nan_or_cannot_be_launched_is_left_out(machine: Machine) -> None:
    machine.library.spoiling = {12}
    machine.library.failing_launches = {13}
    assert machine.taken() == 11


def test_if_none_works_the_error_says_of_what_and_why_and_nothing_is_kept(
    machine: Machine,
) -> None:
    machine.library.spoiling = {12}
    machine.library.failing_launches = {11, 13}
    with pytest.raises(DriverError) as found:
        machine.plan()
    text = str(found.value)
    assert "cuBLASLt 130000 has 3 algorithms and none that works for" in text
    assert "for a matmul of float32 3x5 by 5x4: " in text
    assert "status 15" in text
    assert "NaN or infinity" in text
    assert not any(path.is_file() for path in machine.folder.rglob("*"))


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_form_of_a_matmul_is_timed_in_memory_that_is_large_enough(
    machine: Machine, dtype: str, has_bias: bool, has_residual: bool
) -> None:
    operation = matmul_operation(
        **{"dtype": dtype, "batch": 3, "has_bias": has_bias, "has_residual": has_residual},
        **{"a_strides": (7, 1), "b_strides": (1, 6), "a_batch_stride": 30},
    )
    lengths = {"a": 2 * 30 + 2 * 7 + 5, "b": 3 * 6 + 5, "bias": 4, "residual": 36, "d": 36}
    names = ["a", "b", *["bias"] * has_bias, *["residual"] * has_residual, "d"]
    buffers = cublaslt_matmul.buffers_of(operation)
    assert [(name, int(np.prod(shape))) for name, shape in buffers.shapes] == [
        (name, lengths[name]) for name in names
    ]
    assert (buffers.output, buffers.workspace_bytes) == ("d", 1 << 20)
    assert machine.taken(operation) == 12


def test_the_workspace_of_a_timed_launch_is_as_large_as_it_is_said_to_be(
    machine: Machine,
) -> None:
    machine.plan()
    begin = machine.cupy.memory[0].ptr
    end = begin + machine.cupy.allocated[0]
    for launch in machine.library.launches:
        assert begin <= launch["workspace"] <= end - launch["workspace_bytes"]


def test_a_choice_comes_from_disk_and_is_checked_by_the_library(machine: Machine) -> None:
    first = machine.plan()
    launches = machine.timing_count
    again = machine.plan()
    assert (again.blob, again.workspace_bytes) == (first.blob, 64)
    assert machine.timing_count == launches
    assert machine.library.checked == [12]


def test_a_choice_that_the_library_refuses_is_made_again(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.plan()
    machine.library.algorithms = [(11, 64), (13, 64)]
    assert machine.taken() == 13
    assert "cuBLASLt refuses a cached algorithm" in caplog.text
    launches = machine.timing_count
    assert machine.taken() == 13
    assert machine.timing_count == launches


def test_a_choice_that_is_refused_is_not_kept_if_there_is_no_other(machine: Machine) -> None:
    machine.plan()
    machine.library.algorithms = []
    with pytest.raises(DriverError, match="no algorithm"):
        machine.plan()
    assert not any(path.is_file() for path in machine.folder.rglob("*"))


@pytest.mark.parametrize(
    "spoil", [lambda content: content[:-1], lambda content: content[:-1] + b"!", lambda _: b""]
)
def test_a_damaged_file_is_ignored_and_replaced(
    machine: Machine, caplog: pytest.LogCaptureFixture, spoil: Callable[[bytes], bytes]
) -> None:
    machine.plan()
    content = machine.file.read_bytes()
    machine.file.write_bytes(spoil(content))
    assert machine.taken() == 12
    assert "ignoring the cached plan" in caplog.text
    assert machine.library.checked == []
    assert machine.taken() == 12
    assert machine.library.checked == [12]


@pytest.mark.parametrize(
    ("name", "value"),
    [("name", b"another GPU"), ("major", 10), ("minor", 3), ("multiProcessorCount", 60)],
)
def test_another_kind_of_device_chooses_for_itself(
    machine: Machine, name: str, value: object
) -> None:
    assert machine.taken() == 12
    machine.facts[name] = value
    machine.library.seconds = {11: 0.001, 12: 0.002, 13: 0.003}
    assert machine.taken() == 11
    assert machine.library.checked == []


def test_another_version_of_the_library_chooses_again(machine: Machine) -> None:
    assert machine.taken() == 12
    machine.library.version = 130001
    machine.library.seconds = {11: 0.001, 12: 0.002, 13: 0.003}
    assert machine.taken() == 11
    machine.library.version = 130000
    assert machine.taken() == 12


def test_operations_have_choices_of_their_own(machine: Machine) -> None:
    assert machine.taken() == 12
    machine.library.seconds = {11: 0.001, 12: 0.002, 13: 0.003}
    assert machine.taken(matmul_operation(has_bias=True)) == 11
    assert machine.taken() == 12


def test_what_cannot_be_timed_is_used_and_timed_another_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_memory(size: int) -> None:
        raise MemoryError("there is no room")

    with monkeypatch.context() as patch:
        patch.setattr(machine.cupy.cuda, "Memory", no_memory)
        assert machine.taken() == 11
    assert "there is no room" in caplog.text
    assert machine.timing_count == 0
    assert machine.taken() == 12


class NotedFiles(PlanFiles):
    """Plans on disk; says when each thread has looked for one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "cublaslt", {})
        self.readers: set[int] = set()
        self.second_has_read = threading.Event()

    def read(self, name: str) -> StoredPlan | None:
        found = super().read(name)
        self.readers.add(threading.get_ident())
        if len(self.readers) == 2:
            self.second_has_read.set()
        return found


def test_without_a_timer_the_first_is_taken_until_it_can_be_timed(
    machine: Machine, tmp_path: Path
) -> None:
    library = machine.opened()
    files = PlanFiles(tmp_path, "cublaslt", {})
    plans = cublaslt_matmul.MatmulPlans(library, 0, files)
    operation = matmul_operation()
    assert algorithm_of(plans.plan(operation)) == 11
    assert machine.timing_count == 0
    stored = files.read(operation.name)
    assert stored is not None
    assert (stored.is_final, stored.median_s) == (False, None)
    timers = cublaslt_matmul.DeviceTimers(machine.cupy, 0, 0)
    timed = cublaslt_matmul.MatmulPlans(library, 0, files, timers)
    assert algorithm_of(timed.plan(operation)) == 12
    stored = files.read(operation.name)
    assert stored is not None
    assert stored.is_final
    assert stored.median_s == pytest.approx(0.001)
    assert algorithm_of(plans.plan(operation)) == 12


def test_of_two_threads_that_plan_the_same_one_times_and_the_other_waits(
    machine: Machine, tmp_path: Path
) -> None:
    library = machine.opened()
    files = NotedFiles(tmp_path)
    opened: list[int] = []
    timers = cublaslt_matmul.DeviceTimers(machine.cupy, 0, 0)

    def timer(buffers: Any, planned: Any) -> Any:
        opened.append(len(planned))
        assert files.second_has_read.wait(20.0)
        return timers(buffers, planned)

    plans = cublaslt_matmul.MatmulPlans(library, 0, files, timer)
    made: list[MatmulPlan] = []
    threads = [
        threading.Thread(target=lambda: made.append(plans.plan(matmul_operation())))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert [algorithm_of(plan) for plan in made] == [12, 12]
    assert opened == [3]


def test_without_its_packages_it_is_not_installed_and_planning_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cublaslt_matmul.find_missing() is None
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)  # type: ignore[arg-type]
    said = cublaslt_matmul.find_missing()
    assert said is not None
    assert "nvmath.bindings" in said
    assert said.endswith("pip install nvmath-python nvidia-cublas'")
    with pytest.raises(DriverError, match=r"nvmath\.bindings"):
        machine.plan()
