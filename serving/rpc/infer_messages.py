"""Inference requests and responses as protobuf messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.graph import DType
from ..protocol.call import Answer, GivenTensor, InferCall, Requested
from ..protocol.classification import class_labels
from ..protocol.datatypes import (
    DATATYPES,
    datatype_of,
    raw_bytes,
    read_raw,
    refuse_too_big,
    text_of,
)
from ..protocol.fields import Fields, refuse_wrong_lengths
from ..protocol.limits import Limits
from ..protocol.parameters import check_parameters, read_request_parameters
from ..protocol.refusal import RefusedError
from .wire import Depth

__all__ = ["INFER_DEPTH", "parameters_of", "read_infer_message", "write_infer_message"]

Array = np.ndarray[Any, np.dtype[Any]]

INFER_DEPTH: Depth = {5: {5: None}, 6: {}}
"""Where a ModelInferRequest may have many fields: in its inputs and outputs; and the contents."""

_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def parameters_of(entries: Mapping[str, Any], path: str) -> Fields:
    """Return a message's map of parameters as fields of a request."""
    values: dict[str, object] = {}
    for name, entry in entries.items():
        choice = entry.WhichOneof("parameter_choice")
        values[name] = None if choice is None else getattr(entry, choice)
    return Fields(values, path)


def read_infer_message(message: Any, limits: Limits, *, keeps_bytes: bool = False) -> InferCall:
    """Read a ModelInferRequest; its raw tensors are viewed where they are aligned.

    keeps_bytes: elements of BYTES stay bytes, and need not be texts. Raises RefusedError that names
    the field.
    """
    for name in ("inputs", "outputs"):
        if len(getattr(message, name)) > limits.tensor_count:
            raise RefusedError(f"at most {limits.tensor_count} are taken", field=name)
    raw: Sequence[bytes] = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise RefusedError(
            f"{len(raw)} contents; there are {len(message.inputs)} inputs",
            field="raw_input_contents",
        )
    inputs = [
        _read_input(entry, raw[index] if raw else None, index, limits, keeps_bytes=keeps_bytes)
        for index, entry in enumerate(message.inputs)
    ]
    parameters = parameters_of(message.parameters, "parameters")
    return InferCall(
        inputs=inputs,
        outputs=[_read_output(entry, index) for index, entry in enumerate(message.outputs)],
        id=message.id,
        is_binary=True,
        keeps_bytes=keeps_bytes,
        **read_request_parameters(parameters),
    )


def _read_input(
    entry: Any, raw: bytes | None, index: int, limits: Limits, *, keeps_bytes: bool
) -> GivenTensor:
    path = f"inputs[{index}]"
    if entry.datatype not in DATATYPES:
        text = f"{entry.datatype!r} is none of {', '.join(DATATYPES)}"
        raise RefusedError(text, field=f"{path}.datatype")
    shape = list(entry.shape)
    refuse_wrong_lengths(shape, f"{path}.shape", limits.rank)
    count = refuse_too_big(entry.datatype, shape, path, limits)
    if entry.parameters:
        check_parameters(parameters_of(entry.parameters, f"{path}.parameters"))
    if raw is None:
        array = _read_contents(entry, shape, count, path, keeps_bytes=keeps_bytes)
    elif entry.HasField("contents"):
        raise RefusedError("is there beside raw_input_contents", field=f"{path}.contents")
    else:
        field = f"raw_input_contents[{index}]"
        array = read_raw(memoryview(raw), entry.datatype, shape, field, keeps_bytes=keeps_bytes)
    return GivenTensor(entry.name, entry.datatype, array, path)


def _read_contents(
    entry: Any, shape: Sequence[int], count: int, path: str, *, keeps_bytes: bool
) -> Array:
    name = _CONTENTS.get(entry.datatype)
    if name is None:
        text = f"{entry.datatype} is taken in raw_input_contents only"
        raise RefusedError(text, field=f"{path}.datatype")
    field = f"{path}.contents.{name}"
    items = getattr(entry.contents, name)
    if len(items) != count:
        raise RefusedError(f"{len(items)} elements; shape {list(shape)} has {count}", field=field)
    if entry.datatype == "BYTES":
        texts = np.empty(count, object)
        for index, item in enumerate(items):
            texts[index] = item if keeps_bytes else text_of(item, f"{field}[{index}]")
        return texts.reshape(shape)
    try:
        return np.array(items, DATATYPES[entry.datatype].numpy).reshape(shape)
    except OverflowError:
        text = f"an element is out of the range of {entry.datatype}"
        raise RefusedError(text, field=field) from None


def _read_output(entry: Any, index: int) -> Requested:
    path = f"outputs[{index}]"
    parameters = parameters_of(entry.parameters, f"{path}.parameters")
    check_parameters(parameters)
    return Requested(
        name=entry.name,
        is_binary=True,
        class_count=parameters.count("classification"),
        field=path,
    )


def write_infer_message(answer: Answer, message: Any) -> None:
    """Fill a ModelInferResponse. Raises RefusedError for an output that has no datatype."""
    if answer.is_of_stream:
        message.parameters["triton_final_response"].bool_param = answer.is_last
    message.model_name, message.model_version = answer.model, answer.version
    message.id = answer.id
    for requested, given in answer.outputs:
        array = class_labels(given, requested) if requested.class_count else given
        datatype = datatype_of(DType.of(array.dtype))
        if datatype is None:
            raise RefusedError(f"output {requested.name!r} is {array.dtype}: no datatype")
        message.outputs.add(name=requested.name, datatype=datatype, shape=array.shape)
        message.raw_output_contents.append(bytes(raw_bytes(array)))
