"""What a user says of the tensors at both ends of the steps; each fact is said once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from ...errors import NotSupportedError, TensorError
from ..graph import Dim, DType, Shape, shape_text
from ..graph.reshaping import checked_shape
from .choices import choice_of
from .color_format import PLANES, ColorFormat
from .element_types import ElementType, element_type_of
from .given_numbers import length_of
from .layout import Layout
from .port_name import PortName, said_of_port

__all__ = [
    "InputModelInfo",
    "InputTensorInfo",
    "OutputModelInfo",
    "OutputTensorInfo",
]


T = TypeVar("T")


class _Info:
    """Facts by the method that gave them; None where none did."""

    def __init__(self, port: PortName) -> None:
        self._port = port
        self._layout: Layout | None = None

    @said_of_port
    def set_layout(self, layout: str | Layout) -> Self:
        """Say which axis means what."""
        self._layout = _said_once(self._layout, Layout(layout), "layout")
        return self


class _TensorInfo(_Info):
    """What both of the user's ends have."""

    def __init__(self, port: PortName) -> None:
        super().__init__(port)
        self._dtype: DType | None = None

    @said_of_port
    def set_element_type(self, type: ElementType) -> Self:
        """Say which element type the user's tensor has: "u8", "f32"."""
        self._dtype = _said_once(self._dtype, element_type_of(type), "element type")
        return self


class InputModelInfo(_Info):
    """What the file does not say of an input."""


class OutputModelInfo(_Info):
    """What the file does not say of an output."""


class OutputTensorInfo(_TensorInfo):
    """What an output is to be when the user gets it."""


class InputTensorInfo(_TensorInfo):
    """What the user gives for an input. A fact is said once, or twice the same."""

    def __init__(self, port: PortName) -> None:
        super().__init__(port)
        self._color: ColorFormat | None = None
        self._sub_names: tuple[str, ...] = ()
        self._shape: Shape | None = None
        self._spatial: tuple[Dim, Dim] | None = None

    @said_of_port
    def set_color_format(
        self, format: str | ColorFormat, sub_names: str | Sequence[str] = ()
    ) -> Self:
        """Say what the channels are; with several planes, also how the names of each end."""
        color = choice_of(ColorFormat, format, "colour format")
        names = (sub_names,) if isinstance(sub_names, str) else tuple(sub_names)
        planes = PLANES.get(color, ())
        if names and (len(planes) < 2 or len(names) != len(planes) or len(set(names)) < len(names)):
            raise TensorError(
                f"{color.name} comes in {max(len(planes), 1)} tensors, and sub_names are "
                f"{list(names)}; give each of several a name of its own, or none"
            )
        self._color = _said_once(self._color, color, "colour format")
        self._sub_names = _said_once(self._sub_names or None, names, "names of the planes")
        return self

    @said_of_port
    def set_shape(self, shape: Sequence[Dim]) -> Self:
        """Say which shape a picture has, planes joined; None or -1 leaves a length open."""
        if self._spatial is not None:
            raise _twice("shape", shape_text(tuple(shape)), "a height and width of its own")
        self._shape = _said_once(self._shape, checked_shape(self._port.name, shape), "shape")
        return self

    @said_of_port
    def set_spatial_dynamic_shape(self) -> Self:
        """Leave height and width open."""
        return self._set_spatial((None, None))

    @said_of_port
    def set_spatial_static_shape(self, height: int, width: int) -> Self:
        """Say which height and width a picture has; the other lengths are the model's."""
        return self._set_spatial((length_of(height, "height"), length_of(width, "width")))

    def _set_spatial(self, wanted: tuple[Dim, Dim]) -> Self:
        if self._shape is not None:
            raise _twice("height and width", shape_text(wanted), shape_text(self._shape))
        self._spatial = _said_once(self._spatial, wanted, "height and width")
        return self

    @said_of_port
    def set_from(self, tensor: Any) -> Self:
        """Take element type and shape from an array or a Tensor."""
        if not hasattr(tensor, "dtype") or not hasattr(tensor, "shape"):
            raise TensorError(f"{type(tensor).__name__} has no dtype and shape; give an array")
        return self.set_element_type(tensor.dtype).set_shape(tuple(tensor.shape))

    def set_memory_type(self, memory_type: str) -> Self:
        """(not supported) Say where a surface lies, as OpenVINO's GPU plugin asks."""
        raise NotSupportedError(
            f"{self._port}, set_memory_type: {memory_type!r} is memory of OpenVINO's GPU plugin; "
            f"leave the call out: arrays on a device are taken as inputs as they are"
        )


def _said_once(before: T | None, now: T, what: str) -> T:
    if before is not None and before != now:
        raise _twice(what, now, before)
    return now


def _twice(what: str, now: object, before: object) -> TensorError:
    return TensorError(f"the {what} would be {now}, and was given as {before} before; give it once")
