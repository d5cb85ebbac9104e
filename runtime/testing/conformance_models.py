"""Small models for the conformance suite, each with inputs of several shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

__all__ = ["SAMPLES", "SampleModel", "sample_named", "sample_node"]

OPSET, IR_VERSION = 20, 10  # string operators came with 20

Shape = tuple[int | str, ...]
Ports = Mapping[str, tuple[Any, Shape]]


@dataclass(frozen=True)
class SampleNode:
    """One node; the names of inputs and outputs are separated by spaces."""

    op: str
    inputs: str
    outputs: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


def sample_node(op: str, inputs: str, outputs: str, **attributes: Any) -> SampleNode:
    """Make a node; keywords are its attributes."""
    return SampleNode(op, inputs, outputs, attributes)


@dataclass(frozen=True)
class SampleModel:
    """A model as data: ports by name with numpy type and shape, and the shapes to feed it with."""

    name: str
    inputs: Ports
    outputs: Ports
    nodes: tuple[SampleNode, ...]
    shapes: tuple[Mapping[str, tuple[int, ...]], ...]
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    has_special_numbers: bool = False
    """Inputs hold NaN, infinities and a zero below zero."""

    @property
    def node_names(self) -> list[str]:
        """The names of its nodes, in order."""
        return [f"{node.op.lower()}_{index}" for index, node in enumerate(self.nodes)]

    def proto(self) -> onnx.ModelProto:
        """Build the ONNX model."""
        from onnx import helper, numpy_helper

        nodes = [
            helper.make_node(
                node.op, node.inputs.split(), node.outputs.split(), name, **node.attributes
            )
            for name, node in zip(self.node_names, self.nodes, strict=True)
        ]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(
            nodes, self.name, _infos(self.inputs), _infos(self.outputs), weights
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )

    def feeds(self) -> list[dict[str, np.ndarray]]:
        """Make inputs for each of the shapes; the same ones every time."""
        random = np.random.default_rng(len(self.name))
        draw = _special_array if self.has_special_numbers else _random_array
        return [
            {name: draw(random, self.inputs[name][0], shape) for name, shape in shapes.items()}
            for shapes in self.shapes
        ]


def _infos(ports: Ports) -> list[onnx.ValueInfoProto]:
    from onnx import helper

    return [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape)
        )
        for name, (dtype, shape) in ports.items()
    ]


def _random_array(random: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return np.asarray(random.integers(0, 2, shape), np.bool_)
    if kind.kind == "i":
        return np.asarray(random.integers(-9, 10, shape), kind)
    if kind == np.object_:
        words = np.array(["alpha", "beta", "", "Grüße"], object)
        return np.asarray(words[random.integers(0, len(words), shape)], object)
    return np.asarray(random.normal(size=shape), kind)


def _special_array(random: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Draw numbers, one of eight NaN and one of eight an infinity; whole rows of them, too."""
    array = _random_array(random, dtype, shape)
    chosen = random.integers(0, 16, shape)
    for number, special in enumerate((np.nan, np.nan, np.inf, -np.inf, -0.0)):
        array[chosen == number] = special
    if len(array) > 2:
        array[0], array[1] = -np.inf, np.nan
    return array


