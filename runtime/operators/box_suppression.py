"""NonMaxSuppression: of boxes that overlap, keep the one that scores best."""

from __future__ import annotations

import numpy as np

from .own_operators import own
from .plain_operators import Array

__all__ = ["non_max_suppression"]


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
    selected: list[tuple[int, int, int]] = []
    with np.errstate(all="ignore"):
        for batch in range(len(boxes) if limit > 0 else 0):
            corners = _corners(boxes[batch], center_point_box)
            for number, of_class in enumerate(scores[batch]):
                left = np.argsort(-of_class, kind="stable")
                if least_score is not None:
                    left = left[of_class[left] > least_score]
                kept = _keep(corners, left, limit, most_overlap)
                selected += [(batch, number, box) for box in kept]
    return np.array(selected, np.int64).reshape(-1, 3)


def _keep(corners: Array, left: Array, limit: int, most_overlap: np.floating) -> list[int]:
    """Take boxes in this order, each unless it overlaps one that was taken before."""
    kept: list[int] = []
    while left.size and len(kept) < limit:
        best, left = int(left[0]), left[1:]
        kept.append(best)
        left = left[~_overlaps(corners[best], corners[left], most_overlap)]
    return kept


def _overlaps(box: Array, others: Array, most_overlap: np.floating) -> Array:
    """Return which others overlap a box by more than this share of their union with it."""
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:], others[:, 2:])
    common = np.prod(high - low, axis=1)
    area = np.prod(box[2:] - box[:2])
    areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    union = area + areas - common
    is_real = (high > low).all(axis=1) & (common > 0) & (area > 0) & (areas > 0) & (union > 0)
    return np.asarray(is_real & (common / union > most_overlap))


def _corners(boxes: Array, center_point_box: int) -> Array:
    """Bring boxes into the form of least and greatest corner."""
    if center_point_box:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    one, other = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], axis=1)


def _number(given: Array | None, default: float, name: str) -> float:
    if given is None:
        return default
    if given.size != 1:
        raise ValueError(f"{name} has shape {given.shape}; one number is wanted")
    return given.item()  # type: ignore[no-any-return]
