"""Types of values behind operators that only onnxruntime knows: asked of it, and remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence

from ...executors.late_imports import late_imports
from ...runtime.graph import DType, Graph, Model, Node, TensorType
from .node_support import model_of_node
from .properties import SessionSettings
from .remembered_answers import RememberedAnswers

__all__ = ["AskedTypes", "OutputTypes"]

OutputTypes = Callable[[Model, SessionSettings], Sequence[tuple[str, Sequence[object]]]]
"""Makes a session; returns each output's type and lengths, or raises what onnxruntime raises."""

_ELEMENT_TYPES = {
    **{f"tensor({dtype.label})": dtype for dtype in DType},
    "tensor(float)": DType.FLOAT32,
    "tensor(double)": DType.FLOAT64,
}


class AskedTypes:
    """What onnxruntime infers of one node's outputs, for the types of its inputs. Thread-safe.

    None stands for what it cannot tell, and for a rank of zero, which it gives for an unknown one.
    """

    def __init__(self, output_types: OutputTypes, settings: SessionSettings) -> None:
        self._output_types = output_types
        self._settings = settings.for_query()
        self._answers: RememberedAnswers[bytes, Sequence[TensorType | None]] = RememberedAnswers()

    def types_of(self, node: Node, opsets: Mapping[str, int]) -> Sequence[TensorType | None]:
        """Return the types of a node's outputs; of none where an input's is unknown. Blocks."""
        with late_imports:
            from ...runtime.onnx_writer import write_model

        given = [value.type for value in node.inputs if value is not None]
        if node.bodies() or not all(isinstance(known, TensorType) for known in given):
            return ()
        alone = model_of_node(Model(Graph("opsets"), opsets), node)
        for value in alone.graph.outputs:
            value.type = None
        proto = write_model(alone, weights="omit")
        text = proto.SerializeToString(deterministic=True)
        key = hashlib.blake2b(text, digest_size=16).digest()
        return self._answers.find(key, lambda: self._ask(alone))

    def _ask(self, alone: Model) -> Sequence[TensorType | None]:
        try:
            answers = self._output_types(alone, self._settings)
        except Exception:  # it does not run the node; the query says why
            return ()
        names = {
            dim
            for value in alone.graph.inputs
            if isinstance(value.type, TensorType)
            for dim in value.type.shape or ()
            if isinstance(dim, str)
        }
        told = {
            value: _type_of(label, lengths, names)
            for value, (label, lengths) in zip(alone.graph.outputs, answers, strict=True)
        }
        (node,) = alone.graph.nodes
        return [told.get(value) for value in node.outputs]


def _type_of(label: str, lengths: Sequence[object], names: Collection[str]) -> TensorType | None:
    """Read a type; names of lengths that onnxruntime has made up say nothing."""
    dtype = _ELEMENT_TYPES.get(label)
    if dtype is None:
        return None
    dims = [
        dim if isinstance(dim, int) or (isinstance(dim, str) and dim in names) else None
        for dim in lengths
    ]
    return TensorType(dtype, tuple(dims) if dims else None)
