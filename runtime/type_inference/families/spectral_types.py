"""Types of spectra."""

from __future__ import annotations

from ...graph import Dim, DType, Node, TensorType
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
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
