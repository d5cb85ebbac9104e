"""Which nodes onnxruntime can run: asked by making a session of each one alone, and remembered."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from ...executors.late_imports import late_imports
from ...runtime.graph import Graph, Model, Node, Value, copy_node
from .element_types import find_unexchangeable
from .properties import SessionSettings
from .remembered_answers import RememberedAnswers

__all__ = ["NodeSupport", "TrySession", "model_of_node", "onnxruntime_text"]

TrySession = Callable[[Model, SessionSettings], object]
"""Makes a session and drops it; raises what onnxruntime raises."""

_NODE = "aioinfer.node"  # stands for every node's name, so that equal nodes share an answer

_Key = tuple[SessionSettings, bytes]


class NodeSupport:
    """Why a node cannot run, by what matters of it: operator, attributes, types, constants.

    A node that is not refused can be made a session of, alone and with any others around it, as far
    as onnxruntime decides node by node. Thread-safe.
    """

    def __init__(self, try_session: TrySession) -> None:
        self._try_session = try_session
        self._answers: RememberedAnswers[_Key, str | None] = RememberedAnswers()

    def __len__(self) -> int:
        return len(self._answers)

    def find_reason(self, model: Model, node: Node, settings: SessionSettings) -> str | None:
        """Return in onnxruntime's words why it cannot run the node; None if it can. Blocks."""
        with late_imports:
            from ...runtime.onnx_writer import write_model

        for value in (*node.dependencies(), *_needed_outputs(node)):
            reason = find_unexchangeable(value.type)
            if reason is not None:
                return f"value {value.name!r}: {reason}"
        alone = model_of_node(model, node)
        proto = write_model(alone, weights="omit")
        digest = hashlib.blake2b(proto.SerializeToString(deterministic=True), digest_size=16)
        key = settings.for_query(), digest.digest()
        return _named(self._answers.find(key, lambda: self._ask(alone, key[0])), node)

    def _ask(self, model: Model, settings: SessionSettings) -> str | None:
        try:
            self._try_session(model, settings)
        except Exception as error:
            return onnxruntime_text(error)
        return None


def model_of_node(model: Model, node: Node) -> Model:
    """Make a model of one node: its inputs are given, its constants are constants.

    Values of a node without bodies are called by their places, so that equal nodes make equal
    models.
    """
    mapping: dict[Value, Value] = {}
    graph = Graph(_NODE)
    for number, value in enumerate(node.dependencies()):
        name = value.name if node.bodies() else f"in{number}"
        fresh = mapping[value] = Value(name, value.type, value.constant)
        if value.is_constant:
            graph.add_initializer(fresh)
        else:
            graph.inputs.append(fresh)
    copied = graph.append(copy_node(node, mapping))
    copied.name, copied.fused_from, copied.metadata = _NODE, (_NODE,), {}
    if not node.bodies():
        for number, value in enumerate(copied.outputs):
            value.name = f"out{number}"
    graph.outputs = [mapping[value] for value in _needed_outputs(node)]
    return Model(graph, model.opsets, ir_version=model.ir_version)


def _needed_outputs(node: Node) -> list[Value]:
    used = [value for value in node.outputs if value.uses or value.is_graph_output]
    return used or list(node.outputs)


def onnxruntime_text(error: BaseException) -> str:
    """Return what onnxruntime says in one line, without its error code and its source files."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error))
    text = re.sub(r"/\S*onnxruntime\S*\.(cc|h|cu)(:\d+)? ?", "", text)
    return " ".join(text.split()).strip(" .") or type(error).__name__


def _named(reason: str | None, node: Node) -> str | None:
    return None if reason is None else reason.replace(_NODE, node.name)
