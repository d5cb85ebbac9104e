"""A refused value is in the error, beside the key and the device: a handler need not read texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.errors import PropertyError
from unit.backends.cpu.comparing import model_of

REFUSED: list[tuple[str, str, Any]] = [
    ("REFERENCE", "NUM_STREAMS", -2),
    ("REFERENCE", "INFERENCE_PRECISION_HINT", "bf16"),
    ("REFERENCE", "INFERENCE_NUM_THREADS", 3),
    ("CPU", "NUM_STREAMS", -2),
    ("ONNXRUNTIME", "INFERENCE_PRECISION_HINT", "bf16"),
    ("ONNXRUNTIME", "PERF_COUNT", True),
    ("HETERO:REFERENCE", "DEVICE_PROPERTIES", {"NPU": {}}),
    ("HETERO:REFERENCE", "AFFINITY", {"nobody": "REFERENCE"}),
]
WANTED = {"AFFINITY": "nobody"}
"""What is named of a value of several parts."""


@pytest.mark.parametrize(("device", "key", "value"), REFUSED)
def test_the_error_has_the_value(core: Core, device: str, key: str, value: Any) -> None:
    proto = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": np.zeros(3, np.float32)})
    with pytest.raises(PropertyError) as raised:
        core.load_network(proto, device, {key: value})
    error = raised.value
    assert (error.key, error.value) == (key, WANTED.get(key, value))
    assert error.device.startswith(device.partition(":")[0])


def test_defaults_for_all_devices_and_shapes_ahead_have_theirs(core: Core) -> None:
    with pytest.raises(PropertyError) as raised:
        core.set_config(None, {"CUDA_GRAPHS": True})
    assert (raised.value.key, raised.value.value) == ("CUDA_GRAPHS", True)
    proto = model_of(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": np.zeros((2, 3), np.float32)}, dynamic=True
    )
    with pytest.raises(PropertyError) as raised:
        core.load_network(proto, "REFERENCE", {"INPUT_SHAPES": [{"z": (1, 2)}]})
    assert raised.value.value == {"z": (1, 2)}
