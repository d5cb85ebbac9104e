"""NonMaxSuppression: optional inputs, both forms of boxes, ties and limits."""

import itertools

import numpy as np
import pytest

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import make_operator
from aioinfer.runtime.operators.images import box_suppression

CORNERS = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [1, 2, 0, 3], [0, 2, 1, 3]]], np.float32)
SCORES = np.array([[[0.5, 0.9, 0.3, 0.3]]], np.float32)


def suppress(boxes, scores, *optional, **attributes) -> list[list[int]]:
    """Evaluate the operator; None stands for an input that is left out."""
    inputs = (boxes, scores, *optional)
    names = [None if given is None else Value(f"x{at}") for at, given in enumerate(inputs)]
    node = Node("NonMaxSuppression", names, [Value("y")], attributes, name="n")
    selected = make_operator(node, {"": 21})(*inputs)[0]
    assert (selected.dtype, selected.shape[1:]) == (np.int64, (3,))
    return selected.tolist()


def number(value: float, shape: tuple[int, ...] = (1,), dtype=np.float32):
    return np.full(shape, value, dtype)


@pytest.mark.parametrize("limit", [(), (None, number(0.5))])
def test_without_a_limit_nothing_is_selected(limit) -> None:
    assert suppress(CORNERS, SCORES, *limit) == []


@pytest.mark.parametrize("shape", [(), (1,)])
def test_limit_and_thresholds_may_be_scalars(shape) -> None:
    limit = number(9, shape, np.int64)
    half, least = number(0.5, shape), number(0.4, shape)
    assert suppress(CORNERS, SCORES, limit, half) == [[0, 0, 1], [0, 0, 2]]
    assert suppress(CORNERS, SCORES, limit, half, least) == [[0, 0, 1]]
    assert suppress(CORNERS, SCORES, number(1, shape, np.int64), half) == [[0, 0, 1]]


def test_a_missing_overlap_threshold_is_zero_and_of_equal_scores_the_first_is_kept() -> None:
    apart = CORNERS.copy()
    apart[0, 3] += 10
    limit = number(9, (), np.int64)
    assert suppress(CORNERS, SCORES, limit) == [[0, 0, 1], [0, 0, 2]]
    assert suppress(apart, SCORES, limit) == [[0, 0, 1], [0, 0, 2], [0, 0, 3]]


def test_a_score_that_is_just_the_threshold_does_not_pass() -> None:
    limit, all_apart = number(9, (), np.int64), number(1.0)
    assert suppress(CORNERS, SCORES, limit, all_apart, number(0.3)) == [[0, 0, 1], [0, 0, 0]]


def test_boxes_may_be_given_by_centre_and_size() -> None:
    low, high = (
        np.minimum(CORNERS[..., :2], CORNERS[..., 2:]),
        np.maximum(CORNERS[..., :2], CORNERS[..., 2:]),
    )
    centred = np.concatenate([(low + high) / 2, high - low], axis=2)
    given = (SCORES, number(9, (), np.int64), number(0.5))
    assert suppress(centred, *given, center_point_box=1) == [[0, 0, 1], [0, 0, 2]]


def test_each_class_of_each_image_is_for_itself() -> None:
    boxes, scores = np.repeat(CORNERS, 2, axis=0), np.tile(SCORES, (2, 3, 1))
    selected = suppress(boxes, scores, number(1, (), np.int64), number(0.5))
    assert selected == [[*place, 1] for place in itertools.product(range(2), range(3))]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_no_image_or_no_box_selects_nothing(shape) -> None:
    batch, count = shape
    boxes = np.zeros((batch, count, 4), np.float32)
    scores = np.zeros((batch, 2, count), np.float32)
    assert suppress(boxes, scores, number(3, (), np.int64)) == []


def test_an_empty_box_overlaps_nothing() -> None:
    boxes = np.zeros((1, 2, 4), np.float32)
    scores = np.array([[[1, 2]]], np.float32)
    assert suppress(boxes, scores, number(3, (), np.int64)) == [[0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("boxes", "scores", "limit"),
    [
        ((1, 4, 3), (1, 1, 4), (1,)),
        ((1, 4, 4), (1, 1, 5), (1,)),
        ((2, 4, 4), (1, 1, 4), (1,)),
        ((4, 4), (1, 4), (1,)),
        ((1, 4, 4), (1, 1, 4), (2,)),
    ],
)
def test_inputs_that_do_not_fit_are_refused(boxes, scores, limit) -> None:
    with pytest.raises(ValueError, match="shape"):
        suppress(
            np.zeros(boxes, np.float32), np.zeros(scores, np.float32), np.zeros(limit, np.int64)
        )


def literal(boxes, scores, limit: int, threshold: float) -> list[list[int]]:
    """Suppress pair by pair."""
    found = []
    for batch, number in np.ndindex(scores.shape[:2]):
        kept: list[int] = []
        for box in np.argsort(-scores[batch, number], kind="stable").tolist():
            pairs = (_share(boxes[batch, box], boxes[batch, other]) for other in kept)
            if len(kept) < limit and not any(share > threshold for share in pairs):
                kept.append(box)
        found += [[batch, number, box] for box in kept]
    return found


def _share(one, other) -> float:
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    common = np.prod(np.maximum(high - low, 0))
    both = np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - common
    return common / both


@pytest.mark.parametrize("limit", [1, 40, 200])
@pytest.mark.parametrize("count", [31, 150])
def test_groups_of_boxes_are_as_one_by_one(count: int, limit: int, monkeypatch) -> None:
    monkeypatch.setattr(box_suppression, "_FIRST_GROUP", 8)
    monkeypatch.setattr(box_suppression, "_LARGEST_GROUP", 32)
    generator = np.random.default_rng(count)
    low = generator.uniform(0, 5, (1, count, 2))
    boxes = np.concatenate([low, low + generator.uniform(0.3, 2, low.shape)], axis=2)
    boxes, scores = boxes.astype(np.float32), generator.random((1, 2, count)).astype(np.float32)
    for threshold in (0.1, 0.5):
        limits = number(limit, (), np.int64), number(threshold)
        assert suppress(boxes, scores, *limits) == literal(boxes, scores, limit, threshold)
