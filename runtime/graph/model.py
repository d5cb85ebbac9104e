"""A parsed model: its graph, and what the file says about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from ...errors import ModelError, TensorError
from ...executors.late_imports import late_imports
from .copying import copy_graph
from .graph import Graph, Node, Value
from .shape import Dim, TensorType, shape_text
from .traversal import all_values

__all__ = ["Model"]

NAMES_OF_EXPORTERS = frozenset({"", "main_graph", "torch-jit-export", "torch_jit", "tf2onnx"})
"""What exporters call every graph, so that it says nothing of this one."""


class Model:
    """A parsed ONNX file: graph, operator sets, metadata. Owned by the caller; not thread-safe.

    ``Core.load_network`` works on a copy, so a model may be loaded many times and edited between.
    ``node(name).affinity = "CUDA"`` asks HETERO for a device.

    ```python
    with aioinfer.Core() as core:
        model = core.read_model("model.onnx")
        model.node("conv1").affinity = "REFERENCE"
        network = core.load_network(model, "HETERO:CPU,REFERENCE")
        print(network.execution_devices)
    ```
    """

    infer_types: ClassVar[Callable[[Model, Mapping[str, Dim]], None]]
    """Infers all types from the inputs on, given what symbols have become; the passes set it."""

    def __init__(
        self,
        graph: Graph,
        opsets: Mapping[str, int],
        *,
        ir_version: int = 10,
        producer: str = "",
        metadata: Mapping[str, str] | None = None,
        path: Path | None = None,
    ) -> None:
        self.graph = graph
        self.opsets = dict(opsets)
        self.ir_version = ir_version
        self.producer = producer
        self.metadata: dict[str, str] = dict(metadata or {})
        self.path = path
        self._name = ""
        self._nodes_by_name: dict[str, Node] = {}
        """As they were when one was last looked for in vain; the first one of each name."""
        self.is_disposable = False
        """True if no caller holds it: the load may then rewrite it, and dispose of it."""
        self.is_settled = False
        """True if the passes that its device runs once a model found nothing in it: where all types
        are static, they would find nothing again."""
        self.is_clean = False
        """True of a part of a model in which nothing was unused or computed twice."""
        self.is_one_file = False
        """True if it was read from the file at ``path`` alone, as that was then."""
        self.read_again: Callable[[], Model] | None = None
        """Reads the same model once more, for one that has not been changed since it was read."""
        self.is_mapped = False
        """True if large constants may be views into the file at ``path``: not aligned, so slow to
        compute with, and good for devices that pack them (``mapped_file.py``)."""

    def dispose(self) -> None:
        """Take it apart, so that its weights are free at once and not when cycles are collected."""
        self.graph.detach()
        self.graph.inputs.clear()
        self.graph.initializers.clear()
        self._nodes_by_name = {}

    @property
    def name(self) -> str:
        """What errors, logs, metrics and traces call it and its networks; may be set.

        By default its file's name without the ending; of a model from elsewhere the graph's name,
        or "model" where that is one that an exporter gives to every graph.
        """
        if self._name:
            return self._name
        if self.path is not None:
            return self.name_of(self.path)
        return "model" if self.graph.name in NAMES_OF_EXPORTERS else self.graph.name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def inputs(self) -> list[Value]:
        """What a caller gives, in order; weights are not among them."""
        return list(self.graph.inputs)

    @property
    def outputs(self) -> list[Value]:
        """What a caller gets, in order."""
        return self.graph.outputs

    @staticmethod
    def name_of(path: Path) -> str:
        """Return what a model is called that was read from a file."""
        return os.fsencode(path.stem).decode(errors="backslashreplace")

    def node(self, name: str) -> Node:
        """Find a node of the main graph by its name; raises KeyError.

        O(1) but for the first one and after changes of the graph, which cost O(nodes).
        """
        found = self._nodes_by_name.get(name)
        if found is None or found.graph is not self.graph or found.name != name:
            self._nodes_by_name = {node.name: node for node in reversed([*self.graph.nodes])}
            found = self._nodes_by_name.get(name)
        if found is None:
            raise KeyError(f"model {self.name!r} has no node {name!r}")
        return found

    def reshape(self, shapes: Mapping[str, Sequence[Dim]] | Sequence[Dim]) -> None:
        """Pin or rename dimensions of inputs, in this model, before it is loaded.

        ``shapes`` is by input name, in part if you like, or one shape for a model of one input. A
        length pins what the model leaves open, a text names it, and None or -1 leaves it open.
        A symbol stands for one length everywhere: pinned or renamed in one input it is so in all,
        and two that are given one name become one. The types of all other values follow. Raises
        TensorError, and changes nothing, for another rank, a length that the model or another input
        contradicts, and a length of the model's that would be opened.
        """
        with late_imports:
            from .reshaping import reshaped_inputs

        self.read_again = None
        found, symbols = reshaped_inputs(self.inputs, shapes)
        before = {value: value.type for value in all_values(self.graph)}
        for value in self.graph.inputs:
            if isinstance(value.type, TensorType) and value.name in found:
                value.type = TensorType(value.type.dtype, found[value.name])
        try:
            Model.infer_types(self, symbols)
        except BaseException as error:
            for value, known in before.items():
                value.type = known
            if not isinstance(error, ModelError):
                raise
            texts = [f"{name!r} {shape_text(shape)}" for name, shape in found.items()]
            raise TensorError(
                f"inputs {', '.join(texts)} do not fit the model {self.name!r}: {error}"
            ) from error

    def copy(self) -> Model:
        """Copy everything but the bytes of constants, which are shared."""
        return self.with_graph(copy_graph(self.graph))

    def to_rewrite(self) -> Model:
        """Return the model itself if no caller holds it (``is_disposable``), or else a copy."""
        return self if self.is_disposable else self.copy()

    def with_graph(self, graph: Graph) -> Model:
        """Make a model of another graph; operator sets, metadata and name are this one's."""
        made = Model(
            graph,
            self.opsets,
            ir_version=self.ir_version,
            producer=self.producer,
            metadata=self.metadata,
            path=self.path,
        )
        made.is_mapped, made._name = self.is_mapped, self._name
        made.is_one_file = self.is_one_file
        return made

    def __str__(self) -> str:
        with late_imports:
            from .text import graph_text

        return graph_text(self.graph)

    def __repr__(self) -> str:
        return f"<Model {self.name!r} {len(self.graph)} nodes, opset {self.opsets.get('', '?')}>"
