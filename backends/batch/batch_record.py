"""What a blob says of BATCH: which inputs and outputs have rows, and where sequences are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import BlobError
from ...runtime.plans.batch_axis import BatchAxis
from ...runtime.tensors.tensor import Port
from .length_padding import LengthAxes, LengthPadding

__all__ = ["batch_record", "check_batch", "read_batch"]


def batch_record(axis: BatchAxis, padding: LengthPadding | None) -> dict[str, Any]:
    """Write it as JSON has it."""
    record: dict[str, Any] = {"inputs": list(axis.inputs), "outputs": list(axis.outputs)}
    if padding is not None:
        axes = padding.axes
        record["lengths"] = {
            "inputs": {name: list(found) for name, found in axes.inputs.items()},
            "outputs": {name: list(found) for name, found in axes.outputs.items()},
        }
    return record


def read_batch(content: Any) -> tuple[BatchAxis, LengthAxes | None]:
    """Read it; no axes of lengths: none was padded. Raises BlobError for anything else."""
    names: list[tuple[str, ...]] = []
    for key in ("inputs", "outputs"):
        found = content.get(key) if isinstance(content, dict) else None
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise BlobError(f"the blob is damaged: it does not say which {key} have rows")
        names.append(tuple(found))
    lengths = content.get("lengths")
    if lengths is None:
        return BatchAxis(*names), None
    axes = [_axes(lengths, key) for key in ("inputs", "outputs")]
    if not axes[0]:
        raise BlobError("the blob is damaged: no input has the lengths that it pads")
    return BatchAxis(*names), LengthAxes(*axes)


def check_batch(
    axis: BatchAxis, axes: LengthAxes | None, inputs: Sequence[Port], outputs: Sequence[Port]
) -> None:
    """Raise BlobError unless what was read is of these inputs and outputs."""
    named = [(axis.inputs, inputs), (axis.outputs, outputs)]
    if axes is not None:
        named += [(tuple(axes.inputs), inputs), (tuple(axes.outputs), outputs)]
    for names, ports in named:
        if not {port.name for port in ports}.issuperset(names):
            raise BlobError("the blob is damaged: its batch is of other names; export it again")
    if axes is None:
        return
    for found, ports in ((axes.inputs, inputs), (axes.outputs, outputs)):
        ranks = {port.name: None if port.shape is None else len(port.shape) for port in ports}
        for name, places in found.items():
            rank = ranks[name]
            if rank is not None and max(places) >= rank:
                raise BlobError(f"the blob is damaged: {name!r} has no axis {max(places)}")


def _axes(lengths: Any, key: str) -> Mapping[str, tuple[int, ...]]:
    found = lengths.get(key) if isinstance(lengths, dict) else None
    if not isinstance(found, dict):
        raise BlobError(f"the blob is damaged: it does not say which {key} have lengths to pad")
    for name, places in found.items():
        if not isinstance(places, list) or not places or not all(map(_is_axis, places)):
            raise BlobError(f"the blob is damaged: it does not say which axes of {name!r} to pad")
    return {name: tuple(places) for name, places in found.items()}


def _is_axis(place: Any) -> bool:
    return type(place) is int and place > 0
