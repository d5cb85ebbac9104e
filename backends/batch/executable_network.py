"""BatchNetwork: a network whose requests share runs while they would have to wait."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...executors import (
    NOW,
    ImmediateExecutor,
    Ready,
    StreamsConfig,
    TaskExecutor,
    Then,
    TimerHandle,
    hop,
)
from ...runtime.blobs.writer import BlobWriter
from ...runtime.devices.plugin import CoreHandle
from ...runtime.network.executable_network import ExecutableNetwork, Slot
from ...runtime.network.outer_network import OuterNetwork
from ...runtime.plans.batch_axis import BatchAxis
from ...runtime.properties.properties import Configuration, Metric
from ...runtime.runs.admission import Ticket
from ...runtime.runs.stage import Stop
from ...runtime.tensors.output_pool import OutputPool
from ...runtime.tracing.recorder import SpanRecorder
from .collector import Collector, Pace
from .joined_run import JoinedRun
from .properties import AUTO_BATCH_TIMEOUT
from .rows import rows_of

__all__ = ["BatchNetwork"]

_LIGHT_BYTES = 64 << 10
"""Copies up to this many are made on the calling thread, which may turn an event loop."""


class BatchNetwork(OuterNetwork):
    """Joins requests that come while the device is busy into runs of up to ``most_rows`` rows.

    A request that finds the device idle goes at once, with its own arrays. One that cannot share a
    run, because its other lengths are nobody else's, goes alone.
    """

    def __init__(
        self,
        compiled: ExecutableNetwork,
        axis: BatchAxis,
        most_rows: int,
        config: Configuration,
        core: CoreHandle,
    ) -> None:
        super().__init__(
            compiled, core, device=f"{config.device}:{compiled.device}({most_rows})", config=config
        )
        self._axis = axis
        self.batched_inputs: Sequence[str] = axis.inputs
        self.batched_outputs = frozenset(axis.outputs)
        self.most_rows = most_rows
        most_count = compiled.optimal_request_count
        # One run of two or more computes while the next follows it, which is for full ones.
        timeout_s = config[AUTO_BATCH_TIMEOUT] / 1000
        pace = Pace((most_count + 1) // 2, most_count, timeout_s)
        self.is_timed = timeout_s > 0
        """A run that is not full waits for more, so that arrivals are to be noted."""
        self._collector: Collector[_BatchSlot] = Collector(most_rows, pace)
        self._run_count = 0
        self._collecting = threading.Lock()
        self._alarm: TimerHandle | None = None
        self._light = ImmediateExecutor("batch")
        self._heavy = core.executors.acquire(StreamsConfig("BATCH.copy"))
        self._arrays = OutputPool(2 * most_count)
        try:
            # As many again wait as are under way, so that a full run is ready when one ends.
            wanted = int(config["PERFORMANCE_HINT_NUM_REQUESTS"])
            count = most_rows * (most_count + 1)
            self._provide_slots([_BatchSlot(self) for _ in range(wanted or count)])
        except BaseException:
            self._abandon()
            raise

    def offer(self, member: _BatchSlot, _error: BaseException | None = None) -> None:
        """Have a request wait for its run, which may begin at once. Never raises or blocks."""
        member.stop.when_set(member.drop)
        with self._collecting:
            self._collector.add(member)
        if member.stop.error is not None:
            member.drop()
        self.begin_runs()

    def drop(self, member: _BatchSlot) -> bool:
        """Take a stopped request out of those that wait; False: it has a run."""
        with self._collecting:
            return self._collector.drop(member)

    def begin_runs(self) -> None:
        """Begin as many runs as may be under way now."""
        while True:
            with self._collecting:
                due_s = self._collector.due_at_s(self._run_count)
                if due_s is None:
                    return
                if due_s and due_s > self.clock.now_s():
                    self._set_alarm(due_s)
                    return
                group = self._collector.take_group()
                self._run_count += 1
            self._begin(group)

    def _set_alarm(self, due_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.clock.call_at(due_s, partial(hop, self.begin_runs))

    def _begin(self, group: Sequence[_BatchSlot]) -> None:
        for member in group:
            member.stop.forget(member.drop)
            member.group_count = len(group)
        if len(group) > 1:
            JoinedRun(group, self, self._run_over).start()
            return
        (member,) = group
        then = partial(self._alone_over, member)
        try:
            self.compiled.start_run(member.bindings, member.stop, NOW, then)
        except BaseException as refused:
            then(NOW, refused)

    def _alone_over(self, member: _BatchSlot, ready: Ready, error: BaseException | None) -> None:
        member.end(ready, error)
        ready.when_ready(lambda _: self._run_over())

    def _run_over(self) -> None:
        with self._collecting:
            self._run_count -= 1
        self.begin_runs()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return self._arrays.empty(shape, dtype)

    def copier(self, size_bytes: int) -> TaskExecutor:
        return self._light if size_bytes <= _LIGHT_BYTES else self._heavy

    def explain(self) -> str:
        return (
            f"{self.compiled.explain()}; requests that come while it is busy share a run, of up to "
            f"{self.most_rows} rows"
        )

    def _metrics(self) -> Sequence[Metric]:
        return [
            *super()._metrics(),
            Metric("MAX_BATCH_SIZE", lambda _: self.most_rows, "Rows that one run has, at most."),
        ]

    def _write_payload(self, blob: BlobWriter) -> None:
        axis = {"inputs": list(self._axis.inputs), "outputs": list(self._axis.outputs)}
        blob.add_json("batch", axis)
        self.compiled.write_blob(blob.under("compiled"))

    def _release_device(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()  # it holds the network
        try:
            super()._release_device()
        finally:
            self._core.executors.release(self._heavy)
            self._light.close()


class _BatchSlot(Slot):
    """One request that waits for a run or has one."""

    def __init__(self, network: BatchNetwork) -> None:
        self._network = network
        self.ticket: Ticket = (0, 0)
        self.row_count = 0
        self.key: Hashable = None
        self.arrived_s = 0.0
        self.group_count = 0
        """How many requests share its run; 0 while it waits for one."""
        self._after: Ready = NOW
        self._then: Then | None = None

    def start(self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder) -> _BatchSlot:
        network, bindings = self._network, self.bindings
        self._after, self._then = after, then
        self.ticket, self.group_count = bindings.ticket, 0
        self.row_count, self.key = rows_of(bindings.inputs, network.batched_inputs)
        if network.is_timed:
            self.arrived_s = network.clock.now_s()
        if after is NOW:
            network.offer(self)
        else:
            after.when_ready(self._began)
        return self

    def _began(self, error: BaseException | None) -> None:
        if error is None:
            self._network.offer(self)
        else:
            self.end(self._after, error)

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        if not self.group_count:
            return "waiting for a batch"
        return f"in a batch of {self.group_count} requests"

    @property
    def stage(self) -> str:
        """The name of what it is in, for messages."""
        return "batch" if self.group_count else "collect"

    def drop(self) -> None:
        """Leave those that wait, if it was stopped and does; a listener of its Stop."""
        error = self.stop.error
        if error is not None and self._network.drop(self):
            hop(self.end, NOW, error)

    def end(self, ready: Ready, error: BaseException | None) -> None:
        """Hand on that no host code works for it any more; once."""
        then, self._then = self._then, None
        assert then is not None
        then(ready, error)
