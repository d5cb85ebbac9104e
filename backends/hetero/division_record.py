"""A division in a blob: the whole model without its weights, and which node is in which part."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import AioInferError, BlobError
from ...runtime.blobs.graph_record import read_model_record, write_model_record
from ...runtime.blobs.reader import Blob
from ...runtime.blobs.tensors_record import as_mapping, as_text
from ...runtime.blobs.writer import BlobWriter
from ...runtime.devices.device_name import parse_device
from ...runtime.graph import Model, ValueType, copy_graph
from ...runtime.graph.stand_ins import release_constants
from .division import Division
from .partition import Partition, make_partition
from .policies.expected_record import expected_record, read_expected
from .subgraphs.affinity import Placement
from .subgraphs.cutting import CutModel, cut_model
from .subgraphs.selection import Subgraph

__all__ = ["part_name", "read_division", "stand_ins", "write_division"]

_FRAME = "division"


def part_name(index: int) -> str:
    """Return what the frames of a subgraph's network begin with."""
    return f"part{index}"


def write_division(
    blob: BlobWriter,
    whole: Model,
    port_types: Sequence[ValueType | None],
    cut: CutModel,
    partition: Partition,
) -> None:
    """Add a division; ``whole`` may have dropped its weights.

    ``port_types`` are those of inputs and outputs as the file has them, which callers see.
    """
    graph = copy_graph(whole.graph)
    outputs = graph.outputs
    for value, known in zip((*graph.inputs, *outputs), port_types, strict=True):
        value.type = known
    release_constants(graph)
    for index, array in cut.constants.items():  # which runs return
        outputs[index].constant = array
    write_model_record(blob.under("whole"), whole.with_graph(graph), is_shown=True)
    placed = {
        name: [subgraph.device, node.reason]
        for subgraph in partition.subgraphs
        for node in subgraph.nodes
        for name in node.original_nodes
    }
    content = {
        "devices": list(partition.devices),
        "subgraphs": [[piece.device, list(piece.nodes)] for piece in cut.subgraphs],
        "placed": placed,
        "removed_nodes": list(partition.removed_nodes),
        "expected": expected_record(partition.expectation()),
    }
    blob.add_json(_FRAME, content)


def stand_ins(exported: Sequence[str], here: Sequence[str]) -> dict[str, str]:
    """Choose for each device of an export one that is used here: itself, or one of its kind.

    One that no other stands for goes first. Devices of a kind that is not here are left out. Pure.
    """
    found = {name: name for name in exported if name in here}
    free = [name for name in here if name not in found]
    for name in exported:
        alike = [item for item in (*free, *here) if _kind(item) == _kind(name)]
        if name not in found and alike:
            found[name] = alike[0]
            free = [item for item in free if item != alike[0]]
    return found


def _kind(device: str) -> str:
    return parse_device(device).name


def read_division(blob: Blob, here: Sequence[str]) -> Division:
    """Read a division for the devices that are used here, which stand in for those of the export.

    Raises BlobError for what ``write_division`` does not write.
    """
    blob.under("whole").check_frames()
    whole = read_model_record(blob.under("whole"), is_shown=True)
    content = blob.json(_FRAME)
    try:
        exported = [as_text(device) for device in content["devices"]]
        chosen = stand_ins(exported, here)
        subgraphs = [
            Subgraph(chosen.get(as_text(device), device), tuple(map(as_text, nodes)))
            for device, nodes in content["subgraphs"]
        ]
        placed = {
            name: Placement(chosen.get(as_text(device), device), as_text(reason))
            for name, (device, reason) in as_mapping(content["placed"]).items()
        }
        devices = list(dict.fromkeys(chosen.get(device, device) for device in exported))
        removed = [as_text(name) for name in content["removed_nodes"]]
        expected = read_expected(content["expected"])
        cut = cut_model(whole, subgraphs)
        made = make_partition(whole, cut, placed, removed, devices, expected)
        return Division(whole, cut, made)
    except BlobError:
        raise
    except (AioInferError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BlobError(
            f"the blob is damaged: its subgraphs do not make a model ({error}); export it again"
        ) from error
