"""Scan as opset 8 had it, over batches, in the form of later opsets.

Until opset 8 a Scan ran once for each element of a batch. Later ones know no batch, and onnx's
converter drops that axis from whatever it finds, the model's inputs included. So such a node
becomes two: a Scan over the batch, which takes everything as scan input and stacks all results, and
in its body a Scan with the original body. The converter must not see either of them, but convert
the body, so meanwhile the node is an If: that has bodies, and no version of it needs an adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import onnx

from ....errors import ModelError
from ..origins import Origins
from .structure import all_nodes, body_protos, value_names

__all__ = ["BATCHED_OPSET", "find_batched_scans", "hide_batched_scans", "split_batched_scans"]

BATCHED_OPSET = 8
"""The only opset with this form: it introduced Scan, and the next one took the batch out."""

_STAND_IN = "If"
_COUNT = "num_scan_inputs"


def find_batched_scans(model: onnx.ModelProto) -> frozenset[str]:
    """Return the names of the Scans of a model of opset 8, in which all nodes have names.

    Raises ModelError for one that is given lengths of its sequences, which no later Scan can
    express, and for one that does not fit its body.
    """
    scans = [node for node in all_nodes(model.graph.node) if not node.domain]
    scans = [node for node in scans if node.op_type == "Scan"]
    for node in scans:
        _check(node)
    return frozenset(node.name for node in scans)


def _check(node: onnx.NodeProto) -> None:
    if node.input and node.input[0]:
        raise ModelError(
            f"node {node.name!r} is a Scan of opset 8 with sequence_lens, which later opsets do "
            "not have; export the model with opset 9 or newer, or without sequence_lens"
        )
    bodies = [body for name, body in body_protos(node) if name == "body"]
    given, scanned = len(node.input) - 1, _scanned_count(node)
    fits = len(bodies) == 1 and 1 <= scanned <= given == len(bodies[0].input)
    if not fits or not given - scanned <= len(bodies[0].output) >= len(node.output):
        raise ModelError(
            f"node {node.name!r} is a Scan that does not fit its body: it needs one body with as "
            "many inputs as it has itself behind sequence_lens, num_scan_inputs of them scanned, "
            "and at least as many outputs as it has itself and as it has states"
        )


def _scanned_count(node: onnx.NodeProto) -> int:
    return sum(item.i for item in node.attribute if item.name == _COUNT)


def hide_batched_scans(model: onnx.ModelProto, names: Set[str]) -> None:
    """Disguise the named nodes, so that the converter leaves all but their bodies alone."""
    for node in all_nodes(model.graph.node):
        if node.name in names:
            node.op_type = _STAND_IN
            del node.input[0]


def split_batched_scans(model: onnx.ModelProto, names: Set[str], origins: Origins) -> None:
    """Turn each disguised node into a Scan over the batch around one over the sequence.

    The outer one keeps the name, and the inner one is called after it and shares its origin.
    """
    if not names:
        return
    taken = set(value_names(model.graph))
    for node in reversed([*all_nodes(model.graph.node)]):  # bodies first: they are copied
        if node.name in names and node.op_type == _STAND_IN:
            name = origins.claim_like(f"{node.name}/Scan")
            origins[name] = origins[node.name]
            _split(node, name, taken)


def _split(node: onnx.NodeProto, name: str, taken: set[str]) -> None:
    inner = onnx.NodeProto(op_type="Scan", name=name, attribute=node.attribute)
    for item in inner.attribute:
        if item.name == "directions":
            item.name = "scan_input_directions"
    body = next(graph for attribute, graph in body_protos(inner) if attribute == "body")
    states = len(node.input) - _scanned_count(node)
    outer = onnx.GraphProto(name=f"{body.name}_of_batch")
    outer.input.extend(_whole_sequences(body.input, states, f"{name}/input", taken))
    outer.output.extend(_whole_sequences(body.output, states, f"{name}/output", taken))
    inner.input.extend(info.name for info in outer.input)
    inner.output.extend(info.name for info in outer.output)
    outer.node.append(inner)
    node.op_type = "Scan"
    del node.attribute[:]
    node.attribute.add(name="body", type=onnx.AttributeProto.GRAPH, g=outer)
    node.attribute.add(name=_COUNT, type=onnx.AttributeProto.INT, i=len(node.input))


def _whole_sequences(
    infos: Sequence[onnx.ValueInfoProto], states: int, prefix: str, taken: set[str]
) -> Iterator[onnx.ValueInfoProto]:
    """Declare the values around a body: states as in there, others with the sequence's axis."""
    for index, info in enumerate(infos):
        whole = onnx.ValueInfoProto(name=_free_name(f"{prefix}_{index}", taken))
        if info.HasField("type"):
            whole.type.CopyFrom(info.type)
        if index >= states and whole.type.tensor_type.HasField("shape"):
            lengths = whole.type.tensor_type.shape.dim
            rest = [*lengths]
            del lengths[:]
            lengths.add()
            lengths.extend(rest)
        yield whole


def _free_name(wanted: str, taken: set[str]) -> str:
    name = wanted
    while name in taken:
        name += "_"
    taken.add(name)
    return name