def _fixed(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Make weights; the same ones for the same shape."""
    return _random_array(np.random.default_rng(sum(shape)), dtype, shape)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


F32, I64 = np.float32, np.int64
_node = sample_node

SAMPLES: tuple[SampleModel, ...] = (
    SampleModel(
        "doubled",
        {"x": (F32, ("n", 3))},
        {"y": (F32, ("n", 3))},
        (_node("Relu", "x", "r"), _node("Add", "r x", "y")),
        ({"x": (2, 3)}, {"x": (5, 3)}, {"x": (0, 3)}),
    ),
    SampleModel(
        "static_sum",
        {"a": (F32, (2, 3)), "b": (F32, (2, 3))},
        {"sum": (F32, (2, 3))},
        (_node("Add", "a b", "sum"),),
        ({"a": (2, 3), "b": (2, 3)},),
    ),
    SampleModel(
        "elementwise",
        {"x": (F32, ("n", 4)), "y": (F32, (1, 4))},
        {"z": (F32, ("n", 4)), "w": (F32, ("n", 4))},
        (
            _node("Mul", "x y", "product"),
            _node("Sigmoid", "product", "gate"),
            _node("Tanh", "x", "squashed"),
            _node("Mul", "gate squashed", "z"),
            _node("Sub", "z scale", "shifted"),
            _node("Max", "shifted y", "w"),
        ),
        ({"x": (3, 4), "y": (1, 4)}, {"x": (1, 4), "y": (1, 4)}, {"x": (0, 4), "y": (1, 4)}),
        {"scale": _fixed(4)},
    ),
    SampleModel(
        "convolution",
        {"image": (F32, ("n", 2, 9, 9))},
        {"classes": (F32, ("n", 5))},
        (
            _node("Conv", "image kernel bias", "c", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
            _node("Relu", "c", "r"),
            _node("MaxPool", "r", "m", kernel_shape=[2, 2], strides=[2, 2]),
            _node("AveragePool", "m", "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            _node("GlobalAveragePool", "a", "g"),
            _node("Flatten", "g", "f"),
            _node("Gemm", "f matrix offset", "scores", transB=1),
            _node("Softmax", "scores", "classes"),
        ),
        ({"image": (1, 2, 9, 9)}, {"image": (3, 2, 9, 9)}),
        {
            "kernel": _fixed(4, 2, 3, 3),
            "bias": _fixed(4),
            "matrix": _fixed(5, 4),
            "offset": _fixed(5),
        },
    ),
    SampleModel(
        "matrices",
        {"x": (F32, ("n", 3, 4)), "y": (F32, ("n", 4, 2))},
        {"z": (F32, ("n", 2, 3)), "s": (F32, (3, 5))},
        (
            _node("MatMul", "x y", "product"),
            _node("Transpose", "product", "z", perm=[0, 2, 1]),
            _node("ReduceSum", "x first", "folded", keepdims=0),
            _node("Gemm", "folded weight", "s", alpha=0.5),
        ),
        ({"x": (2, 3, 4), "y": (2, 4, 2)}, {"x": (1, 3, 4), "y": (1, 4, 2)}),
        {"weight": _fixed(4, 5), "first": _ints(0)},
    ),
    SampleModel(
        "shape_arithmetic",
        {"x": (F32, ("n", 2, 6))},
        {"y": (F32, ("n", 3, 4)), "rows": (I64, (1,))},
        (
            _node("Shape", "x", "shape"),
            _node("Gather", "shape zero", "rows"),
            _node("Concat", "rows rest", "wanted", axis=0),
            _node("Reshape", "x wanted", "reshaped"),
            _node("Neg", "reshaped", "y"),
        ),
        ({"x": (2, 2, 6)}, {"x": (7, 2, 6)}, {"x": (0, 2, 6)}),
        {"zero": _ints(0), "rest": _ints(3, 4)},
    ),
    SampleModel(
        "reductions",
        {"x": (F32, ("n", 5))},
        {"total": (F32, ()), "top": (F32, ("n", 1)), "mean": (F32, (5,)), "where": (I64, ("n",))},
        (
            _node("ReduceSum", "x", "total", keepdims=0),
            _node("ReduceMax", "x last", "top"),
            _node("ReduceMean", "x first", "mean", keepdims=0),
            _node("ArgMax", "x", "where", axis=1, keepdims=0),
        ),
        ({"x": (3, 5)}, {"x": (1, 5)}),
        {"first": _ints(0), "last": _ints(1)},
    ),
    SampleModel(
        "integers",
        {"i": (I64, ("n",)), "table": (I64, (4, 2))},
        {"rows": (I64, ("n", 2)), "halves": (np.int32, ("n",))},
        (
            _node("Mul", "i i", "square"),
            _node("Mod", "square four", "index"),
            _node("Gather", "table index", "rows"),
            _node("Div", "square two", "quotient"),
            _node("Cast", "quotient", "halves", to=6),
        ),
        ({"i": (5,), "table": (4, 2)}, {"i": (0,), "table": (4, 2)}),
        {"four": _ints(4), "two": _ints(2)},
    ),
    SampleModel(
        "booleans",
        {"x": (F32, ("n",)), "mask": (np.bool_, ("n",))},
        {"chosen": (F32, ("n",)), "both": (np.bool_, ("n",))},
        (
            _node("Greater", "x zero", "positive"),
            _node("And", "positive mask", "both"),
            _node("Not", "both", "other"),
            _node("Where", "other zero x", "chosen"),
        ),
        ({"x": (6,), "mask": (6,)}, {"x": (1,), "mask": (1,)}),
        {"zero": np.zeros(1, F32)},
    ),
    SampleModel(
        "halves",
        {"x": (np.float16, ("n", 4))},
        {"y": (np.float16, ("n", 3))},
        (_node("MatMul", "x weight", "m"), _node("Relu", "m", "y")),
        ({"x": (2, 4)}, {"x": (1, 4)}),
        {"weight": _fixed(4, 3, dtype=np.float16)},
    ),
    SampleModel(
        "strings",
        {"a": (np.object_, ("n",)), "b": (np.object_, ("n",))},
        {"joined": (np.object_, ("n",))},
        (_node("StringConcat", "a b", "joined"),),
        ({"a": (4,), "b": (4,)}, {"a": (0,), "b": (0,)}),
    ),
    SampleModel(
        "found",
        {"x": (F32, ("n",))},
        {"where": (I64, (1, "count"))},
        (
            _node("Greater", "x zero", "positive"),
            _node("NonZero", "positive", "where"),
        ),
        ({"x": (6,)}, {"x": (2,)}),
        {"zero": np.zeros(1, F32)},
    ),
    SampleModel(
        "branches",
        {"x": (F32, ("n", 6))},
        {"y": (F32, ("n", 6))},
        (
            _node("Split", "x", "left right", axis=1, num_outputs=2),
            _node("Relu", "left", "l"),
            _node("Abs", "right", "r1"),
            _node("Sqrt", "r1", "r2"),
            _node("Concat", "r2 l", "joined", axis=1),
            _node("Add", "joined x", "y"),
        ),
        ({"x": (2, 6)}, {"x": (1, 6)}),
    ),
    SampleModel(
        "passed_through",
        {"x": (F32, ("n",)), "unused": (F32, ("n",))},
        {"same": (F32, ("n",)), "fixed": (F32, (3,)), "less": (F32, ("n",))},
        (
            _node("Identity", "x", "same"),
            _node("Add", "three three", "fixed"),
            _node("Neg", "x", "less"),
        ),
        ({"x": (3,), "unused": (3,)},),
        {"three": _fixed(3)},
    ),
    SampleModel(
        "scalar",
        {"x": (F32, ())},
        {"y": (F32, ())},
        (_node("Mul", "x x", "y"),),
        ({"x": ()},),
    ),
)


def sample_named(name: str) -> SampleModel:
    """Return the sample of this name."""
    return next(sample for sample in SAMPLES if sample.name == name)
