"""A model on CPU whose sizes or flow depend on data: planned pieces between steps in numpy.

Steps in numpy walk the contracted graph, and bodies of control flow, on one thread of a stream.
Where a step is a piece, the plan for the sizes at hand runs there, on the stream's arena. One that
is missing is made on the compile thread, and the stream waits for it: a body cannot be left in its
middle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import AioInferError, PropertyError, TensorError, UnsupportedOpError
from ....executors import NOW, Lane, Ready, StreamsConfig
from ....executors.late_imports import late_imports
from ....runtime.devices.plugin import CoreHandle
from ....runtime.graph import Graph, Model, Node, TensorType, copy_graph
from ....runtime.graph.mapped_file import read_constants
from ....runtime.graph.node_failure import run_failure
from ....runtime.graph.stand_ins import release_constants
from ....runtime.interpretation.control_flow import CONTROL_FLOW, MakeFlow
from ....runtime.interpretation.steps import StepTime, compile_steps
from ....runtime.network.executable_network import ExecutableNetwork, Slot
from ....runtime.operators import Operator, OperatorError, make_operator
from ....runtime.passes import bound_input_shapes
from ....runtime.plans.plan_cache import PlanLimits
from ....runtime.properties.properties import INPUT_SHAPES, Configuration, Metric, slot_count
from ....runtime.runs.admission import ticket_of
from ....runtime.runs.bindings import Bindings, NodeProfile
from ....runtime.runs.stage import Again, Stage, Stop
from ....runtime.tensors.tensor import Port, ports_of
from ....runtime.tracing.statistics import PlanStatistics
from ..compiler import Compiler
from ..native.step_runner import StepRunner, step_runner
from ..network_metrics import network_metrics
from ..onednn.bindings import Engine
from ..plans.packed_weights import WeightStore
from ..plans.plan import Plan
from ..programs.lane_programs import LanePrograms
from ..programs.plan_resizing import PlanResizing
from ..properties import CPU_ADAPTIVE_TEAMS
from .contraction import contract
from .division import Piece, divide
from .native_operators import NativeStep, find_native, find_writer
from .planned_piece import PlannedPiece
from .size_runs import SizeSteps
from .stepped_nodes import SteppedNodes, is_left_to_numpy
from .stream_run import NotOnThisLane, StreamRun

__all__ = ["PiecedNetwork"]

MOST_PLANS = 64
"""Kept of each piece, for as many shapes, unless a property says else."""

MOST_TEAM_SHAPES = 1024

_MOST_PROGRAMS = 1024
"""Kept of each stream: the plans of all pieces, bound to its arena."""


class PiecedNetwork(ExecutableNetwork):
    """A model of planned pieces and steps; ``compiler_of`` makes the compiler of a piece."""

    def __init__(
        self,
        model: Model,
        chosen: SteppedNodes,
        compiler_of: Callable[[Model], Compiler],
        engine: Engine,
        streams: StreamsConfig,
        config: Configuration,
        core: CoreHandle,
    ) -> None:
        super().__init__(
            name=model.name,
            device=streams.name,
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
        )
        self._model, self._engine = model, engine
        self.may_run_inline = not any(
            node.user_kernel is not None
            or any(isinstance(value, Graph) for value in node.attributes.values())
            for node in model.graph.nodes
        )
        """False where users' code runs, and where data may say how often something is repeated."""
        self.team_shapes: set[Hashable] = set()
        """Shapes of inputs whose runs want a team, and so are for workers."""
        self._symbols = _symbols_of(model)
        self._streams = core.executors.acquire(streams)
        self._compile_executor = core.executors.acquire(StreamsConfig("compile"))
        self._resize_executor = core.executors.acquire(StreamsConfig("resize"))
        self._pieces: list[PlannedPiece] = []
        self._step_count = 0
        try:
            self.steps = self._compile(chosen, compiler_of)
            resizing = PlanResizing(self._resize_executor, self._weights_of)
            is_adaptive = bool(config[CPU_ADAPTIVE_TEAMS.key])
            self._programs = LanePrograms(
                step_runner(engine),
                resizing.want if is_adaptive else None,
                kept_plans=self._plans_of_pieces,
                most_count=_MOST_PROGRAMS,
            )
            for piece in self._pieces:
                piece.run_by(self._programs)
            self._compile_ahead()
        except BaseException:
            self._abandon()
            raise
        slots = slot_count(config, 2 * streams.stream_count)
        self._provide_slots([_PiecedSlot(self) for _ in range(slots)])

    def _compile(self, chosen: SteppedNodes, compiler_of: Callable[[Model], Compiler]) -> Any:
        def division(graph: Graph, in_body: bool) -> list[Piece | Node]:
            return divide(
                graph,
                lambda node: chosen.is_stepped(node, in_body=in_body),
                chosen.is_worth_a_plan,
                is_left_to_numpy,
                in_body=in_body,
            )

        contracted = contract(self._model, division)
        read_constants(contracted.graph)
        limits = PlanLimits.of(self.config, MOST_PLANS)
        pieces: dict[Node, PlannedPiece] = {}
        for node, piece in contracted.pieces.items():
            compiler = compiler_of(piece.model)
            pieces[node] = PlannedPiece(
                piece, compiler, self.device, self._compile_executor, limits
            )
            self._pieces.append(pieces[node])
        main = {*contracted.graph.nodes}
        self._step_count = len(contracted.graph) - sum(
            not piece.in_body for piece in contracted.pieces.values()
        )
        self._step_count += sum(
            len(sizes.run.nodes) - 1 for node, sizes in contracted.sizes.items() if node in main
        )
        joined: dict[Node, PlannedPiece | SizeSteps] = {
            node: SizeSteps(*sizes, self._model.opsets) for node, sizes in contracted.sizes.items()
        }
        runner = step_runner(self._engine)
        finder = _Finder(joined | pieces, self._model.opsets, self.device, runner)
        steps = compile_steps(contracted.graph, finder)
        release_constants(contracted.graph)  # the steps have them
        return steps

    def _plans_of_pieces(self) -> list[Plan]:
        return [plan for piece in self._pieces for plan in piece.plans.plans()]

    def _weights_of(self, plan: Plan) -> WeightStore | None:
        """Return the weights that the plan of a piece uses; None once it is dropped."""
        owners = (piece for piece in self._pieces if plan in piece.plans.plans())
        return next((piece.compiler.weights for piece in owners), None)

    def _compile_ahead(self) -> None:
        """Build the plans that INPUT_SHAPES and static shapes determine."""
        wanted = self.config[INPUT_SHAPES]
        known = {port.name for port in self.inputs}
        for shapes in wanted:
            try:
                bound_input_shapes(self._model.inputs, shapes)
            except TensorError as error:
                raise PropertyError(
                    f"{self.device}: bad value {dict(shapes)} for {INPUT_SHAPES.key}: {error}",
                    INPUT_SHAPES.key,
                    self.device,
                    value=dict(shapes),
                ) from error
        for piece in self._pieces:
            names = {port.name for port in piece.ports}
            own = wanted if names <= known else ()
            piece.plans.compile_ahead(
                [{key: item[key] for key in item if key in names} for item in own]
            )

    def lengths_in(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """Return what the symbols of the model's inputs stand for in a run."""
        return {
            symbol: inputs[name].shape[axis]
            for symbol, (name, axis) in self._symbols.items()
            if inputs.get(name) is not None
        }

    def run_everywhere(self, inputs: Mapping[str, Any], stop: Stop) -> None:
        def compute(lane: Lane) -> Ready:
            slot = _PiecedSlot(self)
            slot.bindings, slot.stop = Bindings(dict(inputs), ticket_of(0)), stop
            return slot.compute(lane)

        self._streams.run_on_each(compute, on_callers=self.inline_route is not None)

    def is_callers(self, lane: Lane) -> bool:
        """True for the lane of threads that run short runs themselves, and must not wait."""
        return lane.index >= self._streams.config.stream_count

    def _plan_statistics(self) -> PlanStatistics:
        return PlanStatistics.total(piece.plans.statistics() for piece in self._pieces)

    def _model_to_export(self) -> Model | None:
        return self._model

    def runtime_graph(self) -> Graph:
        return copy_graph(self._model.graph)

    def explanation(self) -> str:
        planned, steps = len(self._pieces), self._step_count
        return (
            f"{super().explanation()}; {planned} pieces are planned when their sizes are known, "
            f"and {steps} nodes, whose sizes or flow depend on data, are steps between them"
        )

    def how_computed(self) -> tuple[str, ...]:
        with late_imports:
            from ..plans.number_types import NumberRules, number_lines

        rules = NumberRules.of(self.config, self._engine.instruction_set)
        parts = [(piece.model.graph, piece.compiler.latest) for piece in self._pieces]
        return number_lines(parts, rules)

    def _release_device(self) -> None:
        self._core.executors.release(self._streams)
        self._core.executors.release(self._compile_executor)
        if hasattr(self, "_programs"):
            self._programs.clear()
        for piece in self._pieces:
            piece.close()
        self.steps = None  # they have constants
        release_constants(self._model.graph)
        self._core.executors.release(self._resize_executor)  # what waits there finds weights closed

    def _metrics(self) -> list[Metric]:
        return network_metrics(
            self._engine,
            lambda: sum(len(piece.plans) for piece in self._pieces),
            lambda: sum(piece.compiler.packed_bytes for piece in self._pieces),
            self._programs,
        )


def _symbols_of(model: Model) -> dict[str, tuple[str, int]]:
    """Return an input and an axis whose length each symbol stands for."""
    found: dict[str, tuple[str, int]] = {}
    for value in model.inputs:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        for axis, dim in enumerate(shape or ()):
            if isinstance(dim, str):
                found.setdefault(dim, (value.name, axis))
    return found


class _Finder:
    """What runs each node of the contracted graph and of its bodies."""

    def __init__(
        self,
        joined: Mapping[Node, PlannedPiece | SizeSteps],
        opsets: Mapping[str, int],
        device: str,
        runner: StepRunner,
    ) -> None:
        self._joined, self._opsets, self._device = joined, dict(opsets), device
        self._runner = runner

    def __call__(self, node: Node) -> Operator:
        try:
            return find_writer(node) or make_operator(node, self._opsets)
        except OperatorError as error:
            raise UnsupportedOpError(node.name, node.op, self._device, error.reason) from error

    def flow_of(self, node: Node) -> MakeFlow | None:
        joined = self._joined.get(node)
        if joined is not None:
            return joined.make_flow
        native = find_native(node, self._runner)
        if native is not None:
            return native.make_flow
        return CONTROL_FLOW.get((node.domain, node.op_type))


class _PiecedSlot(Slot):
    """One run, computed on a stream from its first step to its last."""

    def __init__(self, network: PiecedNetwork) -> None:
        self._network = network
        self.stages = (Stage("compute", network._streams, self.compute),)
        self.may_run_inline = network.may_run_inline

    def compute(self, lane: Lane) -> Ready:
        """Compute the run that has the slot, on this stream."""
        network, bindings = self._network, self.bindings
        profile: list[StepTime] | None
        times: list[NodeProfile] | None
        profile, times = (None, None) if bindings.profile is None else ([], [])
        lengths, may_wait = network.lengths_in(bindings.inputs), not network.is_callers(lane)
        if not may_wait and network.team_shapes and _shapes(bindings) in network.team_shapes:
            return Again(NOW)
        run = StreamRun(self.stop.raise_if_set, lengths, self.stop, lane, times, may_wait)
        try:
            results = network.steps.run_within(bindings.inputs, run, profile)
        except NotOnThisLane as refusal:
            if refusal.wants_team and len(network.team_shapes) < MOST_TEAM_SHAPES:
                network.team_shapes.add(_shapes(bindings))
            return Again(NOW)
        except AioInferError:
            raise
        except Exception as error:
            raise run_failure(error, f"{network.name!r} on {network.device}") from error
        for port, result in zip(network.model_outputs, results, strict=True):
            _expect_type(port, result)
            size_bytes = bindings.deliver(port.name, result)
            if size_bytes:
                bindings.note_copied(network.admission.recorder, "compute", "host", size_bytes)
        if bindings.profile is not None:
            bindings.profile.extend(_node_times(profile or (), times or ()))
        return NOW


def _shapes(bindings: Bindings) -> Hashable:
    return tuple([np.shape(value) for value in bindings.inputs.values()])


def _expect_type(port: Port, result: Any) -> None:
    """Raise TensorError for an output of another element type than its port's."""
    if isinstance(result, np.ndarray) and port.dtype is not None and result.dtype != port.dtype:
        raise TensorError(
            f"output {port.name!r} came out as {result.dtype}, and {port} was declared; correct "
            f"the model's type of it",
            tensor=port.name,
            dtype=str(result.dtype),
            wanted_dtype=str(port.dtype),
        )


def _node_times(steps: Sequence[StepTime], planned: Sequence[NodeProfile]) -> list[NodeProfile]:
    """Put the times of steps and of the nodes inside pieces in one row, in order of time.

    A piece itself is left out, and nodes in bodies are in the time of the node around them.
    """
    found = list(planned)
    for names, op, start_ns, end_ns, by in steps:
        if isinstance(by, PlannedPiece):
            continue
        implementation = "numpy"
        if isinstance(by, NativeStep | SizeSteps):
            implementation = by.implementation
        elif ("", op) in CONTROL_FLOW:
            implementation = "body"
        name = names[0] if names else op
        found.append(NodeProfile(name, op, names, start_ns, end_ns, implementation))
    return sorted(found, key=lambda item: item.start_ns)
