"""Value types, to and from onnx's TypeProto."""

from __future__ import annotations

import onnx

from ...errors import ModelError
from ..graph import Dim, DType, MapType, OptionalType, SequenceType, Shape, TensorType, ValueType

__all__ = ["dtype_of", "fill_type", "merge_types", "type_from_proto"]


def dtype_of(number: int, place: str) -> DType:
    """Return the element type of an ONNX number; raises ModelError, naming the place, if none."""
    try:
        return DType(number)
    except ValueError:
        raise ModelError(
            f"{place} has element type {number}, which ONNX up to IR version {onnx.IR_VERSION} "
            f"does not have; the file is damaged or newer than this aioinfer"
        ) from None


def type_from_proto(proto: onnx.TypeProto, place: str) -> ValueType | None:
    """Read a type; None where it says nothing that the graph can hold (sparse tensors).

    Raises ModelError, naming the place, for an element type that ONNX does not have.
    """
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        tensor = proto.tensor_type
        if tensor.elem_type == onnx.TensorProto.UNDEFINED:
            return None
        shape = _shape(tensor.shape) if tensor.HasField("shape") else None
        return TensorType(dtype_of(tensor.elem_type, place), shape)
    if kind == "sequence_type":
        return SequenceType(type_from_proto(proto.sequence_type.elem_type, place))
    if kind == "optional_type":
        return OptionalType(type_from_proto(proto.optional_type.elem_type, place))
    if kind == "map_type":
        key = dtype_of(proto.map_type.key_type, f"the key of {place}")
        return MapType(key, type_from_proto(proto.map_type.value_type, place))
    return None


def _shape(proto: onnx.TensorShapeProto) -> Shape:
    return tuple(_dim(dim) for dim in proto.dim)


def _dim(proto: onnx.TensorShapeProto.Dimension) -> Dim:
    if proto.HasField("dim_value"):
        # Old exporters write -1 for a length that is not known.
        return proto.dim_value if proto.dim_value >= 0 else None
    return proto.dim_param or None


def fill_type(proto: onnx.TypeProto, value_type: ValueType | None) -> onnx.TypeProto:
    """Write a type into an empty TypeProto and return it; None leaves it empty."""
    if isinstance(value_type, TensorType):
        proto.tensor_type.elem_type = value_type.dtype.value
        if value_type.shape is not None:
            shape = proto.tensor_type.shape
            shape.SetInParent()
            for dim in value_type.shape:
                _fill_dim(shape.dim.add(), dim)
    elif isinstance(value_type, SequenceType):
        proto.sequence_type.SetInParent()
        fill_type(proto.sequence_type.elem_type, value_type.element)
    elif isinstance(value_type, OptionalType):
        proto.optional_type.SetInParent()
        fill_type(proto.optional_type.elem_type, value_type.element)
    elif isinstance(value_type, MapType):
        proto.map_type.key_type = value_type.key.value
        fill_type(proto.map_type.value_type, value_type.element)
    return proto


def _fill_dim(proto: onnx.TensorShapeProto.Dimension, dim: Dim) -> None:
    if isinstance(dim, str):
        proto.dim_param = dim
    elif dim is not None:
        proto.dim_value = dim


def merge_types(known: ValueType | None, found: ValueType | None) -> ValueType | None:
    """Combine two types of one value: the more exact of each part, the known one where they differ.

    A length is more exact than a symbol, and a symbol more exact than nothing.
    """
    if known is None or found is None:
        return found if known is None else known
    if isinstance(known, TensorType) and isinstance(found, TensorType):
        if known.dtype is not found.dtype or found.shape is None:
            return known
        if known.shape is None:
            return found
        if len(known.shape) != len(found.shape):
            return known
        dims = tuple(_merge_dims(*pair) for pair in zip(known.shape, found.shape, strict=True))
        return TensorType(known.dtype, dims)
    if isinstance(known, TensorType) or isinstance(found, TensorType):
        return known
    if type(known) is not type(found):
        return known
    return known.with_element(merge_types(known.element, found.element))


def _merge_dims(known: Dim, found: Dim) -> Dim:
    if known is None or (isinstance(known, str) and isinstance(found, int)):
        return found
    return known
