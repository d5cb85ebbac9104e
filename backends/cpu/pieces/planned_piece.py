"""A piece that is planned: run with the plan for the sizes at hand, on the stream of its run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import TensorError
from ....executors import TaskExecutor
from ....runtime.graph import Node
from ....runtime.interpretation.control_flow import Body, Run
from ....runtime.plans.plan_cache import PendingPlan, PlanLimits
from ....runtime.plans.shape_plans import ShapePlans
from ....runtime.runs.stage import Stop
from ....runtime.tensors.tensor import ports_of
from ..compiler import Compiler
from ..plans.plan import Plan
from ..programs.lane_programs import LanePrograms
from ..programs.node_times import node_times
from ..programs.run_arrays import as_buffer
from .contraction import PieceModel
from .stream_run import NotOnThisLane, StreamRun

__all__ = ["PlannedPiece"]

Array = np.ndarray[Any, Any]


class PlannedPiece:
    """The plans of one piece by the shapes of what it is given. Thread-safe.

    ``compiler`` makes them, on ``executor``, and is closed with the piece.
    """

    def __init__(
        self,
        piece: PieceModel,
        compiler: Compiler,
        device: str,
        executor: TaskExecutor,
        limits: PlanLimits,
    ) -> None:
        self.model, self.compiler = piece.model, compiler
        self._in_body = piece.in_body
        self.ports = ports_of(piece.model.inputs)
        self._names = [port.name for port in self.ports]
        self._output_count = len(piece.model.outputs)
        self.plans: ShapePlans[Plan] = ShapePlans(
            piece.model,
            self.ports,
            device,
            compiler.compile,
            executor,
            compiler.shape_tensors,
            dropped=Plan.release_graph,
            limits=limits,
            size_of=lambda plan: plan.size_bytes,
        )
        self._programs: LanePrograms | None = None

    def run_by(self, programs: LanePrograms) -> None:
        """Set what binds plans to streams; before the first run."""
        self._programs = programs

    def make_flow(self, node: Node, _bodies: Mapping[str, Body]) -> Callable[..., list[Any]]:
        """Return what runs the piece in the place of a node."""
        return self

    def __call__(self, row: Sequence[Any], run: Run) -> list[Any]:
        """Compute the piece for these arrays; new arrays come out. Waits for a missing plan.

        Raises TensorError for what the piece cannot be given, and what its plan raises; or
        NotOnThisLane.
        """
        assert isinstance(run, StreamRun)
        assert run.lane is not None
        assert self._programs is not None
        given = [self._array(index, value) for index, value in enumerate(row)]
        pending = self.plans.request(dict(zip(self._names, given, strict=True)))
        if not pending.is_built:
            if not run.may_wait:
                raise NotOnThisLane(wants_team=False)
            _wait(pending, run.owner)
        plan = pending.plan
        if plan.thread_count > run.lane.thread_count:
            raise NotOnThisLane(wants_team=True)
        program = self._programs.program(plan, run.lane)
        made = [np.empty(shape, dtype) for shape, dtype in plan.output_forms]
        buffers = tuple([as_buffer(array) for array in (*given, *made)])
        if run.times is None or self._in_body:
            program.run(buffers, run.owner)
        else:
            readings = np.zeros(len(plan.steps) + 1, np.int64)
            program.run(buffers, run.owner, readings)
            run.times.extend(node_times(plan, readings.tolist()))
        return list(made)

    def _array(self, index: int, value: Any) -> Array:
        """Give a value as a plan reads it; it has the declared type, whatever made it."""
        port = self.ports[index]
        if not isinstance(value, np.ndarray):
            found = "nothing" if value is None else type(value).__name__
            raise TensorError(f"{port.name!r} is {found}, and {port} is wanted", tensor=port.name)
        if port.dtype is not None and value.dtype != port.dtype:
            raise TensorError(
                f"{port.name!r} is {value.dtype}, and {port} is wanted",
                tensor=port.name,
                dtype=str(value.dtype),
                wanted_dtype=str(port.dtype),
            )
        if port.shape is not None and len(port.shape) != value.ndim:
            raise TensorError(
                f"{port.name!r} has the shape {list(value.shape)}, and {port} is wanted",
                tensor=port.name,
                shape=value.shape,
            )
        flags = value.flags
        return value if flags.c_contiguous and flags.aligned else np.array(value, order="C")

    def close(self) -> None:
        """Drop plans and weights; when no run is left."""
        self.plans.clear()
        self.compiler.close()
        self._programs = None


def _wait(pending: PendingPlan[Plan], stop: Stop) -> None:
    """Wait until a plan is there. Raises its error, or that of the stop where that comes first."""
    came = threading.Event()
    wake = came.set
    pending.when_ready(lambda _: wake())
    stop.when_set(wake)
    came.wait()
    stop.forget(wake)
    stop.raise_if_set()
    if pending.error is not None:
        raise pending.error
