"""Inputs that have to be known before a plan can be made: axes, sizes, pads.

Shapes determine most of them: shape arithmetic folds once the input shapes are known. What inputs
of the network with few numbers determine is known, too, because plans are made for the content of
such inputs. What is computed from other data can never be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..graph import DType, Graph, Model, Node, TensorType, Value

__all__ = ["ShapeTensors", "with_contents"]

_FEW = 64
"""Elements; shapes and pads have two for each axis at most."""
_SHAPES_ALONE = frozenset({"Shape", "Size"})
_NO_NUMBERS = frozenset({DType.STRING, DType.COMPLEX128})


class ShapeTensors:
    """Asks a device's kernels what they have to know of a graph. Pure.

    ``wanted`` returns the indices of inputs whose content a node's kernel needs, and ``refuses``
    why the device cannot run a node, or None.
    """

    def __init__(
        self,
        wanted: Callable[[Node], Sequence[int]],
        refuses: Callable[[Node], str | None],
    ) -> None:
        self._wanted_of, self._refuses = wanted, refuses

    def find_unknown(self, node: Node, *, of_a_piece: bool = False) -> str | None:
        """Return which of the inputs that have to be known is computed from data, or None.

        Where a model may be the piece of a larger one, an input of integers may be what another
        device has made of shapes there, however many they are.
        """
        for index, value in self._wanted(node):
            for source in self._sources(value):
                if not _can_be_content(source) and not (of_a_piece and _is_of_integers(source)):
                    return (
                        f"its input {index} ({value.name!r}) depends on the content of "
                        f"{source.name!r}, and has to be known when a plan is made"
                    )
        return None

    def sources(self, node: Node) -> list[Value]:
        """List the graph inputs and foreign results that decide what a plan has to know of it."""
        found = (source for _, value in self._wanted(node) for source in self._sources(value))
        return list(dict.fromkeys(found))

    def names(self, graph: Graph) -> list[str]:
        """Return the names of the graph inputs whose content a plan depends on, in order."""
        found: set[Value] = set()
        for node in graph.nodes:
            for _, value in self._wanted(node):
                found.update(self._sources(value))
        return [value.name for value in graph.inputs if value in found]

    def _wanted(self, node: Node) -> Iterator[tuple[int, Value]]:
        for index in self._wanted_of(node):
            value = node.input_at(index)
            if value is not None and value.constant is None:
                yield index, value

    def _sources(self, value: Value) -> list[Value]:
        """List the graph inputs and foreign results that determine a value's content."""
        seen, found, waiting = {value}, [], [value]
        while waiting:
            value = waiting.pop()
            node = value.producer
            if value.constant is not None:
                continue
            if node is None or self._refuses(node) is not None:
                found.append(value)  # what another device computes is an input of this one's part
            elif node.domain or node.op_type not in _SHAPES_ALONE:
                fresh = [item for item in node.inputs if item is not None and item not in seen]
                seen.update(fresh)
                waiting += fresh
        return found


def with_contents(model: Model, contents: Mapping[str, np.ndarray[Any, Any]]) -> Model:
    """Copy a model in which these inputs are constants for the nodes that use them.

    Without contents it is the model itself.
    """
    if not contents:
        return model
    known = model.copy()
    for value in known.graph.inputs:
        if value.name in contents:
            array = contents[value.name]
            constant = Value(f"{value.name} of this plan", None, array)
            constant.type = TensorType(DType.of(array.dtype), array.shape)
            known.graph.add_initializer(constant)
            known.graph.replace_uses(value, constant)
    return known


def _is_of_integers(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and kind.dtype.numpy.kind in "iu"


def _can_be_content(value: Value) -> bool:
    """True for what may hold sizes: few numbers, or a row of them whose length is not known.

    A value in the middle of shape arithmetic is an input where a cut goes through it, so this does
    not ask for integers.
    """
    kind = value.type
    if not isinstance(kind, TensorType) or kind.dtype in _NO_NUMBERS or kind.shape is None:
        return False
    known = [dim for dim in kind.shape if isinstance(dim, int)]
    if len(known) < len(kind.shape):
        return len(kind.shape) <= 1
    return math.prod(known) <= _FEW
