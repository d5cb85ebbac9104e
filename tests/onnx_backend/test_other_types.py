"""onnx's node cases with float64 in the place of float32: CPU gives what REFERENCE gives.

What a query takes is loaded, what it refuses is refused by the load, and no number loses bits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import aioinfer
from aioinfer.errors import AioInferError, ModelError, UnsupportedOpError
from exhaustive import all_but
from presence import skip_if_missing
from unit.backends.other_types import array_in, in_type

BOUND = 1e-12
FEW = [
    "test_attention_3d",
    "test_averagepool_2d_ceil",
    "test_basic_conv_with_padding",
    "test_batchnorm_epsilon",
    "test_convtranspose_pads",
    "test_gemm_all_attributes",
    "test_gru_with_initial_bias",
    "test_layer_normalization_4d_axis1",
    "test_loop11",
    "test_softmax_axis_1",
]


@functools.cache
def _folders() -> dict[str, Path]:
    return {case.name: Path(case.model_dir) for case in load_model_tests(kind="node")}


def _is_typed(name: str) -> bool:
    """True for cases whose types, or whose random numbers, are what they are about."""
    others = ("bernoulli", "bfloat16", "float16", "fp16", "float8", "float4", "training")
    return any(word in name.lower() for word in others)


def _names() -> list[str]:
    return sorted(name for name in _folders() if not _is_typed(name))


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        skip_if_missing(made, "CPU")
        yield made


def _inputs(folder: Path, model: onnx.ModelProto) -> dict[str, Any]:
    given = {}
    for place, port in enumerate(model.graph.input):
        if not port.type.HasField("tensor_type"):
            pytest.skip("it is given what is no tensor")
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"test_data_set_0/input_{place}.pb").read_bytes())
        given[port.name] = array_in(numpy_helper.to_array(tensor), np.float64)
    return given


def _run(core: aioinfer.Core, model: onnx.ModelProto, device: str, given: Any) -> dict[str, Any]:
    with core.load_network(model, device) as network:
        return dict(network.create_infer_request().infer_sync(dict(given)))


@pytest.mark.parametrize("name", all_but(FEW, _names()))
def test_a_case_in_float64(core: aioinfer.Core, name: str) -> None:
    folder = _folders()[name]
    model = in_type(onnx.load(folder / "model.onnx"), np.float64)
    given = _inputs(folder, model)
    try:
        answers = core.query_network(model, "CPU")
    except ModelError:
        pytest.skip("ONNX has no such model")
    if not all(answer.supported for answer in answers.values()):
        with pytest.raises(UnsupportedOpError):
            core.load_network(model, "CPU")
        return
    try:
        wanted = _run(core, model, "REFERENCE", given)
    except AioInferError:
        core.load_network(model, "CPU").close()
        return
    found = _run(core, model, "CPU", given)
    assert found.keys() == wanted.keys()
    for key, expected in wanted.items():
        if not isinstance(expected, np.ndarray) or expected.dtype == object:
            continue
        assert (found[key].dtype, found[key].shape) == (expected.dtype, expected.shape)
        finite = np.abs(expected[np.isfinite(expected)]) if expected.dtype.kind == "f" else 0
        atol = BOUND * np.max(finite, initial=0)
        np.testing.assert_allclose(found[key], expected, rtol=BOUND, atol=atol)
