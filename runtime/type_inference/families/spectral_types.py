"""Types of spectra."""

from __future__ import annotations

from ...graph import Dim, DType, Node, TensorType
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import axis_of
from ..operands import element_type, integer, operand, require_length, require_rank
from ..rules import type_rule


# onnx's own inference gives as many frequencies for real signals as for complex ones.
@type_rule("STFT")
def short_time_spectrum(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, length, 1 or 2), or (N, length) of real numbers, make (N, frames, frequencies, 2)."""
    x, window = operand(node, 0), operand(node, 2)
    if x is None:
        return None
    require_rank("the signal", x, 2, 3)
    if len(x.shape) == 3 and isinstance(x.shape[2], int) and x.shape[2] != 2:
        require_length("the signal's last length", x.shape[2], 1)
    if window is not None:
        require_rank("the window", window, 1)
    frame = _frame_length(node, contents, x.shape[1])
    step = _scalar(node, contents, 1)
    if isinstance(step, int) and step < 1:
        raise ContradictionError(f"its frames are {step} apart")
    frames = bins = None
    if isinstance(frame, int):
        if frame < 1:
            raise ContradictionError(f"its frames are of {frame} elements")
        bins = frame // 2 + 1 if integer(node, "onesided", 1) else frame
        if isinstance(step, int) and isinstance(x.shape[1], int):
            if frame > x.shape[1]:
                raise ContradictionError(f"{x.shape[1]} elements have no frame of {frame}")
            frames = 1 + (x.shape[1] - frame) // step
    return [TensorType(x.dtype, (x.shape[0], frames, bins, 2))]


@type_rule("DFT")
def spectrum(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(..., length, ..., 1 or 2) makes (..., frequencies, ..., 2), or 1 of real numbers again.

    The axis is an input, and was an attribute until opset 19.
    """
    x = operand(node, 0)
    if x is None:
        return None
    require_rank("the signal", x, 2, -1)
    rank, last = len(x.shape), x.shape[-1]
    if isinstance(last, int) and last != 2:
        require_length("the signal's last length", last, 1)
    is_half = bool(integer(node, "onesided", 0))
    is_real = is_half and bool(integer(node, "inverse", 0))
    axis: Dim | None = integer(node, "axis", -2)
    if node.input_at(2) is not None:
        axis = _scalar(node, contents, 2)
    if not isinstance(axis, int):
        return [TensorType(x.dtype, (*[None] * (rank - 1), 1 if is_real else 2))]
    place = axis_of(axis, rank)
    if place == rank - 1:
        raise ContradictionError(f"its axis {axis} is that of real and imaginary parts")
    length: Dim = x.shape[place]
    if node.input_at(1) is not None:
        length = _scalar(node, contents, 1)
        if isinstance(length, int) and length < 1:
            raise ContradictionError(f"its signals are of {length} elements")
    elif is_real:
        length = 2 * (length - 1) if isinstance(length, int) else None
    if is_half and not is_real:
        length = length // 2 + 1 if isinstance(length, int) else None
    signals = (*x.shape[:place], length, *x.shape[place + 1 : -1])
    return [TensorType(x.dtype, (*signals, 1 if is_real else 2))]


@type_rule("BlackmanWindow", "HammingWindow", "HannWindow")
def window(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """As many elements as its input says."""
    dtype = element_type(node, "output_datatype", DType.FLOAT32)
    return None if dtype is None else [TensorType(dtype, (_count(node, contents, 0),))]


@type_rule("MelWeightMatrix")
def mel_weights(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(frequencies of one side, bands)."""
    dtype = element_type(node, "output_datatype", DType.FLOAT32)
    bands, length = (_count(node, contents, index) for index in (0, 1))
    if dtype is None:
        return None
    return [TensorType(dtype, (length // 2 + 1 if isinstance(length, int) else None, bands))]


def _frame_length(node: Node, contents: ShapeContent, length: Dim) -> Dim:
    """Find the length of a frame: as it is given, or that of the window, or of the signal."""
    if node.input_at(3) is not None:
        return _scalar(node, contents, 3)
    if node.input_at(2) is not None:
        window = operand(node, 2)
        return None if window is None else window.shape[0]
    return length


def _scalar(node: Node, contents: ShapeContent, index: int) -> Dim:
    found = contents.integers(node, index)
    return found[0] if found is not None and len(found) == 1 else None


def _count(node: Node, contents: ShapeContent, index: int) -> Dim:
    found = _scalar(node, contents, index)
    if isinstance(found, int) and found < 0:
        raise ContradictionError(f"{found} is no number of elements")
    return found
