"""Attention and LSTM on stored numbers, on devices that know ONNX's operators alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import AioInferError
from unit.runtime.decompositions.contrib_models import (
    Arrays,
    by_onnxruntime,
    contrib_model,
    on_device,
)

RANDOM = np.random.default_rng(13)
WIDTH, HEADS = 16, 2


def attention(mask: str = "", *, batch: int = 2, length: int = 5, **attributes: Any) -> Any:
    constants: dict[str, np.ndarray] = {
        "w": RANDOM.integers(-128, 128, (WIDTH, 3 * WIDTH)).astype(np.int8),
        "b": RANDOM.normal(size=3 * WIDTH).astype(np.float32),
        "xs": np.array(0.02, np.float32),
        "ws": np.array(0.005, np.float32),
        "xz": np.array(120, np.uint8),
        "wz": np.array(0, np.int8),
    }
    masks = {
        "keys": (np.arange(length) < np.array([[3], [5]])).astype(np.int32),
        "lengths": np.array([3, 5], np.int32),
    }
    given: dict[str, np.ndarray] = {
        "x": RANDOM.integers(0, 256, (batch, length, WIDTH)).astype(np.uint8)
    }
    if mask:
        given["mask"] = masks[mask]
    operands = ["x", "w", "b", "xs", "ws", "mask" if mask else "", "xz", "wz"]
    attributes = {"num_heads": HEADS, **attributes}
    return contrib_model("QAttention", operands, given, constants, np.float32, **attributes), given


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize(
    ("mask", "attributes"), [("", {}), ("keys", {}), ("lengths", {}), ("", {"unidirectional": 1})]
)
def test_attention_is_that_of_onnxruntime(
    core: aioinfer.Core, device: str, mask: str, attributes: dict[str, Any]
) -> None:
    model, given = attention(mask, **attributes)
    wanted = by_onnxruntime(model, given)
    found = on_device(core, model, device, given)
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())


def lstm(direction: str, *, per_channel: bool) -> tuple[bytes, Arrays]:
    sides, inner, hidden = (2 if direction == "bidirectional" else 1), 6, 8
    shape = (sides, 4 * hidden) if per_channel else (sides,)
    constants: dict[str, np.ndarray] = {
        "w": RANDOM.integers(-128, 128, (sides, inner, 4 * hidden)).astype(np.int8),
        "r": RANDOM.integers(-128, 128, (sides, hidden, 4 * hidden)).astype(np.int8),
        "b": RANDOM.normal(size=(sides, 8 * hidden)).astype(np.float32),
        "ws": np.full(shape, 0.004, np.float32),
        "wz": np.zeros(shape, np.int8),
        "rs": np.full(shape, 0.003, np.float32),
        "rz": np.zeros(shape, np.int8),
    }
    operands = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    given = {"x": RANDOM.normal(size=(7, 3, inner)).astype(np.float32)}
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    model = contrib_model(
        "DynamicQuantizeLSTM", operands, given, constants, np.float32, **attributes
    )
    return model, given


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_an_lstm_is_that_of_onnxruntime_but_for_stored_data(
    core: aioinfer.Core, device: str, direction: str, per_channel: bool
) -> None:
    model, given = lstm(direction, per_channel=per_channel)
    wanted = by_onnxruntime(model, given)
    found = on_device(core, model, device, given)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=0.05 * np.abs(wanted).max())


def test_a_mask_of_another_kind_is_refused(core: aioinfer.Core) -> None:
    model, _ = attention("lengths", batch=3)
    with pytest.raises(AioInferError, match="QAttention"):
        core.load_network(model, "CPU")
