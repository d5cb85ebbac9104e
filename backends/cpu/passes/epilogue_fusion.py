"""Conv, ConvTranspose, Gemm and MatMul with what follows them, as oneDNN computes it in one go.

Theory of operation. From such a node one walks forward as long as the result so far has one user,
and that user is a step of ``elementwise_steps.py`` whose operands oneDNN's fast kernels can
broadcast. The whole walk becomes one node. As no other node uses what is in between, an operand
never depends on the node itself, so there are no cycles; but an operand may be made later than the
node, which then moves to where all operands are there. The later of two nodes that are added up is
looked at first, and takes the sum: it does not have to move.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.rewriting.matching import are_float32, only_user, rank_of, static_shape
from ..onednn.post_ops import CPU_DOMAIN, PostOp, loses_nan, parse_post_ops
from .elementwise_steps import MAX_POST_OPS, Steps, joined, steps_of
from .fusing import fuse

__all__ = ["EpilogueFusion"]

_MATMULS = ("Gemm", "MatMul")
_BASES = ("Conv", "ConvTranspose", *_MATMULS)
_FIRST_OPERAND = 3
"""Operands come after data, weights and bias; a bias that is not there is None."""


class EpilogueFusion(Pass):
    """Append bias, residual sum, binary steps with constants or tensors, and activations.

    Float32 only. ``sum`` is used, as the first step, for a tensor of the result's shape that is not
    needed afterwards, because oneDNN may then add to it in place; other operands have the result's
    shape, one element, or one for each channel (of MatMul and Gemm: along the last axis). ``cache``
    keeps biases that lose axes of length 1, once for all plans. With ``keep_nan``, steps in which
    oneDNN loses NaN are left to others, and so are those named in ``slow``, but behind Conv.
    """

    name = "epilogue fusion"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset(_BASES)

    def __init__(
        self, cache: ConstantCache, *, keep_nan: bool = False, slow: Collection[str] = ()
    ) -> None:
        self._cache, self._keep_nan, self._slow = cache, keep_nan, slow

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        nodes = list(graph.nodes)
        place = {node: index for index, node in enumerate(nodes)}
        for node in reversed(nodes):
            if node.graph is not graph or not _is_base(node):
                continue
            found = _follow(node, place, partial(self._is_left, node))
            if found.followers:
                before = node if _is_there(found.steps, place, place[node]) else found.last
                patch = _patch(node, found, before, self._cache)
                place[patch.additions[0].node] = place[before]
                yield patch

    def _is_left(self, node: Node, step: PostOp) -> bool:
        is_slow = step.name in self._slow and node.op_type in (*_MATMULS, "ConvTranspose")
        loses = loses_nan(step) or (step.name == "sigmoid" and node.op_type == "ConvTranspose")
        return is_slow or (self._keep_nan and loses)


class _Epilogue(NamedTuple):
    """What is appended to a node so far."""

    node: Node
    steps: Steps
    bias: Value | None
    followers: tuple[Node, ...] = ()

    @property
    def last(self) -> Node:
        return self.followers[-1] if self.followers else self.node

    @property
    def result(self) -> Value:
        return self.last.outputs[0]


def _is_base(node: Node) -> bool:
    is_known = node.op_type in _BASES and node.domain in ("", CPU_DOMAIN)
    inputs = node.inputs[:_FIRST_OPERAND]
    return is_known and len(node.outputs) == 1 and are_float32(*inputs, node.outputs[0])


def _follow(node: Node, place: Mapping[Node, int], is_left: Callable[[PostOp], bool]) -> _Epilogue:
    steps = joined(parse_post_ops(node.attributes), node.inputs, _FIRST_OPERAND)
    found = _Epilogue(node, steps, node.input_at(2))
    while True:
        longer = _append(found, place, is_left)
        if longer is None:
            return found
        found = longer


def _append(
    found: _Epilogue, place: Mapping[Node, int], is_left: Callable[[PostOp], bool]
) -> _Epilogue | None:
    """Take one more node in; None if there is none, or it does not fit."""
    value = found.result
    user = only_user(value)
    if user is None or user.graph is not found.node.graph:
        return None
    if not have_one_affinity((found.node, user)):
        return None
    followers = (*found.followers, user)
    steps = steps_of(user, value)
    if steps is None or not all(_fits(found.node, value, item) for item in steps.operands):
        return None
    if any(map(is_left, steps.post_ops)):
        return None
    if _is_bias(found, steps):
        (bias,) = steps.operands
        return found._replace(bias=bias, followers=followers)
    if _may_sum(found, steps, user, place):
        steps = Steps((PostOp.binary("sum", 0),), steps.operands)
    steps = found.steps.then(steps)
    if len(steps.post_ops) > MAX_POST_OPS:
        return None
    return found._replace(steps=steps, followers=followers)


def _fits(node: Node, value: Value, operand: Value) -> bool:
    """True if a fast kernel broadcasts the operand to the value, whose shape stays as it is."""
    shape, given = static_shape(value), static_shape(operand)
    if shape is None or given is None or len(given) > len(shape) or len(shape) < 2:
        return False
    axis = _channel_axis(node, len(shape))
    wide = (1,) * (len(shape) - len(given)) + given
    channels = tuple(shape[index] if index == axis else 1 for index in range(len(shape)))
    return wide in (shape, channels) or all(length == 1 for length in wide)


def _channel_axis(node: Node, rank: int) -> int:
    return 1 if node.op_type in ("Conv", "ConvTranspose") else rank - 1


def _is_bias(found: _Epilogue, steps: Steps) -> bool:
    """True if the step adds a constant for each channel, and there is no bias yet."""
    node = found.node
    if found.steps.post_ops or found.bias is not None or len(steps.operands) != 1:
        return False
    if steps.post_ops != (PostOp.binary("add", 0),) or not steps.operands[0].is_constant:
        return False
    if node.op_type == "Gemm" and node.attributes.get("beta", 1.0) != 1.0:
        return False
    given, shape = static_shape(steps.operands[0]), static_shape(found.result)
    rank = len(shape or ())
    axis = _channel_axis(node, rank)
    ranks = (rank_of(node.inputs[0]) or 0, rank_of(node.inputs[1]) or 0)
    if given is None or shape is None or min(ranks) < 2:
        return False
    wide = (1,) * (rank - len(given)) + given
    return wide == tuple(shape[index] if index == axis else 1 for index in range(rank))


def _flattened(bias: Value, cache: ConstantCache) -> Value:
    """Return the constant with one axis; itself if it has one."""
    array = bias.constant
    if array is None or array.ndim == 1:
        return bias
    flat = cache.get("flat", (array,), lambda: array.reshape(-1))
    return Value(bias.name, TensorType(DType.FLOAT32, flat.shape), flat)


def _may_sum(found: _Epilogue, steps: Steps, user: Node, place: Mapping[Node, int]) -> bool:
    """True if the first step adds a whole tensor that is not needed any more after it."""
    if found.steps.post_ops or steps.post_ops != (PostOp.binary("add", 0),):
        return False
    (operand,) = steps.operands
    maker = operand.producer
    if maker is None or maker not in place or operand.is_graph_output:
        return False
    if static_shape(operand) != static_shape(found.result):
        return False
    now = max(place[found.node], place[maker])
    others = [node for node, _ in operand.uses if node is not user]
    return all(node in place and place[node] < now for node in others)


def _is_there(steps: Steps, place: Mapping[Node, int], now: int) -> bool:
    """True if all operands are made before this place; what no node here makes always is."""
    producers = [operand.producer for operand in steps.operands if operand.producer is not None]
    return all(place.get(producer, -1) < now for producer in producers)


def _patch(node: Node, found: _Epilogue, before: Node, cache: ConstantCache) -> GraphPatch:
    bias = found.bias
    if bias is not None and bias is not node.input_at(2):
        bias = _flattened(bias, cache)
    inputs = [*node.inputs[:2], bias, *found.steps.operands]
    if bias is None and not found.steps.operands:
        inputs.pop()
    attributes = {key: item for key, item in node.attributes.items() if key != "post_ops"}
    if found.steps.post_ops:
        attributes["post_ops"] = found.steps.numbered(_FIRST_OPERAND)
    patch = fuse(
        (node, *found.followers),
        found.last,
        node.op_type,
        inputs,
        attributes,
        name=node.name,
        before=before,
    )
    if bias is not None and bias is not found.bias:
        patch.add_constant(bias)
    return patch
