"""Whether a rule says what onnx says: of every type that onnx tells, and of every length."""

from collections.abc import Mapping, Sequence
from typing import Any

from unit.runtime.type_inference.typed_nodes import (
    Given,
    inferred_by_onnx,
    parse_type,
    ruled,
)


def assert_like_onnx(
    op_type: str, inputs: Sequence[Given], attributes: Mapping[str, Any], outputs: int = 1
) -> None:
    """Check a valid node; what onnx leaves open our rule may know."""
    case = (op_type, inputs, attributes)
    ours = ruled(op_type, inputs, attributes, outputs)
    assert ours is not None, case
    for our_text, text in zip(
        ours, inferred_by_onnx(op_type, inputs, attributes, outputs), strict=True
    ):
        if text.endswith("[...]"):
            continue
        our, onnx = parse_type(our_text), parse_type(text)
        assert our.dtype is onnx.dtype, case
        assert our.shape is not None, case
        assert onnx.shape is not None, case
        for dim, other in zip(our.shape, onnx.shape, strict=True):
            # A symbol here is one that onnx has invented.
            assert not isinstance(other, int) or dim == other, (case, our_text, text)
