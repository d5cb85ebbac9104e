"""Activations that files spell out in smaller operators, recognised and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.fusion.factors import product_of
from ....runtime.passes.fusion.gelu_fusion import gated_factors, match_gelu
from ....runtime.passes.rewriting.matching import (
    are_float32,
    commuted,
    is_closed,
    is_near,
    is_standard,
    made_by,
    rank_of,
)
from ..onednn.post_ops import PostOp
from .elementwise_steps import steps_of
from .fusing import fuse

__all__ = ["ActivationFusion"]


class ActivationFusion(Pass):
    """Turn the parts of GELU (erf and tanh), Swish, HardSwish, HardSigmoid and Mish into one node.

    The node is an ``Eltwise`` of the CPU's own domain with one post-op, of one float32 input, ready
    to be appended to what makes that input. Numbers may be as inexact as files have them, 0.1 %;
    the result has the exact ones.
    """

    name = "activation fusion"
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset({"Div", "Mul"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or not is_standard(node, "Mul", "Div"):
                continue
            match = next(filter(None, (pattern(node) for pattern in _PATTERNS)), None)
            if match is not None and _may_replace(match, node, graph):
                attributes = {"post_ops": [str(match.post_op)]}
                yield fuse(match.nodes, node, "Eltwise", (match.value,), attributes)


class _Match(NamedTuple):
    """An activation of ``value``; ``nodes`` are all that spell it out."""

    value: Value
    post_op: PostOp
    nodes: tuple[Node, ...]


def _may_replace(match: _Match, last: Node, graph: Graph) -> bool:
    result = last.outputs[0]
    # With equal ranks no constant of the pattern has more axes than the value, so shapes are equal.
    has_one_rank = rank_of(match.value) is not None and rank_of(match.value) == rank_of(result)
    return (
        has_one_rank
        and are_float32(match.value, result)
        and is_closed((*match.nodes, last), result, graph)
    )


def _gated(node: Node) -> _Match | None:
    """Find x * s(x) with s one of the sigmoids: swish, also with a factor inside, and hardswish."""
    for value, gate, product in gated_factors(node):
        source = gate.input_at(0)
        steps = None if source is None else steps_of(gate, source)
        if source is None or steps is None or len(steps.post_ops) != 1:
            continue
        (step,) = steps.post_ops
        if product.coefficient != 1.0:
            continue
        if step.name == "hardsigmoid" and source is value:
            post_op = PostOp.unary("hardswish", step.alpha, step.beta)
            return _Match(value, _exact(post_op), (*product.nodes, gate))
        inner = product_of(source)
        if step.name == "sigmoid" and source is value:
            return _Match(value, PostOp.unary("swish"), (*product.nodes, gate))
        if step.name == "sigmoid" and inner.factors == (value,):
            post_op = PostOp.unary("swish", inner.coefficient)
            return _Match(value, post_op, (*product.nodes, gate, *inner.nodes))
    return None


def _exact(post_op: PostOp) -> PostOp:
    """Take 1/6 and 1/2 for what files have of them."""
    is_usual = is_near(post_op.alpha, 1 / 6) and is_near(post_op.beta, 0.5)
    return PostOp.unary(post_op.name, 1 / 6, 0.5) if is_usual else post_op


def _mish(node: Node) -> _Match | None:
    """Find x * tanh(softplus(x)), softplus also as log(1 + exp(x))."""
    for value, gate, product in gated_factors(node):
        found = _softplus(gate.inputs[0]) if is_standard(gate, "Tanh") else None
        if found and found.value is value and product.coefficient == 1.0:
            return _Match(value, PostOp.unary("mish"), (*product.nodes, gate, *found.nodes))
    return None


def _softplus(value: Value | None) -> _Match | None:
    node = made_by(value, "Softplus")
    if node is not None and node.inputs[0] is not None:
        return _Match(node.inputs[0], PostOp.unary("softplus"), (node,))
    logarithm = made_by(value, "Log")
    total = None if logarithm is None else made_by(logarithm.inputs[0], "Add")
    if logarithm is None or total is None:
        return None
    for power, one in commuted(total):
        exponential = made_by(power, "Exp")
        if is_near(one, 1.0) and exponential is not None and exponential.inputs[0] is not None:
            nodes = (logarithm, total, exponential)
            return _Match(exponential.inputs[0], PostOp.unary("softplus"), nodes)
    return None


def _relu6_of_three_more(node: Node) -> _Match | None:
    """Find clip(x + 3, 0, 6), also with 6 for each of the two bounds left out of it."""
    steps = steps_of(node, node.inputs[0]) if node.inputs and node.inputs[0] else None
    if steps is None or len(steps.post_ops) != 1 or steps.post_ops[0].name != "clip":
        return None
    (clip,) = steps.post_ops
    total = made_by(node.inputs[0], "Add")
    if total is None or clip.alpha != 0.0 or not is_near(clip.beta, 6.0):
        return None
    for value, three in commuted(total):
        if is_near(three, 3.0):
            return _Match(value, clip, (node, total))
    return None


def _hard(node: Node) -> _Match | None:
    """Find x * clip(x + 3, 0, 6) / 6, and clip(x + 3, 0, 6) / 6 alone."""
    product = product_of(node.outputs[0])
    if not is_near(product.coefficient, 1 / 6):
        return None
    for factor in product.factors:
        found = _relu6_of_three_more(factor.producer) if factor.producer else None
        if found is None:
            continue
        nodes = (*product.nodes, *found.nodes)
        if len(product.factors) == 1:
            return _Match(found.value, PostOp.unary("hardsigmoid", 1 / 6, 0.5), nodes)
        if product.without(factor) == [found.value]:
            return _Match(found.value, PostOp.unary("hardswish"), nodes)
    return None


def _gelu(node: Node) -> _Match | None:
    found = match_gelu(node)
    if found is None:
        return None
    name = "gelu_tanh" if found.is_tanh else "gelu_erf"
    return _Match(found.value, PostOp.unary(name), found.nodes)


_PATTERNS: Sequence[Callable[[Node], _Match | None]] = (_gelu, _hard, _gated, _mish)
