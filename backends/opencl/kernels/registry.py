"""Kernels by operator: what can be lowered, and what refuses a node before that.

A kernel lowers a node: it asks the builder for operands, makes results and notes launches. What it
cannot do it says in ``refuses``, from what is known before shapes are.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....runtime.content_inputs import ContentInputs
from ....runtime.graph import DType, Graph, Node, TensorType
from ..c_types import FLOATS as FLOATS

if TYPE_CHECKING:
    from ..plan_builder import PlanBuilder

__all__ = [
    "FLOATS",
    "Kernel",
    "content_inputs",
    "find_kernel",
    "find_refusal",
    "find_unknown",
    "find_unsupported",
    "integers_of",
    "kernel",
]

Lower = Callable[[Node, "PlanBuilder"], None]
Refuse = Callable[[Node], str | None]

NOT_MOVED = frozenset({DType.STRING, DType.COMPLEX128})
"""What no kernel takes: elements are moved as 1, 2, 4 or 8 bytes."""

STANDARD_DOMAINS = ("", "ai.onnx")

FAMILIES = (
    "convolution",
    "elementwise",
    "gathering",
    "matmul",
    "movement",
    "normalization",
    "pad",
    "pooling",
    "reductions",
    "resize",
    "scans",
    "shapes",
    "softmax",
    "transposed_convolution",
    "views",
)
"""The modules of this package that register kernels."""


@dataclass(frozen=True)
class Kernel:
    """How one operator is lowered. ``dtypes`` are those of its first input."""

    lower: Lower
    dtypes: Collection[DType] | None
    refuses: Refuse | None
    constant_inputs: tuple[int, ...]


_kernels: dict[tuple[str, str], Kernel] = {}


def kernel(
    *op_types: str,
    domain: str = "",
    dtypes: Collection[DType] | None = FLOATS,
    refuses: Refuse | None = None,
    constant_inputs: tuple[int, ...] = (),
) -> Callable[[Lower], Lower]:
    """Register a function that lowers these operators.

    ``dtypes``: element types of the first input that it takes; None means any. ``refuses`` gives a
    reason why a node cannot run, or None; it must not need shapes. ``constant_inputs`` are indices
    of inputs whose content has to be known when the node is lowered.
    """

    def register(lower: Lower) -> Lower:
        for op_type in op_types:
            _kernels[domain, op_type] = Kernel(lower, dtypes, refuses, constant_inputs)
        return lower

    return register


@functools.cache
def _load() -> dict[tuple[str, str], Kernel]:
    """Import all families; two threads that come first both wait until the last one is there."""
    for family in FAMILIES:
        importlib.import_module(f".{family}", __package__)
    return _kernels


def find_kernel(node: Node) -> Kernel | None:
    """Return the kernel of a node's operator, if there is one."""
    domain = "" if node.domain in STANDARD_DOMAINS else node.domain
    return _load().get((domain, node.op_type))


def find_unsupported(node: Node) -> str | None:
    """Say why OPENCL cannot run a node, or None if it can; needs no shapes."""
    return find_refusal(node) or find_unknown(node)


def find_refusal(node: Node) -> str | None:
    """Say why OPENCL cannot run a node even if all that a plan has to know is known, or None."""
    found = find_kernel(node)
    if found is None:
        return f"OPENCL has no kernel for {node.op}"
    for value in (*node.inputs, *node.outputs):
        if value is None or value.type is None:
            continue
        if not isinstance(value.type, TensorType):
            return f"{value.name!r} is {value.type}, and OPENCL takes tensors only"
        if value.type.dtype in NOT_MOVED:
            return f"{value.name!r} is {value.type}, and OPENCL takes elements of 1 to 8 bytes only"
    first = next((value for value in node.inputs if value is not None), None)
    dtype = first.type.dtype if first is not None and isinstance(first.type, TensorType) else None
    if found.dtypes is not None and dtype is not None and dtype not in found.dtypes:
        known = ", ".join(sorted(known.label for known in found.dtypes))
        return f"OPENCL has {node.op} for {known}, not for {dtype.label}"
    return found.refuses(node) if found.refuses is not None else None


def find_unknown(node: Node, *, of_a_piece: bool = False) -> str | None:
    """Say which input that has to be known is computed from data; see ContentInputs."""
    return _known.find_unknown(node, of_a_piece=of_a_piece)


def content_inputs(graph: Graph) -> list[str]:
    """Name the inputs of a graph whose content a plan depends on, in order."""
    return _known.names(graph)


def integers_of(node: Node, index: int) -> list[int] | None:
    """Read a constant integer input; None if it is not given."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.constant is None:
        return None
    return [int(number) for number in value.constant.reshape(-1)]


def _constant_inputs(node: Node) -> tuple[int, ...]:
    found = find_kernel(node)
    return () if found is None else found.constant_inputs


_known = ContentInputs(_constant_inputs, find_refusal)
