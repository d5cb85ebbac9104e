"""What is computed element by element from one stored tensor to another, by a table.

A GELU or a sigmoid between DequantizeLinear and QuantizeLinear is a function of 8 bits, of however
many nodes it is made, and whatever is rounded in between. The nodes stay, and compute all of the
256 results that there can be; what had gone through them is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.rewriting.matching import (
    are_float32,
    dtype_of,
    is_scalar,
    made_by,
    static_shape,
)
from ..onednn.post_ops import CPU_DOMAIN
from .quantization_facts import RANGES, dequantized, quantization_of

__all__ = ["Int8Tables"]

_NAMES = """
Abs Add Ceil Celu Clip Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Max Min Mish
Mul Neg PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Softplus Softsign Sqrt Sub Swish Tanh
ThresholdedRelu
"""
_ELEMENTWISE = frozenset(_NAMES.split())
_STORING = ("DequantizeLinear", "QuantizeLinear")
_ENTRIES, _MOST_NODES = 256, 64


class Int8Tables(Pass):
    """Make an ``Int8Table`` of nodes between a stored tensor and one QuantizeLinear.

    Inputs: what is stored, and a table of 256 results in the order of the bytes. Of what is stored
    by a QuantizeLinear nothing is looked up: it may never be stored, where others take it in.
    """

    name = "int8 tables"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset({"QuantizeLinear"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        roots = _roots(graph)
        order = {value.producer: index for index, value in enumerate(roots) if value.producer}
        for node in reversed(order):
            if node.graph is graph and node.op_type == "QuantizeLinear":
                patch = _patch(node, roots, order)
                if patch is not None:
                    yield patch


def _roots(graph: Graph) -> dict[Value, Value]:
    """Tell of which stored tensor each value is a function, element by element."""
    roots: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.domain or len(node.outputs) != 1:
            continue
        root = _root(node, roots)
        if root is not None and static_shape(root) == static_shape(node.outputs[0]):
            roots[node.outputs[0]] = root
    return roots


def _root(node: Node, roots: Mapping[Value, Value]) -> Value | None:
    if node.op_type == "DequantizeLinear":
        found = dequantized(node.outputs[0])
        if found is None:
            return None
        stored, _ = found
        is_rounded = made_by(stored, "QuantizeLinear") is not None
        return roots.get(stored, None if is_rounded else stored)
    if node.op_type == "QuantizeLinear":
        source = node.inputs[0]
        if source is None or quantization_of(node) is None:
            return None
        return roots.get(source)
    if node.op_type not in _ELEMENTWISE or not are_float32(*filter(None, node.inputs)):
        return None
    given = [roots.get(value) for value in node.inputs if value and not is_scalar(value)]
    return given[0] if given and all(root is given[0] for root in given) else None


def _patch(
    node: Node, roots: Mapping[Value, Value], order: Mapping[Node, int]
) -> GraphPatch | None:
    result = node.outputs[0]
    root, kind = roots[result], dtype_of(roots[result])
    if kind not in RANGES or not _is_end(result, roots):
        return None
    cone = _cone(node, root, order)
    if cone is None or not _is_worth_it(cone):
        return None
    if not all(_stays_inside(item, roots) for item in cone) or not have_one_affinity(cone):
        return None
    patch = GraphPatch(f"look up what {node.name!r} stores")
    made = Value(result.name, result.type)
    table = _computed(patch, node, cone, root, kind)
    looked_up = Node(
        "Int8Table", (root, table), (made,), {}, name=f"{node.name}_table", domain=CPU_DOMAIN
    )
    patch.add(looked_up, node, cone).replace(result, made)
    gone: set[Node] = set()
    for item in reversed(cone):
        value = item.outputs[0]
        users = {user for user, _ in value.uses}
        if item is node or (users <= gone and not value.is_graph_output):
            gone.add(item)
            patch.remove(item)
    return patch


def _cone(node: Node, root: Value, order: Mapping[Node, int]) -> list[Node] | None:
    """List the nodes from the root to a node, in the order in which they run; None: too many."""
    found, left = {node}, [node]
    while left:
        for value in left.pop().inputs:
            maker = None if value is None or value is root else value.producer
            if maker is not None and maker not in found:
                found.add(maker)
                left.append(maker)
        if len(found) > _MOST_NODES or not found <= order.keys():
            return None
    return sorted(found, key=order.__getitem__)


def _is_end(result: Value, roots: Mapping[Value, Value]) -> bool:
    """True if what is stored is read by more than what makes other stored tensors of it."""
    read = [user.outputs[0] for user, _ in result.uses]
    if result.is_graph_output or any(value not in roots for value in read):
        return True
    return any(
        value.is_graph_output or any(user.outputs[0] not in roots for user, _ in value.uses)
        for value in read
    )


def _is_worth_it(cone: list[Node]) -> bool:
    """True unless it is stored as it was."""
    facts = [quantization_of(item) for item in cone]
    return len(cone) > 2 or facts[0] != facts[-1]


def _stays_inside(node: Node, roots: Mapping[Value, Value]) -> bool:
    """True if a node would be needed by nothing else."""
    value = node.outputs[0]
    if node.op_type in _STORING:
        return True
    return not value.is_graph_output and all(user.outputs[0] in roots for user, _ in value.uses)


def _computed(patch: GraphPatch, end: Node, cone: list[Node], root: Value, kind: DType) -> Value:
    """Have nodes like those of the cone compute all results."""
    shape = static_shape(root)
    assert shape is not None
    lengths = (*(1 for _ in shape[1:]), _ENTRIES)
    bytes_ = np.arange(_ENTRIES, dtype=np.uint8).view(kind.numpy).reshape(lengths)
    codes = Value(f"{end.name}_codes", TensorType(kind, lengths), bytes_)
    patch.add_constant(codes)
    made: dict[Value | None, Value] = {root: codes}
    for node in cone:
        old = node.outputs[0]
        dtype = dtype_of(old)
        assert dtype is not None
        made[old] = Value(f"{old.name}_entries", TensorType(dtype, lengths))
        inputs = [made.get(value, value) for value in node.inputs]
        like = Node(
            node.op_type, inputs, (made[old],), node.attributes, name=f"{node.name}_entries"
        )
        patch.add(like, end, (node,))
    return made[end.outputs[0]]
