"""Which nodes are steps in numpy, because a plan cannot have them: it has to know all sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ....errors import UnsupportedOpError
from ....executors.late_imports import late_imports
from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.graph.traversal import BODIES
from ....runtime.lowering.kernel_registry import name_in_file
from ..kernels.registry import FAMILIES, KERNELS

__all__ = [
    "STANDARD_DOMAINS",
    "SteppedNodes",
    "holds_objects",
    "holds_objects_anywhere",
    "is_left_to_numpy",
]

STANDARD_DOMAINS = ("", "ai.onnx")

_STEPPED = frozenset(
    {
        "Compress",
        "ConcatFromSequence",
        "NonMaxSuppression",
        "NonZero",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SplitToSequence",
        "Unique",
    }
)
"""Operators without a kernel: how much they make depends on data, or they make no tensors."""

_WORTH_A_PLAN = frozenset(
    {
        "Attention",
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "GRU",
        "Gemm",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "GridSample",
        "GroupNormalization",
        "InstanceNormalization",
        "LRN",
        "LSTM",
        "LayerNormalization",
        "LpPool",
        "MatMul",
        "MatMulInteger",
        "MaxPool",
        "MaxRoiPool",
        "RMSNormalization",
        "RNN",
        "Resize",
        "RoiAlign",
    }
)
"""Operators that compute more than they move: numpy would be far slower than a plan."""

_LEFT_TO_NUMPY = frozenset(FAMILIES["numpy_operators"].split()) - _WORTH_A_PLAN
"""Operators that plans have, too, and that numpy computes there as well as here."""


class SteppedNodes:
    """Answers for one model of these opsets. Pure; ``user_ops`` are operators that users compute.

    Both of a graph's values and of a body's the answers need no shapes.
    """

    def __init__(self, opsets: Mapping[str, int], user_ops: Collection[tuple[str, str]]) -> None:
        self._opsets, self._user_ops = dict(opsets), frozenset(user_ops)

    def unsupported_nodes(self, graph: Graph) -> dict[str, str]:
        """Return by node name why CPU cannot run a node of a main graph; others are left out."""
        asked = ((node.name, self.find_refusal(node)) for node in graph.nodes)
        return {name: reason for name, reason in asked if reason is not None}

    def find_refusal(self, node: Node, *, of_a_piece: bool = False) -> str | None:
        """Return why CPU cannot run a node of a main graph, or None if it can.

        ``of_a_piece`` is as in the kernels' registry.
        """
        refusal = KERNELS.find_refusal(node)
        unknown = None
        if refusal is None:
            unknown = KERNELS.find_unknown(node, of_a_piece=of_a_piece)
        if node.user_kernel is not None or (refusal is None and unknown is None):
            return refusal or unknown
        if refusal is None:
            return unknown if self.find_missing(node) is not None else None
        if _has_bodies(node):
            return self._find_in_bodies(node)
        return self.find_missing(node) if _is_of_steps(node) else refusal

    def has_any(self, graph: Graph, device: str) -> bool:
        """True if a node of a main graph is stepped.

        Raises UnsupportedOpError for the first node that cannot run whatever is given. The graph
        may be a piece of a larger one; ``device`` is the name for the error.
        """
        is_found = False
        for node in graph.nodes:
            if KERNELS.find_refusal(node) is None and not KERNELS.content_sources(node):
                continue  # as nearly all nodes are: a plan has it, and asks for shapes alone
            reason = self.find_refusal(node, of_a_piece=True)
            if reason is not None:
                raise UnsupportedOpError(name_in_file(node), node.op, device, reason)
            is_found = is_found or self.is_stepped(node, in_body=False)
        return is_found

    def is_stepped(self, node: Node, *, in_body: bool) -> bool:
        """True for a node that no plan can have, of those that ``find_refusal`` takes."""
        if KERNELS.find_refusal(node) is not None:
            return True
        sources = KERNELS.content_sources(node)
        if in_body:
            return bool(sources) and self.find_missing(node) is None
        if any(source.producer is not None for source in sources):
            return self.find_missing(node) is None
        return KERNELS.find_unknown(node, of_a_piece=True) is not None

    def is_worth_a_plan(self, node: Node) -> bool:
        """True for what numpy computes slowly, or not at all."""
        is_costly = node.domain in STANDARD_DOMAINS and node.op_type in _WORTH_A_PLAN
        is_costly = is_costly and not KERNELS.is_of_other_types(node)
        return is_costly or node.user_kernel is not None or self.find_missing(node) is not None

    def find_missing(self, node: Node) -> str | None:
        """Return why no function on numpy arrays computes a node, or None."""
        with late_imports:
            from ....runtime.operators import find_unsupported

        return find_unsupported(node, self._opsets)

    def _find_in_bodies(self, node: Node) -> str | None:
        for key in BODIES["", node.op_type]:
            body = node.attributes.get(key)
            if not isinstance(body, Graph):
                return f"it has no graph {key!r}"
            for inner in body.nodes:
                reason = self._find_refusal_inside(inner)
                if reason is not None:
                    return f"its body has {inner.op} (node {inner.name!r}): {reason}"
        return None

    def _find_refusal_inside(self, node: Node) -> str | None:
        if (node.domain, node.op_type) in self._user_ops:
            return "a user's kernel computes it, and CPU calls those in the main graph only"
        if all(value.is_constant for value in node.outputs):
            return None
        if _has_bodies(node):
            return self._find_in_bodies(node)
        refusal = KERNELS.find_refusal(node)
        if refusal is None and not KERNELS.content_sources(node):
            return None
        missing = self.find_missing(node)
        return None if missing is None else refusal or missing


def is_left_to_numpy(node: Node) -> bool:
    """True for a node that numpy computes in a plan, too; a user's kernel is none."""
    if node.user_kernel is not None:
        return False
    is_one = node.domain in STANDARD_DOMAINS and node.op_type in _LEFT_TO_NUMPY
    return is_one or KERNELS.is_of_other_types(node)


def holds_objects(graph: Graph) -> bool:
    """True if an input or output of a graph is a text or no tensor, though no node may read it."""
    return any(_holds_objects(value) for value in (*graph.inputs, *graph.outputs))


def holds_objects_anywhere(graph: Graph) -> bool:
    """True if a value of a graph, or one that it only hands on, is a text or no tensor."""
    return holds_objects(graph) or any(
        _holds_objects(value) for node in graph.nodes for value in (*node.inputs, *node.outputs)
    )


def _has_bodies(node: Node) -> bool:
    return node.domain in STANDARD_DOMAINS and ("", node.op_type) in BODIES


def _is_of_steps(node: Node) -> bool:
    if node.domain in STANDARD_DOMAINS and node.op_type in _STEPPED:
        return True
    return any(_holds_objects(value) for value in (*node.inputs, *node.outputs))


def _holds_objects(value: Value | None) -> bool:
    """True for texts, and for what is no tensor: no plan has memory for them."""
    if value is None or value.type is None:
        return False
    return not isinstance(value.type, TensorType) or value.type.dtype is DType.STRING
