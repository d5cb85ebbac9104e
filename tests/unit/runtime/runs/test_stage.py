"""Runs on manual executors and streams: order, tokens, errors and stops at every point."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioinfer.errors import NotSupportedError
from aioinfer.executors import (
    NOW,
    DeviceStreamExecutor,
    HostReady,
    ImmediateExecutor,
    Lane,
    ManualExecutor,
    ManualStreams,
    Ready,
    Then,
)
from aioinfer.runtime.runs.graph_run import GraphRun, StageGraph
from aioinfer.runtime.runs.stage import Again, Stage, Stop
from aioinfer.runtime.tracing.recorder import SpanRecorder
from unit.runtime.lines import start_line


class Told:
    """A ``then`` that must be called once."""

    def __init__(self) -> None:
        self.calls: list[tuple[Ready, BaseException | None]] = []

    def __call__(self, ready: Ready, error: BaseException | None) -> None:
        self.calls.append((ready, error))

    @property
    def error(self) -> BaseException | None:
        assert len(self.calls) == 1, f"then was called {len(self.calls)} times"
        return self.calls[0][1]


def linear(stages: list[Stage], stop: Stop | None = None) -> tuple[Told, SpanRecorder]:
    told, recorder = Told(), SpanRecorder()
    start_line(stages, stop or Stop(), told, recorder)
    return told, recorder


def logged(log: list[str], name: str) -> Stage:
    return Stage(name, ManualExecutor(name), lambda _lane: log.append(name) or NOW)


def held_by(stage: Stage) -> ManualExecutor:
    assert isinstance(stage.executor, ManualExecutor)
    return stage.executor


def release(stage: Stage) -> None:
    held_by(stage).release()


def test_the_next_upload_overlaps_compute() -> None:
    upload, compute = ManualExecutor("upload"), ManualExecutor("compute")
    stages = [Stage("upload", upload, lambda _: NOW), Stage("compute", compute, lambda _: NOW)]
    for _ in range(2):
        linear(stages)
    upload.release()
    assert repr(upload) == "<ManualExecutor 'upload' 1 waiting>"
    assert repr(compute) == "<ManualExecutor 'compute' 1 waiting>"


def test_stages_run_in_order_and_then_comes_once() -> None:
    log: list[str] = []
    stages = [logged(log, name) for name in "abc"]
    told, recorder = linear(stages)
    for stage in stages:
        assert told.calls == []
        release(stage)
    assert log == ["a", "b", "c"]
    assert told.error is None
    assert [(span.run_id, span.stage, span.lane) for span in recorder.spans()] == [
        (7, "a", "a"),
        (7, "b", "b"),
        (7, "c", "c"),
    ]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_stage_that_raises_skips_the_others(failing: int) -> None:
    log: list[str] = []
    stages = [logged(log, name) for name in "abc"]
    error = ValueError("planted")

    def fail(_lane: Lane) -> Ready:
        raise error

    stages[failing] = Stage("failing", stages[failing].executor, fail)
    told, _ = linear(stages)
    for stage in stages[: failing + 1]:
        release(stage)
    assert told.error is error
    assert log == list("abc"[:failing])
    assert all(held_by(stage).waiting_count == 0 for stage in stages)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_stop_before_a_stage_means_that_it_never_runs(before: int) -> None:
    log: list[str] = []
    stages = [logged(log, name) for name in "abc"]
    stop, error = Stop(), RuntimeError("stopped")
    told, _ = linear(stages, stop)
    for stage in stages[:before]:
        release(stage)
    assert stop.set(error)
    assert told.calls == [], "setting a stop never calls then"
    release(stages[before])
    assert told.error is error
    assert log == list("abc"[:before])


def test_a_stop_after_the_last_stage_has_begun_does_not_call_then_twice() -> None:
    stop = Stop()
    executor = ManualExecutor("only")

    def function(_lane: Lane) -> Ready:
        stop.set(RuntimeError("late"))
        return NOW

    told, _ = linear([Stage("only", executor, function)], stop)
    executor.release()
    assert isinstance(told.error, RuntimeError)


def test_the_second_executor_refusing_ends_the_run_with_its_error() -> None:
    log: list[str] = []
    stages = [logged(log, "a"), logged(log, "b")]
    stages[1].executor.close()
    told, _ = linear(stages)
    release(stages[0])
    assert "closed" in str(told.error)


def test_neighbours_on_one_executor_are_one_hop() -> None:
    log: list[str] = []
    both = ManualExecutor("both")
    stages = [Stage(name, both, lambda _, name=name: log.append(name) or NOW) for name in "ab"]
    told, recorder = linear(stages)
    both.release()
    assert log == ["a", "b"]
    assert told.error is None
    assert len(recorder.spans()) == 2


def test_a_neighbour_waits_for_a_token_that_has_not_fired() -> None:
    log: list[str] = []
    both, token = ManualExecutor("both"), HostReady()
    stages = [
        Stage("a", both, lambda _: log.append("a") or token),
        Stage("b", both, lambda _: log.append("b") or NOW),
    ]
    told, _ = linear(stages)
    both.release()
    assert log == ["a"]
    token.fire()
    both.release()
    assert log == ["a", "b"]
    assert told.error is None


def test_a_neighbour_does_not_run_after_a_token_that_has_failed() -> None:
    log: list[str] = []
    both, token = ManualExecutor("both"), HostReady()
    token.fire(ValueError("lost"))
    stages = [
        Stage("a", both, lambda _: log.append("a") or token),
        Stage("b", both, lambda _: log.append("b") or NOW),
    ]
    told, _ = linear(stages)
    both.release()
    assert log == ["a"]
    assert str(told.error) == "lost"


class Interrupted(ManualExecutor):
    """Takes the stage, and is interrupted before it returns."""

    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        super().run(function, after, then)
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["line", "graph"])
def test_an_interrupted_hand_over_ends_the_run_once_and_the_stage_does_nothing(kind: str) -> None:
    log: list[str] = []
    executor, told, stop = Interrupted("main"), Told(), Stop()
    stages = [Stage("a", executor, lambda _: log.append("a") or NOW)]
    if kind == "line":
        start_line(stages, stop, told, SpanRecorder())
    else:
        GraphRun(stages, StageGraph([[]]), stop, told, SpanRecorder()).start()
    assert isinstance(told.error, KeyboardInterrupt)
    executor.release()
    assert isinstance(told.error, KeyboardInterrupt), "once, and not again"
    assert log == []


def test_a_stage_of_a_graph_that_asks_to_be_run_again_is_an_error_and_nothing_follows() -> None:
    log: list[str] = []
    stages = [
        Stage("a", ImmediateExecutor("one"), lambda _: Again(NOW)),
        Stage("b", ImmediateExecutor("two"), lambda _: log.append("b") or NOW),
    ]
    told = Told()
    GraphRun(stages, StageGraph([[], [0]]), Stop(), told, SpanRecorder()).start()
    assert isinstance(told.error, NotSupportedError)
    assert "stage 'a' of a graph" in str(told.error)
    assert log == []


def test_six_hundred_inline_stages_do_not_nest() -> None:
    immediate = [ImmediateExecutor("one"), ImmediateExecutor("two")]
    stages = [Stage(str(index), immediate[index % 2], lambda _: NOW) for index in range(600)]
    told, _ = linear(stages)
    assert told.error is None


def test_device_stages_are_enqueued_without_a_wait() -> None:
    device = ManualStreams("fake")
    upload, compute = device.stream("upload"), device.stream("compute")
    stages = [
        Stage("upload", DeviceStreamExecutor(upload), lambda _: (upload.enqueue("copy"), NOW)[1]),
        Stage("compute", DeviceStreamExecutor(compute), lambda _: (compute.enqueue("mul"), NOW)[1]),
    ]
    told, _ = linear(stages)
    ready, error = told.calls[0]
    assert error is None
    assert not ready.is_ready, "the host is done, the device is not"
    device.fire_all()
    assert ready.is_ready


class Diamond:
    """a feeds b and c, which feed d; every stage on an executor of its own."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.stages = {name: logged(self.log, name) for name in "abcd"}
        self.stop, self.told = Stop(), Told()
        needs = [[], [0], [0], [1, 2]]
        graph = StageGraph(needs)
        GraphRun(list(self.stages.values()), graph, self.stop, self.told, SpanRecorder()).start()

    def waiting(self) -> str:
        return "".join(name for name, stage in self.stages.items() if held_by(stage).waiting_count)

    def release(self, name: str) -> None:
        release(self.stages[name])


