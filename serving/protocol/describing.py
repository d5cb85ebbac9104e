"""Metadata of server and models, as the protocol's documents. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...runtime.graph import TensorType
from ...runtime.tensors.tensor import Port
from .datatypes import datatype_of

__all__ = [
    "PLATFORM",
    "extensions",
    "model_configuration",
    "model_metadata",
    "port_metadata",
    "unserved_port",
]

PLATFORM, BACKEND = "onnx_aioinfer", "aioinfer"


def model_metadata(
    name: str, versions: Iterable[str], inputs: Sequence[Port], outputs: Sequence[Port]
) -> dict[str, object]:
    """Describe a model; lengths that are open are -1, and so is an open rank."""
    return {
        "name": name,
        "versions": list(versions),
        "platform": PLATFORM,
        "inputs": [port_metadata(port) for port in inputs],
        "outputs": [port_metadata(port) for port in outputs],
    }


def port_metadata(port: Port) -> dict[str, object]:
    """Describe an input or output."""
    known = isinstance(port.type, TensorType)
    datatype = datatype_of(port.type.dtype) if isinstance(port.type, TensorType) else None
    shape = port.shape if known else None
    return {
        "name": port.name,
        "datatype": datatype or "",
        "shape": [-1] if shape is None else [dim if isinstance(dim, int) else -1 for dim in shape],
    }


def model_configuration(
    name: str, inputs: Sequence[Port], outputs: Sequence[Port], *, is_decoupled: bool
) -> dict[str, object]:
    """Describe a model in the words of Triton's configuration.

    All dimensions are listed, and ``max_batch_size`` is 0: none is known to be that of a batch.
    is_decoupled: it may have several answers to one request.
    """
    return {
        "name": name,
        "platform": PLATFORM,
        "backend": BACKEND,
        "max_batch_size": 0,
        "input": [_configured(port) for port in inputs],
        "output": [_configured(port) for port in outputs],
        "model_transaction_policy": {"decoupled": is_decoupled},
    }


def _configured(port: Port) -> dict[str, object]:
    told = port_metadata(port)
    datatype = "STRING" if told["datatype"] == "BYTES" else told["datatype"] or "INVALID"
    return {"name": port.name, "data_type": f"TYPE_{datatype}", "dims": told["shape"]}


def unserved_port(ports: Sequence[Port]) -> str:
    """Return which port the protocol cannot carry, and why; "" if it can carry all."""
    for port in ports:
        if not isinstance(port.type, TensorType):
            return f"{port.name!r} is {port.type or 'of an unknown type'}, and no tensor"
        if datatype_of(port.type.dtype) is None:
            return f"{port.name!r} is {port.type.dtype.label}, for which there is no datatype"
    return ""


def extensions(
    *, can_manage: bool, has_sequences: bool = True, has_regions: bool = False
) -> list[str]:
    """List the protocol's extensions that are there, by their names."""
    names = [
        "binary_tensor_data",
        "classification",
        "generate",
        "model_configuration",
        "schedule_policy",
        *(("sequence", "sequence(string_id)") if has_sequences else ()),
        "statistics",
        *(("system_shared_memory",) if has_regions else ()),
    ]
    return [*names, "model_repository"] if can_manage else names
