"""In which numbers a plan computes its nodes, where that is not float32 all the way. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ....runtime.graph import DType, Graph, Node, Value
from ....runtime.graph.text import some_names
from ....runtime.lowering.window import window_of
from ....runtime.passes.rewriting.matching import dtype_of, made_by
from ....runtime.properties.properties import INFERENCE_PRECISION_HINT, Configuration
from ..kernels.windows.phases import has_few_zeros
from ..onednn.post_ops import CPU_DOMAIN, parse_post_ops
from ..passes import INT8_FUSION
from ..passes.quantization_facts import (
    RANGES,
    dequantized,
    dynamically_dequantized,
    suits_int8,
    suits_native_kernels,
)
from ..precision import PRECISIONS, has_int8, has_native_int8
from ..properties import CPU_DISABLED_PASSES
from .node_facts import NodeFacts, node_facts
from .plan import Plan

__all__ = ["NumberRules", "number_groups", "number_lines"]

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_STORING = ("DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear")
_INT8 = ("Int8Conv", "Int8MatMul")
_ROUNDED_STEPS = 4
"""Those of ``rounding_fusion.py``, for a QuantizeLinear and the DequantizeLinear behind it."""

_BETWEEN = "in float32 between numbers of 8 bits"
_NO_KERNEL = "for want of an int8 kernel"
_NOT_YET = (
    "no shapes have been compiled yet: in which numbers nodes run is known with the first run, or "
    "with INPUT_SHAPES at the load"
)

Groups = dict[str, list[str]]
"""What is said of nodes -> their names."""


class NumberRules(NamedTuple):
    """What a network computes in.

    ``float_dtype`` holds float32 values; with ``has_int8`` products are computed in int8 where they
    can be, by our own kernels if ``is_native``.
    """

    float_dtype: DType
    has_int8: bool
    is_native: bool = False

    @classmethod
    def of(cls, config: Configuration, instruction_set: int) -> NumberRules:
        """Read the properties of a network; ``instruction_set`` is a dnnl_cpu_isa_t."""
        is_disabled = INT8_FUSION in config[CPU_DISABLED_PASSES.key]
        return cls(
            PRECISIONS[config[INFERENCE_PRECISION_HINT]],
            has_int8(instruction_set) and not is_disabled,
            has_native_int8(instruction_set),
        )


def number_lines(parts: Iterable[tuple[Graph, Plan | None]], rules: NumberRules) -> tuple[str, ...]:
    """Say which nodes run in int8, in 16 bits and with packed weights, and which nearly did.

    parts: of each part of the model, its graph before it is compiled, and the latest plan. Nothing
    is said of what computes in float32 as the file has it. O(nodes).
    """
    groups: Groups = {}
    is_open = False
    for graph, plan in parts:
        found = number_groups(graph, {}, rules)
        if plan is not None:
            found = number_groups(plan.graph, node_facts(plan), rules)
        is_open |= plan is None and _may_be_smaller(graph, rules)
        for what, names in found.items():
            groups.setdefault(what, []).extend(names)
    lines = [_line(what, groups[what]) for what in sorted(groups, key=_rank)]
    return (*lines, _NOT_YET) if is_open else tuple(lines)


def number_groups(graph: Graph, facts: Mapping[str, NodeFacts], rules: NumberRules) -> Groups:
    """Sort the nodes of a plan's graph by their numbers.

    Without facts, of a graph that no plan was made of yet, it is those alone that a plan leaves.
    """
    groups: Groups = {}
    between = _between(graph, facts) if facts and rules.has_int8 else frozenset()
    is_quantized = any(_is_own(node, *_INT8, "Int8Table") or _stores(node) for node in graph.nodes)
    for node in graph.nodes:
        what = _numbers_of(node, facts.get(node.name), rules.float_dtype, is_quantized)
        name = node.name
        if what is None and node in between:
            reason = _refusal(node, rules.is_native)
            what = f"{_BETWEEN} ({reason or _NO_KERNEL})"
            name = node.name if reason else f"{node.name} ({node.op_type})"
        if what is not None:
            groups.setdefault(what, []).append(name)
    return groups


def _line(what: str, names: Sequence[str]) -> str:
    count = f"{len(names)} node" + ("" if len(names) == 1 else "s")
    return f"{what}: {count}: {some_names(names)}"


def _rank(what: str) -> tuple[int, str]:
    """Order lines: what int8 has, what it has not, then the others."""
    first = ("in int8", "moved or looked up", _BETWEEN)
    place = next((index for index, text in enumerate(first) if what.startswith(text)), len(first))
    return place, what


def _numbers_of(
    node: Node, facts: NodeFacts | None, float_dtype: DType, is_quantized: bool
) -> str | None:
    """Name the numbers of a node that is not computed in float32, or reads smaller weights."""
    if _is_own(node, "PackedMatMul"):
        return _packed_text(node, facts)
    if facts is None:
        return None
    if _is_own(node, *_INT8):
        return "in int8"
    if facts.implementation == "constant" or _stores(node):
        return None
    stored = dtype_of(node.outputs[0])
    if is_quantized and stored in RANGES and dtype_of(node.inputs[0]) is stored:
        return "moved or looked up in 8 bits"
    if facts.implementation == "view" or node.op_type == "Cast":
        return None
    if facts.precision not in ("bfloat16", "float16"):
        return None
    is_held = facts.precision == float_dtype.label
    return f"in {facts.precision}" if is_held else f"moved in {facts.precision}, as it is stored"


def _packed_text(node: Node, facts: NodeFacts | None) -> str:
    bits = node.attributes.get("bits", 4)
    if bits == 16:
        return "with weights in 16 bits, as they are stored, data in float32"
    text = f"with packed weights of {bits} bits"
    if facts is None:
        return text
    is_rounded = "packed_matmul_int8" in facts.implementation
    return f"{text}, data " + ("rounded to 8 bits" if is_rounded else "in float32")


def _may_be_smaller(graph: Graph, rules: NumberRules) -> bool:
    return rules.float_dtype is not DType.FLOAT32 or any(map(_stores, graph.nodes))


def _stores(node: Node) -> bool:
    return not node.domain and node.op_type in _STORING


def _is_own(node: Node, *op_types: str) -> bool:
    return node.domain == CPU_DOMAIN and node.op_type in op_types


def _between(graph: Graph, facts: Mapping[str, NodeFacts]) -> frozenset[Node]:
    """Find what computes on a way from stored numbers to stored numbers, and products of them."""
    nodes = [node for node in graph.nodes if not _is_own(node, *_INT8)]
    behind = _reached(nodes, lambda node: _dequantizes(node) or _rounds(node), _users)
    before = _reached(nodes, lambda node: _quantizes(node) or _rounds(node), _makers)
    found = []
    for node in nodes:
        what = facts[node.name].implementation
        if _stores(node) or what in ("constant", "view") or _only_rounds(node):
            continue
        reads = any(
            maker in behind or _dequantizes(maker) or _rounds(maker) for maker in _makers(node)
        )
        is_product = node.op_type in _PRODUCTS and any(map(_dequantizes, _makers(node)))
        leads = node in before or _rounds(node)
        if (reads and leads) or is_product:
            found.append(node)
    return frozenset(found)


def _reached(
    nodes: Sequence[Node],
    is_start: Callable[[Node], bool],
    following: Callable[[Node], Iterable[Node]],
) -> set[Node]:
    """Walk from some nodes in float32 alone; what starts a walk is in it if another one meets it.

    What stores numbers ends a walk.
    """
    known = set(nodes)
    reached: set[Node] = set()
    left = [other for node in nodes if is_start(node) for other in following(node)]
    while left:
        node = left.pop()
        if node in reached or node not in known or _stores(node):
            continue
        reached.add(node)
        left.extend(following(node))
    return reached


def _users(node: Node) -> Iterator[Node]:
    for value in node.outputs:
        yield from (user for user, _ in value.uses)


def _makers(node: Node) -> Iterator[Node]:
    for value in node.inputs:
        if value is not None and value.producer is not None:
            yield value.producer


def _dequantizes(node: Node) -> bool:
    stored = node.inputs[0] if node.op == "DequantizeLinear" else None
    return stored is not None and stored.constant is None and dtype_of(stored) in RANGES


def _quantizes(node: Node) -> bool:
    return node.op in ("QuantizeLinear", "DynamicQuantizeLinear")


def _rounds(node: Node) -> bool:
    """True for a node with the steps of a QuantizeLinear and the DequantizeLinear behind it."""
    return "round" in node.attributes.get("post_ops", ())


def _only_rounds(node: Node) -> bool:
    steps = parse_post_ops(node.attributes)
    return _rounds(node) and _is_own(node, "Eltwise") and len(steps) == _ROUNDED_STEPS


def _refusal(node: Node, is_native: bool) -> str | None:
    """Say why a product is not one of int8, as far as its plan shows it; None for other nodes."""
    if node.op_type not in _PRODUCTS:
        return None
    data, weights = node.inputs[0], node.input_at(1)
    if weights is None or weights.constant is None:
        return "two tensors multiplied"
    if not _has_one_scale(data):
        return "data without one scale for all of it"
    numbers = [float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta")]
    if numbers != [1.0, 1.0] or node.attributes.get("transA", 0):
        return "with alpha, beta or transA"
    kernel = weights.constant.shape[2:]
    if node.op_type == "ConvTranspose" and not has_few_zeros(window_of(node, kernel, kernel)):
        return "windows that leave out places which strides step over"
    suits = suits_native_kernels if is_native else suits_int8
    if not suits(node):
        return "groups or axes that no int8 kernel here has"
    return "weights that are not int8 around 0, nor uint8 around 128"


def _has_one_scale(data: Value | None) -> bool:
    if made_by(data, "DequantizeLinear") is None:
        return True  # it was rounded, by one scale
    return dequantized(data) is not None or dynamically_dequantized(data) is not None
