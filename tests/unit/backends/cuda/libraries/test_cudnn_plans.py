"""Where a plan comes from, which one is taken, and how it is run, on a frontend that notes it."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.cuda.autotune import Timing
from aioinfer.backends.cuda.libraries.cudnn_attention import describe_attention
from aioinfer.backends.cuda.libraries.cudnn_conv import describe_conv
from aioinfer.backends.cuda.libraries.cudnn_graph import GraphDescription, PlanCandidate
from aioinfer.backends.cuda.libraries.cudnn_plans import CudnnPlanned, CudnnPlans, StreamHandles
from aioinfer.backends.cuda.libraries.plan_tuning import OperationBuffers
from aioinfer.backends.cuda.plan_files import PlanFiles
from aioinfer.backends.cuda.plan_workers import PlanWorkers, WorkerError
from aioinfer.errors import ClosedError
from unit.backends.cuda.libraries.conv_operation import attention_operation, conv_operation
from unit.backends.cuda.libraries.fake_cudnn import FakeFrontend

CONV = describe_conv(conv_operation())
DEVICE = '{"deviceVer": 900}'


class FakeWorkers:
    """Processes that build the plans of a frontend, or fail."""

    def __init__(self, frontend: FakeFrontend) -> None:
        self._frontend = frontend
        self.error: Exception | None = None
        self.asked: list[int] = []

    def build(
        self, description: GraphDescription, device: str, most: int, seconds: float
    ) -> list[PlanCandidate]:
        assert device == DEVICE
        self.asked.append(most)
        if self.error is not None:
            raise self.error
        names = self._frontend.plans[:most]
        return [PlanCandidate(name, 0, (), 128, f"plan {name}".encode()) for name in names]


class Timer:
    """Gives the seconds of a table, for glances and closer looks alike."""

    def __init__(self, timings: Sequence[Timing]) -> None:
        self.timings = timings
        self.error: Exception | None = None
        self.use_count = 0

    @contextmanager
    def __call__(
        self, buffers: OperationBuffers, planned: Sequence[CudnnPlanned]
    ) -> Iterator[Timer]:
        self.use_count += 1
        self.buffers = buffers
        if self.error is not None:
            raise self.error
        yield self

    def glance(self, index: int) -> Timing:
        return self.timings[index]

    def gaze(self, index: int) -> Timing:
        return self.timings[index]


class Plans:
    """Plans for a device, whose every part a test can reach."""

    def __init__(self, folder: Path, *plans: str, timer: Timer | None = None) -> None:
        self.frontend = FakeFrontend(*plans)
        self.workers = FakeWorkers(self.frontend)
        self._folder, self.timer = folder, timer

    def plan(self, description: GraphDescription = CONV) -> CudnnPlanned:
        """Plan as a process would that has just started."""
        return self.made().plan(description)

    def made(self) -> CudnnPlans:
        files = PlanFiles(self._folder, "cudnn", {})
        workers = cast(PlanWorkers, self.workers)
        return CudnnPlans(self.frontend, DEVICE, workers, files, self.timer)

    @property
    def loaded(self) -> list[bytes]:
        return self.frontend.loaded


def addresses(count: int) -> list[int]:
    return [256 * (1 + index) for index in range(count)]


def test_a_plan_is_built_elsewhere_once_and_then_comes_from_disk(tmp_path: Path) -> None:
    plans = Plans(tmp_path, "eng0", "eng1")
    plans.plan()
    plans.plan()
    assert plans.workers.asked == [1]
    assert plans.loaded == [b"plan eng0"] * 2
    assert plans.frontend.built == []


def test_the_fastest_plan_is_taken_and_kept(tmp_path: Path) -> None:
    timer = Timer([Timing((3.0,)), Timing((1.0,)), Timing((2.0,))])
    plans = Plans(tmp_path, "eng0", "eng1", "eng2", timer=timer)
    planned = plans.plan()
    planned.enqueue(addresses(5), 1)
    assert plans.frontend.executed[0][0] == b"plan eng1"
    plans.plan()
    assert timer.use_count == 1
    assert plans.loaded[3:] == [b"plan eng1"]


def test_what_was_taken_untimed_competes_once_it_can_be_timed(tmp_path: Path) -> None:
    Plans(tmp_path, "eng0", "eng1").plan()
    timer = Timer([Timing((3.0,)), Timing((1.0,))])
    plans = Plans(tmp_path, "eng0", "eng1", timer=timer)
    plans.plan()
    plans.plan()
    assert timer.use_count == 1
    assert plans.loaded[-1] == b"plan eng1"


def test_a_single_plan_needs_no_competition(tmp_path: Path) -> None:
    timer = Timer([])
    plans = Plans(tmp_path, "eng0", timer=timer)
    plans.plan()
    plans.plan()
    assert timer.use_count == 0
    assert len(plans.workers.asked) == 1


def test_plans_that_cannot_be_timed_are_used_and_timed_another_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    timer = Timer([Timing((3.0,)), Timing((1.0,))])
    timer.error = MemoryError("there is no room")
    plans = Plans(tmp_path, "eng0", "eng1", timer=timer)
    plans.plan().enqueue(addresses(5), 1)
    assert plans.frontend.executed[0][0] == b"plan eng0"
    assert "there is no room" in caplog.text
    timer.error = None
    plans.plan()
    assert timer.use_count == 2


def test_if_all_plans_give_nan_none_is_used(tmp_path: Path) -> None:
    timer = Timer([Timing(refusal="it gives NaN")] * 2)
    plans = Plans(tmp_path, "eng0", "eng1", timer=timer)
    with pytest.raises(DriverError, match=r"has 2 plans and none that works.*it gives NaN"):
        plans.plan()


def test_what_does_not_load_does_not_compete(tmp_path: Path) -> None:
    timer = Timer([Timing((2.0,)), Timing((1.0,))])
    plans = Plans(tmp_path, "eng0", "eng1", "eng2", timer=timer)
    plans.frontend.unloadable = {b"plan eng0"}
    plans.plan().enqueue(addresses(5), 1)
    assert plans.frontend.executed[0][0] == b"plan eng2"


def test_the_log_says_how_many_plans_came_from_elsewhere_and_which_one_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    timer = Timer([Timing((2.0,)), Timing((1.0,))])
    plans = Plans(tmp_path, "eng0", "eng1", "eng2", timer=timer)
    plans.frontend.unloadable = {b"plan eng0"}
    with caplog.at_level("INFO", "aioinfer"):
        plans.plan()
    (said,) = caplog.messages
    assert said.startswith("cuDNN: 3 plans were built and 2 load for conv of float16 8x64x56x56")
    assert said.endswith("number 2, eng2, is taken")


def test_if_nothing_loads_the_error_names_operation_versions_and_the_way_out(
    tmp_path: Path,
) -> None:
    plans = Plans(tmp_path, "eng0")
    plans.frontend.unloadable = {b"plan eng0"}
    with pytest.raises(DriverError) as caught:
        plans.plan()
    assert caught.value.text.startswith(
        "cuDNN 9.19.0 (frontend 1.32.0) cannot load plan eng0 of conv of float16 8x64x56x56"
    )
    assert caught.value.text.endswith("run the node on another device")


def test_a_cached_plan_that_does_not_load_is_built_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Plans(tmp_path, "eng0").plan()
    plans = Plans(tmp_path, "eng1")
    plans.frontend.unloadable = {b"plan eng0"}
    plans.plan()
    assert plans.loaded == [b"plan eng1"]
    assert "building a cached plan again" in caplog.text
    plans.plan()
    assert len(plans.workers.asked) == 1


def test_if_another_process_fails_this_one_builds_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    timer = Timer([Timing((1.0,))])
    plans = Plans(tmp_path, "python engine", "eng1", "eng2", "eng3", timer=timer)
    plans.frontend.unbuildable = {"eng1"}
    plans.workers.error = WorkerError("the process that builds plans was ended by SIGSEGV")
    plans.plan()
    assert plans.frontend.built == ["eng1", "eng2"]
    assert plans.loaded == [b"plan eng2"]
    assert "was ended by SIGSEGV" in caplog.text
    plans.workers.error = None
    plans.plan()
    assert plans.workers.asked == [40, 40]


def test_it_builds_here_with_what_the_description_excludes_on_the_device(tmp_path: Path) -> None:
    plans = Plans(tmp_path, "eng0")
    plans.workers.error = WorkerError("no")
    plans.plan()
    built = plans.frontend.graphs[0]
    assert built.settings["device_property"] == f"properties of {DEVICE}"
    assert built.settings["sm_version"] == 90
    assert built.excluded == list(CONV.excluded_notes)
    assert built.limit == CONV.workspace_bytes


def test_if_nothing_can_be_built_cudnn_says_why(tmp_path: Path) -> None:
    plans = Plans(tmp_path, "eng0", "eng1")
    plans.workers.error = WorkerError("no")
    plans.frontend.unbuildable = {"eng0", "eng1"}
    with pytest.raises(DriverError, match="eng0 fails to compile; eng1 fails to compile"):
        plans.plan()
    plans.frontend.refusal = "strides are no good"
    with pytest.raises(DriverError, match="the graph is refused: strides are no good"):
        plans.plan()


def test_closed_processes_are_no_reason_to_build_here(tmp_path: Path) -> None:
    plans = Plans(tmp_path, "eng0")
    plans.workers.error = ClosedError("closed")
    with pytest.raises(ClosedError):
        plans.plan()
    assert plans.frontend.built == []


def test_a_plan_runs_on_its_stream_with_numbers_for_its_tensors(tmp_path: Path) -> None:
    plans = Plans(tmp_path, "eng0")
    planned = plans.plan(describe_conv(conv_operation(has_residual=True)))
    planned.enqueue([1, 2, 3, 4, 5, 6], 77)
    (_, operands, workspace, handle, uids) = plans.frontend.executed[0]
    assert operands == (1, 2, 3, 4, 5)
    assert (workspace, handle.stream) == (6, 77)
    assert uids == (1, 2, 3, 4, 5)


def test_a_wrong_number_of_arguments_is_refused(tmp_path: Path) -> None:
    planned = Plans(tmp_path, "eng0").plan()
    with pytest.raises(DriverError, match="takes x, w, bias, y and workspace, and was given 4"):
        planned.enqueue(addresses(4), 1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("CUDNN_STATUS_EXECUTION_FAILED", ErrorKind.OTHER),
        ("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", ErrorKind.OUT_OF_MEMORY),
    ],
)
def test_what_cudnn_refuses_to_run_is_the_drivers_error(
    tmp_path: Path, status: str, kind: ErrorKind
) -> None:
    plans = Plans(tmp_path, "eng0")
    planned = plans.plan()
    plans.frontend.failure = status
    with pytest.raises(DriverError, match=f"refuses to run conv .*{status}") as caught:
        planned.enqueue(addresses(5), 1)
    assert caught.value.kind is kind


def test_attention_competes_and_is_kept_like_a_convolution(tmp_path: Path) -> None:
    timer = Timer([Timing((2.0,)), Timing((1.0,))])
    plans = Plans(tmp_path, "eng0", "eng1", timer=timer)
    description = describe_attention(attention_operation())
    plans.plan(description)
    plans.plan(description).enqueue([1, 2, 3, 4, 5], 9)
    assert (plans.workers.asked, timer.use_count, plans.frontend.built) == ([40], 1, [])
    assert plans.frontend.executed[0][:3] == (b"plan eng1", (1, 2, 3, 4), 5)


def test_heads_that_are_columns_of_wider_rows_are_timed_in_memory_that_has_those_rows(
    tmp_path: Path,
) -> None:
    timer = Timer([Timing((2.0,)), Timing((1.0,))])
    batch, heads, rows, depth = 2, 12, 128, 64
    wide = (rows * 3 * heads * depth, depth, 3 * heads * depth, 1)
    operation = attention_operation(**{f"{name}_strides": wide for name in "qkv"})
    Plans(tmp_path, "eng0", "eng1", timer=timer).plan(describe_attention(operation))
    counts = {name: math.prod(shape) for name, shape in timer.buffers.shapes}
    row = heads * depth
    assert counts == {
        **dict.fromkeys("qkv", batch * rows * 3 * row - 2 * row),
        "o": batch * rows * row,
    }


def test_each_stream_has_a_handle_of_its_own_and_they_are_few() -> None:
    frontend = FakeFrontend()
    handles = StreamHandles(frontend)
    with handles.at(1) as first, handles.at(2) as second, handles.at(1) as again:
        assert first is again
        assert first is not second
        assert (first.stream, second.stream) == (1, 2)
    for stream in range(3, 40):
        with handles.at(stream) as handle:
            assert handle.stream == stream
    assert len(frontend.handles) == 8
    assert first.stream > 2


def test_while_a_plan_of_a_device_is_run_no_other_thread_gets_a_handle() -> None:
    frontend = FakeFrontend()
    handles = StreamHandles(frontend)
    planned = CudnnPlanned(frontend, graph := frontend.pygraph(), CONV, handles)
    got: list[bool] = []

    def try_to_get() -> None:
        got.append(handles.lock.acquire(blocking=False))

    def execute(*given: Any, **named: Any) -> None:
        other = threading.Thread(target=try_to_get)
        other.start()
        other.join(20.0)

    graph.execute = execute  # type: ignore[method-assign]
    planned.enqueue(addresses(5), 1)
    assert got == [False]
