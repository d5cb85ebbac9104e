"""LSTM, GRU and RNN: REFERENCE gives what onnxruntime gives, and CPU gives what REFERENCE gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer import Core
from exhaustive import drawn
from presence import skip_if_missing
from property.recurrent_layers import Layer, layers
from unit.backends.comparing import assert_close, model_of, run

BOUND = 2e-5
"""Largest error over the largest value, or over 1: a few steps of float32."""


def assert_near(name: str, found: Any, wanted: Any) -> None:
    largest = max(float(np.abs(wanted).max(initial=0)), 1e-30)
    assert_close(name, found, wanted, BOUND * max(1.0, 1.0 / largest))


@settings(max_examples=drawn(120), derandomize=True, database=None)
@given(layer=layers())
def test_reference_gives_what_onnxruntime_gives(core: Core, layer: Layer) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is what REFERENCE is compared with")
    found = run(
        core, model_of([layer.node()], layer.inputs, layer.outputs), "REFERENCE", layer.inputs
    )
    wanted = by_onnxruntime(layer)
    assert found.keys() == wanted.keys()
    for name, expected in wanted.items():
        assert_near(name, found[name], expected)


def by_onnxruntime(layer: Layer) -> Mapping[str, Any]:
    """Run a layer in onnxruntime itself, which has layout 0 only."""
    import onnxruntime

    is_batch_first = bool(layer.attributes["layout"])
    layer = layer.time_first() if is_batch_first else layer
    model = model_of([layer.node()], layer.inputs, layer.outputs)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results = dict(zip(layer.outputs, session.run(None, dict(layer.inputs)), strict=True))
    if not is_batch_first:
        return results
    return {
        name: array.transpose(2, 0, 1, 3) if array.ndim == 4 else array.swapaxes(0, 1)
        for name, array in results.items()
    }


@settings(max_examples=drawn(60), derandomize=True, database=None)
@given(layer=layers(most=20), data=st.data())
def test_cpu_gives_what_reference_gives(core: Core, layer: Layer, data: st.DataObject) -> None:
    skip_if_missing(core, "CPU")
    constants = {
        name: array
        for name, array in layer.inputs.items()
        if name != "X" and data.draw(st.booleans(), label=f"{name} is known")
    }
    inputs = {name: array for name, array in layer.inputs.items() if name not in constants}
    kept = [name for name in layer.outputs if data.draw(st.booleans(), label=f"{name} is used")]
    outputs = kept or ["Y"]
    model = model_of(
        [layer.node(outputs)], inputs, outputs, constants, dynamic=data.draw(st.booleans())
    )
    found, wanted = (run(core, model, device, inputs) for device in ("CPU", "REFERENCE"))
    assert found.keys() == wanted.keys()
    for name, expected in wanted.items():
        assert_near(name, found[name], expected)
