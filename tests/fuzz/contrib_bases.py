"""Valid models of onnxruntime's own operators to begin with: those that its answers are held to.

Weights become parameters like all others, so that a case may have them come with a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
from onnx import ModelProto

from unit.runtime.decompositions import (
    test_fused,
    test_packed_weights,
    test_quantized,
    test_quantized_layers,
)

from .bases import Base, base_of

__all__ = ["load_contrib_bases"]


def load_contrib_bases() -> list[Base]:
    """Make one of each operator and of each of its forms, in a fixed order."""
    return [base_of(name, _newer(model), given) for name, model, given in _models()]


def _newer(model: bytes) -> ModelProto:
    """Put ONNX's operators behind one, too."""
    made = onnx.load_from_string(model)
    made.opset_import[0].version, made.ir_version = 21, 10
    return made


def _models() -> Iterator[tuple[str, bytes, Any]]:
    for name, case in test_fused.CASES.items():
        yield name, case.model(dynamic=False), case.fed()
    for name, stored in test_quantized.CASES.items():
        yield f"stored {name}", stored.model(), stored.given
    for mask in ("", "keys", "lengths"):
        yield "stored attention", *test_quantized_layers.attention(mask)
    for direction in ("forward", "bidirectional"):
        yield "stored lstm", *test_quantized_layers.lstm(direction, per_channel=True)
    for bits, zero in ((4, ""), (4, "packed"), (8, "packed")):
        yield "few bits", *test_packed_weights.packed(64, bits=bits, length=16, zero=zero)
