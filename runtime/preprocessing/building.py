"""Writing declared steps into a copy of a model, as nodes before its first and after its last.

Users' names stay: what is given for input ``image`` is called ``image``, and the model's own value
of that name goes, with everything that used it reading the last step's instead. Output ``logits``
is the last step's value, and the model's own gets another name. Lengths that steps pin, and the
model leaves open, are pinned as ``Model.reshape`` does it: a symbol stands for one length
everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...errors import AioInferError, TensorError
from ..graph import Dim, Graph, Model, Node, Shape, TensorType, Value, ValueType
from ..graph.reshaping import reshaped_inputs
from ..passes.rewriting.name_table import NameTable
from .declared import DeclaredInput, DeclaredOutput, Stretch, fitting_shape
from .new_nodes import new_nodes
from .state import State, Target

__all__ = ["built_graph"]


def built_graph(
    model: Model, inputs: Iterable[DeclaredInput], outputs: Iterable[DeclaredOutput]
) -> Graph:
    """Return a graph with the steps in it; the model's own is as it was.

    Raises TensorError for steps that contradict each other or the model.
    """
    work = model.copy()
    writer = _Writer(work.graph)
    shapes: dict[str, Shape] = {}
    for declared in inputs:
        first, last = _ends(declared.states())
        shape = fitting_shape(last, declared.target)
        if shape is not None:
            shapes[declared.port.name] = shape
        with declared.port.named("build"):
            for plane in first.planes:
                plane.type = _with_own_symbols(plane.type, last, declared.target)
            writer.write_input(declared.port.index, first.planes, last)
    _, symbols = reshaped_inputs(work.inputs, shapes)
    for declared_output in outputs:
        first, last = _ends(declared_output.states())
        with declared_output.port.named("build"):
            writer.write_output(declared_output.port.index, first.value, last.value)
    writer.finish(symbols)
    try:
        Model.infer_types(work, symbols)
    except AioInferError as error:
        raise TensorError(
            f"what the steps make does not fit the model {model.name!r}: {error}"
        ) from error
    return work.graph


def _ends(states: Iterable[Stretch]) -> tuple[State, State]:
    """Return the states before the first and after the last step."""
    listed = [stretch.state for stretch in states]
    return listed[0], listed[-1]


def _with_own_symbols(known: ValueType | None, last: State, target: Target) -> ValueType | None:
    """Leave lengths open that are the model's by name and that steps make others of."""
    if not isinstance(known, TensorType) or known.shape is None or target.shape is None:
        return known
    changed = {
        wanted for made, wanted in zip(last.shape, target.shape, strict=True) if made != wanted
    }
    shape = tuple(None if isinstance(dim, str) and dim in changed else dim for dim in known.shape)
    return TensorType(known.dtype, shape)


class _Writer:
    """Puts nodes into a graph, at both of its ends, with names that are free there."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names = NameTable(graph)
        self._first = next(graph.nodes, None)
        self._inputs: list[Sequence[Value]] = [(value,) for value in graph.inputs]

    def write_input(self, index: int, planes: Sequence[Value], last: State) -> None:
        """Make what reads an input read the last state's tensor, made of the planes."""
        old, made = self._graph.inputs[index], last.value
        nodes = new_nodes([made], planes)
        if old.is_graph_output and made not in planes:
            raise TensorError(
                f"the model gives {old.name!r} back as it is, and one name cannot be both what is "
                f"given and what the steps make of it; put an Identity node between in the model"
            )
        self._names.release_value(old.name)
        for plane in planes:
            wanted = plane.name
            if self._names.claim_value(wanted) != wanted:
                raise TensorError(
                    f"the model has a value {wanted!r}, so no plane can have that name; give "
                    f"others with set_color_format(format, sub_names)"
                )
        self._add(old.name, nodes, self._first)
        self._graph.replace_uses(old, self._named(made, old.name))
        self._inputs[index] = planes

    def write_output(self, index: int, stand_in: Value, made: Value) -> None:
        """Return a step's value in place of an output, under its name."""
        if made is stand_in:
            return
        outputs = self._graph.outputs
        old = outputs[index]
        if old.producer is None or outputs.count(old) > 1:
            raise TensorError(
                f"{old.name!r} is not made for this output alone, so what the steps make cannot "
                f"have its name; put an Identity node before it in the model"
            )
        nodes = new_nodes([made], [stand_in])
        name = old.name
        self._add(name, nodes, None)
        for node, place in list(stand_in.uses):
            node.replace_input(place, old)
        made = self._named(made, name)
        self._names.release_value(made.name)
        old.name, made.name = self._names.claim_value(f"{name}/model"), name
        outputs[index] = made
        self._graph.outputs = outputs

    def finish(self, symbols: Mapping[str, Dim]) -> None:
        """Give the graph its new inputs; ``symbols`` is what those of the model have become."""
        self._graph.inputs[:] = [value for planes in self._inputs for value in planes]
        for value in self._graph.inputs:
            if isinstance(value.type, TensorType) and value.type.shape is not None:
                shape = tuple(
                    symbols.get(dim, dim) if isinstance(dim, str) else dim
                    for dim in value.type.shape
                )
                value.type = TensorType(value.type.dtype, shape)

    def _add(self, prefix: str, nodes: Iterable[Node], before: Node | None) -> None:
        constants: dict[Value, Value] = {}
        for node in nodes:
            for place, value in enumerate(node.inputs):
                if value is not None and value.is_constant and value.producer is None:
                    if value not in constants:
                        constants[value] = self._constant(prefix, value)
                    node.replace_input(place, constants[value])
            node.name = self._names.claim_node(f"{prefix}/{node.name or node.op_type}")
            node.fused_from = (node.name,)
            self._names.claim_bodies(node)
            for value in node.outputs:
                is_only = len(node.outputs) == 1
                name = node.name if is_only else f"{prefix}/{value.name or node.op_type}"
                value.name = self._names.claim_value(name)
            if before is None:
                self._graph.append(node)
            else:
                self._graph.insert_before(before, node)

    def _named(self, made: Value, prefix: str) -> Value:
        """Return a step's value, or a constant in its place if a custom function gives one."""
        is_bare = made.is_constant and made.producer is None
        return self._constant(prefix, made) if is_bare else made

    def _constant(self, prefix: str, value: Value) -> Value:
        name = self._names.claim_value(f"{prefix}/{value.name}")
        return self._graph.add_initializer(Value(name, value.type, value.constant))
