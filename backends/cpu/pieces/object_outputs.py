"""Outputs that are texts or maps, made of what the plan of a whole model computes.

Classifiers end in a Gather of their labels and in a ZipMap of their scores. No plan has memory for
what these make; but where nothing follows them, the rest of the model is one plan, and they are two
calls of C behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from ....errors import TensorError
from ....runtime.graph import DType, Graph, Model, Node, TensorType, Value, copy_graph
from ....runtime.operators.own.own_maps import keys_of
from ....runtime.runs.bindings import NodeProfile
from .stepped_nodes import STANDARD_DOMAINS, holds_objects_anywhere

__all__ = ["ObjectOutputs", "cut_objects"]

Array = np.ndarray[Any, Any]
ZipRows = Callable[[tuple[Any, ...], Array], list[dict[Any, float]]]
"""Makes a dict of keys and numbers of each row of a float32 tensor: C's ``zip_rows``."""


class _Made(NamedTuple):
    source: Value
    make: Callable[[Array], Any]
    node: Node


class ObjectOutputs(NamedTuple):
    """A model, what is left of it for a plan, and how the outputs are made of the plan's."""

    whole: Model
    planned: Model
    names: tuple[str, ...]
    """The outputs of the whole model, in order."""
    sources: tuple[int, ...]
    """Of each, which output of the plan it is or is made of."""
    makers: tuple[Callable[[Array], Any] | None, ...]
    """Of each, the call of C that makes it; None: it is that output."""
    nodes: tuple[Node, ...]
    """Of each, the node that makes it."""

    def rows(self) -> list[tuple[str, int, Callable[[Array], Any] | None]]:
        """List the outputs: name, output of the plan, and call that makes it of that, if any."""
        return list(zip(self.names, self.sources, self.makers, strict=True))

    def finish(self, results: Sequence[Any], profile: list[NodeProfile] | None) -> dict[str, Any]:
        """Return the outputs by name, of those of the plan; times go into the profile, if any.

        Raises TensorError for a label that there is not.
        """
        made: dict[str, Any] = {}
        for (name, source, make), node in zip(self.rows(), self.nodes, strict=True):
            if make is None:
                made[name] = results[source]
                continue
            start_ns = perf_counter_ns()
            try:
                made[name] = make(results[source])
            except IndexError as error:
                raise TensorError(
                    f"node {node.name!r} cannot make output {name!r}: {error}", tensor=name
                ) from error
            if profile is not None:
                times = start_ns, perf_counter_ns()
                profile.append(NodeProfile(node.name, node.op, tuple(node.fused_from), *times, "C"))
        return made


def cut_objects(model: Model, zip_rows: ZipRows) -> ObjectOutputs | None:
    """Cut the nodes off the end of a model that make its outputs objects; changes nothing.

    None: there are none, or objects are left; or the rows or labels of one are not known.
    """
    found = [_made(value, zip_rows) for value in model.graph.outputs]
    is_bare = any(value.producer is None for value in model.graph.outputs)
    if is_bare or all(item is None for item in found):
        return None
    graph = copy_graph(model.graph)
    copies = {value.name: value for node in graph.nodes for value in node.outputs}
    sources = [
        copies.get((value if item is None else item.source).name)
        for value, item in zip(model.graph.outputs, found, strict=True)
    ]
    if any(source is None for source in sources):
        return None
    kept = list(dict.fromkeys(source for source in sources if source is not None))
    graph.outputs = kept
    _drop(graph, {item.node.name for item in found if item is not None})
    if holds_objects_anywhere(graph):
        return None
    planned = model.with_graph(graph)
    return ObjectOutputs(
        model,
        planned,
        tuple([value.name for value in model.graph.outputs]),
        tuple([kept.index(source) for source in sources if source is not None]),
        tuple([None if item is None else item.make for item in found]),
        tuple([value.producer for value in model.graph.outputs if value.producer is not None]),
    )


def _made(value: Value, zip_rows: ZipRows) -> _Made | None:
    """Return what makes an output of texts or maps, if that can be cut off."""
    node = value.producer
    if node is None or value.uses or len(node.outputs) != 1:
        return None
    if (node.domain, node.op_type) == ("ai.onnx.ml", "ZipMap"):
        source, keys = node.inputs[0], _keys(node)
        if not _is_tensor(source, (DType.FLOAT32,), 2) or _shape(source)[1] != len(keys):
            return None
        assert source is not None
        return _Made(source, partial(zip_rows, tuple(keys)), node)
    if node.domain not in STANDARD_DOMAINS or node.op_type != "Gather":
        return None
    words, source = node.inputs[0], node.inputs[1]
    labels = None if words is None else words.constant
    if labels is None or labels.dtype != object or labels.ndim != 1:
        return None
    if not _is_tensor(source, (DType.INT64, DType.INT32), None) or source is None:
        return None
    return _Made(source, np.array(labels).take, node) if _shape(source) else None


def _keys(node: Node) -> list[Any]:
    given = [node.attributes.get(f"classlabels_{kind}") or () for kind in ("int64s", "strings")]
    return keys_of(*given)


def _is_tensor(value: Value | None, dtypes: Sequence[DType], rank: int | None) -> bool:
    """True for a tensor that a node makes, of one of these types and this rank, if given."""
    if value is None or value.producer is None or value.is_constant:
        return False
    kind = value.type
    if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype not in dtypes:
        return False
    return rank is None or len(kind.shape) == rank


def _shape(value: Value | None) -> tuple[Any, ...]:
    assert value is not None
    assert isinstance(value.type, TensorType)
    return tuple(value.type.shape or ())


def _drop(graph: Graph, names: set[str]) -> None:
    """Remove nodes by name, and constants that nothing uses any more."""
    for node in list(graph.nodes):
        if node.name in names:
            graph.remove(node)
    for name, value in list(graph.initializers.items()):
        if not value.uses and not value.is_graph_output:
            del graph.initializers[name]
