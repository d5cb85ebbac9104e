"""Drawn layers of LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import helper

__all__ = ["ACTIVATIONS", "GATES", "Layer", "layers"]

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
DEFAULTS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}
ACTIVATIONS: Mapping[str, tuple[int, int]] = {
    "Affine": (1, 1),
    "Elu": (1, 0),
    "HardSigmoid": (1, 1),
    "LeakyRelu": (1, 0),
    "Relu": (0, 0),
    "ScaledTanh": (1, 1),
    "Sigmoid": (0, 0),
    "Softplus": (0, 0),
    "Softsign": (0, 0),
    "Tanh": (0, 0),
    "ThresholdedRelu": (1, 0),
}
"""How many numbers of activation_alpha and of activation_beta each takes."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layer:
    """A node, what it reads under the names of ONNX's operators, and how many results it gives."""

    op_type: str
    inputs: Mapping[str, Array]
    attributes: Mapping[str, Any]

    @property
    def outputs(self) -> Sequence[str]:
        return ["Y", "Y_h", "Y_c"][: 3 if self.op_type == "LSTM" else 2]

    def node(self, outputs: Sequence[str] | None = None) -> Any:
        names = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
        given = [name if name in self.inputs else "" for name in names]
        while not given[-1]:
            given.pop()
        results = [name if outputs is None or name in outputs else "" for name in self.outputs]
        return helper.make_node(self.op_type, given, results, name="layer", **self.attributes)

    def time_first(self) -> Layer:
        """Give the same layer with layout 0; its results have the axes in another order."""
        moved = ("X", "initial_h", "initial_c")
        inputs = {
            name: np.ascontiguousarray(array.swapaxes(0, 1)) if name in moved else array
            for name, array in self.inputs.items()
        }
        return Layer(self.op_type, inputs, {**self.attributes, "layout": 0})


@st.composite
def layers(draw: st.DrawFn, most: int = 5) -> Layer:
    """Draw a layer of float32, of up to ``most`` steps, sequences, inputs and hidden units."""
    op_type = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    time, batch, channels, hidden = (draw(st.integers(1, most)) for _ in range(4))
    layout = draw(st.integers(0, 1))
    chance = np.random.default_rng(draw(st.integers(0, 2**16)))
    width = GATES[op_type] * hidden
    start = (batch, directions, hidden) if layout else (directions, batch, hidden)
    shapes = {
        "X": (batch, time, channels) if layout else (time, batch, channels),
        "W": (directions, width, channels),
        "R": (directions, width, hidden),
        "B": (directions, 2 * width),
        "initial_h": start,
    }
    if op_type == "LSTM":
        shapes |= {"initial_c": start, "P": (directions, 3 * hidden)}
    # Larger weights would make what is rounded otherwise grow from step to step.
    scales = {"W": channels**-0.5, "R": 0.7 * hidden**-0.5}
    inputs: dict[str, Array] = {
        name: (chance.standard_normal(shape) * scales.get(name, 0.7)).astype(np.float32)
        for name, shape in shapes.items()
        if name in ("X", "W", "R") or draw(st.booleans())
    }
    if draw(st.booleans()):
        least = draw(st.sampled_from([1, time]))
        inputs["sequence_lens"] = chance.integers(least, time + 1, batch).astype(np.int32)
    attributes: dict[str, Any] = {
        "direction": direction,
        "hidden_size": hidden,
        "layout": layout,
        **draw(_activations(op_type, directions)),
    }
    if draw(st.integers(0, 3)) == 3:
        attributes["clip"] = draw(st.sampled_from([0.25, 1.0]))
    if op_type == "LSTM":
        attributes["input_forget"] = draw(st.sampled_from([0, 0, 1]))
    if op_type == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    return Layer(op_type, inputs, attributes)


@st.composite
def _activations(draw: st.DrawFn, op_type: str, directions: int) -> dict[str, Any]:
    """Draw none, which means the defaults, or all with the numbers that they take."""
    if draw(st.booleans()):
        return {}
    # Gates that do not bound what they let through would make states grow without bounds.
    bounded = ["HardSigmoid", "Sigmoid", "Softsign", "Tanh"]
    names = []
    for _ in range(directions):
        names += [draw(st.sampled_from(bounded))] if op_type != "RNN" else []
        rest = len(DEFAULTS[op_type]) - (op_type != "RNN")
        names += [draw(st.sampled_from(sorted(ACTIVATIONS))) for _ in range(rest)]
    numbers = {
        key: [
            draw(st.sampled_from([0.25, 0.5, 0.75]))
            for name in names
            for _ in range(ACTIVATIONS[name][index])
        ]
        for index, key in enumerate(("activation_alpha", "activation_beta"))
    }
    return {"activations": names, **{key: item for key, item in numbers.items() if item}}
