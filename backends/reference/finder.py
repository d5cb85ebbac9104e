"""Which kernel runs a node: an extension, one of ours, or ONNX's operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import UnsupportedOpError
from ...runtime.graph import Graph, Node
from ...runtime.graph.traversal import BODIES
from ...runtime.interpretation.control_flow import CONTROL_FLOW, MakeFlow
from ...runtime.operators import (
    Operator,
    OperatorError,
    find_unsupported,
    make_operator,
)
from ...runtime.operators.user_kernel import user_operator
from ...runtime.passes.decomposing import find_decline
from .kernels import find_kernel

__all__ = ["ExtensionKernel", "KernelFinder"]

ExtensionKernel = Callable[..., Any]
"""A user's kernel: ``function(*inputs, **attributes)`` gives an array, or a tuple of arrays.

It may be called by several threads at once, must not write its inputs, and hands over what it
returns.
"""


class KernelFinder:
    """Answers for one network: ``finder(node)`` returns what runs it. Thread-safe.

    ``extensions`` maps (domain, operator) to a user's kernel, which goes before all others.
    """

    def __init__(
        self,
        opsets: Mapping[str, int],
        extensions: Mapping[tuple[str, str], ExtensionKernel] | None = None,
        device: str = "REFERENCE",
    ) -> None:
        self._opsets = dict(opsets)
        self._extensions = dict(extensions or {})
        self._device = device

    def __call__(self, node: Node) -> Operator:
        """Bind the kernel of a node; raises UnsupportedOpError where there is none."""
        extension = self._extensions.get((node.domain, node.op_type))
        if extension is not None:
            return user_operator(extension, node)
        own = find_kernel(node)
        if own is not None:
            return own.bind(node)
        try:
            return make_operator(node, self._opsets)
        except OperatorError as error:
            raise UnsupportedOpError(node.name, node.op, self._device, error.reason) from error

    def flow_of(self, node: Node) -> MakeFlow | None:
        """Return what runs control flow, unless an extension takes the operator."""
        key = node.domain, node.op_type
        return None if key in self._extensions else CONTROL_FLOW.get(key)

    def find_unsupported(self, node: Node) -> str | None:
        """Return why a node cannot run, or None if it can; looks into bodies, needs no inputs."""
        if (node.domain, node.op_type) in self._extensions:
            return None
        if self.flow_of(node) is not None:
            for name in BODIES[node.domain, node.op_type]:
                if not isinstance(node.attributes.get(name), Graph):
                    return f"it has no graph {name!r}"
            for body in node.bodies():
                for inner in body.nodes:
                    reason = self.find_unsupported(inner)
                    if reason is not None:
                        return f"its body has {inner.op} (node {inner.name!r}): {reason}"
            return None
        if find_kernel(node) is not None:
            return None
        reason = find_unsupported(node, self._opsets)
        declined = None if reason is None else find_decline(node)
        why = "" if declined is None else f", and it cannot be written by others: {declined}"
        return None if reason is None else f"{reason}{why}"
