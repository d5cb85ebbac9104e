"""The sizes of a recurrent layer, and what its cell computes with."""

from __future__ import annotations

from dataclasses import dataclass

from .....runtime.graph import DType, Node
from ...plans.plan_builder import PlanBuilder

__all__ = ["ACTIVATIONS", "Cell", "text_of"]

ACTIVATIONS = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
"""Of one direction, unless a node names others."""

_RNN_ACTIVATIONS = frozenset({"Tanh", "Relu", "Sigmoid"})
_GATE_COUNTS = {"LSTM": 4, "GRU": 3, "RNN": 1}
_HELD_DTYPES = (DType.FLOAT32, DType.BFLOAT16)


@dataclass(frozen=True)
class Cell:
    """The sizes of one layer, and what it computes in. Immutable."""

    op_type: str
    time: int
    batch: int
    channels: int
    hidden: int
    directions: int
    is_batch_first: bool
    resets_late: bool
    """GRU: the reset gate acts on what the recurrent weights have made of the state."""
    dtype: DType

    @classmethod
    def of(cls, node: Node, builder: PlanBuilder) -> Cell:
        source, recurrent = node.inputs[0], node.inputs[2]
        assert source is not None
        assert recurrent is not None
        shape, weights = builder.shape(source), builder.shape(recurrent)
        if len(shape) != 3 or len(weights) != 3:
            raise builder.contradiction(f"no layer reads {list(shape)} with {list(weights)}")
        directions, _, hidden = weights
        is_batch_first = bool(node.attributes.get("layout", 0))
        held = builder.held_dtype(source)
        return cls(
            op_type=node.op_type,
            time=shape[1 if is_batch_first else 0],
            batch=shape[0 if is_batch_first else 1],
            channels=shape[2],
            hidden=hidden,
            directions=directions,
            is_batch_first=is_batch_first,
            resets_late=node.op_type == "GRU" and bool(node.attributes.get("linear_before_reset")),
            dtype=held if held in _HELD_DTYPES else DType.FLOAT32,
        )

    def check(self, node: Node, builder: PlanBuilder) -> None:
        """Ask for inputs and outputs of the lengths that the sizes of the layer give them."""
        asked = 1 + (node.text("direction", "forward") == "bidirectional")
        hidden = int(node.attributes.get("hidden_size", self.hidden))
        if (self.directions, self.hidden) != (asked, hidden):
            raise builder.contradiction(
                f"weights of {self.directions} directions of {self.hidden} channels, for {asked} "
                f"of {hidden}"
            )
        wide = _GATE_COUNTS[self.op_type] * hidden
        state = (asked, self.batch, hidden)
        sequence = (self.time, asked, self.batch, hidden)
        if self.is_batch_first:
            state, sequence = (self.batch, asked, hidden), (self.batch, self.time, asked, hidden)
        shapes = (
            (asked, wide, self.channels),
            (asked, wide, hidden),
            (asked, 2 * wide),
            (self.batch,),
            state,
            state,
            (asked, 3 * hidden),
        )
        for index, shape in enumerate(shapes, 1):
            value = node.input_at(index)
            if value is not None:
                builder.expect_shape(value, shape)
        for index, value in enumerate(node.outputs):
            if value.uses or value.is_graph_output:
                builder.expect_shape(value, state if index else sequence)

    def has_own_activations(self, node: Node) -> bool:
        """True if the activations are those that the operator has without an attribute."""
        default = ACTIVATIONS[self.op_type]
        given = [
            text_of(name).capitalize() for name in node.attributes.get("activations") or default
        ]
        if given == list(default) * (len(given) // len(default)):
            return True
        return self.op_type == "RNN" and len(set(given)) == 1 and given[0] in _RNN_ACTIVATIONS

    @property
    def has_memory(self) -> bool:
        """True for a cell with a second state."""
        return self.op_type == "LSTM"

    @property
    def state_dims(self) -> tuple[int, ...]:
        """A state as oneDNN sees it."""
        return (1, self.directions, self.batch, self.hidden)


def text_of(value: str | bytes) -> str:
    """Return an activation's name as text."""
    return value.decode() if isinstance(value, bytes) else value
