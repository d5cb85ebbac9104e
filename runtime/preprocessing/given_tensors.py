"""Which tensors a user gives for an input, told from the model's and from what is said of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import TensorError
from ..graph import Dim, DType, Shape, TensorType, Value, shape_text
from .color_format import PLANES, ColorFormat
from .layout import Layout, axis_order
from .state import State, Target

__all__ = ["GivenFacts", "given_state"]


@dataclass(frozen=True)
class GivenFacts:
    """What a user says of the tensors for an input; None and UNDEFINED where nothing is said."""

    dtype: DType | None = None
    layout: Layout | None = None
    color: ColorFormat = ColorFormat.UNDEFINED
    sub_names: tuple[str, ...] = ()
    shape: Shape | None = None
    spatial: tuple[Dim, Dim] | None = None


def given_state(
    name: str, target: Target, facts: GivenFacts, orders: Iterable[tuple[int, ...]]
) -> State:
    """Return the state before the first step, of new values with the names that users give.

    ``orders`` are those of the convert_layouts by numbers: where nothing else tells the layout of
    what is given, it is what they make the model's of. Raises TensorError for facts that contradict
    each other or the model.
    """
    shape, layout = _picture(target, facts, tuple(orders))
    dtype = facts.dtype or target.dtype
    planes = PLANES.get(facts.color)
    if planes is None:
        given: tuple[Value, ...] = (Value(name, TensorType(dtype, shape)),)
        return State(given, layout, facts.color, target)
    if shape is None:
        raise TensorError("the tensor's rank is not known; give tensor().set_shape(...)")
    _check_channels(facts, shape, layout)
    suffixes = facts.sub_names or tuple(plane.suffix for plane in planes)
    given = tuple(
        Value(f"{name}/{suffix}" if suffix else name, TensorType(dtype, plane.shape(shape, layout)))
        for plane, suffix in zip(planes, suffixes, strict=True)
    )
    return State(given, layout, facts.color, target)


def _picture(
    target: Target, facts: GivenFacts, orders: tuple[tuple[int, ...], ...]
) -> tuple[Shape | None, Layout]:
    """Return shape and layout of what is given, of a picture with its planes joined."""
    layout = facts.layout
    if layout is None and facts.color is not ColorFormat.UNDEFINED:
        if not target.layout and facts.shape is None:
            raise TensorError(
                f"{facts.color.name} pictures are taken for NHWC, and the model's layout is not "
                f"known; give model().set_layout, such as 'NCHW'"
            )
        layout = Layout("NHWC")
    shape = target.shape
    if layout is not None and target.layout and layout != target.layout:
        if shape is not None and facts.shape is None:
            shape = _reordered(shape, target.layout, layout)
    elif layout is None:
        shape, layout = _before_orders(target, orders)
    if facts.shape is not None:
        shape = facts.shape
    if facts.spatial is not None:
        if shape is None:
            raise TensorError("the tensor's rank is not known; give tensor().set_shape(...)")
        lengths = list(shape)
        for axis_name, length in zip("HW", facts.spatial, strict=True):
            lengths[layout.axis(axis_name, len(shape))] = length
        shape = tuple(lengths)
    if shape is not None:
        layout.of_rank(len(shape))
    return shape, layout


def _reordered(shape: Shape, source: Layout, target: Layout) -> Shape:
    """Return a model's shape in the layout of what is given, which may lack axes of length 1."""
    if target.rank is not None and target.rank < len(shape):
        names = source.of_rank(len(shape))
        if "?" not in names and set(target.names) <= set(names):
            return tuple(shape[names.index(name)] for name in target.names)
    order = axis_order(source, target, len(shape))
    return tuple(1 if axis is None else shape[axis] for axis in order)


def _before_orders(
    target: Target, orders: tuple[tuple[int, ...], ...]
) -> tuple[Shape | None, Layout]:
    """Undo what convert_layouts by numbers do, the last one first."""
    shape, layout = target.shape, target.layout
    for order in reversed(orders):
        back = sorted(range(len(order)), key=order.__getitem__)
        if shape is not None:
            if len(shape) != len(order):
                raise TensorError(
                    f"convert_layout names {len(order)} axes, and the tensor has {len(shape)}"
                )
            shape = tuple(shape[axis] for axis in back)
        layout = layout.permuted(back)
    return shape, layout


def _check_channels(facts: GivenFacts, shape: Shape, layout: Layout) -> None:
    if facts.shape is None:
        return
    count = facts.shape[layout.axis("C", len(shape))]
    planes = PLANES[facts.color]
    is_subsampled = len(planes) > 1 or planes[0].half_heights != 2
    allowed = (1, 3) if is_subsampled else (planes[0].channel_count,)
    if isinstance(count, int) and count not in allowed:
        raise TensorError(
            f"{facts.color.name} has {planes[0].channel_count} channels, and the shape "
            f"{shape_text(shape)} with the layout {layout} has {count}; give shapes of a picture, "
            f"or another layout or colour format"
        )
