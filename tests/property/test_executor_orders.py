"""Random runs over manual streams, a manual CPU and the host, in random orders of what happens.

Each run is a graph of stages in the shape that HETERO gives it: a stage starts after the join of
the tokens of earlier stages. Whatever the order, every stage is answered exactly once, and its
function is called only when all it depends on has been handed over.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.errors import ClosedError
from aioinfer.executors import (
    NOW,
    DeviceStreamExecutor,
    HostReady,
    ImmediateExecutor,
    ManualExecutor,
    ManualStreams,
    Ready,
    TaskExecutor,
)
from exhaustive import drawn


@dataclass
class World:
    """Two devices with two streams each, a CPU released by hand, and an inline executor."""

    order: random.Random
    devices: list[ManualStreams] = field(
        default_factory=lambda: [ManualStreams("MANUAL.0"), ManualStreams("MANUAL.1")]
    )
    cpu: ManualExecutor = field(default_factory=lambda: ManualExecutor("CPU"))
    gates: list[HostReady] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.executors: list[TaskExecutor] = [self.cpu, ImmediateExecutor()]
        for device in self.devices:
            for name in ("upload", "compute"):
                self.executors.append(DeviceStreamExecutor(device.stream(name)))

    def happen(self) -> bool:
        """Do one thing that could happen now; False if nothing can."""
        choices = [self.release_cpu, *[lambda d=d: self.fire(d) for d in self.devices]]
        if self.gates:
            choices.append(self.open_gate)
        self.order.shuffle(choices)
        return any(choice() for choice in choices)

    def release_cpu(self) -> bool:
        if not self.cpu.waiting_count:
            return False
        self.cpu.release()
        return True

    def fire(self, device: ManualStreams) -> bool:
        streams = [device.stream(name) for name in ("upload", "compute")]
        self.order.shuffle(streams)
        return any(stream._advance() for stream in streams)

    def open_gate(self) -> bool:
        self.gates.pop(self.order.randrange(len(self.gates))).fire()
        return True


class Run:
    """A graph of stages; a stage is started as soon as what it needs has been handed over."""

    def __init__(self, world: World, needs: list[set[int]], failing: set[int]) -> None:
        self.world, self.needs, self.failing = world, needs, failing
        self.executors = [world.order.choice(world.executors) for _ in needs]
        self.told: list[list[tuple[Ready, BaseException | None]]] = [[] for _ in needs]
        self.results: list[int | None] = [None] * len(needs)
        self.started: set[int] = set()

    def start_what_can(self) -> None:
        for index, needed in enumerate(self.needs):
            if index not in self.started and all(self.told[other] for other in needed):
                self.started.add(index)
                self.start(index)

    def start(self, index: int) -> None:
        after = Ready.join(self.told[other][0][0] for other in self.needs[index])
        if not self.needs[index] and self.world.order.random() < 0.3:
            gate = HostReady()
            self.world.gates.append(gate)
            after = gate

        def then(ready: Ready, error: BaseException | None) -> None:
            self.told[index].append((ready, error))

        def refused(error: BaseException) -> None:
            self.told[index].append((after, error))

        try:
            self.executors[index].run(lambda lane: self.call(index, lane), after, then)
        except ClosedError as error:
            refused(error)

    def call(self, index: int, lane) -> Ready:
        if index in self.failing:
            raise ValueError(index)

        def compute() -> None:
            # On the device this runs when its turn has come: the values it reads must be there.
            self.results[index] = 1 + sum(self.value(other) for other in self.needs[index])

        if stream := getattr(lane, "stream", None):
            stream.enqueue(f"stage {index}", compute)
        else:
            compute()
        return NOW

    def value(self, index: int) -> int:
        if index in self.failing:
            return 0
        value = self.results[index]
        assert value is not None, f"stage {index} was read before it had ended"
        return value

    def expected(self) -> list[int | None]:
        values: list[int] = []
        for index, needed in enumerate(self.needs):
            failed = index in self.failing
            values.append(0 if failed else 1 + sum(values[other] for other in needed))
        return [None if index in self.failing else values[index] for index in range(len(values))]


graphs = st.integers(1, 9).flatmap(
    lambda count: st.tuples(
        *[
            st.sets(st.integers(0, index - 1), max_size=3) if index else st.just(set())
            for index in range(count)
        ]
    ).map(list)
)


def drive(world: World, runs: list[Run]) -> None:
    """Do random things until nothing can and every run has been started to its end."""
    while True:
        for run in runs:
            run.start_what_can()
        started = sum(len(run.started) for run in runs)
        if world.happen():
            continue
        for run in runs:
            run.start_what_can()
        if sum(len(run.started) for run in runs) == started:
            return


@settings(max_examples=drawn(200))
@given(st.lists(graphs, min_size=1, max_size=4), st.integers(0, 2**32), st.data())
def test_every_stage_is_answered_once_and_reads_only_what_has_ended(graph_list, seed, data) -> None:
    world = World(random.Random(seed))
    runs = [
        Run(world, needs, data.draw(st.sets(st.integers(0, len(needs) - 1), max_size=2)))
        for needs in graph_list
    ]
    drive(world, runs)
    for run in runs:
        assert [len(calls) for calls in run.told] == [1] * len(run.needs)
        assert all(ready.is_ready for ((ready, _),) in run.told)
        assert run.results == run.expected()
        for index, ((_, error),) in enumerate(run.told):
            assert isinstance(error, ValueError) == (index in run.failing)


@settings(max_examples=drawn(100))
@given(st.lists(graphs, min_size=1, max_size=4), st.integers(0, 2**32), st.integers(0, 12))
def test_closing_in_the_middle_still_answers_every_stage_once(graph_list, seed, steps) -> None:
    world = World(random.Random(seed))
    runs = [Run(world, needs, set()) for needs in graph_list]
    for run in runs:
        run.start_what_can()
    for _ in range(steps):
        world.happen()
        for run in runs:
            run.start_what_can()
    for executor in world.order.sample(world.executors, k=3):
        executor.close(drain=False)  # type: ignore[call-arg]
    for run in runs:
        run.value = lambda index, run=run: run.results[index] or 0  # type: ignore[method-assign]
    drive(world, runs)
    for run in runs:
        assert [len(calls) for calls in run.told] == [1] * len(run.needs)
        assert all(ready.is_ready for ((ready, _),) in run.told)
        for ((_, error),) in run.told:
            assert error is None or isinstance(error, ClosedError)
