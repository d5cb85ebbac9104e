"""The generate extension's JSON: inputs and outputs as plain fields. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ...runtime.graph import TensorType
from ...runtime.tensors.tensor import Port
from .call import Answer, GivenTensor, InferCall
from .datatypes import datatype_of, json_elements, refuse_too_big
from .fields import Fields
from .http_request import read_elements
from .json_text import read_json, write_json
from .limits import Limits
from .parameters import read_request_parameters
from .refusal import RefusedError

__all__ = ["generate_document", "joined_documents", "read_generate_request", "server_sent"]


def read_generate_request(
    body: bytes | memoryview, inputs: Sequence[Port], limits: Limits
) -> InferCall:
    """Read the body of ``POST .../generate``: ``{"input": value or nested lists, ...}``.

    What is no input is a parameter, beside those in ``parameters``. A value of fewer dimensions
    than its input's gets ones in front. Raises RefusedError that names the field.
    """
    document = read_json(body, limits)
    fields = Fields(document)
    parameters: dict[str, object] = {}
    if isinstance(document, dict):
        own = {port.name for port in inputs} | {"id", "parameters"}
        parameters.update((name, item) for name, item in document.items() if name not in own)
        inner = fields.any("parameters")
        if inner is not None:
            Fields(inner, "parameters")
            assert isinstance(inner, dict)
            parameters.update(inner)
    given = [_read_input(fields, port, limits) for port in inputs if fields.has(port.name)]
    return InferCall(
        inputs=given,
        id=fields.text("id", ""),
        **read_request_parameters(Fields(parameters, "parameters")),
    )


def _read_input(fields: Fields, port: Port, limits: Limits) -> GivenTensor:
    name = port.name
    if not isinstance(port.type, TensorType):
        raise RefusedError("is no tensor", field=name)
    datatype = datatype_of(port.type.dtype) or ""
    flat, shape = _flat(fields.any(name), name, limits.rank)
    rank = len(port.shape) if port.shape is not None else len(shape)
    shape = [*[1] * (rank - len(shape)), *shape]
    refuse_too_big(datatype, shape, name, limits)
    dtype = port.type.dtype.numpy
    if datatype in ("FP16", "BF16"):
        with np.errstate(over="ignore"):  # to infinity, as others round
            array = read_elements(flat, "FP32", shape, name).astype(dtype)
    else:
        array = read_elements(flat, datatype, shape, name)
    return GivenTensor(name, datatype, array, name)


def _flat(value: object, field: str, most: int) -> tuple[list[object], list[int]]:
    """Return the elements of nested lists, and their shape; lists side by side are equally long."""
    level: list[object] = [value]
    shape: list[int] = []
    while level and isinstance(level[0], list):
        length = len(level[0])
        if len(shape) == most:
            raise RefusedError(f"at most {most} dimensions are taken", field=field)
        joined: list[object] = []
        for item in level:
            if not isinstance(item, list) or len(item) != length:
                raise RefusedError("lists side by side are not equally long", field=field)
            joined += item
        shape.append(length)
        level = joined
    if not prod(shape):
        return [], shape
    return level, shape


def generate_document(answer: Answer) -> Mapping[str, object]:
    """Return one answer as plain fields; an output of one element is a value, else a flat list.

    Raises RefusedError for elements that JSON has no form for.
    """
    told: dict[str, object] = {"model_name": answer.model, "model_version": answer.version}
    if answer.id:
        told["id"] = answer.id
    for requested, array in answer.outputs:
        items = array.astype(np.float32) if array.dtype.kind == "V" else array
        if items.dtype.kind == "f" and not np.isfinite(items).all():
            raise RefusedError(
                "has elements that are NaN or infinite, for which JSON has no form",
                field=f"output {requested.name!r}",
            )
        flat = json_elements(items, f"output {requested.name!r}")
        told[requested.name] = flat[0] if len(flat) == 1 else flat
    return told


def joined_documents(documents: Sequence[Mapping[str, object]], outputs: Sequence[str]) -> bytes:
    """Return the answers of one request as one: of each output the list of its values."""
    last = dict(documents[-1])
    if len(documents) > 1:
        last.update((name, [told[name] for told in documents]) for name in outputs)
    return write_json(last)


def server_sent(document: Mapping[str, object]) -> bytes:
    """Return a document as one server-sent event."""
    return b"data: " + write_json(document) + b"\n\n"
