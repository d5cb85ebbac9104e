"""What the file declares of a loop's result, told to the loop's body.

A loop without iterations has no other word on the lengths of what it would have collected.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..graph import Graph, TensorType, Value, ValueType

__all__ = ["promise_to_bodies"]


def promise_to_bodies(declared: Iterable[tuple[Value, ValueType | None]]) -> None:
    """Fill what bodies leave open of the items that declared outputs of loops are stacked of."""
    for value, known in declared:
        found = _item_of(value)
        if found is None or not isinstance(known, TensorType) or known.shape is None:
            continue
        item, axis = found
        if -len(known.shape) <= axis < len(known.shape):
            lengths = list(known.shape)
            del lengths[axis]
            item.type = _filled(item.type, TensorType(known.dtype, tuple(lengths)))


def _filled(found: ValueType | None, known: TensorType) -> ValueType | None:
    if not isinstance(found, TensorType) or found.shape is None or known.shape is None:
        return found or known
    if len(found.shape) != len(known.shape):
        return found
    pairs = zip(found.shape, known.shape, strict=True)
    return TensorType(found.dtype, tuple(a if isinstance(a, int) else b or a for a, b in pairs))


def _item_of(value: Value) -> tuple[Value, int] | None:
    """Find what a body gives at each iteration for a value that a Loop or Scan collects.

    And the axis along which it is stacked.
    """
    node = value.producer
    if node is None or node.domain or node.op_type not in ("Loop", "Scan"):
        return None
    body, index = node.attributes.get("body"), node.outputs.index(value)
    if not isinstance(body, Graph):
        return None
    if node.op_type == "Loop":
        state_count, outputs, axes = len(node.inputs) - 2, body.outputs[1:], None
    else:
        state_count = len(node.inputs) - int(node.attributes.get("num_scan_inputs", 0))
        outputs, axes = body.outputs, node.attributes.get("scan_output_axes")
    place = index - state_count
    if place < 0 or index >= len(outputs):
        return None
    axis = axes[place] if isinstance(axes, list) and place < len(axes) else 0
    return outputs[index], int(axis)
