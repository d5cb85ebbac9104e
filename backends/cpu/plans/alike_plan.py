"""Plans for models that differ from another plan's in names alone.

Steps, operands, primitives and their table are the other plan's, and so are the programs that
streams have bound. What has names (the graph, where steps come from, the plan's id) is made when
somebody looks: the graph as the other one's was made, the rest by its place there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....executors.cached_property import cached_property
from ....runtime.graph import Graph, Model, Node, is_static
from ....runtime.graph.traversal import all_nodes, all_values
from ....runtime.tensors.tensor import ports_of
from .operand_layout import Layout
from .plan import Description, Plan
from .step_table import ReplayedSteps
from .steps import NumpyStep, Step
from .subgraph_id import SubgraphId

__all__ = ["alike_plan", "may_be_shared"]

GraphOf = Callable[[Model], Graph]
"""Makes the graph that the plan of a model executes; the model may be rewritten."""


def may_be_shared(plan: Plan) -> bool:
    """True if plans of models that are alike may have the steps of this one.

    Weights and constants are of one network, which frees them as it closes, and so are states.
    """
    return not (plan.weights or plan.growing or plan.written or plan.runs_user_code) and all(
        buffer.kind != "constant" for buffer in plan.table.buffers
    )


def alike_plan(plan: Plan, ids: SubgraphId, model: Model, graph_of: GraphOf) -> Plan:
    """Make the plan of a model that is like that of ``plan``, which ``may_be_shared``.

    ``ids`` names plans like that one. The model has static inputs, and is not changed; ``graph_of``
    is called with a copy of it when somebody asks for the graph.
    """
    description = _Description(plan, ids, model, graph_of)
    made = Plan(
        engine=plan.engine,
        description=description,
        steps=ReplayedSteps(plan.table, plan.steps, description.step),
        inputs=plan.inputs,
        outputs=plan.outputs,
        output_names=tuple([value.name for value in model.outputs]),
        offsets=plan.offsets,
        arena_bytes=plan.arena_bytes,
        thread_count=plan.thread_count,
    )
    vars(made).update(bound=plan.bound, runs_user_code=False)
    for fact in ("size_bytes", "made_forms", "has_large_outputs"):
        vars(made)[fact] = getattr(plan, fact)
    return made


class _Description(Description):
    """Of an alike plan; by the plan that it is like."""

    def __init__(self, plan: Plan, ids: SubgraphId, model: Model, graph_of: GraphOf) -> None:
        self.float_dtype, self.name = plan.description.float_dtype, _Name(ids, model)
        self._plan, self._model, self._graph_of = plan, model, graph_of

    @cached_property
    def _made(self) -> tuple[Graph, Mapping[str, Layout]]:
        graph, like = self._graph_of(self._model.copy()), self._plan
        pairs = zip(all_values(like.graph), all_values(graph), strict=True)
        names = {known.name: own.name for known, own in pairs}
        return graph, {names[name]: layout for name, layout in like.layouts.items()}

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        """The nodes of this plan's graph by the names of those that they are like."""
        pairs = zip(all_nodes(self._plan.graph), all_nodes(self.graph), strict=True)
        return {known.name: own for known, own in pairs}

    def step(self, step: Step) -> Step:
        """Make a step of this plan of the other's, which it is but for the node behind it."""
        if step.origin.is_delivery:
            return step
        node = self._nodes[step.origin.name]
        origin = step.origin._replace(name=node.name, original_nodes=node.fused_from)
        if isinstance(step, NumpyStep) and step.node is not None:
            return step._replace(origin=origin, node=node)
        return step._replace(origin=origin)


class _Name:
    """The id of an alike plan; spans that hold it hold nothing of the plan."""

    def __init__(self, ids: SubgraphId, model: Model) -> None:
        self._ids, self._model = ids, model

    @cached_property
    def _id(self) -> str:
        ports = [(port.name, port.shape) for port in ports_of(self._model.inputs)]
        shapes = {name: shape for name, shape in ports if is_static(shape)}
        return str(self._ids.for_graph(self._model.graph).of(shapes, {}))

    def __str__(self) -> str:
        return self._id
