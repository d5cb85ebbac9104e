"""The intermediate representation: Model, Graph, Node, Value and their types."""

from .check import check_graph
from .copying import copy_graph, copy_node
from .dtype import DType
from .graph import Attribute, Graph, Node, Value
from .model import Model
from .shape import (
    Dim,
    MapType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    ValueType,
    is_static,
    shape_text,
    size_bytes,
)
from .text import graph_text
from .traversal import constant_values

__all__ = [
    "Attribute",
    "DType",
    "Dim",
    "Graph",
    "MapType",
    "Model",
    "Node",
    "OptionalType",
    "SequenceType",
    "Shape",
    "TensorType",
    "Value",
    "ValueType",
    "check_graph",
    "constant_values",
    "copy_graph",
    "copy_node",
    "graph_text",
    "is_static",
    "shape_text",
    "size_bytes",
]
