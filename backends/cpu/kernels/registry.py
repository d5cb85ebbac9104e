"""Kernels by operator: what can be lowered, and what refuses a node before that.

A kernel lowers a node: it asks the builder for operands in the layouts that its primitive wants,
and emits steps. What it cannot do it says in ``refuses``, from what is known before shapes are.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....runtime.graph import DType, Node, TensorType

if TYPE_CHECKING:
    from ..plan_builder import PlanBuilder

__all__ = [
    "FLOATS",
    "INTEGERS",
    "NOT_MOVED",
    "Kernel",
    "find_kernel",
    "find_refusal",
    "find_unsupported",
    "kernel",
]

Lower = Callable[[Node, "PlanBuilder"], None]
Refuse = Callable[[Node], str | None]

FLOATS = frozenset({DType.FLOAT32})
"""What oneDNN computes in; other floating types are left to other devices."""

INTEGERS = frozenset(
    {
        DType.INT8,
        DType.INT16,
        DType.INT32,
        DType.INT64,
        DType.UINT8,
        DType.UINT16,
        DType.UINT32,
    }
)
"""What native kernels compute in; 64-bit integers hold them all, but not UINT64."""

NOT_MOVED = frozenset({DType.STRING, DType.COMPLEX128})
"""What no kernel takes: elements are moved as 1, 2, 4 or 8 bytes."""

STANDARD_DOMAINS = ("", "ai.onnx")

FAMILIES = (
    "attention",
    "binary",
    "casts",
    "comparison",
    "convolution",
    "elementwise",
    "matmul",
    "movement",
    "normalization_channels",
    "normalization_rows",
    "numpy_operators",
    "pad",
    "pooling",
    "quantization",
    "recurrent",
    "reductions",
    "resize",
    "shapes",
    "softmax",
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
    """Say why CPU cannot run a node, or None if it can; needs no shapes."""
    from .constants import find_unknown

    return find_refusal(node) or find_unknown(node)


def find_refusal(node: Node) -> str | None:
    """Say why CPU cannot run a node even if all that a plan has to know is known, or None."""
    found = find_kernel(node)
    if found is None:
        return f"CPU has no kernel for {node.op}"
    for value in (*node.inputs, *node.outputs):
        if value is None or value.type is None:
            continue
        if not isinstance(value.type, TensorType):
            return f"{value.name!r} is {value.type}, and CPU takes tensors only"
        if value.type.dtype in NOT_MOVED:
            return f"{value.name!r} is {value.type}, and CPU takes elements of 1 to 8 bytes only"
    first = next((value for value in node.inputs if value is not None), None)
    dtype = first.type.dtype if first is not None and isinstance(first.type, TensorType) else None
    if found.dtypes is not None and dtype is not None and dtype not in found.dtypes:
        known = ", ".join(sorted(known.label for known in found.dtypes))
        return f"CPU has {node.op} for {known}, not for {dtype.label}"
    return found.refuses(node) if found.refuses is not None else None
