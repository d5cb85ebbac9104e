"""The answer to an inference request over HTTP: JSON, and raw tensors behind it. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.graph import DType
from .call import Answer, Requested
from .classification import class_labels
from .datatypes import datatype_of, json_elements, raw_bytes
from .json_text import write_json
from .refusal import RefusedError
from .shared_memory import place_parameters

__all__ = ["infer_response", "refusal_body"]

Array = np.ndarray[Any, np.dtype[Any]]
_RAW_ONLY = ("FP16", "BF16")


def infer_response(answer: Answer) -> tuple[bytes, int | None]:
    """Return the body, and the length of its JSON part if tensors follow it.

    Outputs that are wanted in shared memory are written there. Raises RefusedError for an output
    that JSON cannot carry, as one with elements that are not finite, one that has no datatype, and
    one that does not fit where it is wanted.
    """
    raw: list[memoryview] = []
    outputs = [_output(requested, array, raw) for requested, array in answer.outputs]
    document: dict[str, object] = {
        "model_name": answer.model,
        "model_version": answer.version,
        "outputs": outputs,
    }
    if answer.id:
        document["id"] = answer.id
    text = write_json(document)
    if not raw:
        return text, None
    return b"".join([text, *raw]), len(text)


def _output(requested: Requested, array: Array, raw: list[memoryview]) -> dict[str, object]:
    if requested.class_count:
        array = class_labels(array, requested)
    datatype = datatype_of(DType.of(array.dtype))
    if datatype is None:
        raise RefusedError(f"output {requested.name!r} is {array.dtype}, which has no datatype")
    entry: dict[str, object] = {
        "name": requested.name,
        "datatype": datatype,
        "shape": list(array.shape),
    }
    if requested.place is not None:
        data = raw_bytes(array)
        requested.place.write(data)
        # Triton's C++ client looks for a size wherever there are parameters.
        told = place_parameters(requested.place, data.nbytes)
        entry["parameters"] = {**told, "binary_data_size": 0}
    elif requested.is_binary:
        data = raw_bytes(array)
        entry["parameters"] = {"binary_data_size": data.nbytes}
        raw.append(data)
    elif datatype in _RAW_ONLY:
        raise RefusedError(
            f"{datatype} has no form in JSON; ask for it with parameters.binary_data",
            field=requested.field or f"output {requested.name!r}",
        )
    elif array.dtype.kind == "f" and not np.isfinite(array).all():
        raise RefusedError(
            "has elements that are NaN or infinite, for which JSON has no form; ask for it with "
            "parameters.binary_data",
            field=requested.field or f"output {requested.name!r}",
        )
    else:
        field = requested.field or f"output {requested.name!r}"
        entry["data"] = json_elements(array, field)
    return entry


def refusal_body(message: str) -> bytes:
    """Return the protocol's body of an error."""
    return write_json({"error": message})
