"""What a step is given and gives: the tensor so far, and what is known of it.

A step is a function from one ``State`` to the next. The nodes that it makes hang on the values that
they make, and ``building.py`` finds them by walking back from the last one. So steps can be tried
out, for ``repr``, and thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import TensorError
from ..graph import Attribute, Dim, DType, Node, Shape, TensorType, Value, ValueType, shape_text
from ..type_inference import ShapeContent, find_rule
from ..type_inference.inference import has_rank
from .color_format import ColorFormat
from .element_types import short_name
from .layout import Layout

__all__ = ["State", "Target", "constant", "integers", "type_text"]


@dataclass(frozen=True)
class Target:
    """What the last step has to give: the type and layout at the other end."""

    dtype: DType
    shape: Shape | None
    layout: Layout

    def length(self, name: str) -> int:
        """Return a length of the model's, by the axis' name in its layout."""
        if self.shape is None or not self.layout.has(name):
            where = f"the shape {shape_text(self.shape)} and the layout {self.layout}"
            raise TensorError(
                f"the model's {name} is not known from {where}; give model().set_layout, such as "
                f"'NCHW', or say which length is wanted"
            )
        length = self.shape[self.layout.axis(name, len(self.shape))]
        if not isinstance(length, int):
            raise TensorError(
                f"the model leaves its {name} open ({shape_text(self.shape)}, {self.layout}); say "
                f"which length is wanted, or pin it with Model.reshape first"
            )
        return length


@dataclass(frozen=True)
class State:
    """A tensor on its way, of one plane or, before its colour is converted, of several."""

    planes: tuple[Value, ...]
    layout: Layout
    color: ColorFormat
    target: Target
    contents: ShapeContent = field(default_factory=ShapeContent, repr=False)

    @property
    def value(self) -> Value:
        """The tensor; raises TensorError if there are several planes."""
        if len(self.planes) > 1:
            raise TensorError(
                f"the tensor is in {len(self.planes)} planes ({self.color}); convert_color("
                f"'RGB') makes one of them, and stands before all other steps"
            )
        return self.planes[0]

    @property
    def type(self) -> TensorType:
        """The tensor's type."""
        known = self.value.type
        if not isinstance(known, TensorType):
            raise TensorError(
                f"the type of {self.value.name!r} is not known; give the value that the custom "
                f"function returns a TensorType"
            )
        return known

    @property
    def dtype(self) -> DType:
        """The tensor's element type."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """The tensor's lengths; raises TensorError if not even the rank is known."""
        if self.type.shape is None:
            raise TensorError("the tensor's rank is not known; give tensor().set_shape(...)")
        return self.type.shape

    @property
    def rank(self) -> int:
        """How many axes the tensor has."""
        return len(self.shape)

    def axis(self, name: str) -> int:
        """Return which axis has a name."""
        return self.layout.axis(name, self.rank)

    def length(self, name: str) -> Dim:
        """Return the length of a named axis, as far as it is known."""
        return self.shape[self.axis(name)]

    def of(self, value: Value, **changes: Any) -> State:
        """Return the state with another tensor, and perhaps another layout or colour."""
        return replace(self, planes=(value,), **changes)

    def node(self, op_type: str, *inputs: Value | None, **attributes: Attribute) -> Value:
        """Make a node and return its result, with the type that our rules give it."""
        made = Value(op_type)
        node = Node(op_type, inputs, (made,), attributes, name=op_type)
        self.infer_types(node)
        return made

    def infer_types(self, node: Node) -> None:
        """Give constants of a node, and what it makes, their types where they have none yet."""
        for value in node.inputs:
            if value is not None and value.type is None and value.constant is not None:
                value.type = TensorType(DType.of(value.constant.dtype), value.constant.shape)
        rule = find_rule(node)
        given = (value.type for value in node.inputs if value is not None)
        if rule is not None and all(map(has_rank, given)):
            for value, known in zip(node.outputs, rule(node, self.contents) or (), strict=False):
                value.type = value.type or known
        self.contents.follow(node)

    def floats(self, numbers: Sequence[float] | float) -> Value:
        """Make a constant of the tensor's element type."""
        return constant(np.asarray(numbers, self.dtype.numpy))

    def text(self) -> str:
        """Write it as OpenVINO does: ``([1,8,9,3], [N,H,W,C], u8, BGR)``."""
        color = "" if self.color is ColorFormat.UNDEFINED else f", {self.color}"
        return f"({type_text(self.planes[0].type, self.layout)}{color})"


def type_text(known: ValueType | None, layout: Layout) -> str:
    """Write a type and a layout as OpenVINO does: ``[1,8,9,3], [N,H,W,C], u8``."""
    if not isinstance(known, TensorType):
        return str(known or "?")
    where = layout if layout else "<no layout>"
    return f"{shape_text(known.shape)}, {where}, {short_name(known.dtype)}"


def constant(array: np.ndarray[Any, Any]) -> Value:
    """Make a constant value; building gives it a name."""
    array.flags.writeable = False
    return Value("constant", TensorType(DType.of(array.dtype), array.shape), array)


def integers(*numbers: int) -> Value:
    """Make a constant list of int64, as axes and lengths are."""
    return constant(np.array(numbers, np.int64))
