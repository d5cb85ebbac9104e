"""A graph as a list of steps over numbered slots, and a run of it.

:func:`compile_steps` plans: each value gets a slot, each node a kernel, and each step the slots
that no later step reads. A run copies the row of slots, in which constants already stand, and walks
the steps. A body of a control-flow node is Steps of its own; values that it captures are handed to
it by reference, like inputs.

Values may share memory on the way: a Reshape gives a view. What leaves a run shares none, see
``outputs.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...errors import AioInferError, GraphError, TensorError
from ..graph import Graph, Node, Value
from ..operators import Operator
from ..operators.kernel_failure import explain
from .control_flow import Body, ControlFlow, MakeFlow, Run
from .outputs import detach_outputs
from .states_in_place import StateMemory, StatePlan, with_memory

__all__ = ["FindKernel", "StepTime", "Steps", "compile_steps"]

_NONE = 0  # the slot that stays None: for optional inputs that are not given


class FindKernel(Protocol):
    """Chooses what runs a node: an operator, or what gets the run as well, as control flow does."""

    def __call__(self, node: Node) -> Operator: ...

    def flow_of(self, node: Node) -> MakeFlow | None:
        """Return what makes the node's control flow; None for one that an operator runs."""


class StepTime(NamedTuple):
    """When a node of the graph ran: original names, operator, and ``by``, which computed it."""

    names: tuple[str, ...]
    op: str
    start_ns: int
    end_ns: int
    by: Operator | ControlFlow


class _Step(NamedTuple):
    """One node: read ``inputs``, write ``outputs``, then empty ``drops``; all are slots."""

    kernel: Operator | None
    flow: ControlFlow | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    needed_count: int
    drops: tuple[int, ...]
    name: str
    op: str
    fused_from: tuple[str, ...]

    def with_drops(self, drops: tuple[int, ...]) -> _Step:
        """Make the same step with other slots to empty."""
        return _Step(
            self.kernel,
            self.flow,
            self.inputs,
            self.outputs,
            self.needed_count,
            drops,
            self.name,
            self.op,
            self.fused_from,
        )

    def run(self, values: list[Any], run: Run) -> None:
        kernel, flow, inputs, outputs, needed_count, drops, *_ = self
        given = [values[slot] for slot in inputs]
        made: Sequence[Any]
        try:
            if kernel is None:
                assert flow is not None
                made = flow(given, run)
            else:
                made = kernel(*given)
        except Exception as error:
            if kernel is None and isinstance(error, AioInferError):
                if isinstance(error, TensorError):
                    error.within(node=self.name, op=self.op)
                raise  # if it comes from a node of a body, it names that one
            raise explain(error, self.name, self.op, given) from error
        count = len(made)
        if count < needed_count:
            raise TensorError(
                f"{self.op} (node {self.name!r}) gave {count} outputs where {needed_count} are "
                f"used; its kernel has to return a tuple of all",
                node=self.name,
                op=self.op,
            )
        if count == 1:
            values[outputs[0]] = made[0]
        else:
            for slot, value in zip(outputs, made, strict=False):
                values[slot] = value
        for slot in drops:
            values[slot] = None


