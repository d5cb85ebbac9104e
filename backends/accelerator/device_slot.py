"""One run's place on an accelerator: its stages, from the host's arrays to the device and back.

Upload, the plan's launches, and download are enqueued one after the other, each on a queue of its
own and each behind the event of the one before. The host waits for none of them, but between
portions of launches that take long (``launching/portions.py``). Where a plan was captured with its
copies, all three are one command on the queue for launches, and one stage: but for runs with arrays
of the device, and those whose launches are profiled. Where all inputs are outputs that the device
has kept, nothing is uploaded, and where all outputs are kept, nothing is downloaded. A plan that
calls functions of users is not captured: its run goes to a thread for them first, and enqueues
there.

The first stage copies the inputs into memory that the device reads at full speed. Where its plan is
not built, memory has to be taken or much has to be copied, it is called again once that is done: on
the executors of compiling, of binding, or of copies, which wait for nothing else. What fails before
anything is enqueued never touches the device, which may be lost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from ...errors import AioInferError
from ...executors import (
    NOW,
    DeviceLane,
    HostReady,
    ImmediateExecutor,
    Lane,
    Ready,
    StreamsExecutor,
    TaskExecutor,
    Then,
)
from ...runtime.graph.node_failure import run_failure
from ...runtime.network.executable_network import Slot
from ...runtime.plans.batch_buckets import Padding
from ...runtime.plans.plan_cache import PendingPlan
from ...runtime.plans.shape_plans import ShapePlans
from ...runtime.runs.bindings import Bindings
from ...runtime.runs.graph_run import GraphRun
from ...runtime.runs.run_admission import RunAdmission
from ...runtime.runs.stage import Again, Stage, Stop, stop_if_interrupted
from ...runtime.tracing.copied_bytes import StageCopies
from ...runtime.tracing.recorder import SpanRecorder
from .launching import portions
from .launching.launch_times import LaunchTimes
from .launching.portions import PORTION_NS, Portions
from .memory.bound_plan import BoundLaunch, BoundPlan
from .memory.host_arrays import Copy, cost_bytes, parts_of, refuse_on_device
from .memory.kept_blocks import KeptBlock
from .memory.slot_memory import SlotMemory, stages_outputs
from .operand import Buffer
from .plan import Plan
from .queues.chosen_executor import ChosenExecutor
from .queues.driver import AdoptedArray, Event, Memory
from .queues.opened_device import ComputeStream, OpenedDevice
from .queues.queue_stream import QueueStream
from .slot_inputs import InputNetwork, SlotInputs
from .slot_outputs import OutputNetwork, SlotOutputs
from .slot_states import PlacedStates, SlotStates, StateNetwork

__all__ = ["AcceleratorSlot"]

P = ParamSpec("P")
T = TypeVar("T")

_LIGHT_BYTES = 1 << 20
"""Copies that cost up to this many are made on the calling thread, which may turn an event loop.

