"""The table of kernels: registered where they are defined, chosen when a network is compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import GraphError
from ....runtime.graph import Node
from ....runtime.operators import Operator, as_operator

__all__ = ["Array", "Kernel", "find_kernel", "kernel"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Kernel:
    """A function of the inputs, with a node's attributes as keywords.

    ``required`` are the keywords without a default, ``attributes`` all that it knows, or None if it
    takes any: a node whose attributes do not fit is left to the operator of ONNX. So is one that
    ``accepts`` declines. ``takes_output_count`` asks for that keyword, too.
    """

    function: Callable[..., Any]
    required: frozenset[str]
    attributes: frozenset[str] | None
    accepts: Callable[[Node], bool]
    takes_output_count: bool

    def bind(self, node: Node) -> Operator:
        """Fix the attributes for one node; thread-safe afterwards."""
        attributes = dict(node.attributes)
        if self.takes_output_count:
            attributes["output_count"] = len(node.outputs)
        return as_operator(self.function, attributes)


_kernels: dict[tuple[str, str], Kernel] = {}


def kernel(
    *op_types: str,
    domain: str = "",
    accepts: Callable[[Node], bool] = lambda node: True,
    takes_output_count: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for operators; two for one operator are a GraphError.

    The function neither keeps nor writes its inputs; what it gives may be a view of them.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        required, known = _keywords(function)
        for op_type in op_types:
            if (domain, op_type) in _kernels:
                raise GraphError(f"two kernels are registered for {op_type}; keep one")
            _kernels[domain, op_type] = Kernel(
                function, required, known, accepts, takes_output_count
            )
        return function

    return register


def _keywords(function: Callable[..., Any]) -> tuple[frozenset[str], frozenset[str] | None]:
    """Return the keywords that a function needs, and those that it knows; None: any."""
    parameters = inspect.signature(function).parameters.values()
    named = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name != "output_count"
    }
    required = frozenset(
        name for name, default in named.items() if default is inspect.Parameter.empty
    )
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return required, None
    return required, frozenset(named)


def find_kernel(node: Node) -> Kernel | None:
    """Find the kernel that can run a node; None leaves it to the operator of ONNX."""
    found = _kernels.get((node.domain, node.op_type))
    if found is None or not found.accepts(node):
        return None
    given = node.attributes.keys()
    fits = found.required <= given and (found.attributes is None or given <= found.attributes)
    return found if fits else None
