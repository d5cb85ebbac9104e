"""The plan of a PrePostProcessor as text, as OpenVINO writes it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ...errors import AioInferError
from ..graph import TensorType
from .color_format import ColorFormat
from .declared import DeclaredInput, DeclaredOutput, Stretch
from .state import State, Target, type_text

__all__ = ["described_input", "described_output"]


def described_input(declared: DeclaredInput) -> str:
    """Write what is given, what the model takes, and each step with the tensor around it."""
    color = declared.facts.color
    said = "" if color is ColorFormat.UNDEFINED else f" (color {color})"
    lines = [f'Input "{declared.port.name}"{said}:']
    reached, error = _reached(declared.states())
    if reached:
        lines += _given_lines(reached[0].state)
    target = declared.target
    lines.append(f"    Model's expected tensor: {_target_text(target)}")
    lines += _step_lines("Pre-processing steps", "Implicit pre-processing steps", reached)
    return _joined(lines, error)


def described_output(declared: DeclaredOutput) -> str:
    """Write what the model gives, each step with the tensor around it, and what the user gets."""
    lines = [f'Output "{declared.port.name}":']
    lines.append(
        f"    Model's data tensor: {type_text(declared.model_type, declared.model_layout)}"
    )
    reached, error = _reached(declared.states())
    lines += _step_lines("Post-processing steps", "Post-processing implicit steps", reached)
    if reached and error is None:
        last = reached[-1].state
        lines.append(f"    User's output tensor: {type_text(last.type, last.layout)}")
    return _joined(lines, error)


def _reached(states: Iterable[Stretch]) -> tuple[list[Stretch], AioInferError | None]:
    """Return the states as far as there are any, and what ends them early."""
    reached: list[Stretch] = []
    try:
        for stretch in states:
            reached.append(stretch)
    except AioInferError as error:
        return reached, error
    return reached, None


def _given_lines(state: State) -> list[str]:
    if len(state.planes) == 1:
        return [f"    User's input tensor: {type_text(state.planes[0].type, state.layout)}"]
    lines = [f"    {len(state.planes)} user's tensors expected for each plane:"]
    for index, plane in enumerate(state.planes):
        lines.append(f"       {index}: {plane.name} {type_text(plane.type, state.layout)}")
    return lines


def _step_lines(title: str, implicit_title: str, reached: list[Stretch]) -> list[str]:
    lines: list[str] = []
    for is_implicit, heading in ((False, title), (True, implicit_title)):
        pairs = [
            (before.state, after)
            for before, after in pairwise(reached)
            if after.is_implicit is is_implicit
        ]
        if pairs:
            lines.append(f"    {heading} ({len(pairs)}):")
        for before, after in pairs:
            text = "" if after.step is None else after.step.text
            lines.append(f"      {text}: {before.text()} -> {after.state.text()}")
    return lines


def _target_text(target: Target) -> str:
    return type_text(TensorType(target.dtype, target.shape), target.layout)


def _joined(lines: list[str], error: AioInferError | None) -> str:
    if error is not None:
        lines.append(f"Error occurred: {error}")
    return "".join(f"{line}\n" for line in lines)
