"""A model on CPU: a plan per shape signature, one native call per run on a stream of the device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import AioInferError, BlobError
from ...executors import NOW, Lane, Ready, StreamsConfig
from ...executors.late_imports import late_imports
from ...runtime.devices.plugin import CoreHandle
from ...runtime.graph import Graph, Model, TensorType, copy_graph, is_static
from ...runtime.graph.node_failure import failure_at, run_failure
from ...runtime.lowering.written_states import Places
from ...runtime.network.executable_network import ExecutableNetwork, Slot
from ...runtime.plans.plan_cache import PendingPlan, PlanLimits, refuse_to_build
from ...runtime.plans.shape_plans import ShapePlans
from ...runtime.properties.properties import (
    EXPORTABLE,
    INPUT_SHAPES,
    Configuration,
    Metric,
    slot_count,
)
from ...runtime.runs.admission import ticket_of
from ...runtime.runs.bindings import Bindings
from ...runtime.runs.stage import Again, Stage, Stop
from ...runtime.tensors.output_pool import OutputPool
from ...runtime.tensors.tensor import ports_of
from ...runtime.tensors.turning_memory import next_turn, turned
from .compiler import Compiler
from .native.step_runner import step_runner
from .network_metrics import network_metrics
from .plans.node_facts import described_graph
from .plans.plan import Plan
from .plans.subgraph_id import SubgraphId
from .programs.atomic_runs import ProgramRuns
from .programs.growing_memory import in_room, next_room, view_of
from .programs.lane_programs import LanePrograms
from .programs.node_times import node_times
from .programs.plan_resizing import PlanResizing
from .programs.run_arrays import PLAIN_FLAGS, as_buffer, has_buffer, input_array, output_arrays
from .properties import CPU_ADAPTIVE_TEAMS

if TYPE_CHECKING:
    from ...runtime.blobs.tensors_record import TensorWriter
    from ...runtime.blobs.writer import BlobWriter
    from .pieces.object_outputs import ObjectOutputs

__all__ = ["CpuNetwork"]

Array = np.ndarray[Any, Any]

MOST_PLANS = 256
"""Kept for as many signatures, unless their bytes or a property say less: a new one is replayed."""


class CpuNetwork(ExecutableNetwork):
    """A model compiled for the CPU.

    ``check`` looks at the weights of one that was imported, beside the caller; runs wait for it.
    ``objects`` makes outputs of those of ``model``, which is what is left of a whole one.
    """

    def __init__(
        self,
        model: Model,
        compiler: Compiler,
        streams: StreamsConfig,
        config: Configuration,
        core: CoreHandle,
        check: Callable[[], None] | None = None,
        objects: ObjectOutputs | None = None,
    ) -> None:
        whole = model if objects is None else objects.whole
        super().__init__(
            name=whole.name,
            device=streams.name,
            inputs=ports_of(whole.inputs),
            outputs=ports_of(whole.outputs),
            config=config,
            core=core,
        )
        self._model, self._compiler, self.objects = whole, compiler, objects
        self.runs_user_code = any(node.user_kernel is not None for node in model.graph.nodes)
        self.input_names = tuple(port.name for port in self.inputs)
        made = ports_of(model.outputs)
        self.output_names = tuple(port.name for port in made)
        """Those of its plans."""
        self.result_rows: Sequence[tuple[str, int, Callable[[Array], Any] | None]] = (
            [(name, place, None) for place, name in enumerate(self.output_names)]
            if objects is None
            else objects.rows()
        )
        """What callers get: which output of a plan it is, or is made of by a call of C."""
        self.has_buffers = all(has_buffer(port.dtype) for port in (*self.inputs, *made))
        self._streams = core.executors.acquire(streams)
        self._compile_executor = core.executors.acquire(StreamsConfig("compile"))
        self._resize_executor = core.executors.acquire(StreamsConfig("resize"))
        self._resizing = PlanResizing(self._resize_executor, lambda _: compiler.weights)
        is_adaptive = bool(config[CPU_ADAPTIVE_TEAMS.key])
        limits = PlanLimits.of(config, MOST_PLANS)
        self._plans: ShapePlans[Plan] = ShapePlans(
            model,
            self.inputs,
            self.device,
            compiler.compile,
            self._compile_executor,
            compiler.shape_tensors,
            dropped=Plan.release_graph,
            limits=limits,
            size_of=lambda plan: plan.size_bytes,
        )
        self._programs = LanePrograms(
            step_runner(compiler.engine),
            self._resizing.want if is_adaptive else None,
            kept_plans=self._plans.plans,
            most_count=limits.most_count,
        )
        self._slots: list[_CpuSlot] = []
        self.refuse_if_changed: Callable[[], None] | None = None
        """Looks, before each run, at the file that weights are used from; None: there is none."""
        self._has_weights = not compiler.is_imported
        self._checked: PendingPlan[Plan] | None = None
        try:
            if check is not None and compiler.stored is not None:
                self._check_stored(check)
            plans = self._compile_ahead()
        except BaseException:
            self._abandon()
            raise
        if compiler.is_imported:  # the model has no nodes
            self.runs_user_code = any(plan.runs_user_code for plan in plans)
        self.only_plan = plans[0] if self._has_one_plan(plans) else None
        """The plan of all runs, where all inputs are static."""
        self.request_plan: Callable[[Mapping[str, Any]], PendingPlan[Plan]] = self._plans.request
        if compiler.stored is not None:
            for kept in compiler.stored.sizes_bytes:
                self._plans.offer(*kept)
        # One run computes on each stream, and one more is bound and ready to follow it.
        slots = slot_count(config, 2 * streams.stream_count)
        self.pool = OutputPool(most_free=slots * max(1, len(self.outputs)))
        self._slots += [_CpuSlot(self) for _ in range(slots)]
        self._provide_slots(self._slots)
        if check is not None and self.only_plan is not None:
            self._check(check, self.only_plan)

    def _has_one_plan(self, plans: Sequence[Plan]) -> bool:
        return len(plans) == 1 and all(is_static(port.shape) for port in self.inputs)

    def _compile_ahead(self) -> list[Plan]:
        """Build plans on this thread, and pack their weights where they will be used."""
        plans = self._plans.compile_ahead(self.config[INPUT_SHAPES])
        self._needs_weights = self.objects is not None or not self._has_one_plan(plans)
        if not self.config[EXPORTABLE]:
            self.forget_model()
        for plan in plans:
            if plan.bound:
                continue  # that of a network which is alike

            def prepare(lane: Lane, plan: Plan = plan) -> Ready:
                self._programs.program(plan, lane)
                return NOW

            try:
                self._streams.run_and_wait([prepare])
            except AioInferError:
                raise
            except Exception as error:
                what = f"model {self.name!r} for {self.device}: packing its weights"
                raise failure_at(error, what) from error
        return plans

    def _check(self, check: Callable[[], None], plan: Plan) -> None:
        """Have imported weights checked beside the caller; runs wait for that."""
        checked = self._checked = PendingPlan()

        def request_plan(inputs: Mapping[str, Any]) -> PendingPlan[Plan]:
            return checked

        def look(_lane: Lane) -> Ready:
            check()
            if not self.is_closed:
                self.only_plan = plan
            checked.deliver(plan)
            return NOW

        def ended(_ready: Ready, error: BaseException | None) -> None:
            if error is not None:
                checked.fire(_without_frames(error))

        self.only_plan, self.request_plan = None, request_plan
        self._compile_executor.run(look, NOW, ended)

    @property
    def plan_ids(self) -> SubgraphId:
        """What names its plans."""
        return self._compiler.ids

    def _check_stored(self, check: Callable[[], None]) -> None:
        """Have the weights of stored plans checked on the thread that reads plans, before it does.

        Plans that are made on this thread wait for it.
        """
        if self.config[INPUT_SHAPES]:
            check()
            return
        compiler = self._compiler
        checked = self._checked = PendingPlan[Plan]()

        def ended(_ready: Ready, error: BaseException | None) -> None:
            checked.fire(None if error is None else _without_frames(error))

        def run(_lane: Lane) -> Ready:
            try:
                check()
            except BlobError as error:
                compiler.damage = error
                raise
            return NOW

        self._compile_executor.run(run, NOW, ended)

    def run_everywhere(self, inputs: Mapping[str, Any], stop: Stop) -> None:
        def compute(lane: Lane) -> Ready:
            slot = _CpuSlot(self)
            slot.bindings, slot.stop = Bindings(dict(inputs), ticket_of(0)), stop
            ready = slot.compute(lane)
            return ready.token if isinstance(ready, Again) else ready

        self._streams.run_on_each(compute, on_callers=self.inline_route is not None)

    def repeat_terms(
        self, plan: Plan, pending: PendingPlan[Plan] | None
    ) -> tuple[tuple[object, str, object], tuple[tuple[object, str], ...]] | None:
        """Return that the plan of a run is that of the next, and what counts that it is.

        As terms of atomic runs; None: that is not known before the next run's contents.
        """
        if self.only_plan is plan:
            return (self, "only_plan", plan), ()
        terms = None if pending is None else self._plans.repeat_terms(pending)
        return None if terms is None else (terms[0], (terms[1],))

    def forget_model(self) -> None:
        if not self._needs_weights:
            self._compiler.release_weights()
            self._has_weights = False

    def capability(self) -> Mapping[str, Any]:
        with late_imports:
            from .blobs.plan_record import plan_facts

        return {} if self._exports_model() else plan_facts(self._compiler.engine)

    def _exports_model(self) -> bool:
        """True if an export is of the model, which any CPU compiles; else of its only plan."""
        return self._has_weights and (self.config[EXPORTABLE] or self._needs_weights)

    def _write_payload(self, blob: BlobWriter) -> None:
        with late_imports:
            from .blobs.open_plans import OPEN_PLANS
            from .blobs.plan_record import ONLY_PLAN, write_plan

        plan = self._compiler.latest
        if self._exports_model() or plan is None:
            self._compiler.check_model()
            constants = self._write_model(blob)
            if not self.config[EXPORTABLE] and self.objects is None:
                self._write_open_plans(blob.under(OPEN_PLANS), constants)
            return
        self._wait_for_check()
        write_plan(blob.under(ONLY_PLAN), plan, self._model)

    def plan_growth(self) -> tuple[int, int]:
        stored, kept = self._compiler.stored, self._plans.kept()
        if not self._exports_model() or self.config[EXPORTABLE] or self.objects is not None:
            return 0, 0
        known = sum(stored is not None and stored.has(*key) for key in kept)
        return len(kept), len(kept) - known

    def _write_open_plans(self, blob: BlobWriter, constants: TensorWriter) -> None:
        """Add the plans that were compiled for some shapes, the latest last."""
        with late_imports:
            from .blobs.open_plans import KeptPlan, write_open_plans

        self._wait_for_check()
        compiler, stored = self._compiler, self._compiler.stored
        kept = []
        for shapes, contents in self._plans.kept():
            plan = self._plans.find(shapes, contents)
            if plan is None and stored is not None:
                plan = stored.read(shapes, contents, compiler.weights)
            if plan is not None:
                kept.append(KeptPlan(shapes, contents, plan))
        if not kept or any(not isinstance(port.type, TensorType) for port in self.inputs):
            return
        if stored is not None:
            stored.offer_weights(compiler.weights)
        self._pack([item.plan for item in kept])
        write_open_plans(blob, kept, self._model, compiler.made_with, compiler.weights, constants)

    def _pack(self, plans: Sequence[Plan]) -> None:
        """Pack what no run has yet, where it will be used."""

        def pack(_lane: Lane) -> Ready:
            for plan in plans:
                plan.pack()
            return NOW

        if not all(plan.is_packed for plan in plans):
            self._streams.run_and_wait([pack])

    def _wait_for_check(self) -> None:
        """Raise the error of imported weights that are damaged: none may be written as sound."""
        checked = self._checked
        if checked is None:
            return
        ended = threading.Event()
        checked.when_ready(lambda _: ended.set())
        ended.wait()
        if self._checked is None:  # a close has released what is written
            self.refuse_if_closed()
        if checked.error is not None:
            raise BlobError(
                f"network {self.name!r} cannot be exported: {checked.error}",
                **self.admission.where,
            )

    def _model_to_export(self) -> Model | None:
        return self._model if self._has_weights else None

    def runtime_graph(self) -> Graph:
        """Return a copy of the graph that is executed: of the latest plan, fused nodes and all.

        The metadata of its nodes says ``implementation``, ``layout``, ``precision`` and
        ``subgraph_id``. Without a plan yet, it is the graph that plans will be made of.
        """
        plan = self._compiler.latest
        if plan is None or self.objects is not None:
            return copy_graph(self._model.graph)
        return described_graph(plan)

    def how_computed(self) -> tuple[str, ...]:
        with late_imports:
            from .plans.number_types import NumberRules, number_lines

        compiler = self._compiler
        rules = NumberRules.of(self.config, compiler.engine.instruction_set)
        return number_lines([(self._model.graph, compiler.latest)], rules)

    def _release_device(self) -> None:
        self._core.executors.release(self._streams)
        self._core.executors.release(self._compile_executor)
        self._programs.clear()
        self._plans.clear()
        self.only_plan, self._checked, self.request_plan = None, None, refuse_to_build
        self.refuse_if_changed = None
        for slot in self._slots:
            slot.plan = None
        self._compiler.close()
        self._core.executors.release(self._resize_executor)  # what waits there finds weights closed

    def _metrics(self) -> list[Metric]:
        compiler = self._compiler
        return network_metrics(
            compiler.engine,
            lambda: len(self._plans),
            lambda: compiler.packed_bytes,
            self._programs,
        )


def _without_frames(error: BaseException) -> BaseException:
    """Have an error that is kept hold no file by the frames that it came through."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    return error