def test_independent_branches_run_side_by_side_and_the_join_waits_for_both() -> None:
    diamond = Diamond()
    assert diamond.waiting() == "a"
    diamond.release("a")
    assert diamond.waiting() == "bc"
    diamond.release("c")
    assert diamond.waiting() == "b"
    diamond.release("b")
    assert diamond.waiting() == "d"
    diamond.release("d")
    assert diamond.told.error is None
    assert diamond.log == ["a", "c", "b", "d"]


def test_after_an_error_nothing_starts_and_then_waits_for_what_is_outstanding() -> None:
    diamond = Diamond()
    diamond.release("a")
    error = ValueError("planted")
    held_by(diamond.stages["b"]).fail(error)
    assert diamond.told.calls == [], "c is still outstanding"
    diamond.release("c")
    assert diamond.told.error is error
    assert diamond.waiting() == ""


def test_a_stop_between_sub_requests_starts_no_further_one() -> None:
    diamond = Diamond()
    diamond.stop.set(RuntimeError("cancelled"))
    diamond.release("a")
    assert str(diamond.told.error) == "cancelled"
    assert diamond.log == []


def test_a_stop_when_all_stages_have_ended_changes_nothing() -> None:
    diamond = Diamond()
    for name in "abcd":
        diamond.release(name)
    diamond.stop.set(RuntimeError("late"))
    assert diamond.told.error is None


def test_a_graph_starts_after_its_token_and_joins_all_tokens() -> None:
    log: list[str] = []
    tokens = [HostReady(), HostReady()]
    stages = [
        Stage(name, ImmediateExecutor(name), lambda _, token=token: log.append("ran") or token)
        for name, token in zip("ab", tokens, strict=True)
    ]
    told, after = Told(), HostReady()
    GraphRun(stages, StageGraph([[], []]), Stop(), told, SpanRecorder()).start(after)
    assert log == []
    after.fire()
    assert log == ["ran", "ran"]
    ready, error = told.calls[0]
    assert error is None
    tokens[0].fire()
    assert not ready.is_ready
    tokens[1].fire()
    assert ready.is_ready


def test_an_empty_graph_ends_at_once() -> None:
    told = Told()
    GraphRun([], StageGraph([]), Stop(), told, SpanRecorder()).start()
    assert told.error is None


def test_the_first_stop_wins_and_tells_its_listeners_once() -> None:
    stop, told = Stop(), []
    stop.when_set(lambda: told.append("early"))
    forgotten = lambda: told.append("forgotten")  # noqa: E731  (the same object is taken back)
    stop.when_set(forgotten)
    stop.forget(forgotten)
    assert stop.set(ValueError("first"))
    assert not stop.set(ValueError("second"))
    stop.when_set(lambda: told.append("late"))
    assert told == ["early", "late"]
    with pytest.raises(ValueError, match="first"):
        stop.raise_if_set()
