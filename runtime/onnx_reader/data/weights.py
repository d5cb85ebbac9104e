"""Weights taken out of the proto before onnx's C++ parts see it, and found again afterwards.

The inliner and the converter serialize the model several times, so every tensor over 1 kB is
replaced by a reference to external data whose location is a key of ours; they carry such references
along unchanged. All external references of the file are resolved at the same time, so a location
that is left is one of our keys. Small tensors of plain numbers stay in the proto, also those that
the file has outside: the converter and shape inference look at them. Every tensor is checked here,
and of some element types the converter knows only the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx

from ....errors import ModelError
from ...graph import DType
from ...onnx_writer.tensor_protos import SMALL_TENSOR_BYTES
from ...onnx_writer.types import dtype_of
from ..wire.skimming import SKIMMED, SkimmedFile
from .external import ExternalFiles
from .tensors import (
    DENSE_LIMIT_BYTES,
    dense_array,
    packed_bytes,
    stored_array,
    tensor_array,
    tensor_shape,
)

__all__ = ["Weights"]

_KEY = "aioinfer-weight:"
_LOOKED_AT = frozenset({DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64, DType.BOOL})


class Weights:
    """The large tensors of one model, by the key that stands for them in the proto."""

    def __init__(
        self, folder: Path | None, skimmed: SkimmedFile | None = None, *, is_mapped: bool = False
    ) -> None:
        self._files, self._skimmed = ExternalFiles(folder, is_mapped=is_mapped), skimmed
        self._arrays: list[np.ndarray] = []
        self._dense_bytes = 0

    def take_out(self, model: onnx.ModelProto) -> None:
        """Replace the large tensors of a model by keys, and sparse tensors by dense ones.

        Raises ModelError for a tensor that is not what it says, in the proto or outside.
        """
        try:
            self._take_from_graph(model.graph)
            for function in model.functions:
                self._take_from_attributes(function.attribute_proto)
                self._take_from_nodes(function.node)
        finally:
            self._files.close()

    @property
    def has_mapped(self) -> bool:
        """True if a tensor stays in its file."""
        return self._files.has_mapped

    def array(self, tensor: onnx.TensorProto) -> np.ndarray:
        """Decode a tensor of the model, from the proto or by its key; read-only."""
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return tensor_array(tensor)
        array = self._arrays[int(_location(tensor).removeprefix(_KEY))]
        if array.shape != tuple(tensor.dims):
            raise ModelError(f"tensor {tensor.name!r} has lost its data; this is a bug of aioinfer")
        return array

    def _take_from_graph(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._take(tensor)
        for sparse in graph.sparse_initializer:
            self._densify(sparse, graph.initializer.add())
        del graph.sparse_initializer[:]
        self._take_from_nodes(graph.node)

    def _take_from_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            self._take_from_attributes(node.attribute)

    def _take_from_attributes(self, attributes: Iterable[onnx.AttributeProto]) -> None:
        for attribute in attributes:
            for tensor in _tensors(attribute):
                self._take(tensor)
            if attribute.HasField("sparse_tensor"):
                self._densify(attribute.sparse_tensor, attribute.t)
                attribute.ClearField("sparse_tensor")
                attribute.type = onnx.AttributeProto.TENSOR
                if attribute.name == "sparse_value":
                    attribute.name = "value"  # of a Constant
            if attribute.sparse_tensors:
                for sparse in attribute.sparse_tensors:
                    self._densify(sparse, attribute.tensors.add())
                attribute.ClearField("sparse_tensors")
                attribute.type = onnx.AttributeProto.TENSORS
            if attribute.HasField("g"):
                self._take_from_graph(attribute.g)
            for graph in attribute.graphs:
                self._take_from_graph(graph)

    def _take(self, tensor: onnx.TensorProto) -> None:
        array = self._decode(tensor)
        if array.nbytes > SMALL_TENSOR_BYTES or DType.of(array.dtype) not in _LOOKED_AT:
            self._put_key(tensor, array)
        elif tensor.data_location == onnx.TensorProto.EXTERNAL:
            _clear_data(tensor)
            tensor.raw_data = array.tobytes()

    def _decode(self, tensor: onnx.TensorProto) -> np.ndarray:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return tensor_array(tensor)
        place = f"tensor {tensor.name!r}"
        dtype, shape = dtype_of(tensor.data_type, place), tensor_shape(tensor)
        if dtype is DType.STRING:
            raise ModelError(f"{place} holds strings, which cannot be external data")
        location = _location(tensor)
        if self._skimmed is not None and location.startswith(SKIMMED):
            stored = self._skimmed.read(location)
        else:
            stored = self._files.stored_bytes(tensor, packed_bytes(dtype, shape))
        return stored_array(stored, dtype, shape, place)

    def _densify(self, sparse: onnx.SparseTensorProto, dense: onnx.TensorProto) -> None:
        name = sparse.values.name
        self._take(sparse.values)
        self._take(sparse.indices)
        values, indices = self.array(sparse.values), self.array(sparse.indices)
        array = dense_array(values, indices, tuple(sparse.dims), f"tensor {name!r}")
        self._dense_bytes += array.nbytes
        if self._dense_bytes > DENSE_LIMIT_BYTES:
            raise ModelError(
                f"has sparse tensors of over {DENSE_LIMIT_BYTES} bytes when dense, and aioinfer "
                f"keeps no more; store them dense"
            )
        dense.name, dense.data_type = name, sparse.values.data_type
        dense.dims.extend(sparse.dims)
        self._put_key(dense, array)

    def _put_key(self, tensor: onnx.TensorProto, array: np.ndarray) -> None:
        _clear_data(tensor)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"{_KEY}{len(self._arrays)}")
        self._arrays.append(array)


def _location(tensor: onnx.TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _tensors(attribute: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors


_KEPT_FIELDS = frozenset({"name", "dims", "data_type"})


def _clear_data(tensor: onnx.TensorProto) -> None:
    for field, _ in tensor.ListFields():
        if field.name not in _KEPT_FIELDS:
            tensor.ClearField(field.name)
