"""Drawn cases of operators: what every device's kernels are asked to compute.

A generator is a function that adds one node, or a few, to a ``Case``; ``generator`` registers it
for its operators. Cases are joined to one model, because compilers of devices are slow to start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import helper

from aioinfer.runtime.graph import DType
from unit.backends.comparing import is_float

__all__ = [
    "DTYPES",
    "FLOATS",
    "FUSED",
    "GENERATORS",
    "Array",
    "Case",
    "Generator",
    "fused",
    "generator",
    "is_float",
]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

DTYPES = tuple(
    DType[name.upper()].numpy
    for name in (
        *("float32", "float16", "int64", "int32", "uint8", "bool", "int8", "int16"),
        *("uint16", "uint32", "uint64", "float64", "bfloat16"),
    )
)
"""What elements may be; the first are what shrinking leads to."""
FLOATS = ("float32", "float16", "bfloat16")
"""Those that devices compute in."""
SPECIAL = (np.nan, np.inf, -np.inf, -0.0)


class Case:
    """Nodes with what they read and give, under names of their own; it grows while it is drawn.

    ``taken`` are the element types that the device's kernel takes as its first input.
    """

    def __init__(self, draw: st.DrawFn, name: str, taken: Collection[np.dtype[Any]]) -> None:
        self.draw, self.name = draw, name
        self.taken = [dtype for dtype in DTYPES if dtype in taken]
        self.nodes: list[Any] = []
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.outputs: list[str] = []
        self._value_count = 0
        self._chance = np.random.default_rng(draw(st.integers(0, 2**16)))

    def one_of(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def numbers(self, count: int, low: int, high: int) -> list[int]:
        return [self.number(low, high) for _ in range(count)]

    def axis(self, rank: int) -> int:
        """Draw an axis, counted from either end."""
        return self.number(-rank, rank - 1)

    def shape(
        self,
        ranks: tuple[int, int] = (0, 4),
        *,
        least: int = 0,
        most: int = 5,
        may_be_long: bool = True,
    ) -> Shape:
        """Draw lengths; one axis may be long, so that there are several groups of work-items."""
        lengths = self.numbers(self.number(*ranks), least, most)
        if lengths and may_be_long and self.number(0, 3) == 3:
            lengths[self.number(0, len(lengths) - 1)] = self.number(60, 300)
        return tuple(lengths)

    def dtype(self, among: Collection[str] | None = None) -> np.dtype[Any]:
        """Draw a type that the kernel takes."""
        found: np.dtype[Any] = self.one_of(
            [t for t in self.taken if among is None or t.name in among]
        )
        return found

    def float_dtype(self) -> np.dtype[Any]:
        """Draw a type that devices compute in."""
        found: np.dtype[Any] = self.one_of([t for t in DTYPES if t.name in FLOATS])
        return found

    def array(self, shape: Sequence[int], dtype: Any, low: float = -5, high: float = 5) -> Array:
        """Draw an array of quarters, or of integers: sums of a few are exact, and ties come up."""
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return self._chance.random(shape) > 0.5
        if dtype.kind == "u":
            low = max(low, 0)
        step = 4 if is_float(dtype) else 1
        whole = self._chance.integers(math.ceil(low * step), int(high * step) + 1, shape)
        return np.asarray(whole / step if step > 1 else whole).astype(dtype)

    def with_specials(self, array: Array) -> Array:
        """Put NaN, infinities and -0 at a few places of floats, in some cases."""
        if is_float(array.dtype) and array.size and self.flag():
            places = self._chance.integers(0, array.size, 3)
            array.reshape(-1)[places] = self._chance.choice(SPECIAL, 3)
        return array

    def feed(self, array: Array, known: bool | None = None) -> str:
        """Name an array that is a constant of the model, or comes with the run; None draws it."""
        if known is None:
            known = self.flag()
        name = self._new_name()
        (self.constants if known else self.inputs)[name] = np.asarray(array)
        return name

    def integers(self, numbers: Sequence[int] | int, known: bool | None = None) -> str:
        """Feed sizes, axes or pads."""
        return self.feed(np.array(numbers, np.int64), known)

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        """Add a node and name its results."""
        names = [self._new_name() for _ in range(outputs)]
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        label = f"{self.name}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, given, names, name=label, **attributes))
        return names

    def give(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> None:
        """Add a node whose results are the case's."""
        self.outputs += self.node(op_type, *inputs, outputs=outputs, **attributes)

    def __repr__(self) -> str:
        """Write the nodes and what they read, which Hypothesis shows of a case that fails."""
        nodes = [helper.printable_node(node) for node in self.nodes]
        known = [f"{name} = {_text(array)}" for name, array in self.constants.items()]
        given = [f"{name} fed: {_text(array)}" for name, array in self.inputs.items()]
        return "\n    ".join(["", *nodes, *known, *given])

    def _new_name(self) -> str:
        self._value_count += 1
        return f"{self.name}_v{self._value_count}"


def _text(array: Array) -> str:
    content = f" {array.tolist()}" if array.size <= 40 else ""
    return f"{array.dtype}{list(array.shape)}{content}"


Generator = Callable[[Case, str], None]
GENERATORS: dict[str, Generator] = {}
"""By operator of ONNX."""
FUSED: dict[str, Generator] = {}
"""By operator of a device's own, which its passes make of what is drawn."""


def generator(*op_types: str) -> Callable[[Generator], Generator]:
    """Register a generator of cases of these operators."""
    return _register(GENERATORS, op_types)


def fused(*op_types: str) -> Callable[[Generator], Generator]:
    """Register a generator of cases that become operators of the device's own."""
    return _register(FUSED, op_types)


def _register(
    where: dict[str, Generator], op_types: Sequence[str]
) -> Callable[[Generator], Generator]:
    def register(draw_case: Generator) -> Generator:
        where.update(dict.fromkeys(op_types, draw_case))
        return draw_case

    return register


def given(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None: attributes that are not given."""
    return {name: value for name, value in attributes.items() if value is not None}
