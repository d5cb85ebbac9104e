"""Lowering: a specialised graph, node by node, and what a kernel asks of its values meanwhile.

A device's plan builder is one, and adds where values lie and what is run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ...errors import GraphError, NotSupportedError, UnsupportedOpError
from ..graph import DType, Model, Node, TensorType, Value, is_static
from ..plans.memory_plan import ALIGN_BYTES, Lifetime, plan_arena

__all__ = ["Lowering", "NodeOrigin", "place_buffers", "place_spans", "spans_of"]

Array = np.ndarray[Any, Any]


class NodeOrigin(NamedTuple):
    """The node that a piece of a plan belongs to, for spans, profiles, errors and dumps."""

    name: str
    op: str
    original_nodes: tuple[str, ...]
    is_delivery: bool = False
    """True where no node is behind it: an output is brought to where the caller wants it."""


class Lowering(ABC):
    """One walk over a specialised graph; not thread-safe.

    ``device`` is the name for errors. ``float_dtype`` is what float32 values are held in between
    kernels: FLOAT32, or a smaller type.
    """

    def __init__(self, model: Model, device: str, float_dtype: DType) -> None:
        self.model, self.device, self.float_dtype = model, device, float_dtype
        self._node: Node | None = None

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return the lengths of a value; raises NotSupportedError where they depend on data."""
        if value.constant is not None:
            return tuple(value.constant.shape)
        kind = value.type
        if isinstance(kind, TensorType):
            shape = kind.shape
            if is_static(shape):
                return shape
        if kind is None or isinstance(kind, TensorType):
            reason = f"the shape of {value.name!r} depends on data; it is {kind or 'unknown'}"
        else:
            reason = f"{value.name!r} is {kind}, and {self.device} takes tensors only"
        node = self._node
        if node is None:
            raise NotSupportedError(f"{self.device}: {reason}; REFERENCE takes such models")
        raise UnsupportedOpError(node.name, node.op, self.device, reason)

    def dtype(self, value: Value) -> DType:
        """Return the element type of a value in the graph.

        Raises NotSupportedError for texts, which are references, and no bytes to be moved.
        """
        if isinstance(value.type, TensorType):
            dtype = value.type.dtype
        elif value.constant is not None:
            dtype = DType.of(value.constant.dtype)
        else:
            raise GraphError(
                f"{self._place()}the type of {value.name!r} is unknown; declare it in the model's "
                "value_info"
            )
        if dtype is DType.STRING:
            raise NotSupportedError(
                f"{self._place()}{self.device} holds no texts, and {value.name!r} has them; load "
                f"the network on HETERO or REFERENCE, or take the value out of the model"
            )
        return dtype

    def held_dtype(self, value: Value) -> DType:
        """Return the element type that a value has in memory between kernels."""
        dtype = self.dtype(value)
        return self.float_dtype if dtype is DType.FLOAT32 else dtype

    def contradiction(self, text: str) -> GraphError:
        """Make the error of the node that is being lowered, whose operands cannot be together."""
        return GraphError(f"{self._place()}{text}")

    def axis(self, axis: int, rank: int) -> int:
        """Count an axis from the front; raises GraphError for one that there is not."""
        if not -rank <= axis < max(rank, 1):
            raise self.contradiction(f"there is no axis {axis} among {rank}")
        return axis % max(rank, 1)

    def expect_shape(self, value: Value, shape: Sequence[int]) -> None:
        """Raise GraphError if a value has not the shape that others of its node give it."""
        given = self.shape(value)
        if given != tuple(shape):
            raise self.contradiction(
                f"{value.name!r} is {list(given)}, and with these inputs it has to be {list(shape)}"
            )

    def expect_count(self, value: Value, count: int) -> None:
        """Raise GraphError if a value has not ``count`` elements."""
        given = self.shape(value)
        if math.prod(given) != count:
            raise self.contradiction(f"{value.name!r} is {list(given)}, and not {count} elements")

    def constant(self, value: Value | None) -> Array | None:
        """Return the content of a value, if it is known."""
        return None if value is None else value.constant

    @abstractmethod
    def define_constant(self, value: Value, array: Array) -> None:
        """Note that a value is a constant of the plan, which keeps the array."""

    def _nodes(self) -> Iterator[Node]:
        """Return the nodes that compute something, each as the one that is being lowered."""
        for node in self.model.graph.nodes:
            if not all(value.is_constant for value in node.outputs):
                self._node = node
                yield node
        self._node = None

    def _origin(self) -> NodeOrigin:
        node = self._node
        if node is None:
            return NodeOrigin("outputs", "Output", (), is_delivery=True)
        return NodeOrigin(node.name, node.op, node.fused_from)

    def _place(self) -> str:
        node = self._node
        if node is None:
            return ""
        return f"{node.op} (node {node.name!r}) cannot run on {self.device}: "


class _Buffer(Protocol):
    """Memory that a plan names; of kind ``arena`` is what gets a place in one."""

    @property
    def kind(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    def __hash__(self) -> int: ...


_AnyBuffer = TypeVar("_AnyBuffer", bound=_Buffer)


def place_buffers(
    steps: Iterable[Iterable[_AnyBuffer]], align_bytes: int = ALIGN_BYTES
) -> tuple[dict[_AnyBuffer, int], int]:
    """Return the offset of each buffer in the arena, and how many bytes that takes. Pure.

    ``steps`` are what each step of the plan reads and writes, in the order in which they run.
    """
    return place_spans(spans_of(steps), align_bytes)


def spans_of(steps: Iterable[Iterable[_AnyBuffer]]) -> dict[_AnyBuffer, tuple[int, int]]:
    """Return in which steps each buffer of the arena is in use, first and last. Pure."""
    spans: dict[_AnyBuffer, tuple[int, int]] = {}
    for step, buffers in enumerate(steps):
        for buffer in buffers:
            if buffer.kind == "arena":
                first, _ = spans.get(buffer, (step, step))
                spans[buffer] = first, step
    return spans


def place_spans(
    spans: Mapping[_AnyBuffer, tuple[int, int]], align_bytes: int = ALIGN_BYTES
) -> tuple[dict[_AnyBuffer, int], int]:
    """Return the offset in the arena of each buffer by its span, and how many bytes that takes."""
    lifetimes = [Lifetime(buffer.size_bytes, *span) for buffer, span in spans.items()]
    arena = plan_arena(lifetimes, align_bytes)
    return dict(zip(spans, arena.offsets, strict=True)), arena.size_bytes
