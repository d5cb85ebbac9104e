"""Model files whose large tensors are read on their own, past protobuf."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer.errors import ModelError
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from aioinfer.runtime.onnx_reader.wire.file_structure import LARGE_BYTES
from aioinfer.runtime.onnx_reader.wire.skimming import SKIMMED, skim

LARGE = np.arange(LARGE_BYTES // 4, dtype=np.float32)


def _proto(*tensors: TensorProto) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Identity", [tensor.name], [f"y{index}"])
        for index, tensor in enumerate(tensors)
    ]
    outputs = [helper.make_empty_tensor_value_info(f"y{index}") for index in range(len(tensors))]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    opset = helper.make_opsetid("", 21)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def _raw(array: np.ndarray, name: str = "w") -> TensorProto:
    return numpy_helper.from_array(array, name)


def _saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def _constants(path: Path) -> list[np.ndarray]:
    graph = read_model(path).graph
    arrays = [value.constant for value in graph.outputs]
    if any(array is None for array in arrays):
        arrays = [node.inputs[0].constant for node in graph.nodes]
    return arrays


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int8", "bool"])
def test_a_large_tensor_is_read_without_the_parser(tmp_path: Path, dtype: str) -> None:
    array = (np.arange(2 * LARGE_BYTES) % 7).astype(dtype).reshape(2, -1)
    path = _saved(_proto(_raw(array)), tmp_path)
    skimmed = skim(path)
    assert skimmed is not None
    assert len(skimmed.image) < 1024
    (found,) = _constants(path)
    assert found.dtype == array.dtype
    assert found.flags.aligned
    np.testing.assert_array_equal(found, array)


def test_large_and_small_tensors_keep_their_content(tmp_path: Path) -> None:
    arrays = [LARGE, LARGE[:3] + 1, LARGE[::-1].copy() * 2]
    path = _saved(_proto(*(_raw(array, f"w{i}") for i, array in enumerate(arrays))), tmp_path)
    for found, wanted in zip(_constants(path), arrays, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_the_parser_sees_is_the_same_model(tmp_path: Path) -> None:
    proto = _proto(_raw(LARGE))
    skimmed = skim(_saved(proto, tmp_path))
    assert skimmed is not None
    image = onnx.ModelProto.FromString(skimmed.image)
    (tensor,) = image.graph.initializer
    assert tensor.external_data[0].value == f"{SKIMMED}0"
    tensor.raw_data = proto.graph.initializer[0].raw_data
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    assert image == proto


@pytest.mark.parametrize("field", ["float_data", "external_data", "string_data"])
def test_a_tensor_in_another_form_is_left_to_the_parser(tmp_path: Path, field: str) -> None:
    tensor = _raw(LARGE)
    if field == "float_data":
        tensor = helper.make_tensor("w", TensorProto.FLOAT, LARGE.shape, LARGE)
    elif field == "string_data":
        tensor = helper.make_tensor("w", TensorProto.STRING, [1], [b"x" * LARGE_BYTES])
    else:
        tensor.external_data.add(key="location", value="elsewhere")
    assert skim(_saved(_proto(tensor), tmp_path)) is None


def test_small_models_and_other_files_are_left_to_the_parser(tmp_path: Path) -> None:
    assert skim(_saved(_proto(_raw(LARGE[:4])), tmp_path)) is None
    noise = tmp_path / "noise"
    noise.write_bytes(np.random.default_rng(0).bytes(4 * LARGE_BYTES))
    assert skim(noise) is None


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused_as_ever(tmp_path: Path, kept: float) -> None:
    path = _saved(_proto(_raw(LARGE), _raw(LARGE, "v")), tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(ModelError, match="truncated or damaged"):
        read_model(path)


def test_a_size_that_does_not_fit_the_data_is_refused(tmp_path: Path) -> None:
    tensor = _raw(LARGE)
    tensor.dims[0] += 1
    with pytest.raises(ModelError, match="needs 16388 bytes, but has 16384"):
        read_model(_saved(_proto(tensor), tmp_path))


def test_a_file_that_claims_a_skimmed_place_gets_nothing(tmp_path: Path) -> None:
    forged = TensorProto(name="v", data_type=TensorProto.FLOAT, dims=LARGE.shape)
    forged.data_location = TensorProto.EXTERNAL
    forged.external_data.add(key="location", value=f"{SKIMMED}7")
    with pytest.raises(ModelError, match="nowhere"):
        read_model(_saved(_proto(_raw(LARGE), forged), tmp_path))
    with pytest.raises(ModelError, match="not there or no file"):
        read_model(_saved(_proto(forged), tmp_path))


def test_a_file_that_shrinks_meanwhile_is_told(tmp_path: Path) -> None:
    path = _saved(_proto(_raw(LARGE)), tmp_path)
    skimmed = skim(path)
    assert skimmed is not None
    path.write_bytes(path.read_bytes()[:LARGE_BYTES])
    with pytest.raises(ModelError, match="shorter"):
        skimmed.read(f"{SKIMMED}0")