class _CpuSlot(Slot):
    """One run, computed on a stream; it is called again once a missing plan has been built."""

    def __init__(self, network: CpuNetwork) -> None:
        self._network = network
        self._stage = Stage("compute", network._streams, self.compute)
        self.stages = (self._stage,)
        self.plan: Plan | None = None
        """The plan of its last run."""
        self._pending: PendingPlan[Plan] | None = None
        """The token that it came with; None: it is that of all runs."""
        self._alike: ProgramRuns | None = None
        """Computes runs like its last one."""
        self._is_repeated = False
        """Its last run was of the plan, and of the lane, of the one before."""
        self.may_run_inline = not network.runs_user_code
        if network.only_plan is not None:
            self._take(network.only_plan)

    def _take(self, plan: Plan) -> None:
        """Prepare for runs of this plan, which come one after the other mostly."""
        self.plan, self._stage.part = plan, plan.name
        self._alike, self._is_repeated = None, False
        self.may_run_inline = plan.thread_count == 1 and not self._network.runs_user_code
        self._empty = self._network.pool.empty if plan.has_large_outputs else np.empty
        self._outputs = [
            (name, *form)
            for name, form in zip(self._network.output_names, plan.made_forms, strict=True)
        ]

    def compute(self, lane: Lane) -> Ready:
        """Compute the run that has the slot, on this stream."""
        network, bindings = self._network, self.bindings
        plan = network.only_plan
        if plan is None:
            pending = bindings.awaited or network.request_plan(bindings.inputs)
            if not pending.is_built:
                bindings.awaited = pending
                return Again(pending)
            plan, self._pending = pending.plan, pending
        if network.refuse_if_changed is not None:
            network.refuse_if_changed()
        if self.plan is None or self.plan is not plan:
            self._take(plan)
        if plan.thread_count > lane.thread_count:  # a team does not go on the lane for callers
            return Again(NOW)
        given, bound = bindings.inputs, bindings.bound
        try:
            program = network._programs.program(plan, lane)
            if self.stop.error is not None:  # to pack weights takes long
                raise self.stop.error
            buffers: list[Array] = []
            if plan.growing:
                given, memories = self._in_rooms(plan, given)
            if plan.written:
                given = self._as_memory(plan, given)
            for name in network.input_names:
                array = given[name]
                if type(array) is not np.ndarray or array.flags.num & PLAIN_FLAGS != PLAIN_FLAGS:
                    array = self._copied_input(name, array)
                buffers.append(array)
            results: dict[str, Array] = {}
            if bound:
                names = network.output_names
                outputs = output_arrays(names, plan.made_forms, bound, buffers, self._empty)
                results.update(zip(names, outputs, strict=True))
                buffers += outputs
            else:
                empty = self._empty
                for name, shape, dtype in self._outputs:
                    array = results[name] = empty(shape, dtype)
                    buffers.append(array)
            if plan.growing:
                self._place_in_rooms(plan, memories, buffers, results)
            turns = self._take_turns(plan, buffers, results) if plan.written else ()
            if not network.has_buffers:
                buffers = [as_buffer(array) for array in buffers]
            try:
                if bindings.profile is None:
                    program.run(tuple(buffers), self.stop)
                else:
                    times = np.zeros(len(plan.steps) + 1, np.int64)
                    program.run(tuple(buffers), self.stop, times)
                    bindings.profile.extend(node_times(plan, times.tolist()))
            finally:
                for name, places, past, made in turns:
                    index = places.take(made)
                    if index is not None:
                        results[name] = turned(made, past, index)
        except AioInferError:
            raise
        except Exception as error:
            raise run_failure(error, f"{network.name!r} on {network.device}") from error
        if network.objects is not None:
            results = network.objects.finish(list(results.values()), bindings.profile)
        if not bound:
            bindings.results = results
            return NOW
        for name, output in results.items():
            if bound.get(name) is output:
                bindings.results[name] = output
            else:
                size_bytes = bindings.deliver(name, output)
                bindings.note_copied(network.admission.recorder, "compute", "host", size_bytes)
        return NOW

    def alike_runs(self, lane: Lane) -> ProgramRuns | None:
        """Make it for the second run of a plan in a row: where shapes change, none would use it."""
        if not self._is_repeated:
            self._is_repeated = True
            return None
        alike = self._alike
        if alike is None or not alike.is_bound:
            alike = self._alike = self._make_alike(lane)
        return alike

    def _make_alike(self, lane: Lane) -> ProgramRuns | None:
        network, plan, bindings = self._network, self.plan, self.bindings
        given = bindings.inputs
        arrays = [given[name] for name in network.input_names]
        if (
            plan is None
            or plan.thread_count > 1
            or plan.growing
            or plan.written
            or network.refuse_if_changed is not None
            or not network.has_buffers
            or any(type(array) is not np.ndarray or array.dtype.hasobject for array in arrays)
            or any(dtype.hasobject for _, dtype in plan.made_forms)
        ):
            return None
        terms = network.repeat_terms(plan, self._pending)
        if terms is None:
            return None
        forms = {
            name: (array.shape, array.dtype)
            for name, array in zip(network.input_names, arrays, strict=True)
        }
        return network._programs.alike_runs(
            plan, lane, forms, self._empty, network.result_rows, *terms
        )

    def _copied_input(self, name: str, given: Any) -> Array:
        """Return an input as the plan reads it, and note what had to be copied for that."""
        array, recorder = input_array(name, given), self._network.admission.recorder
        if array is not given:
            self.bindings.note_copied(recorder, "compute", "host", array.nbytes)
        return array

    def _in_rooms(
        self, plan: Plan, given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[tuple[Array, int]]]:
        """Give states that grow as the plan reads them; list their memories and places there."""
        arrays, memories, names = dict(given), [], self._network.input_names
        for room in plan.rooms:
            name = names[room.state.input]
            memory, start = in_room(arrays[name], room)
            if getattr(arrays[name], "memory", None) is not memory:
                self._note_moved(arrays[name].nbytes)
            memories.append((memory, start))
            arrays[name] = memory[start : start + room.read_bytes]
        return arrays, memories

    def _place_in_rooms(
        self,
        plan: Plan,
        memories: Sequence[tuple[Array, int]],
        buffers: list[Array],
        results: dict[str, Array],
    ) -> None:
        """Place states that grow behind what is there, if the run is one of their own request."""
        is_own, names = self.bindings.has_own_states, self._network.output_names
        first = len(plan.inputs)
        for room, (known, begin) in zip(plan.rooms, memories, strict=True):
            memory, start = next_room(known, begin, room, is_own=is_own)
            if memory is not known:
                self._note_moved(room.moved_bytes)
            place = room.state.output
            results[names[place]] = view_of(memory, start, room)
            buffers[first + place] = memory[start : start + room.written_bytes]

    def _note_moved(self, size_bytes: int) -> None:
        """Note what of a state is copied to other memory."""
        self.bindings.note_copied(self._network.admission.recorder, "compute", "host", size_bytes)

    def _as_memory(self, plan: Plan, given: Mapping[str, Any]) -> dict[str, Any]:
        """Give states that are written in part as plain arrays."""
        names = [self._network.input_names[state.input] for state in plan.written]
        return {**given, **{name: given[name].view(np.ndarray) for name in names}}

    def _take_turns(
        self, plan: Plan, buffers: list[Array], results: dict[str, Array]
    ) -> list[tuple[str, Places, Array, Array]]:
        """Have outputs that are written in part hold what there was; list what to note at the end.

        That is the output, where the run notes its writes, the memory before and the new one.
        """
        is_own, turns = self.bindings.has_own_states, []
        for state in plan.written:
            name = self._network.output_names[state.output]
            kept = self.bindings.inputs[self._network.input_names[state.input]]
            past = buffers[state.input]
            made, copied_bytes = next_turn(kept, past, is_own=is_own)
            self._note_moved(copied_bytes)
            results[name] = buffers[len(plan.inputs) + state.output] = made
            turns.append((name, state.places, past, made))
        return turns
