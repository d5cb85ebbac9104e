"""Steps of a fused group of elementwise operators, or of a matmul's or a convolution's epilogue.

A fused node (domain ``aioinfer.accelerator``) keeps its steps as text in the attribute
``steps``, in the order in which they are computed: ``["Mul(i0,i1):float32",
"LeakyRelu(s0;0.1):float32"]``. ``i1`` is the node's input 1, ``s0`` the result of step 0, ``acc``
what a matmul or a convolution has summed up, and ``_`` an optional operand that is not given.
Numbers after the semicolon are attributes. The last step makes the node's result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....errors import GraphError
from ....runtime.graph import DType, Node, TensorType, Value

__all__ = [
    "ACCELERATOR_DOMAIN",
    "FUSED_ELEMENTWISE",
    "NO_OPERAND",
    "FusedStep",
    "joined_steps",
    "numbers_of",
    "operand_names",
    "parse_steps",
    "step_of",
    "steps_behind",
]

ACCELERATOR_DOMAIN = "aioinfer.accelerator"
FUSED_ELEMENTWISE = "FusedElementwise"
"""The operator of a fused group, whose inputs are its operands."""
NO_OPERAND = "_"

_FORM = re.compile(r"(\w+)\(([^();]*)(?:;([^()]*))?\):(\w+)")
_BY_LABEL = {dtype.label: dtype for dtype in DType}


@dataclass(frozen=True)
class FusedStep:
    """One operator on operands by name; ``dtype`` is that of its result."""

    op: str
    operands: tuple[str, ...]
    dtype: DType
    numbers: tuple[float, ...] = ()

    def renamed(self, names: Mapping[str, str]) -> FusedStep:
        """Return the step with other names of operands, where ``names`` has them."""
        return replace(self, operands=tuple(names.get(name, name) for name in self.operands))

    def __str__(self) -> str:
        numbers = ";" + ",".join(map(repr, self.numbers)) if self.numbers else ""
        return f"{self.op}({','.join(self.operands)}{numbers}):{self.dtype.label}"


def parse_steps(node: Node) -> tuple[FusedStep, ...]:
    """Read a node's attribute ``steps``; none is (). Raises GraphError for a bad text."""
    return tuple(_parse(str(text)) for text in node.attributes.get("steps", ()))


def _parse(text: str) -> FusedStep:
    form = _FORM.fullmatch(text)
    if form is None or form[4] not in _BY_LABEL:
        raise GraphError(f"{text!r} is no step of a fused group; write 'Mul(i0,s1;0.5):float32'")
    operands = tuple(form[2].split(",")) if form[2] else ()
    numbers = tuple(map(float, form[3].split(","))) if form[3] else ()
    return FusedStep(form[1], operands, _BY_LABEL[form[4]], numbers)


def joined_steps(first: Sequence[FusedStep], then: Sequence[FusedStep]) -> list[FusedStep]:
    """Join steps: the later ones begin with the result of the first ones."""
    if not first:
        return list(then)
    count = len(first)
    names = {f"s{index}": f"s{index + count}" for index in range(len(then))}
    names["acc"] = f"s{count - 1}"
    return [*first, *(step.renamed(names) for step in then)]


def steps_behind(steps: Sequence[FusedStep], count: int, result: str) -> tuple[FusedStep, ...]:
    """Make the steps behind the first ``count`` begin with ``acc``, which was ``result``."""
    names = {f"s{index}": f"s{index - count}" for index in range(count, len(steps))}
    names[result] = "acc"
    return tuple(step.renamed(names) for step in steps[count:])


def numbers_of(node: Node) -> tuple[float, ...]:
    """Read those attributes of an elementwise node that its result depends on, as numbers."""
    rule = _NUMBERS.get(node.op_type)
    return () if rule is None else rule(node)


def step_of(node: Node, name_of: Callable[[Value], str]) -> FusedStep:
    """Write an elementwise node of ONNX as a step, its inputs named by ``name_of``."""
    operands = tuple(NO_OPERAND if value is None else name_of(value) for value in node.inputs)
    kind = node.outputs[0].type
    if not isinstance(kind, TensorType):
        raise GraphError(f"the type of {node.outputs[0].name!r} is not known; declare it")
    return FusedStep(node.op_type, operands, kind.dtype, numbers_of(node))


def _defaults(**defaults: float) -> Callable[[Node], tuple[float, ...]]:
    return lambda node: tuple(
        float(node.attributes.get(name, default)) for name, default in defaults.items()
    )


def _is_text(name: str, text: str) -> Callable[[Node], tuple[float, ...]]:
    return lambda node: (float(node.text(name, "") == text),)


_NUMBERS: Mapping[str, Callable[[Node], tuple[float, ...]]] = {
    "BitShift": _is_text("direction", "LEFT"),
    "Celu": _defaults(alpha=1.0),
    "Elu": _defaults(alpha=1.0),
    "Gelu": _is_text("approximate", "tanh"),
    "HardSigmoid": _defaults(alpha=0.2, beta=0.5),
    "IsInf": _defaults(detect_negative=1, detect_positive=1),
    "LeakyRelu": _defaults(alpha=0.01),
    "Mod": _defaults(fmod=0),
    "Selu": _defaults(alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "Shrink": _defaults(lambd=0.5, bias=0.0),
    "Swish": _defaults(alpha=1.0),
    "ThresholdedRelu": _defaults(alpha=1.0),
}


def operand_names(steps: Sequence[FusedStep]) -> list[str]:
    """List the inputs that steps read, each once, in order of use: ``i0``, ``i3``."""
    names = (name for step in steps for name in step.operands)
    return list(dict.fromkeys(name for name in names if name.startswith("i")))
