"""Activations that files spell out in smaller operators, recognised and named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.matching import (
    are_float32,
    commuted,
    input_at,
    is_closed,
    is_near,
    is_standard,
    made_by,
    rank_of,
)
from ..post_ops import PostOp
from .elementwise_steps import steps_of
from .fusing import fuse
from .products import Product, product_of

__all__ = ["ActivationFusion"]


class ActivationFusion(Pass):
    """Turn the parts of GELU (erf and tanh), Swish, HardSwish, HardSigmoid and Mish into one node.

    The node is an ``Eltwise`` of the CPU's own domain with one post-op, of one float32 input, ready
    to be appended to what makes that input. Numbers may be as inexact as files have them, 0.1 %;
    the result has the exact ones.
    """

    name = "activation fusion"
    enters_bodies = False  # control flow runs on other devices, which know ONNX only

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or not is_standard(node, "Mul", "Div"):
                continue
            match = next(filter(None, (pattern(node) for pattern in _PATTERNS)), None)
            if match is not None and _may_replace(match, node, graph):
                attributes = {"post_ops": [str(match.post_op)]}
                yield fuse(match.nodes, node, "Eltwise", (match.value,), attributes)


@dataclass(frozen=True)
class _Match:
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


def _times_itself(node: Node) -> Iterator[tuple[Value, Node, Product]]:
    """Give x and the maker of g, for a node that gives c * x * g; both orders."""
    product = product_of(node.outputs[0])
    if len(product.factors) != 2:
        return
    for value, other in (product.factors, product.factors[::-1]):
        if other.producer is not None:
            yield value, other.producer, product


def _gated(node: Node) -> _Match | None:
    """Find x * s(x) with s one of the sigmoids: swish, also with a factor inside, and hardswish."""
    for value, gate, product in _times_itself(node):
        source = input_at(gate, 0)
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
    for value, gate, product in _times_itself(node):
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
    """Find 0.5 * x * (1 + g), g being erf(x / sqrt(2)) or tanh of the polynomial."""
    for value, total, product in _times_itself(node):
        if not is_near(product.coefficient, 0.5) or not is_standard(total, "Add"):
            continue
        for curve, one in commuted(total):
            maker = made_by(curve, "Erf", "Tanh")
            if maker is None or maker.inputs[0] is None or not is_near(one, 1.0):
                continue
            argument = _gelu_argument(maker, maker.inputs[0], value)
            if argument is not None:
                name = "gelu_erf" if maker.op_type == "Erf" else "gelu_tanh"
                nodes = (*product.nodes, total, maker, *argument)
                return _Match(value, PostOp.unary(name), nodes)
    return None


def _gelu_argument(maker: Node, argument: Value, value: Value) -> tuple[Node, ...] | None:
    """List the nodes that make what erf or tanh is given, if that is what GELU has there."""
    product = product_of(argument)
    if maker.op_type == "Erf":
        is_scaled = product.factors == (value,) and is_near(product.coefficient, math.sqrt(0.5))
        return product.nodes if is_scaled else None
    if not is_near(product.coefficient, math.sqrt(2 / math.pi)):
        return None
    for factor in product.factors:
        total = made_by(factor, "Add")
        rest = product.without(factor)
        # Either c * (x + 0.044715 * x**3), or c * x * (1 + 0.044715 * x**2).
        cubic = _polynomial(total, value, None, 3) if total and rest == [] else None
        square = _polynomial(total, value, 1.0, 2) if total and rest == [value] else None
        found = cubic or square
        if found is not None:
            return (*product.nodes, *found)
    return None


def _polynomial(
    total: Node, value: Value, one: float | None, power: int
) -> tuple[Node, ...] | None:
    """List the nodes that make ``one`` (None: the value itself) plus 0.044715 * value**power."""
    for first, second in commuted(total):
        is_first = first is value if one is None else is_near(first, one)
        product = product_of(second)
        if not is_first or not is_near(product.coefficient, 0.044715):
            continue
        if product.factors == (value,) * power:
            return (total, *product.nodes)
    return None


_PATTERNS: Sequence[Callable[[Node], _Match | None]] = (_gelu, _hard, _gated, _mish)