They take it up to 0.2 ms, and give up the GIL; to hand them over costs 0.3 ms of processor time
with the GIL, and as much latency.
"""

_PART_BYTES = 4 << 20
"""What one thread copies at a time, in about half a millisecond."""


class SlotNetwork(InputNetwork, OutputNetwork, StateNetwork, Protocol):
    """What a slot asks of its network."""

    name: str
    device: str
    opened: OpenedDevice
    spins: bool
    inline: ImmediateExecutor
    binding_executor: StreamsExecutor
    users_executor: StreamsExecutor | None
    shape_tensors: list[str]
    only_plan: Plan | None

    @property
    def admission(self) -> RunAdmission[Any]:
        """Whose recorder gets the spans of copies before the upload."""

    @property
    def shape_plans(self) -> ShapePlans[Plan]:
        """The plans by shape signature."""


def _host_errors_named(
    method: Callable[Concatenate[AcceleratorSlot, P], T],
) -> Callable[Concatenate[AcceleratorSlot, P], T]:
    """Turn what a method raises that takes memory of the host into errors of ours."""

    @functools.wraps(method)
    def named(slot: AcceleratorSlot, /, *given: P.args, **options: P.kwargs) -> T:
        try:
            return method(slot, *given, **options)
        except AioInferError:
            raise
        except Exception as error:
            raise slot._named(error) from error

    return named


class AcceleratorSlot(Slot):
    """One run: upload, compute and download on the device; deliver where results are staged."""

    def __init__(self, network: SlotNetwork, memory: SlotMemory, streams: ComputeStream) -> None:
        self._network, self._memory = network, memory
        self._inputs, self._outputs = SlotInputs(network), SlotOutputs(network)
        self._states = SlotStates(network)
        self._plan: Plan | None = None
        self._bound: BoundPlan | None = None
        self._is_filled = False
        self._times: LaunchTimes | None = None
        self._padding: Padding | None = None
        self._copies: list[StageCopies] = []
        """What the run's stages have copied, noted once it is over."""
        self._blocks: dict[str, KeptBlock] = {}
        self._missing_blocks: dict[str, int] = {}
        self._there: dict[Buffer, Memory] = {}
        """What the run's launches have instead of the slot's own memory."""
        self._portions: Portions[BoundLaunch] | None = None
        device, copies = network.opened, network.copy_executor
        self._are_times_free = device.facts.are_times_free
        self._fill_stage = Stage("fill", copies, partial(self._fill, [], 0))
        chosen = ChosenExecutor("copies", self._has_much_to_deliver, network.inline, copies)
        deliver = Stage("deliver", chosen, self._deliver)
        upload = Stage("upload", device.upload, self._upload)
        self._compute_stage = compute = Stage("compute", streams.compute, self._compute)
        is_staged = stages_outputs(device.facts)
        read = self._download_staged if is_staged else self._download
        download = Stage("download", streams.download, read)
        back = (download, deliver)[: 1 + is_staged]
        users = network.users_executor
        first = () if users is None else (Stage("extensions", users, lambda _lane: NOW),)
        self._separate: dict[tuple[bool, bool], Sequence[Stage]] = {
            (True, True): (*first, upload, compute, *back),
            (True, False): (*first, upload, compute),
            (False, True): (*first, compute, *back),
            (False, False): (*first, compute),
        }
        """By whether anything is uploaded, and downloaded."""
        self._together: Sequence[Stage] = Stage("replay", streams.replay, self._replay), deliver
        self.stages = self._separate[True, True]

    @_host_errors_named
    def start(
        self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder
    ) -> GraphRun | None:
        """Choose the stages of the run, which goes through them by itself."""
        network, bindings = self._network, self.bindings
        self._plan = network.only_plan
        if self._plan is None and not network.shape_tensors:  # whose content may not be there yet
            pending = self._find_plan()
            self._plan = pending.plan if pending.is_built else None
        bound = self._bound = None if self._plan is None else self._memory.find(self._plan)
        is_round_trip = (
            bound is not None
            and bound.round_trip is not None
            and bindings.profile is None
            and not network.kept_outputs
            and not _has_device_arrays(bindings)
        )
        if is_round_trip:
            self.stages = self._together
        else:
            stays = len(network.kept_outputs) == len(network.model_outputs) and not bindings.bound
            self.stages = self._separate[not self._is_prepared(), not stays]
        return None

    def _is_prepared(self) -> bool:
        """True if all inputs are on the device, and nothing has to be waited for on the host."""
        bound, inputs = self._bound, self.bindings.inputs
        if bound is None or not inputs:
            return False
        for array in inputs.values():
            if not isinstance(array, AdoptedArray):
                return False
        self._network.opened.health.refuse_if_lost()
        return not bound.may_capture_launches and not self._find_blocks(bound)

    def _replay(self, lane: Lane) -> Ready:
        """Have all done by one command."""
        missing = self._missing()
        if missing is not None:
            return missing
        assert self._bound is not None
        assert self._bound.round_trip is not None
        self._begin(lane, is_last=True).replay(self._bound.round_trip)
        bound = self._bound
        self._copies.append(
            ("replay", {"upload": bound.input_bytes, "download": bound.output_bytes}, 0)
        )
        return NOW

    def _upload(self, lane: Lane) -> Ready:
        missing = self._missing()
        if missing is not None:
            return missing
        assert self._bound is not None
        stream = self._begin(lane)
        self._inputs.write(stream, self._bound.inputs, self.bindings.inputs)
        if stream.copied_bytes:
            self._copies.append(("upload", stream.copied_bytes, 0))
        return NOW

    def _missing(self) -> Again | None:
        """Prepare to enqueue; None once that is done."""
        try:
            missing = self._prepare()
        except Exception as error:
            failed = HostReady()
            failed.fire(self._named(error))
            missing = failed
        return None if missing is None else Again(missing)

    def _prepare(self) -> Ready | None:
        """Find the plan, bind the slot to it and fill staging memory, or say what to wait for."""
        network = self._network
        if network.opened.health.lost is not None:
            network.opened.health.refuse_if_lost()
        if self._plan is None:
            pending = self._find_plan()
            if not pending.is_built:
                return pending
            self._plan = pending.plan
        bound = self._bound
        if bound is None:
            bound = self._bound = self._memory.find(self._plan)
            if bound is None:
                return self._handed_to(network.binding_executor, self._bind)
        is_apart = self.stages is not self._together
        if is_apart and bound.may_capture_launches and _has_device_arrays(self.bindings):
            return self._handed_to(network.binding_executor, self._capture_launches)
        if network.kept_outputs and self._find_blocks(bound):
            return self._handed_to(network.binding_executor, self._make_blocks)
        if self._is_filled:
            return None
        given, padding = self.bindings.inputs, self._padding
        copies = self._inputs.copies_to_stage(bound.inputs, given, padding, reads_in_place=is_apart)
        self._is_filled = True
        if sum(map(cost_bytes, copies)) > _LIGHT_BYTES:
            return self._staged_by_others(copies)
        size_bytes = 0
        for target, source in copies:
            np.copyto(target, source, casting="no")
            size_bytes += target.nbytes
        self._copies.append(("upload" if is_apart else "replay", {"host": size_bytes}, 0))
        return None

    def _find_plan(self) -> PendingPlan[Plan]:
        bindings, network = self.bindings, self._network
        found: PendingPlan[Plan] | None = bindings.awaited
        if found is None:
            given = bindings.inputs
            for name in network.shape_tensors:
                refuse_on_device(name, given[name])
            self._padding = None if network.buckets is None else network.buckets.padding_of(given)
            found = network.shape_plans.request(given)
        bindings.awaited = None if found.is_built else found
        return found

    def _handed_to(self, executor: TaskExecutor, function: Callable[[Lane], Ready]) -> HostReady:
        """Have this called there, and return what fires then, or with the executor's refusal.

        A refusal is not raised: what was handed over before it uses the slot's memory yet.
        """
        ended = HostReady()

        def then(_ready: Ready, error: BaseException | None) -> None:
            ended.fire(self._named(error) if isinstance(error, Exception) else error)

        try:
            executor.run(function, NOW, then)
        except BaseException as refused:
            stop_if_interrupted(self.stop, refused)
            then(NOW, refused.with_traceback(None))  # whose frames keep the plan of this run
        return ended

    def _bind(self, _lane: Lane) -> Ready:
        assert self._plan is not None
        self._bound = self._memory.bind(self._plan)
        return NOW

    def _capture_launches(self, _lane: Lane) -> Ready:
        assert self._bound is not None
        self._memory.capture_launches(self._bound)
        return NOW

    def _find_blocks(self, bound: BoundPlan) -> bool:
        """Take free blocks for the outputs that stay; True: others have to be made."""
        network = self._network
        if not network.kept_outputs:
            return False
        blocks = self._blocks
        self._missing_blocks = {}
        staying = self._states.staying(bound, self.bindings) if bound.plan.growing else {}
        for name, size_bytes in self._outputs.block_sizes(bound, self.bindings).items():
            if name not in blocks and name not in staying:
                block = network.kept_blocks.take(size_bytes)
                if block is None:
                    self._missing_blocks[name] = size_bytes
                else:
                    blocks[name] = block
        return bool(self._missing_blocks)

    def _make_blocks(self, _lane: Lane) -> Ready:
        for name, size_bytes in self._missing_blocks.items():
            self._blocks[name] = self._network.kept_blocks.make(size_bytes)
        return NOW

    def _staged_by_others(self, copies: list[Copy]) -> Ready:
        """Have the executor of copies do them, a part on each of its threads."""
        queued_ns, executor = perf_counter_ns(), self._network.copy_executor
        return Ready.join(
            [
                self._handed_to(executor, partial(self._fill, part, queued_ns))
                for part in parts_of(copies, _PART_BYTES)
            ]
        )

    def _fill(self, part: list[Copy], queued_ns: int, lane: Lane) -> Ready:
        self.stop.raise_if_set()
        started_ns = perf_counter_ns()
        try:
            for target, source in part:
                np.copyto(target, source, casting="no")
        finally:
            record, mark = self._network.admission.recorder.record, self.bindings.mark()
            record(mark, self._fill_stage, lane, queued_ns, started_ns, perf_counter_ns())
        size_bytes = sum([target.nbytes for target, _ in part])
        self._copies.append(("fill", {"host": size_bytes}, started_ns))
        return NOW

    def _named(self, error: Exception) -> Exception:
        """Return an error of ours: this one, or what it means for the run."""
        if isinstance(error, AioInferError):
            return error
        failure = run_failure(error, f"{self._network.name!r} on {self._network.device}")
        failure.__cause__ = error
        return failure

    def _compute(self, lane: Lane) -> Ready:
        """Enqueue the launches; where they take long, a portion each time that it is called."""
        bound, started_ns = self._bound, perf_counter_ns()
        assert bound is not None
        stream = self._begin(lane, is_last=self.stages[-1].name == "compute")
        if self._portions is None:
            self._begin_computing(stream, bound)
        else:
            took_ns = portions.now_ns() - self._portions.enqueued_ns
            bound.portion_count = portions.next_count(self._portions.count, took_ns)
        rest = self._portions
        if rest is not None:
            is_whole = self.bindings.profile is not None
            self._launch(stream, rest, len(rest.left) if is_whole else bound.portion_count)
            if rest.left:
                return self._rest_later(stream, lane, started_ns)
        if self._blocks:
            bindings, there = self.bindings, self._there
            self._outputs.keep(stream, bound, bindings, self._padding, self._blocks, there)
        if stream.copied_bytes:
            self._copies.append(("compute", stream.copied_bytes, 0))
        return NOW

    def _begin_computing(self, stream: QueueStream, bound: BoundPlan) -> None:
        """Enqueue what comes before the launches, or a launch graph of them all."""
        bindings, blocks = self.bindings, self._blocks
        graph = bound.launch_graph if bindings.profile is None else None
        there: dict[Buffer, Memory] = {}
        has_device_arrays = _has_device_arrays(bindings)
        placed = PlacedStates()
        if bound.plan.growing:
            placed = self._states.place(bound, bindings, blocks)
            blocks = self._blocks = {**blocks, **placed.blocks}
        if graph is None:
            if has_device_arrays:
                there = self._inputs.read_there(bound, bindings.inputs)
            if blocks:
                there.update(self._outputs.written_there(bound, blocks))
            there.update(placed.there)
            if there or bound.exchanged:
                bound.exchange(there)
        # Here, on the run's own stream: the arrays' owners may write them for a while yet.
        if has_device_arrays:
            self._inputs.copy_on_device(stream, bound, bindings.inputs, there)
        self._there = there
        if placed.moved_bytes:
            self._copies.append(("compute", {"device": placed.moved_bytes}, 0))
        if graph is not None:
            stream.replay(graph)
            return
        launches = bound.launches
        if placed.skipped:
            launches = [item for item in launches if id(item.launch) not in placed.skipped]
        self._portions = Portions(launches)

    def _launch(self, stream: QueueStream, rest: Portions[BoundLaunch], count: int) -> None:
        """Enqueue the next launches, one by one."""
        launches, rest.left = rest.left[:count], rest.left[count:]
        rest.count, rest.enqueued_ns = len(launches), portions.now_ns()
        events: list[Event] = []
        stop = self.stop
        for item in launches:
            if stop.error is not None:  # what is enqueued runs to its end, and no more is
                raise stop.error
            launch = item.launch
            events.append(stream.launch(item.kernel, launch.global_size, launch.local_size))
        if self.bindings.profile is not None:
            done = [item.launch for item in launches]
            self._times = LaunchTimes(done, events, stream.stage_work)

    def _rest_later(self, stream: QueueStream, lane: Lane, started_ns: int) -> Again:
        """Have the stage called again when the device has done all that is enqueued."""
        if stream.copied_bytes:
            self._copies.append(("compute", stream.copied_bytes, 0))
        reached, fired = stream.record_event(), HostReady()  # which is of no device
        reached.when_ready(fired.fire)
        record, mark = self._network.admission.recorder.record, self.bindings.mark()
        record(mark, self._compute_stage, lane, started_ns, started_ns, perf_counter_ns())
        return Again(fired)

    def _download_staged(self, lane: Lane) -> Ready:
        assert self._bound is not None
        stream = self._begin(lane, is_last=True)
        places = self._bound.outputs
        self._outputs.read_to_staging(stream, places, self.bindings, self._padding)
        if stream.copied_bytes:
            self._copies.append(("download", stream.copied_bytes, 0))
        return NOW

    @_host_errors_named
    def _download(self, lane: Lane) -> Ready:
        assert self._bound is not None
        stream = self._begin(lane, is_last=True)
        places = self._bound.outputs
        ready = self._outputs.read_to_host(stream, places, self.bindings, self._padding)
        if stream.copied_bytes:
            self._copies.append(("download", stream.copied_bytes, 0))
        return ready

    def _has_much_to_deliver(self) -> bool:
        assert self._bound is not None
        much_bytes = self._bound.output_bytes
        for array in self.bindings.bound.values():
            if not isinstance(array, AdoptedArray):
                much_bytes += cost_bytes((array, array)) - array.nbytes
        return much_bytes > _LIGHT_BYTES

    @_host_errors_named
    def _deliver(self, _lane: Lane) -> Ready:
        assert self._bound is not None
        copied_bytes = self._outputs.deliver(self._bound.outputs, self.bindings, self._padding)
        self._copies.append(("deliver", {"host": copied_bytes}, 0))
        return NOW

    def release(self) -> None:
        bound, rest = self._bound, self._portions
        if bound is not None and rest is not None and not rest.left:
            took_ns = portions.now_ns() - rest.enqueued_ns
            if rest.count >= bound.portion_count or took_ns > PORTION_NS:  # fewer say nothing
                bound.portion_count = portions.next_count(rest.count, took_ns)
        copies, self._copies = self._copies, []
        self.bindings.note_copies(self._network.admission.recorder, copies)
        if self._times is not None and self.bindings.profile is not None:
            self.bindings.profile.extend(self._times.profiles())
        self._plan = self._bound = self._times = self._padding = None
        self._blocks, self._missing_blocks = {}, {}
        self._there, self._portions = {}, None
        self._is_filled, self.bindings.awaited = False, None

    def _begin(self, lane: Lane, *, is_last: bool = False) -> QueueStream:
        """Begin a stage on the lane's stream."""
        assert isinstance(lane, DeviceLane)
        stream, network = lane.stream, self._network
        assert isinstance(stream, QueueStream)
        stream.queue.is_timed = (
            self._are_times_free
            or network.admission.recorder.is_looked_at
            or self.bindings.profile is not None
        )
        stream.queue.spins = network.spins
        stream.is_last = is_last
        if stream.copied_bytes:
            stream.copied_bytes = {}
        return stream


def _has_device_arrays(bindings: Bindings) -> bool:
    """True if a run reads or writes arrays of its caller on the device."""
    for array in (*bindings.inputs.values(), *bindings.bound.values()):
        if isinstance(array, AdoptedArray):
            return True
    return False
