"""Pad, Resize, and operators whose results are sizes or made from them."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from property.operators.cases import DTYPES, FLOATS, Case, generator, given

COORDINATES = (
    *("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    "half_pixel_symmetric",
)


@generator("Pad")
def draw_pad(case: Case, op_type: str) -> None:
    mode = case.one_of(["constant", "edge", "reflect", "wrap"])
    shape = case.shape((1, 4), least=2)
    axes = list(range(len(shape)))
    if case.flag():
        axes = [axis for axis in axes if case.flag()] or [-1]
    pads = []
    for _ in range(2):  # NumPy, which REFERENCE asks, repeats in both directions by one length
        pads += [case.number(-1, 3 if mode == "constant" else shape[axis] - 1) for axis in axes]
    if mode != "constant":
        pads = [max(0, number) for number in pads]
    dtype = case.dtype()
    fill = case.feed(case.array((), dtype)) if mode == "constant" and case.flag() else ""
    names = [case.integers(pads), fill]
    if axes != list(range(len(shape))):
        names.append(case.integers(axes))
    case.give(op_type, case.feed(case.array(shape, dtype), known=False), *names, mode=mode)


@generator("Resize")
def draw_resize(case: Case, op_type: str) -> None:
    mode = case.one_of(["nearest", "linear", "cubic"])
    coordinates = case.one_of(COORDINATES)
    shape = (*case.numbers(2, 1, 2), *case.numbers(case.number(1, 2), 2, 6))
    numbers = [dtype.name for dtype in case.taken if dtype.kind != "b"]
    dtype = case.dtype(numbers if mode == "nearest" else FLOATS)
    x = case.feed(case.array(shape, dtype), known=False)
    spatial = range(2, len(shape))
    if case.flag():
        factors = [1.0, 1.0, *(case.one_of([0.5, 0.75, 1.0, 1.5, 2.0, 2.5]) for _ in spatial)]
        names = ["", case.feed(np.array(factors, np.float32))]
    else:
        sizes = [*shape[:2], *(case.number(1, 9) for _ in spatial)]
        names = ["", "", case.integers(sizes)]
    rounding = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": case.one_of(rounding) if mode == "nearest" else None,
        "exclude_outside": case.number(0, 1) if mode == "cubic" else None,
        "cubic_coeff_a": case.one_of([None, -0.5]) if mode == "cubic" else None,
    }
    case.give(op_type, x, *names, **given(attributes))


@generator("Shape")
def draw_shape(case: Case, op_type: str) -> None:
    x = case.array(case.shape(), case.dtype())
    bounds = {name: case.one_of([None, -2, -1, 0, 1, 3]) for name in ("start", "end")}
    case.give(op_type, case.feed(x, known=False), **given(bounds))


@generator("Size")
def draw_size(case: Case, op_type: str) -> None:
    case.give(op_type, case.feed(case.array(case.shape(), case.dtype()), known=False))


@generator("Range")
def draw_range(case: Case, op_type: str) -> None:
    dtype = case.dtype(("float32", "int64", "int32", "int16"))
    start, length, step = case.number(-5, 5), case.number(0, 9), case.one_of([1, 2, -1, -3])
    ends = start, start + length * step, step
    names = [
        case.feed(np.array(end, dtype), False if at == 0 else None) for at, end in enumerate(ends)
    ]
    case.give(op_type, *names)


@generator("ConstantOfShape")
def draw_constant_of_shape(case: Case, op_type: str) -> None:
    shape = case.integers(list(case.shape((0, 3))), known=False)
    value = None
    if case.flag():
        value = numpy_helper.from_array(case.array((1,), case.one_of(DTYPES)))
    case.give(op_type, shape, **given({"value": value}))
