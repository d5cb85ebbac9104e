"""Models of a few nodes on a device, compared with REFERENCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.runtime.graph import DType

Arrays = Mapping[str, np.ndarray]
OPSET = 21

F32_BOUND = 1e-5
"""Largest error over largest value."""


def model_of(
    nodes: Sequence[Any],
    inputs: Arrays,
    outputs: Sequence[str] = ("y",),
    constants: Arrays | None = None,
    *,
    opset: int = OPSET,
    dynamic: bool = False,
) -> Any:
    """Make a ModelProto around nodes; ``inputs`` tell types and shapes, symbolic if ``dynamic``."""
    given = []
    for name, array in inputs.items():
        shape = [f"{name}_{axis}" for axis in range(array.ndim)] if dynamic else array.shape
        kind = int(helper.np_dtype_to_tensor_dtype(array.dtype)) or TensorProto.FLOAT
        given.append(helper.make_tensor_value_info(name, kind, shape))
    graph = helper.make_graph(
        list(nodes),
        "g",
        given,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def operator(op_type: str, *inputs: str, outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    """Make one node."""
    return helper.make_node(op_type, list(inputs), list(outputs), name=op_type, **attributes)


def run(core: Core, model: Any, device: str, inputs: Arrays, **config: Any) -> dict[str, Any]:
    """Load a model on a device and run it once."""
    with core.load_network(model, device, config) as network:
        return network.create_infer_request().infer_sync(dict(inputs))


def assert_same_on(
    device: str, core: Core, model: Any, inputs: Arrays, *, bound: float = F32_BOUND, **config: Any
) -> dict[str, Any]:
    """Run on a device and on REFERENCE, and return the device's results; see ``assert_close``."""
    wanted = run(core, model, "REFERENCE", inputs)
    got = run(core, model, device, inputs, **config)
    assert got.keys() == wanted.keys()
    for name, expected in wanted.items():
        assert_close(name, got[name], expected, bound)
    return got


def assert_close(name: str, found: np.ndarray, expected: np.ndarray, bound: float) -> None:
    """Compare an output; errors are relative to its largest value.

    Shapes and types must be equal, and all but floats exactly so.
    """
    assert found.dtype == expected.dtype, name
    assert found.shape == expected.shape, name
    if not is_float(expected.dtype):
        np.testing.assert_array_equal(found, expected)
        return
    a, b = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    np.testing.assert_array_equal(a[np.isinf(b)], b[np.isinf(b)])
    finite = np.isfinite(b)
    if finite.any():
        scale = max(float(np.abs(b[finite]).max()), 1e-30)
        error = float(np.abs(a[finite] - b[finite]).max()) / scale
        assert error <= bound, f"{name}: error {error:.3g} of the largest value"


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for numpy's own floats and for bfloat16."""
    return dtype.kind == "f" or dtype == DType.BFLOAT16.numpy