class Steps:
    """A compiled graph; immutable, so any number of threads may run it at once."""

    def __init__(
        self,
        steps: Sequence[_Step],
        template: Sequence[Any],
        inputs: Mapping[str, int],
        captured: Sequence[int],
        outputs: Sequence[int],
        states: Sequence[tuple[StatePlan, int]] = (),
    ) -> None:
        self._steps = tuple(steps)
        self._memories = tuple(slot for _, slot in states)
        self.states = tuple(state for state, _ in states)
        """Those that a run with memory of its request writes in place."""
        self._template = list(template)
        self._inputs = dict(inputs)
        self._input_slots = tuple(inputs.values())
        self._captured = tuple(captured)
        self._outputs = tuple(outputs)

    def __len__(self) -> int:
        return len(self._steps)

    def named_by(self, graph: Graph) -> Steps | None:
        """Return the same steps for a graph that differs from theirs in names alone.

        None if its nodes are not theirs, one by one.
        """
        nodes = list(graph.nodes)
        if [node.op for node in nodes] != [step.op for step in self._steps]:
            return None
        made = copy(self)
        made._steps = tuple(
            [
                step._replace(name=node.name, fused_from=node.fused_from)
                for step, node in zip(self._steps, nodes, strict=True)
            ]
        )
        names = [value.name for value in graph.inputs]
        made._inputs = dict(zip(names, self._inputs.values(), strict=True))
        return made

    def run(
        self,
        inputs: Mapping[str, Any],
        stop: Callable[[], None] | None = None,
        profile: list[StepTime] | None = None,
        memories: Sequence[StateMemory] = (),
    ) -> list[Any]:
        """Run all steps on this thread, and give the graph's outputs in order.

        Inputs by name: arrays, lists or None; they are read only. Outputs are C-contiguous arrays
        (lists of them, None) that share memory with nothing. With ``memories``, one for each of
        ``states``, those lie where these say. ``stop`` is called before each node, also inside
        bodies, and in a body without nodes, and ends the run by raising. ``profile`` receives an
        entry a node of the graph. Raises TensorError, or DeviceError when memory runs out, naming
        the node.
        """
        return self.run_within(inputs, Run(stop), profile, memories)

    def run_within(
        self,
        inputs: Mapping[str, Any],
        run: Run,
        profile: list[StepTime] | None = None,
        memories: Sequence[StateMemory] = (),
    ) -> list[Any]:
        """Do what ``run`` does, and hand the Run to all control flow."""
        missing = self._inputs.keys() - inputs.keys()
        if missing:
            raise TensorError(f"inputs {sorted(missing)} are not given; needed: {[*self._inputs]}")
        given = [inputs[name] for name in self._inputs]
        with np.errstate(all="ignore"):
            results = self.execute(given, (), run, profile, memories)
        places = [state.output for state in self.states] if memories else []
        made = [results[place] for place in places]
        for place in places:
            results[place] = None
        results = detach_outputs(results, [*given, *made])
        for place, array, memory in zip(places, made, memories, strict=True):
            results[place] = memory.kept(array)
        return results

    def execute(
        self,
        inputs: Sequence[Any],
        captured: Sequence[Any],
        run: Run,
        profile: list[StepTime] | None = None,
        memories: Sequence[StateMemory] = (),
    ) -> list[Any]:
        """Run the steps on values in the order of inputs and captures; outputs may be shared."""
        values = self._template.copy()
        for slot, memory in zip(self._memories if memories else (), memories, strict=True):
            values[slot] = memory
        for slot, value in zip(self._input_slots, inputs, strict=True):
            values[slot] = value
        for slot, value in zip(self._captured, captured, strict=True):
            values[slot] = value
        stop = run.stop
        if stop is not None and not self._steps:
            stop()  # else a loop around an empty body would never ask
        for step in self._steps:
            if stop is not None:
                stop()
            if profile is None:
                step.run(values, run)
                continue
            start_ns = time.perf_counter_ns()
            step.run(values, run)
            end_ns, by = time.perf_counter_ns(), step.kernel or step.flow
            assert by is not None
            profile.append(StepTime(step.fused_from, step.op, start_ns, end_ns, by))
        return [values[slot] for slot in self._outputs]


def compile_steps(graph: Graph, find_kernel: FindKernel, states: Sequence[StatePlan] = ()) -> Steps:
    """Plan the execution of a whole graph; changes nothing in it.

    ``states`` are written in place by runs that have memory for them.
    Raises UnsupportedOpError for a node without a kernel, and GraphError for a graph that uses
    values of another one.
    """
    captured = graph.captured_values()
    if any(not value.is_constant for value in captured):
        names = [value.name for value in captured if not value.is_constant]
        raise GraphError(
            f"graph {graph.name!r} uses {names} of an outer graph; make them inputs first"
        )
    return _Planner(graph, find_kernel, states).plan(())


