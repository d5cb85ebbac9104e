"""Extensions: a user's kernel for an operator, of a custom domain or of ONNX's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...errors import GraphError
from ..graph import Model, Node, TensorType
from ..graph.traversal import all_nodes
from ..lowering.user_kernels import USER_KERNEL
from ..type_inference import ShapeContent, find_rule
from ..type_inference.inference import has_rank
from ..type_inference.rules import STANDARD_DOMAINS, TypeRule

__all__ = [
    "Extension",
    "NodeRule",
    "TypeRuleOf",
    "bind_kernels",
    "find_extension",
    "rule_of_extension",
    "tell_types",
]

InferTypes = Callable[[Sequence[TensorType | None], Mapping[str, Any]], Sequence[TensorType | None]]
"""Gives the types of the outputs for the types of the inputs and the attributes; None: unknown."""


NodeRule = Callable[[Node], Sequence[TensorType | None]]
"""Gives the types of a node's outputs for those of its inputs, for ``Node.type_rule``."""

TypeRuleOf = Callable[[Node, Mapping[str, int]], NodeRule | None]
"""Gives a device's rule for a node of a model with these operator sets; None where it has none."""


@dataclass(frozen=True)
class Extension:
    """An operator that a user brings along.

    ``kernel(*inputs, **attributes)`` gets numpy arrays, on CUDA CuPy's (None for an optional input
    that is not given), must not write into them, and returns an array or a tuple of arrays. The
    arrays are the device's, and change once it has returned: it copies what it keeps. It runs on a
    device's thread, several at once. ``infer_types`` is the operator's dtype and shape rule; it may
    be called several times, with more known each time, and for lengths that no run has. Devices
    that place memory ahead, CPU and CUDA, need it, and with it every length of the outputs where
    all lengths of the inputs are known. Raises GraphError for what is no operator.

    ```python
    def swirl(x, *, strength=1.0):
        return x + np.float32(strength) * np.sin(x)

    with aioinfer.Core() as core:
        core.add_extension(aioinfer.Extension("Swirl", swirl, domain="com.example"), "REFERENCE")
    ```
    """

    op_type: str
    kernel: Callable[..., Any]
    domain: str = ""
    infer_types: InferTypes | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.op_type, str) or not self.op_type:
            raise GraphError(
                f"an extension's op_type is a name such as 'MyOp', not {self.op_type!r}"
            )
        if not isinstance(self.domain, str):
            raise GraphError(
                f"the domain of extension {self.op_type} is {self.domain!r}, not a str"
            )
        for what, function in (("kernel", self.kernel), ("infer_types", self.infer_types)):
            if not callable(function) and (function is not None or what == "kernel"):
                raise GraphError(
                    f"the {what} of extension {self.op_type} is a {type(function).__name__}, and a "
                    f"function is wanted"
                )


def find_extension(node: Node, extensions: Iterable[Extension]) -> Extension | None:
    """Return the extension that is for a node's operator, if there is one."""
    for item in extensions:
        if (item.domain, item.op_type) == (node.domain, node.op_type):
            return item
    return None


def rule_of_extension(node: Node, extensions: Iterable[Extension]) -> NodeRule | None:
    """Return the type rule of the extension that is for a node, if there is one and it has any.

    A rule that raises is a GraphError naming the node.
    """
    extension = find_extension(node, extensions)
    if extension is None or extension.infer_types is None:
        return None
    return partial(_apply, extension.infer_types)


def tell_types(model: Model, rule_of: TypeRuleOf, *, keeps_others: bool = True) -> None:
    """Tie what devices know of types to their nodes, in bodies too, and infer all types anew.

    From then on they tell whenever types are inferred, also those of copies and pieces of the
    model. ``keeps_others``: other nodes keep the rules that they have.
    """
    is_changed = False
    for node in all_nodes(model.graph):
        rule = rule_of(node, model.opsets)
        if rule is not None:
            node.type_rule = rule
        elif node.type_rule is None or keeps_others:
            continue
        else:
            node.type_rule = None
        is_changed = True
    if is_changed:
        Model.infer_types(model, {})


def bind_kernels(model: Model, extensions: Sequence[Extension]) -> None:
    """Tie extensions to the nodes of the main graph that they compute, and to their types.

    An operator of ONNX's own that one takes over is moved to a domain of its own, so that no pass
    takes it for what ONNX says; its types stay those of ONNX's operator unless the extension tells.
    """
    if not extensions:
        return
    tell_types(model, lambda node, _: rule_of_extension(node, extensions))
    for node in model.graph.nodes:
        extension = find_extension(node, extensions)
        if extension is None:
            continue
        node.user_kernel = extension.kernel
        if node.domain not in STANDARD_DOMAINS:
            continue
        known = find_rule(node)
        if node.type_rule is None and known is not None:
            node.type_rule = partial(_apply_own, known)
        node.domain = f"{USER_KERNEL[0]}.{node.domain}".rstrip(".")
        model.opsets.setdefault(node.domain, 1)


def _apply_own(rule: TypeRule, node: Node) -> Sequence[TensorType | None]:
    if not all(has_rank(value.type) for value in node.inputs if value is not None):
        return ()
    return rule(node, ShapeContent()) or ()


def _apply(rule: InferTypes, node: Node) -> Sequence[TensorType | None]:
    given = [value.type if value is not None else None for value in node.inputs]
    tensors = [known if isinstance(known, TensorType) else None for known in given]
    try:
        types = rule(tensors, dict(node.attributes))
    except Exception as error:
        raise GraphError(
            f"the type rule of {node.op} failed on node {node.name!r}: {error!r}",
            node=node.name,
            op=node.op,
        ) from error
    is_sequence = isinstance(types, list | tuple)
    if not is_sequence or not all(
        known is None or isinstance(known, TensorType) for known in types
    ):
        raise GraphError(
            f"the type rule of {node.op} gave {types!r} for node {node.name!r}; a list with a "
            f"TensorType or None for each output is wanted",
            node=node.name,
            op=node.op,
        )
    return [known and _with_plain_lengths(known, node) for known in types]


def _with_plain_lengths(known: TensorType, node: Node) -> TensorType:
    """Have lengths that a rule has computed with numpy as ints; GraphError for what is none."""
    dims = known.shape
    if dims is None:
        return known
    plain = tuple(int(dim) if isinstance(dim, np.integer) else dim for dim in dims)
    for dim in plain:
        if dim is None or isinstance(dim, str) or (isinstance(dim, int) and dim >= 0):
            continue
        raise GraphError(
            f"the type rule of {node.op} gave {known} for node {node.name!r}; a length is an int "
            f"from 0 on, a name, or None",
            node=node.name,
            op=node.op,
        )
    return TensorType(known.dtype, plain)
