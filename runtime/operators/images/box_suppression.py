"""NonMaxSuppression: of boxes that overlap, keep the one that scores best."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..own.own_operators import own
from ..plain_operators import Array

__all__ = ["Keep", "Order", "by_score", "keep", "non_max_suppression", "select_boxes"]

Keep = Callable[[Array, Array, int, "np.floating"], Array]
"""``keep(corners, order, limit, most_overlap)`` takes boxes in this order, as :func:`keep` does."""

Order = Callable[[Array, "np.floating | None"], Array]
"""``order(scores, least)`` gives the places of scores above it, as :func:`by_score` does."""

_FIRST_GROUP = 32
_LARGEST_GROUP = 512
"""Boxes that are held against as many others at once: a megabyte of float32 for each operand."""


# onnx.reference needs all inputs, and takes them as vectors of one element only.
@own("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """Select boxes for each class of each image, by falling score; of equal ones the first.

    boxes: (batch, boxes, 4), two opposite corners (y, x, y, x) or centre and size (x, y, w, h).
    scores: (batch, classes, boxes). Gives (selected, 3) of batch, class and box. No limit is a
    limit of zero; a box is suppressed if its overlap with a selected one is above the threshold.
    Raises ValueError for boxes and scores that do not fit.
    """
    return select_boxes(
        by_score,
        keep,
        boxes,
        scores,
        max_output_boxes_per_class,
        iou_threshold,
        score_threshold,
        center_point_box=center_point_box,
    )


def select_boxes(
    order: Order,
    keep: Keep,
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """Do what the operator does, with the places of scores and of boxes that stay by these two."""
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3:
        raise ValueError(
            f"boxes have shape {boxes.shape} and scores {scores.shape}; (batch, boxes, 4) and "
            f"(batch, classes, boxes) are wanted"
        )
    if (len(boxes), boxes.shape[1]) != (len(scores), scores.shape[2]):
        raise ValueError(f"boxes of shape {boxes.shape} do not fit scores of shape {scores.shape}")
    limit = int(_number(max_output_boxes_per_class, 0, "max_output_boxes_per_class"))
    most_overlap = boxes.dtype.type(_number(iou_threshold, 0.0, "iou_threshold"))
    least_score = None
    if score_threshold is not None:
        least_score = scores.dtype.type(_number(score_threshold, 0.0, "score_threshold"))
    selected: list[Array] = [np.empty((0, 3), np.int64)]
    with np.errstate(all="ignore"):
        for batch in range(len(boxes) if limit > 0 else 0):
            corners = _corners(boxes[batch], center_point_box)
            for number, of_class in enumerate(scores[batch]):
                kept = keep(corners, order(of_class, least_score), limit, most_overlap)
                rows = np.empty((kept.size, 3), np.int64)
                rows[:, 0], rows[:, 1], rows[:, 2] = batch, number, kept
                selected.append(rows)
    return np.concatenate(selected)


def by_score(scores: Array, least_score: np.floating | None) -> Array:
    """Return the places of scores above the least, by falling score; of equal ones the first."""
    if least_score is None:
        return np.argsort(-scores, kind="stable")
    above = np.flatnonzero(scores > least_score)
    return above[np.argsort(-scores[above], kind="stable")]


def keep(corners: Array, left: Array, limit: int, most_overlap: np.floating) -> Array:
    """Take boxes in this order, each unless it overlaps one that was taken before; as int64.

    In groups: a group is held against what was taken, and what is left of it against itself, so
    that numpy compares many pairs at once. Groups begin small, for limits are often small.
    """
    kept = list[int]()
    start, count = 0, _FIRST_GROUP
    while start < left.size and len(kept) < limit:
        group = left[start : start + count]
        start, count = start + count, min(2 * count, _LARGEST_GROUP)
        for first in range(0, len(kept), _LARGEST_GROUP):
            taken = corners[kept[first : first + _LARGEST_GROUP]]
            group = group[~_overlaps(taken, corners[group], most_overlap).any(axis=0)]
        kept += _kept_of_group(corners[group], group, limit - len(kept), most_overlap)
    return np.array(kept, np.int64)


def _kept_of_group(corners: Array, group: Array, room: int, most_overlap: np.floating) -> list[int]:
    """Take boxes of a group that is held against itself; rows of bits are whole numbers here."""
    pairs = np.packbits(_overlaps(corners, corners, most_overlap), axis=1, bitorder="little")
    gone, kept = 0, list[int]()
    for place, (box, row) in enumerate(zip(group.tolist(), pairs, strict=True)):
        if gone >> place & 1:
            continue
        if len(kept) == room:
            break
        kept.append(box)
        gone |= int.from_bytes(row.tobytes(), "little")
    return kept


def _overlaps(boxes: Array, others: Array, most_overlap: np.floating) -> Array:
    """Return (boxes, others): which overlap by more than this share of their union."""
    top, left, bottom, right = (boxes[:, None, side] for side in range(4))
    other_top, other_left, other_bottom, other_right = (others[None, :, side] for side in range(4))
    height = np.minimum(bottom, other_bottom) - np.maximum(top, other_top)
    width = np.minimum(right, other_right) - np.maximum(left, other_left)
    common = height * width
    area = (bottom - top) * (right - left)
    areas = (other_bottom - other_top) * (other_right - other_left)
    union = area + areas - common
    is_real = (height > 0) & (width > 0) & (common > 0) & (area > 0) & (areas > 0) & (union > 0)
    return np.asarray(is_real & (common / union > most_overlap))


def _corners(boxes: Array, center_point_box: int) -> Array:
    """Bring boxes into the form of least and greatest corner."""
    made = np.empty_like(boxes)
    for low, high in ((0, 2), (1, 3)):  # columns, whose loops are long
        if center_point_box:
            half = boxes[:, high] / 2
            np.subtract(boxes[:, low], half, out=made[:, low])
            np.add(boxes[:, low], half, out=made[:, high])
        else:
            np.minimum(boxes[:, low], boxes[:, high], out=made[:, low])
            np.maximum(boxes[:, low], boxes[:, high], out=made[:, high])
    return made


def _number(given: Array | None, default: float, name: str) -> float:
    if given is None:
        return default
    if given.size != 1:
        raise ValueError(f"{name} has shape {given.shape}; one number is wanted")
    return given.item()  # type: ignore[no-any-return]