class _Planner:
    """Collects slots and steps of one graph."""

    def __init__(
        self, graph: Graph, find_kernel: FindKernel, states: Sequence[StatePlan] = ()
    ) -> None:
        self._graph, self._find_kernel = graph, find_kernel
        self._template: list[Any] = [None]
        self._slots: dict[Value, int] = {}
        self._states = [(state, self._add_slot(None)) for state in states]
        self._memories = {state.node: slot for state, slot in self._states}

    def plan(self, captured: Sequence[Value]) -> Steps:
        """Make the steps; ``captured`` are the outer values, in the order in which they come."""
        inputs = {value.name: self._new_slot(value) for value in self._graph.inputs}
        captured_slots = [self._new_slot(value) for value in captured]
        steps = [
            self._plan_node(node)
            for node in self._graph.nodes
            if not all(value.is_constant for value in node.outputs)
        ]
        outputs = [self._slot(value) for value in self._graph.outputs]
        return Steps(
            _with_drops(steps, outputs),
            self._template,
            inputs,
            captured_slots,
            outputs,
            self._states,
        )

    def _new_slot(self, value: Value) -> int:
        slot = self._slots[value] = self._add_slot(_read_only(value.constant))
        return slot

    def _add_slot(self, content: Any) -> int:
        self._template.append(content)
        return len(self._template) - 1

    def _slot(self, value: Value | None) -> int:
        if value is None:
            return _NONE
        if value in self._slots:
            return self._slots[value]
        if not value.is_constant:
            raise GraphError(
                f"graph {self._graph.name!r} uses {value.name!r} before it is made; sort its nodes"
            )
        return self._new_slot(value)

    def _plan_node(self, node: Node) -> _Step:
        inputs = [self._slot(value) for value in node.inputs]
        try:
            kernel, flow = self._bind(node, inputs)
        except AioInferError as error:
            error.within(node=node.name, op=node.op)
            raise
        except Exception as error:
            raise GraphError(
                f"{node.op} (node {node.name!r}) cannot be compiled, its attributes or inputs are "
                f"not what the operator has: {error!r}",
                node=node.name,
                op=node.op,
            ) from error
        memory = self._memories.get(node)
        if memory is not None and kernel is not None:
            kernel, inputs = with_memory(kernel), [memory, *inputs]
        used = [value for value in node.outputs if value.uses or value.is_graph_output]
        return _Step(
            kernel,
            flow,
            tuple(inputs),
            tuple(self._slots.get(value) or self._new_slot(value) for value in node.outputs),
            max((value.output_index + 1 for value in used), default=0),
            (),
            node.name,
            node.op,
            node.fused_from,
        )

    def _bind(self, node: Node, inputs: list[int]) -> tuple[Operator | None, ControlFlow | None]:
        make_flow = self._find_kernel.flow_of(node)
        if make_flow is None:
            return self._find_kernel(node), None
        bodies = {
            key: self._plan_body(attribute, inputs)
            for key, attribute in node.attributes.items()
            if isinstance(attribute, Graph)
        }
        return None, make_flow(node, bodies)

    def _plan_body(self, body: Graph, inputs: list[int]) -> Body:
        """Plan a body; what it captures is put behind the node's inputs."""
        captured = [value for value in body.captured_values() if not value.is_constant]
        places = range(len(inputs), len(inputs) + len(captured))
        inputs.extend(self._slot(value) for value in captured)
        return Body(_Planner(body, self._find_kernel).plan(captured), tuple(places))


def _read_only(constant: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any] | None:
    """View a constant so that no kernel can write it; also hides that it is memory-mapped."""
    if constant is None:
        return None
    view = np.asarray(constant).view()
    view.flags.writeable = False
    return view


def _with_drops(steps: Sequence[_Step], outputs: Sequence[int]) -> list[_Step]:
    """Return the steps, each with the slots that no later step reads and outputs lack."""
    kept = {_NONE, *outputs}
    planned: list[_Step] = []
    for step in reversed(steps):
        read = dict.fromkeys((*step.inputs, *step.outputs))
        drops = tuple([slot for slot in read if slot not in kept])
        kept.update(drops)
        planned.append(step.with_drops(drops) if drops else step)
    return planned[::-1]
