"""Operators of onnxruntime's own domain, as the ONNX operators that they are made of.

A decomposition is a function of one node that says, with a ``Composition``, which nodes compute the
same. From it follow the operator's type rule, and the pass that gives devices nodes which they all
know; a device that has the operator itself leaves that pass out.
"""

from .composition import Composition, CompositionError
from .registry import Decomposition, compose, decomposition, find_decomposition

__all__ = [
    "Composition",
    "CompositionError",
    "Decomposition",
    "compose",
    "decomposition",
    "find_decomposition",
]
