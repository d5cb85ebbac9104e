"""A division in a blob: the whole model without its weights, and which node is in which part."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import AioInferError, BlobError
from ...runtime.blobs.graph_record import read_model_record, write_model_record
from ...runtime.blobs.reader import Blob
from ...runtime.blobs.tensors_record import as_mapping, as_text
from ...runtime.blobs.writer import BlobWriter
from ...runtime.graph import Model, Value, copy_graph
from ...runtime.graph.stand_ins import release_constants
from .affinity import Placement
from .cutting import CutModel, cut_model
from .division import Division
from .expected_record import expected_record, read_expected
from .partition import Partition, make_partition
from .selection import Subgraph

__all__ = ["part_name", "read_division", "write_division"]

_FRAME = "division"


def part_name(index: int) -> str:
    """Return what the frames of a subgraph's network begin with."""
    return f"part{index}"


def write_division(
    blob: BlobWriter, whole: Model, ports: Sequence[Value], cut: CutModel, partition: Partition
) -> None:
    """Add a division; ``whole`` may have dropped its weights.

    ``ports`` are inputs and outputs as the file has them, of the types that callers see.
    """
    graph = copy_graph(whole.graph)
    outputs = graph.outputs
    for value, port in zip((*graph.inputs, *outputs), ports, strict=True):
        value.type = port.type
    release_constants(graph)
    for index, array in cut.constants.items():  # which runs return
        outputs[index].constant = array
    write_model_record(blob.under("whole"), whole.with_graph(graph))
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
        "expected": expected_record(partition.expected),
    }
    blob.add_json(_FRAME, content)


def read_division(blob: Blob) -> Division:
    """Read a division; raises BlobError for what ``write_division`` does not write."""
    blob.under("whole").check_frames()
    whole = read_model_record(blob.under("whole"))
    content = blob.json(_FRAME)
    try:
        subgraphs = [
            Subgraph(as_text(device), tuple(map(as_text, nodes)))
            for device, nodes in content["subgraphs"]
        ]
        placed = {
            name: Placement(as_text(device), as_text(reason))
            for name, (device, reason) in as_mapping(content["placed"]).items()
        }
        devices = [as_text(device) for device in content["devices"]]
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
