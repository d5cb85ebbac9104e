"""Compute, before any input is there, what does not depend on one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from ....executors.late_imports import late_imports
from ...graph import DType, Graph, Model, Node, TensorType, ValueType
from ...graph.sym_array import derived_arrays, is_symbolic
from ...graph.sym_int import plain_int
from ...type_inference import ShapeContent, has_static_types
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.node_traits import has_only_tensors, is_random
from ..rewriting.pass_base import Pass
from .folding_work import predict_work
from .result_size import inputs_bytes, item_bytes, predict_bytes

__all__ = ["ConstantFolding"]

LIMIT_BYTES = 64 << 20
"""A larger result is worth its memory only if it replaces inputs that are no smaller."""
LIMIT_WORK = 1 << 29
"""Of one node, in touched elements: about half a second. A device computes what is more."""
TOTAL_WORK = 1 << 33
"""Of all nodes that one run folds, beside what the size of the model's constants allows."""
WORK_PER_ELEMENT = 64
"""What may be spent on each element of a constant, however many there are."""


class ConstantFolding(Pass):
    """Replace nodes by constants: those whose inputs are constants, and what shapes tell.

    ``Shape`` and what is picked from it fold as soon as the lengths in question are known, the
    others need not be. Left as they are: random operators, control flow, sequences and optionals,
    the operators in ``keep_ops``, nodes of which ``is_kept`` says so, results above
    ``limit_bytes``, what is more work than ``limit_work`` and does not grow with the constants
    alone, and whatever fails to compute: it then fails at run time, if it is reached.
    Constants of a graph around a body count as constants.
    """

    name = "constant folding"
    finds_all = True
    requires = frozenset({"topological order"})
    guarantees = frozenset({"no Constant nodes"})

    def __init__(
        self,
        *,
        limit_bytes: int = LIMIT_BYTES,
        limit_work: int = LIMIT_WORK,
        keep_ops: Collection[str] = (),
        is_kept: Callable[[Node], bool] | None = None,
        opsets: Mapping[str, int] | None = None,
    ) -> None:
        self._limit_bytes, self._limit_work = limit_bytes, limit_work
        self._keep_ops, self._is_kept = frozenset(keep_ops), is_kept
        self._opsets = dict(opsets or {})
        self._failed: set[Node] = set()
        """Nodes that this run has tried in vain; only an object that is bound to a run has any."""
        self._work_left = float(TOTAL_WORK)

    def bind(self, model: Model) -> Pass:
        bound = ConstantFolding(
            limit_bytes=self._limit_bytes,
            limit_work=self._limit_work,
            keep_ops=self._keep_ops,
            is_kept=self._is_kept,
            opsets=model.opsets,
        )
        constants = (value.constant for value in model.graph.initializers.values())
        elements = sum(plain_int(array.size) for array in constants if array is not None)
        bound._work_left += WORK_PER_ELEMENT * elements
        return bound

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        contents = ShapeContent()
        for node in graph.nodes:
            lengths = contents.follow(node)
            arrays = self._shape_array(node, lengths.as_array() if lengths else None)
            if arrays is None and self._may_fold(node):
                arrays = self._evaluate(node)
            if arrays is not None:
                yield _patch(node, arrays)

    def _shape_array(self, node: Node, array: np.ndarray | None) -> list[np.ndarray] | None:
        if array is None or node.op in self._keep_ops or not _fits(array, node.outputs[0].type):
            return None
        return [array]

    def _may_fold(self, node: Node) -> bool:
        for value in node.inputs:
            if value is not None and value.constant is None:
                return False
        if node in self._failed or node.op in self._keep_ops or is_random(node) or node.bodies():
            return False
        if not has_only_tensors(node) or (self._is_kept is not None and self._is_kept(node)):
            return False
        if node.op == "Constant":
            return True
        predicted = predict_bytes(node)
        size = None if predicted is None else plain_int(predicted)
        if size is None or size > max(self._limit_bytes, inputs_bytes(node)):
            return False
        return self._may_spend(node, size // item_bytes(node))

    def _may_spend(self, node: Node, made: int) -> bool:
        """Take what a node costs from what this run may spend; False if that is too much."""
        work = predict_work(node, made)
        arrays = (value.constant for value in node.inputs if value is not None)
        read = plain_int(sum(array.size for array in arrays if array is not None))
        work = plain_int(work) if isinstance(work, int) else work
        if work is None or work > max(self._limit_work, WORK_PER_ELEMENT * read):
            return False
        if work > self._work_left:
            return False
        self._work_left -= work
        return True

    def _evaluate(self, node: Node) -> list[np.ndarray] | None:
        """Compute all outputs; None if that fails, or gives other types than the graph expects."""
        with late_imports:
            from ...operators import find_unsupported, make_operator

        arrays = None
        if find_unsupported(node, self._opsets) is None:
            inputs = [None if value is None else value.constant for value in node.inputs]
            if any(map(is_symbolic, inputs)):
                return self._derive(node, inputs)
            try:
                with np.errstate(all="ignore"):
                    arrays = _as_constants(node, make_operator(node, self._opsets)(*inputs), inputs)
            # A kernel may raise anything; the node then keeps its place, and fails when it runs.
            except Exception:
                arrays = None
        if arrays is None:
            self._failed.add(node)
        return arrays

    def _derive(self, node: Node, inputs: Sequence[object]) -> list[np.ndarray] | None:
        """Compute all outputs from constants that depend on free lengths, for any of these."""
        with late_imports:
            from ...operators import make_operator

        kinds = [value.type for value in node.outputs]
        shapes = [kind.shape or () for kind in kinds if isinstance(kind, TensorType)]
        operator = make_operator(node, self._opsets)

        def compute(*arrays: object) -> list[np.ndarray]:
            with np.errstate(all="ignore"):
                made = operator(*arrays)
            return [np.asarray(made[place]) for place in range(len(kinds))]

        arrays: list[np.ndarray] | None = None
        if has_static_types(node.outputs):
            with contextlib.suppress(Exception):  # the node then keeps its place
                arrays = derived_arrays(compute, inputs, shapes)
        dtypes = [kind.dtype for kind in kinds if isinstance(kind, TensorType)]
        if arrays is None or [DType.of(array.dtype) for array in arrays] != dtypes:
            self._failed.add(node)
            return None
        return arrays


def _patch(node: Node, arrays: Sequence[np.ndarray]) -> GraphPatch:
    patch = GraphPatch(f"fold {node.op} {node.name!r}").remove(node)
    for value, array in zip(node.outputs, arrays, strict=True):
        patch.set_constant(value, array)
    return patch


def _as_constants(
    node: Node, outputs: Sequence[object], inputs: Sequence[object]
) -> list[np.ndarray] | None:
    """Return results as constants; None if they are not what the node promises.

    An array that an operator hands through stays the same object, by which packings are shared.
    """
    if len(outputs) < len(node.outputs):
        return None
    arrays = []
    for value, output in zip(node.outputs, outputs, strict=False):
        if not isinstance(output, np.ndarray):
            return None
        if node.op != "Constant" and not _fits(output, value.type):
            return None
        is_read_only = output.flags.c_contiguous and not output.flags.writeable
        if is_read_only and any(output is given for given in inputs):
            arrays.append(output)
            continue
        array = np.asarray(output, order="C").view()
        array.flags.writeable = False
        arrays.append(array)
    return arrays


def _fits(array: np.ndarray, expected: ValueType | None) -> bool:
    """True if an array is what the graph expects of a value, as far as that is known."""
    if not isinstance(expected, TensorType):
        return True
    if DType.of(array.dtype) is not expected.dtype:
        return False
    if expected.shape is None:
        return True
    if len(array.shape) != len(expected.shape):
        return False
    pairs = zip(array.shape, expected.shape, strict=True)
    return all(length == dim for length, dim in pairs if isinstance(dim, int))
