"""Operators between pieces that native code computes, or that write into what nobody else has."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.graph import Node, Value
from ....runtime.interpretation.control_flow import Body, Run
from ....runtime.operators import Operator, as_operator
from ....runtime.operators.images.box_suppression import by_score, keep, select_boxes
from ....runtime.operators.indices.scattering import write_elements, write_nd
from ....runtime.operators.own.own_operators import kept_count, top_k
from ....runtime.passes.rewriting.matching import are_float32, rank_of
from ....runtime.runs.stage import Stop
from ..native.step_runner import StepRunner
from ..onednn.post_ops import CPU_DOMAIN
from .stepped_nodes import STANDARD_DOMAINS
from .stream_run import StreamRun

__all__ = ["NativeStep", "find_native", "find_writer"]

Array = np.ndarray[Any, Any]

_WRITERS: dict[str, Callable[..., Array]] = {
    "ScatterElements": write_elements,
    "ScatterND": write_nd,
}
_MAKERS = frozenset(
    {
        (CPU_DOMAIN, "Piece"),
        *[(domain, name) for domain in STANDARD_DOMAINS for name in ("ConstantOfShape", *_WRITERS)],
    }
)
"""Operators whose results are arrays of their own, which share memory with nothing."""


class NativeStep:
    """Computes a node by ``function(stop, *arrays)``, which raises the stop's error once it is set.

    It is handed the run, as control flow is, and gives the node's results. ``functions`` names
    those of the native code that compute them.
    """

    def __init__(
        self, function: Callable[..., tuple[Array, ...]], functions: Sequence[str]
    ) -> None:
        self._function = function
        self.implementation = "+".join([f"native:{name}" for name in functions])

    def make_flow(self, _node: Node, _bodies: Mapping[str, Body]) -> NativeStep:
        """Return what runs in the place of the node."""
        return self

    def __call__(self, row: Sequence[Any], run: Run) -> tuple[Array, ...]:
        assert isinstance(run, StreamRun)
        return self._function(run.owner, *row)


def find_native(node: Node, runner: StepRunner) -> NativeStep | None:
    """Return the native step that computes a node of a contracted graph; None if numpy does."""
    if node.domain not in STANDARD_DOMAINS:
        return None
    if node.op_type == "NonMaxSuppression" and are_float32(*node.inputs[:2]):
        is_centred = node.attributes.get("center_point_box", 0)
        function = functools.partial(_select, runner, is_centred)
        return NativeStep(function, ("order_floats", "suppress_boxes"))
    if node.op_type == "TopK" and len(node.inputs) == 2 and are_float32(node.inputs[0]):
        axis, falls = node.attributes.get("axis", -1), node.attributes.get("largest", 1) != 0
        rank = rank_of(node.inputs[0])
        if axis == -1 or axis + 1 == rank:
            return NativeStep(functools.partial(_top, runner, axis, falls), ("order_floats",))
    return None


def find_writer(node: Node) -> Operator | None:
    """Return what computes a node by writing into an input; None for what is to leave them alone.

    The graph settles it: the input was made for this node, and nothing else uses it.
    """
    if node.domain not in STANDARD_DOMAINS or node.op_type not in _WRITERS:
        return None
    if not _is_given_up(node.inputs[0], node):
        return None
    return as_operator(functools.partial(_written, _WRITERS[node.op_type]), node.attributes)


def _is_given_up(value: Value | None, to: Node) -> bool:
    """True for what a step has made in memory of its own, and only one other step reads, once.

    A body may run again and again for what was made once outside of it.
    """
    maker = None if value is None else value.producer
    if value is None or value.is_constant or value.is_graph_output or maker is None:
        return False
    if maker.graph is not to.graph:
        return False
    is_own = (maker.domain, maker.op_type) in _MAKERS and maker.user_kernel is None
    return is_own and len(value.uses) == 1


def _written(write: Callable[..., Array], x: Array, *rest: Array, **attributes: Any) -> Array:
    """Write into x itself, unless it is a view after all."""
    is_own = x.flags.writeable and x.flags.owndata
    return write(x if is_own else x.copy(), *rest, **attributes)


def _select(runner: StepRunner, is_centred: int, stop: Stop, *arrays: Any) -> tuple[Array, ...]:
    order = functools.partial(_by_score, runner, stop)
    kept = functools.partial(_keep, runner, stop)
    return (select_boxes(order, kept, *arrays, center_point_box=is_centred),)


def _by_score(
    runner: StepRunner, stop: Stop, scores: Array, least_score: np.floating | None
) -> Array:
    """Order scores, natively unless they are not the float32 that the graph declares."""
    stop.raise_if_set()
    if scores.dtype != np.float32 or (least_score is not None and np.isnan(least_score)):
        return by_score(scores, least_score)
    above = math.nan if least_score is None else float(least_score)
    return runner.order_floats(
        scores, scores.size, falls=True, nan_last=True, above=above, stop=stop
    )


def _keep(
    runner: StepRunner,
    stop: Stop,
    corners: Array,
    order: Array,
    limit: int,
    most_overlap: np.floating,
) -> Array:
    """Choose boxes, natively unless they are not the float32 that the graph declares."""
    if corners.dtype != np.float32:
        return keep(corners, order, limit, most_overlap)
    return runner.suppress_boxes(corners, order, limit, most_overlap, stop)


def _top(
    runner: StepRunner, axis: int, falls: bool, stop: Stop, x: Array, k: Array
) -> tuple[Array, Array]:
    """Keep what is first along the last axis, natively unless x is not what the graph declares."""
    if x.dtype != np.float32 or axis not in (-1, x.ndim - 1):
        found: tuple[Array, Array] = top_k(x, k, axis=axis, largest=int(falls))
        return found
    count = kept_count(x, k, axis)
    rows = x if x.ndim == 1 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    places = runner.order_floats(rows, count, falls=falls, nan_last=not falls, stop=stop)
    places = places.reshape(*x.shape[:-1], count)
    kept: Array = x.take(places) if x.ndim == 1 else np.take_along_axis(x, places, -1)
    return kept, places
