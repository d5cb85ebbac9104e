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
from ..protocol.parameters import read_request_parameters
from ..protocol.refusal import RefusedError
from ..protocol.shared_memory import Place, Regions, SharedInput, place_parameters, read_place
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


def read_infer_message(
    message: Any, limits: Limits, *, keeps_bytes: bool = False, regions: Regions | None = None
) -> InferCall:
    """Read a ModelInferRequest; its raw tensors are viewed where they are aligned.

    keeps_bytes: elements of BYTES stay bytes, and need not be texts. regions: of shared memory;
    None: there are none. Raises RefusedError that names the field.
    """
    for name in ("inputs", "outputs"):
        if len(getattr(message, name)) > limits.tensor_count:
            raise RefusedError(f"at most {limits.tensor_count} are taken", field=name)
    raw: Sequence[bytes] = message.raw_input_contents
    shared: list[SharedInput] = []
    in_message: list[tuple[int, Any]] = []
    for index, entry in enumerate(message.inputs):
        path = f"inputs[{index}]"
        place = None
        if entry.parameters:
            place = read_place(parameters_of(entry.parameters, f"{path}.parameters"), regions)
        if place is None:
            in_message.append((index, entry))
        else:
            shared.append(_shared_input(entry, place, path, limits))
    if raw and len(raw) != len(in_message):
        raise RefusedError(
            f"{len(raw)} contents; there are {len(in_message)} inputs with contents",
            field="raw_input_contents",
        )
    inputs = [
        _read_input(entry, raw[nth] if raw else None, index, limits, keeps_bytes=keeps_bytes)
        for nth, (index, entry) in enumerate(in_message)
    ]
    parameters = parameters_of(message.parameters, "parameters")
    return InferCall(
        inputs=inputs,
        outputs=[
            _read_output(entry, index, regions) for index, entry in enumerate(message.outputs)
        ],
        id=message.id,
        is_binary=True,
        keeps_bytes=keeps_bytes,
        shared=shared,
        **read_request_parameters(parameters),
    )


def _read_input(
    entry: Any, raw: bytes | None, index: int, limits: Limits, *, keeps_bytes: bool
) -> GivenTensor:
    path = f"inputs[{index}]"
    shape, count = _shape_and_count(entry, path, limits)
    if raw is None:
        array = _read_contents(entry, shape, count, path, keeps_bytes=keeps_bytes)
    elif entry.HasField("contents"):
        raise RefusedError("is there beside raw_input_contents", field=f"{path}.contents")
    else:
        field = f"raw_input_contents[{index}]"
        array = read_raw(memoryview(raw), entry.datatype, shape, field, keeps_bytes=keeps_bytes)
    return GivenTensor(entry.name, entry.datatype, array, path)


def _shape_and_count(entry: Any, path: str, limits: Limits) -> tuple[list[int], int]:
    """Return an input's shape, and how many elements it has by that."""
    if entry.datatype not in DATATYPES:
        text = f"{entry.datatype!r} is none of {', '.join(DATATYPES)}"
        raise RefusedError(text, field=f"{path}.datatype")
    shape = list(entry.shape)
    refuse_wrong_lengths(shape, f"{path}.shape", limits.rank)
    return shape, refuse_too_big(entry.datatype, shape, path, limits)


def _shared_input(entry: Any, place: Place, path: str, limits: Limits) -> SharedInput:
    shape, _ = _shape_and_count(entry, path, limits)
    if entry.HasField("contents"):
        raise RefusedError("is there beside shared_memory_region", field=f"{path}.contents")
    return SharedInput(entry.name, entry.datatype, shape, place, path)


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


def _read_output(entry: Any, index: int, regions: Regions | None) -> Requested:
    path = f"outputs[{index}]"
    parameters = parameters_of(entry.parameters, f"{path}.parameters")
    return Requested(
        name=entry.name,
        is_binary=True,
        class_count=parameters.count("classification"),
        field=path,
        place=read_place(parameters, regions),
    )


def write_infer_message(answer: Answer, message: Any) -> None:
    """Fill a ModelInferResponse.

    Outputs that are wanted in shared memory are written there, and have empty contents. Raises
    RefusedError for one that has no datatype, and one that does not fit where it is wanted.
    """
    if answer.is_of_stream:
        message.parameters["triton_final_response"].bool_param = answer.is_last
    message.model_name, message.model_version = answer.model, answer.version
    message.id = answer.id
    for requested, given in answer.outputs:
        array = class_labels(given, requested) if requested.class_count else given
        datatype = datatype_of(DType.of(array.dtype))
        if datatype is None:
            raise RefusedError(f"output {requested.name!r} is {array.dtype}: no datatype")
        told = message.outputs.add(name=requested.name, datatype=datatype, shape=array.shape)
        data = raw_bytes(array)
        if requested.place is None:
            message.raw_output_contents.append(bytes(data))
            continue
        requested.place.write(data)
        message.raw_output_contents.append(b"")
        for name, value in place_parameters(requested.place, data.nbytes).items():
            kind = "string_param" if isinstance(value, str) else "int64_param"
            setattr(told.parameters[name], kind, value)
