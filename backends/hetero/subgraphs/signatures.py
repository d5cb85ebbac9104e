"""INPUT_SHAPES of a whole model, as shapes of each of its subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....runtime.graph import Graph, Model, TensorType, Value, is_static
from ....runtime.passes import specialize
from ....runtime.type_inference import correct_graph_types
from .cutting import CutModel

__all__ = ["static_shapes", "subgraph_signatures"]

Signature = Mapping[str, tuple[int, ...]]


def subgraph_signatures(
    model: Model, cut: CutModel, signatures: Sequence[Signature]
) -> list[list[Signature]]:
    """List for each subgraph the shapes of its inputs under each signature of the whole model.

    A signature under which a subgraph takes a value whose shape depends on data is left out for
    that subgraph: it cannot be known ahead, and the first run compiles it. So is one of a subgraph
    that takes a sequence. Raises TensorError for shapes that contradict the model. Pure, but slow:
    it infers the whole model for each signature.
    """
    found: list[list[Signature]] = [[] for _ in cut.subgraphs]
    for signature in signatures:
        shapes = static_shapes(model, signature)
        for index, piece in enumerate(cut.subgraphs):
            names = [value.name for value in piece.model.inputs]
            known = {name: shapes[name] for name in names if name in shapes}
            if len(known) == len(names) and known not in found[index]:
                found[index].append(known)
    return found


def static_shapes(model: Model, signature: Signature) -> dict[str, tuple[int, ...]]:
    """Infer the shapes of all values: with every node in place, and again with shapes folded.

    The second knows more; the first knows the values that folding has removed.
    """
    shapes = _shapes_in(specialize(model, signature, passes=()).graph)
    shapes.update(_shapes_in(specialize(model, signature).graph))
    return shapes


def _shapes_in(graph: Graph) -> dict[str, tuple[int, ...]]:
    correct_graph_types(graph)
    values: list[Value] = [*graph.inputs, *graph.initializers.values()]
    values += [value for node in graph.nodes for value in node.outputs]
    shapes = {}
    for value in values:
        if isinstance(value.type, TensorType) and is_static(value.type.shape):
            dims = value.type.shape or ()
            shapes[value.name] = tuple(dim for dim in dims if isinstance(dim, int))
    return shapes
