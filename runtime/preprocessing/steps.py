"""The steps that a user declares, in order; each is a text for ``repr`` and a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from ...errors import TensorError
from .arithmetic import convert_element_type, mean, scale
from .choices import choice_of
from .color_format import ColorFormat
from .color_steps import convert_color, reverse_channels
from .custom import CustomStep, apply_custom
from .element_types import ElementType, element_type_of, short_name
from .given_numbers import integers_of, length_of, number_text, numbers_of
from .layout import Layout
from .layout_steps import PaddingMode, convert_layout, crop, pad, transpose
from .port_name import PortName, said_of_port
from .resizing import ResizeAlgorithm, resize, resize_algorithm_of
from .state import State

__all__ = ["PostProcessSteps", "PreProcessSteps", "Step"]


@dataclass(frozen=True)
class Step:
    """One declared step. ``order``: of a convert_layout by the numbers of axes."""

    text: str
    apply: Callable[[State], State]
    order: tuple[int, ...] | None = None


class _Steps:
    """What inputs and outputs have in common."""

    def __init__(self, port: PortName) -> None:
        self._port = port
        self._steps: list[Step] = []

    def _add(
        self, text: str, apply: Callable[[State], State], order: tuple[int, ...] | None = None
    ) -> Self:
        self._steps.append(Step(text, apply, order))
        return self

    @said_of_port
    def convert_element_type(self, type: ElementType | None = None) -> Self:
        """Convert every element, by default to the type at the other end of the steps."""
        wanted = None if type is None else element_type_of(type)
        return self._add(
            f"convert type ({'dynamic' if wanted is None else short_name(wanted)})",
            lambda state: convert_element_type(state, wanted or state.target.dtype),
        )

    @said_of_port
    def convert_layout(self, layout: str | Layout | Sequence[int] | None = None) -> Self:
        """Move axes: to a layout, in an order of their numbers, or as at the steps' other end."""
        if layout is None:
            return self._add(
                "convert layout [...]", lambda state: convert_layout(state, state.target.layout)
            )
        if isinstance(layout, str | Layout):
            wanted = Layout(layout)
            return self._add(
                f"convert layout {wanted}", lambda state: convert_layout(state, wanted)
            )
        order = integers_of(layout, "an order of axes")
        if sorted(order) != list(range(len(order))):
            raise TensorError(f"{list(order)} does not name each of {len(order)} axes once")
        return self._add(
            f"convert layout {number_text(order)}", lambda state: transpose(state, order), order
        )

    @said_of_port
    def custom(self, operation: CustomStep) -> Self:
        """Add a function that makes nodes: from the tensor's Value, it returns its last node's.

        It is called by ``build``, and by ``repr`` too. What it makes gets free names.
        """
        if not callable(operation):
            raise TensorError(f"{operation!r} is no function from a Value to a Value")
        return self._add("custom", lambda state: apply_custom(state, operation))


class PostProcessSteps(_Steps):
    """What is done to an output, in the order of the calls; each call returns the same object."""


class PreProcessSteps(_Steps):
    """What is done to an input, in the order of the calls; each call returns the same object.

    ``mean`` and ``scale`` take one number, or one for each channel.
    """

    @said_of_port
    def mean(self, value: float | Sequence[float]) -> Self:
        """Subtract a number from each element."""
        numbers = numbers_of(value, may_be_zero=True)
        return self._add(f"mean {number_text(numbers)}", lambda state: mean(state, numbers))

    @said_of_port
    def scale(self, value: float | Sequence[float]) -> Self:
        """Divide each element by a number."""
        numbers = numbers_of(value, may_be_zero=False)
        return self._add(f"scale {number_text(numbers)}", lambda state: scale(state, numbers))

    @said_of_port
    def convert_color(self, dst_format: str | ColorFormat) -> Self:
        """Change the colours from what ``tensor().set_color_format`` says."""
        wanted = choice_of(ColorFormat, dst_format, "colour format")
        return self._add(f"convert color ({wanted})", lambda state: convert_color(state, wanted))

    @said_of_port
    def reverse_channels(self) -> Self:
        """Turn the order of the channels around."""
        return self._add("reverse channels", reverse_channels)

    @said_of_port
    def resize(
        self,
        alg: str | ResizeAlgorithm,
        dst_height: int | None = None,
        dst_width: int | None = None,
    ) -> Self:
        """Change height and width, by default to the model's: "linear", "cubic" or "nearest"."""
        algorithm = resize_algorithm_of(alg)
        if (dst_height is None) != (dst_width is None):
            raise TensorError("give both a height and a width, or neither for the model's")
        if dst_height is None or dst_width is None:
            return self._add(
                "resize to model width/height", lambda state: resize(state, algorithm, None, None)
            )
        height, width = length_of(dst_height, "height"), length_of(dst_width, "width")
        return self._add(
            f"resize to ({height}, {width})", lambda state: resize(state, algorithm, height, width)
        )

    @said_of_port
    def crop(self, begin: Sequence[int], end: Sequence[int]) -> Self:
        """Keep from begin to before end, for each axis; negative numbers count from the end."""
        first, last = integers_of(begin, "begin"), integers_of(end, "end")
        if len(first) != len(last):
            raise TensorError(f"begin has {len(first)} numbers and end {len(last)}")
        text = f"Crop ([ {', '.join(map(str, first))} ],[ {', '.join(map(str, last))} ])"
        return self._add(text, lambda state: crop(state, first, last))

    @said_of_port
    def pad(
        self,
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        value: float | Sequence[float] = 0.0,
        mode: str | PaddingMode = PaddingMode.CONSTANT,
    ) -> Self:
        """Add elements before and after each axis: ``value``, or what reflects the tensor."""
        first, last = integers_of(pads_begin, "pads_begin"), integers_of(pads_end, "pads_end")
        if len(first) != len(last):
            raise TensorError(f"pads_begin has {len(first)} numbers and pads_end {len(last)}")
        chosen = choice_of(PaddingMode, mode, "padding mode")
        numbers = numbers_of(value, may_be_zero=True)
        if isinstance(numbers, tuple):
            if len(numbers) != 1:
                raise TensorError(f"one value fills all that is added, not {list(numbers)}")
            numbers = numbers[0]
        fill = numbers
        how = {
            PaddingMode.CONSTANT: f"with {number_text(fill)}",
            PaddingMode.REFLECT: "reflected from tensor",
            PaddingMode.SYMMETRIC: "symmetrically added from tensor",
        }[chosen]
        return self._add(
            f"pad(begin {number_text(first)}, end {number_text(last)}, {how})",
            lambda state: pad(state, first, last, fill, chosen),
        )
