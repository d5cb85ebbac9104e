"""A user's kernel, kept from writing its inputs and held to what is known of its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph import Node, TensorType, ValueType, shape_text
from .operator import Operator, as_operator

__all__ = ["user_operator"]


def user_operator(kernel: Callable[..., Any], node: Node, *, holds_shapes: bool = True) -> Operator:
    """Bind a user's kernel to a node; thread-safe if the kernel is.

    It raises TypeError for an output of another element type than the node's, and, where it
    ``holds_shapes``, ValueError for one whose shape is not what the user's own type rule has told.
    """
    operator = as_operator(kernel, node.attributes)
    has_rule = holds_shapes and node.type_rule is not None
    types = [_known_type(value.type, has_rule) for value in node.outputs]

    def checked(*inputs: Any) -> tuple[Any, ...]:
        outputs = operator(*[_read_only(value) for value in inputs])
        for index, (known, output) in enumerate(zip(types, outputs, strict=False)):
            if known is None or not isinstance(output, np.ndarray):
                continue
            if output.dtype != known.dtype.numpy:
                raise TypeError(
                    f"output {index} is {output.dtype}, and the model, or the extension's own "
                    f"infer_types, says {known.dtype.label}"
                )
            if not _fits(output.shape, known):
                raise ValueError(
                    f"output {index} is {shape_text(output.shape)}, and the extension's own "
                    f"infer_types says {shape_text(known.shape)}"
                )
        return outputs

    return checked


def _known_type(kind: ValueType | None, has_rule: bool) -> TensorType | None:
    """Return what an output is held to: of lengths the numbers alone, and by a rule alone."""
    if not isinstance(kind, TensorType) or kind.shape is None or not has_rule:
        return TensorType(kind.dtype) if isinstance(kind, TensorType) else None
    lengths = tuple([dim if isinstance(dim, int) else None for dim in kind.shape])
    return TensorType(kind.dtype, lengths)


def _fits(shape: tuple[int, ...], known: TensorType) -> bool:
    if known.shape is None:
        return True
    return len(shape) == len(known.shape) and all(
        not isinstance(dim, int) or dim == length
        for dim, length in zip(known.shape, shape, strict=True)
    )


def _read_only(value: Any) -> Any:
    if isinstance(value, list):
        return [_read_only(item) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view
