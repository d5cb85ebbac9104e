"""Models in a blob: nodes and values as JSON, constants as tensors.

Values are numbered through the whole model, so that a body refers to outer values as it does in
memory. Types are kept as they were found; what compiles an imported model infers them again for the
shapes of a run. Functions of users are not kept: their operators get them from the extensions of
the Core that imports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...errors import AioInferError, BlobError, NotSupportedError
from ..graph import (
    Graph,
    MapType,
    Model,
    Node,
    OptionalType,
    SequenceType,
    TensorType,
    Value,
    check_graph,
)
from ..graph.shape import ValueType
from .reader import Blob
from .tensors_record import (
    TensorReader,
    TensorWriter,
    as_list,
    as_text,
    damaged,
    dtype_of,
    text_of,
    text_record,
)
from .writer import BlobWriter

__all__ = ["read_model_record", "read_ports_record", "write_model_record"]

_FORMAT = "model"


def write_model_record(
    blob: BlobWriter, model: Model, *, name: str | None = None, is_shown: bool = False
) -> TensorWriter:
    """Add a model: its graph, operator sets and metadata; constants are held, not copied.

    It is called ``name``, or as it is. ``is_shown`` says that it is there to be looked at, with
    stand-ins for its weights. Returns its tensors, which those of parts of the blob may refer to.
    Raises NotSupportedError for an attribute that ONNX could not hold either.
    """
    tensors = TensorWriter(blob, is_shown=is_shown)
    writer = _GraphWriter(tensors)
    graph = writer.graph(model.graph)
    tensors.finish()
    content = {
        "name": model.name if name is None else name,
        "opsets": model.opsets,
        "ir_version": model.ir_version,
        "producer": model.producer,
        "metadata": model.metadata,
        "values": writer.values,
        "graph": graph,
    }
    blob.add_json(_FORMAT, content)
    return tensors


def read_model_record(blob: Blob, *, is_shown: bool = False) -> Model:
    """Read a model, whose constants are read-only arrays over the blob's memory.

    ``is_shown`` as for ``write_model_record``: nothing may be computed with it then.
    Raises BlobError for what ``write_model_record`` does not write.
    """

    def graph_of(content: Mapping[str, Any]) -> Graph:
        tensors = TensorReader(blob, is_shown=is_shown)
        graph = _GraphReader(tensors, as_list(content["values"])).graph(content["graph"])
        check_graph(graph)
        return graph

    return _read_model(blob, graph_of)


def read_ports_record(blob: Blob) -> Model:
    """Read what goes into a model and comes out of it; its graph has no nodes and no constants.

    Raises as ``read_model_record``.
    """

    def graph_of(content: Mapping[str, Any]) -> Graph:
        return _PortsReader(as_list(content["values"])).graph(content["graph"])

    return _read_model(blob, graph_of)


def _read_model(blob: Blob, graph_of: Callable[[Mapping[str, Any]], Graph]) -> Model:
    content = blob.json(_FORMAT)
    if not isinstance(content, Mapping):
        raise damaged("its model is no mapping")
    try:
        graph = graph_of(content)
        opsets = {str(key): _word(version) for key, version in content["opsets"].items()}
        model = Model(
            graph,
            opsets,
            ir_version=_word(content["ir_version"]),
            producer=str(content["producer"]),
            metadata={str(key): str(text) for key, text in content["metadata"].items()},
        )
        model.name = str(content["name"])
    except BlobError:
        raise
    except AioInferError as error:
        raise damaged(f"its model contradicts itself: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise damaged(f"its model cannot be read ({type(error).__name__}: {error})") from error
    model.is_disposable = True
    return model


class _GraphWriter:
    def __init__(self, tensors: TensorWriter) -> None:
        self._tensors = tensors
        self.values: list[list[Any]] = []
        self._numbers: dict[Value, int] = {}

    def graph(self, graph: Graph) -> dict[str, Any]:
        inputs = [self._define(value) for value in graph.inputs]
        initializers = [self._define(value) for value in graph.initializers.values()]
        nodes = [self._node(node) for node in graph.nodes]
        return {
            "name": graph.name,
            "inputs": inputs,
            "initializers": initializers,
            "nodes": nodes,
            "outputs": [self._numbers[value] for value in graph.outputs],
        }

    def _define(self, value: Value) -> int:
        number = self._numbers[value] = len(self.values)
        constant = None if value.constant is None else self._tensors.add(value.constant)
        self.values.append([value.name, type_record(value.type), constant])
        return number

    def _node(self, node: Node) -> dict[str, Any]:
        inputs = [None if value is None else self._numbers[value] for value in node.inputs]
        attributes = {
            key: self._attribute(node, key, item) for key, item in node.attributes.items()
        }
        record: dict[str, Any] = {
            "op": [node.domain, node.op_type],
            "name": node.name,
            "inputs": inputs,
            "attributes": attributes,
            "outputs": [self._define(value) for value in node.outputs],
        }
        if node.fused_from != (node.name,):
            record["fused_from"] = list(node.fused_from)
        if node.metadata:
            record["metadata"] = dict(node.metadata)
        return record

    def _attribute(self, node: Node, name: str, item: Any) -> Any:
        if isinstance(item, bool | np.bool_):
            return bool(item)
        if isinstance(item, int | np.integer):
            return int(item)
        if isinstance(item, float | np.floating):
            number = float(item)
            return number if math.isfinite(number) else {"float": repr(number)}
        if isinstance(item, str | bytes):
            return text_record(item)
        if isinstance(item, np.ndarray):
            return {"tensor": self._tensors.add(item)}
        if isinstance(item, Graph):
            return {"graph": self.graph(item)}
        if isinstance(item, TensorType | SequenceType | OptionalType | MapType):
            return {"type": type_record(item)}
        if isinstance(item, list):
            return [self._attribute(node, name, part) for part in item]
        if isinstance(item, tuple):
            return {"tuple": [self._attribute(node, name, part) for part in item]}
        raise NotSupportedError(
            f"attribute {name!r} of node {node.name!r} is a {type(item).__name__}, which no export "
            f"can hold; give an int, float, str, array, graph or type, or a list of them",
            node=node.name,
        )


class _PortsReader:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows
        self._values: dict[int, Value] = {}

    def graph(self, record: Mapping[str, Any]) -> Graph:
        inputs = [self._value(number) for number in as_list(record["inputs"])]
        if len(set(inputs)) != len(inputs):
            raise damaged("an input of its graph is defined twice")
        graph = Graph(as_text(record["name"]), inputs)
        graph.outputs = [self._value(number) for number in as_list(record["outputs"])]
        return graph

    def _value(self, number: Any) -> Value:
        if type(number) is not int or number < 0:
            raise damaged(f"there is no value {number!r:.20}")
        if number not in self._values:
            name, value_type, _ = self._rows[number]
            self._values[number] = Value(as_text(name), type_of(value_type))
        return self._values[number]


class _GraphReader:
    def __init__(self, tensors: TensorReader, rows: list[Any]) -> None:
        self._tensors, self._rows = tensors, rows
        self._values: dict[int, Value] = {}

    def graph(self, record: Mapping[str, Any]) -> Graph:
        inputs = [self._define(number) for number in as_list(record["inputs"])]
        graph = Graph(as_text(record["name"]), inputs)
        for number in as_list(record["initializers"]):
            graph.add_initializer(self._define(number))
        for node in as_list(record["nodes"]):
            graph.append(self._node(node))
        graph.outputs = [self._values[number] for number in as_list(record["outputs"])]
        return graph

    def _define(self, number: Any) -> Value:
        if type(number) is not int or number < 0 or number in self._values:
            raise damaged(f"value {number!r:.20} is defined twice, or is none")
        name, value_type, constant = self._rows[number]
        array = None if constant is None else self._tensors.get(constant)
        made = Value(as_text(name), type_of(value_type), array)
        self._values[number] = made
        return made

    def _node(self, record: Mapping[str, Any]) -> Node:
        inputs = [
            None if number is None else self._values[number] for number in as_list(record["inputs"])
        ]
        domain, op_type = record["op"]
        attributes = {
            as_text(key): self._attribute(item) for key, item in record["attributes"].items()
        }
        return Node(
            as_text(op_type),
            inputs,
            [self._define(number) for number in as_list(record["outputs"])],
            attributes,
            name=as_text(record["name"]),
            domain=as_text(domain),
            fused_from=_texts(record["fused_from"]) if "fused_from" in record else None,
            metadata={
                as_text(key): as_text(text) for key, text in record.get("metadata", {}).items()
            },
        )

    def _attribute(self, item: Any) -> Any:
        if type(item) is int:
            return _word(item)
        if isinstance(item, bool | float | str):
            return item
        if isinstance(item, list):
            return [self._attribute(part) for part in item]
        ((kind, content),) = item.items()
        if kind == "float":
            return float(content)
        if kind == "bytes":
            return text_of(item)
        if kind == "tensor":
            return self._tensors.get(content)
        if kind == "graph":
            return self.graph(content)
        if kind == "type":
            return type_of(content)
        if kind == "tuple":
            return tuple([self._attribute(part) for part in as_list(content)])
        raise damaged(f"there is no attribute of kind {kind!r:.20}")


def type_record(value_type: ValueType | None) -> Any:
    """Write the type of a value; None for one that is not known."""
    if isinstance(value_type, TensorType):
        shape = value_type.shape
        return [value_type.dtype.label, None if shape is None else list(shape)]
    if isinstance(value_type, SequenceType):
        return {"sequence": type_record(value_type.element)}
    if isinstance(value_type, OptionalType):
        return {"optional": type_record(value_type.element)}
    if isinstance(value_type, MapType):
        return {"map": [value_type.key.label, type_record(value_type.element)]}
    return None


def type_of(record: Any) -> ValueType | None:
    """Read what ``type_record`` wrote; raises BlobError for anything else."""
    if record is None:
        return None
    if isinstance(record, list) and len(record) == 2:
        label, shape = record
        if shape is not None and not _is_shape(shape):
            raise damaged(f"a value has the shape {shape!r:.60}")
        return TensorType(dtype_of(label), None if shape is None else tuple(shape))
    if isinstance(record, Mapping) and len(record) == 1:
        ((kind, element),) = record.items()
        if kind == "sequence":
            return SequenceType(type_of(element))
        if kind == "optional":
            return OptionalType(type_of(element))
        if kind == "map" and isinstance(element, list) and len(element) == 2:
            return MapType(dtype_of(element[0]), type_of(element[1]))
    raise damaged(f"{record!r:.40} is no type")


def _word(number: Any) -> int:
    """Return a number that ONNX can hold; raises BlobError for anything else."""
    if type(number) is not int or not -(1 << 63) <= number < 1 << 63:
        raise damaged(f"{number!r:.40} is no number of 64 bits")
    return number


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(
        dim is None or isinstance(dim, str) or (type(dim) is int and 0 <= dim < 1 << 62)
        for dim in shape
    )


def _texts(records: Iterable[Any]) -> list[str]:
    return [as_text(record) for record in as_list(records)]
