"""What was declared for one input or output, carried out on values that stand in no graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...errors import TensorError
from ..graph import Dim, DType, Shape, TensorType, Value, shape_text
from .arithmetic import convert_element_type
from .color_format import ColorFormat
from .element_types import short_name
from .given_tensors import GivenFacts, given_state
from .layout import Layout
from .layout_steps import convert_layout
from .port_name import PortName
from .state import State, Target
from .steps import Step

__all__ = ["DeclaredInput", "DeclaredOutput", "Stretch", "fitting_shape"]


@dataclass(frozen=True)
class Stretch:
    """Steps with the states around them: the first has none before it."""

    step: Step | None
    state: State
    is_implicit: bool = False


@dataclass(frozen=True)
class DeclaredInput:
    """The tensors that a user gives for an input, and what makes the model's input of them."""

    port: PortName
    target: Target
    facts: GivenFacts
    steps: Sequence[Step]

    def states(self) -> Iterator[Stretch]:
        """Yield the state of what is given, and that after each step; the last fits the model."""
        with self.port.named("tensor"):
            orders = [step.order for step in self.steps if step.order is not None]
            state = given_state(self.port.name, self.target, self.facts, orders)
        yield Stretch(None, state)
        for made in _carried_out(self.port, self.steps, state):
            yield made
            state = made.state
        for made in _brought_to(self.port, state, self.target.dtype, self.target.layout):
            yield made
            state = made.state
        with self.port.named("at the end"):
            _check_fits(state, self.target)


@dataclass(frozen=True)
class DeclaredOutput:
    """What makes of a model's output that which the user gets."""

    port: PortName
    model_type: TensorType
    model_layout: Layout
    dtype: DType | None
    layout: Layout
    steps: Sequence[Step]

    def states(self) -> Iterator[Stretch]:
        """Yield the state of the model's output, and that after each step."""
        stand_in = Value(self.port.name, self.model_type)
        target = Target(self.dtype or self.model_type.dtype, None, self.layout)
        state = State((stand_in,), self.model_layout, ColorFormat.UNDEFINED, target)
        if self.model_type.shape is not None:
            with self.port.named("model"):
                self.model_layout.of_rank(len(self.model_type.shape))
        yield Stretch(None, state)
        for made in _carried_out(self.port, self.steps, state):
            yield made
            state = made.state
        dtype = self.dtype or state.dtype
        for made in _brought_to(self.port, state, dtype, self.layout):
            yield made


def _carried_out(port: PortName, steps: Sequence[Step], state: State) -> Iterator[Stretch]:
    for step in steps:
        with port.named(step.text):
            state = step.apply(state)
        yield Stretch(step, state)


def _brought_to(port: PortName, state: State, dtype: DType, layout: Layout) -> Iterator[Stretch]:
    """Convert what no step has converted."""
    if len(state.planes) > 1 or state.dtype is not dtype:
        step = Step(
            f"convert type ({short_name(dtype)})", lambda given: convert_element_type(given, dtype)
        )
        for made in _carried_out(port, [step], state):
            state = made.state
            yield Stretch(made.step, state, is_implicit=True)
    if layout and state.layout != layout:
        step = Step(f"convert layout {layout}", lambda given: convert_layout(given, layout))
        for made in _carried_out(port, [step], state):
            yield Stretch(made.step, made.state, is_implicit=True)


def _check_fits(state: State, target: Target) -> None:
    """Raise TensorError if the steps do not end in what the model takes."""
    if target.shape is None or state.type.shape is None:
        return
    if len(state.shape) == len(target.shape) and all(map(_may_be, state.shape, target.shape)):
        return
    raise TensorError(
        f"the steps end in {shape_text(state.shape)}, {state.layout or 'no layout'}, and the "
        f"model takes {shape_text(target.shape)}, {target.layout or 'no layout'}; resize, crop, "
        f"pad or convert_layout, or say another shape of the tensor"
    )


def _may_be(made: Dim, wanted: Dim) -> bool:
    return made == wanted or not (isinstance(made, int) and isinstance(wanted, int))


def fitting_shape(state: State, target: Target) -> Shape | None:
    """Return the model's shape with what the steps tell of lengths that it leaves open."""
    if target.shape is None or state.type.shape is None:
        return state.type.shape
    return tuple(
        wanted if isinstance(wanted, int) or made is None else made
        for made, wanted in zip(state.shape, target.shape, strict=True)
    )
