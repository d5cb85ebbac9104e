"""What the attributes of an ensemble of trees say: questions, votes of leaves, and the verdict."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..plain_operators import Array
from .forests import LEAF, Question, check_trees

__all__ = [
    "ABOUT_NODES",
    "TENSORS_OF_NODES",
    "TREE_READERS",
    "TreeRule",
    "Verdict",
    "Votes",
    "read_classifier",
    "read_ensemble",
    "read_regressor",
]


class Verdict(enum.Enum):
    """What follows from the sums of a row. As onnxruntime; the numbers are those of native_trees.c.

    ``SECOND`` and ``ONE_OF_TWO`` are for two classes of whose leaves speak of one alone.
    """

    SCORES = 0
    """They are all that is asked for."""
    BEST = 1
    """The label is that of the best score, of the classes of which a leaf speaks."""
    SECOND = 2
    """The other one's score follows from it; the label goes by a threshold."""
    ONE_OF_TWO = 3
    """Both scores are as they are; the label goes by a threshold."""
    POSITIVE = 4
    """There is one class; the label is 1 where its score is above zero."""


class Votes(NamedTuple):
    """What leaves say: entries sorted by leaf, of which leaf i has ``starts[i]`` to the next."""

    starts: Array
    targets: Array
    weights: Array

    def entries(self, leaves: Array) -> tuple[Array, Array]:
        """Return the rows, and the entries, of (rows, trees) of leaves."""
        counts = np.diff(self.starts)[leaves].reshape(-1)
        ends = np.cumsum(counts)
        steps = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
        found = np.repeat(self.starts[leaves].reshape(-1), counts) + steps
        rows = np.repeat(np.arange(leaves.size) // max(1, leaves.shape[1]), counts)
        return rows, found


class TreeRule(NamedTuple):
    """An ensemble of trees, in any of its forms.

    ``base`` is added to each target, in float64. ``aggregate`` and ``transform`` are ONNX's names.
    ``is_double`` asks for comparisons in float64.
    """

    question: Question
    votes: Votes
    target_count: int
    is_double: bool
    aggregate: str
    transform: str
    base: Array
    has_base: bool
    labels: Array
    verdict: Verdict = Verdict.SCORES
    column: int = 0
    is_positive: bool = True

    @property
    def threshold(self) -> float:
        """Above which a single score speaks for the second class."""
        return 0.5 if self.is_positive else 0.0


_NO_LABELS = np.zeros(0, np.int64)


def read_regressor(
    *,
    aggregate_function: str = "SUM",
    base_values: Sequence[float] = (),
    base_values_as_tensor: Array | None = None,
    n_targets: int = 1,
    post_transform: str = "NONE",
    target_ids: Sequence[int] = (),
    target_nodeids: Sequence[int] = (),
    target_treeids: Sequence[int] = (),
    target_weights: Sequence[float] = (),
    target_weights_as_tensor: Array | None = None,
    **nodes: Any,
) -> TreeRule:
    """Read ``TreeEnsembleRegressor``; ValueError for what is no ensemble."""
    weights = _numbers(target_weights, target_weights_as_tensor)
    base = _numbers(base_values, base_values_as_tensor)
    if len(base) not in (0, n_targets):
        raise ValueError(f"{len(base)} base values are given for {n_targets} targets")
    question, votes = _trees(
        nodes, (target_treeids, target_nodeids, target_ids), weights, n_targets
    )
    return TreeRule(
        question,
        votes,
        n_targets,
        nodes.get("nodes_values_as_tensor") is not None,
        aggregate_function,
        post_transform,
        base if len(base) else np.zeros(n_targets),
        bool(len(base)),
        _NO_LABELS,
    )


def read_classifier(
    *,
    base_values: Sequence[float] = (),
    base_values_as_tensor: Array | None = None,
    class_ids: Sequence[int] = (),
    class_nodeids: Sequence[int] = (),
    class_treeids: Sequence[int] = (),
    class_weights: Sequence[float] = (),
    class_weights_as_tensor: Array | None = None,
    classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    post_transform: str = "NONE",
    **nodes: Any,
) -> TreeRule:
    """Read ``TreeEnsembleClassifier``; ValueError for what is no ensemble."""
    labels = np.array(list(classlabels_int64s), np.int64)
    if not len(labels):
        labels = np.array(list(classlabels_strings), object)
    count = max(1, len(labels))
    weights = _numbers(class_weights, class_weights_as_tensor)
    given = _numbers(base_values, base_values_as_tensor)
    question, votes = _trees(nodes, (class_treeids, class_nodeids, class_ids), weights, count)
    is_one = len(set(class_ids)) == 1 and count == 2
    column = int(class_ids[0]) if is_one else 0
    base = np.zeros(count)
    if count == 1:
        verdict = Verdict.POSITIVE
        post_transform = post_transform if post_transform == "PROBIT" else "NONE"
    elif is_one:
        verdict = Verdict.SECOND if column == 0 and len(given) < 2 else Verdict.ONE_OF_TWO
    else:
        verdict = Verdict.BEST
        if len(given) not in (0, 1, count):
            raise ValueError(f"{len(given)} base values are given for {count} classes")
    if len(given) and verdict is Verdict.BEST:
        base[:] = given
    elif len(given):
        base[column] = given[min(column, len(given) - 1)]
    return TreeRule(
        question,
        votes,
        count,
        nodes.get("nodes_values_as_tensor") is not None,
        "SUM",
        post_transform,
        base,
        bool(len(given)),
        labels,
        verdict,
        column,
        bool((weights >= 0).all()),
    )


def _numbers(numbers: Sequence[float], tensor: Array | None) -> Array:
    if tensor is not None:
        return np.asarray(tensor, np.float64).reshape(-1)
    return np.array(list(numbers), np.float32).astype(np.float64)


def _trees(
    nodes: dict[str, Any],
    entries: tuple[Sequence[int], Sequence[int], Sequence[int]],
    weights: Array,
    target_count: int,
) -> tuple[Question, Votes]:
    """Read the attributes of nodes, and tree, node and target of each entry.

    A leaf of an ensemble with one target says what its first entry says, as in onnxruntime:
    sklearn-onnx writes a leaf's number once for each class.
    """
    question, keys = _question(**nodes)
    trees, ids, targets = (np.array(list(item), np.int64) for item in entries)
    if not len(trees) == len(ids) == len(targets) == len(weights):
        raise ValueError("its lists about leaves differ in length")
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < target_count:
        raise ValueError(f"its leaves speak of targets beyond {target_count}")
    places = keys.places(trees, ids)
    order = np.argsort(places, kind="stable")
    if target_count == 1 and len(places):
        order = order[np.unique(places[order], return_index=True)[1]]
    starts = np.searchsorted(places[order], np.arange(len(question.modes) + 1))
    return question, Votes(starts, targets[order], weights[order])


class _Keys:
    """Finds nodes by the numbers of their trees and their own."""

    def __init__(self, trees: Array, ids: Array) -> None:
        self._trees, tree_at = np.unique(trees, return_inverse=True)
        self._ids, id_at = np.unique(ids, return_inverse=True)
        keys = tree_at * max(1, len(self._ids)) + id_at
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        if (self._keys[1:] == self._keys[:-1]).any():
            raise ValueError("two nodes of a tree have the same number")

    def places(self, trees: Array, ids: Array) -> Array:
        """Return where nodes stand; raises ValueError for one that is not there."""
        if not len(trees):
            return np.zeros(0, np.intp)
        if not len(self._keys):
            raise ValueError("there are no nodes")
        tree_at = np.searchsorted(self._trees, trees).clip(max=len(self._trees) - 1)
        id_at = np.searchsorted(self._ids, ids).clip(max=len(self._ids) - 1)
        wanted = tree_at * len(self._ids) + id_at
        found = np.searchsorted(self._keys, wanted).clip(max=len(self._keys) - 1)
        is_there = (
            (self._trees[tree_at] == trees)
            & (self._ids[id_at] == ids)
            & (self._keys[found] == wanted)
        )
        if not is_there.all():
            at = int(np.argmin(is_there))
            raise ValueError(f"tree {trees[at]} has no node {ids[at]}")
        return np.asarray(self._order[found])


def _question(
    *,
    nodes_falsenodeids: Sequence[int] = (),
    nodes_featureids: Sequence[int] = (),
    nodes_hitrates: Sequence[float] = (),
    nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Sequence[int] = (),
    nodes_modes: Sequence[str] = (),
    nodes_nodeids: Sequence[int] = (),
    nodes_treeids: Sequence[int] = (),
    nodes_truenodeids: Sequence[int] = (),
    nodes_values: Sequence[float] = (),
    nodes_values_as_tensor: Array | None = None,
) -> tuple[Question, _Keys]:
    modes = [mode.removeprefix("BRANCH_") for mode in nodes_modes]
    trees, ids = (np.array(list(item), np.int64) for item in (nodes_treeids, nodes_nodeids))
    count = len(modes)
    values = _numbers(nodes_values, nodes_values_as_tensor)
    missing = np.zeros(count, bool)
    if nodes_missing_value_tracks_true:
        missing = np.array(list(nodes_missing_value_tracks_true)) != 0
    features = np.array(list(nodes_featureids), np.int64)
    lists = (trees, ids, values, missing, features, nodes_truenodeids, nodes_falsenodeids)
    if any(len(item) != count for item in lists):
        raise ValueError("its lists about nodes differ in length")
    keys = _Keys(trees, ids)
    is_inner = np.array([mode != LEAF for mode in modes], bool)
    branches = []
    for given in (nodes_truenodeids, nodes_falsenodeids):
        found = np.zeros(count, np.intp)
        wanted = np.array(list(given), np.int64)[is_inner]
        found[is_inner] = keys.places(trees[is_inner], wanted)
        branches.append(found)
    _, roots = np.unique(trees, return_index=True)
    yes, no = branches
    question = Question(features, modes, values, yes, no, missing, roots)
    check_trees(question)
    return question, keys


ABOUT_NODES = frozenset(inspect.signature(_question).parameters)
"""Attributes of the two old forms about their nodes."""
TENSORS_OF_NODES = tuple(sorted(name for name in ABOUT_NODES if name.endswith("_as_tensor")))
"""Those that came with version 3."""


def read_ensemble(
    *,
    nodes_splits: Array,
    nodes_featureids: Sequence[int],
    nodes_modes: Array,
    nodes_truenodeids: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_trueleafs: Sequence[int],
    nodes_falseleafs: Sequence[int],
    leaf_targetids: Sequence[int],
    leaf_weights: Array,
    tree_roots: Sequence[int],
    aggregate_function: int = 1,
    post_transform: int = 0,
    nodes_hitrates: Array | None = None,
    nodes_missing_value_tracks_true: Sequence[int] = (),
    membership_values: Array | None = None,
    n_targets: int = 1,
) -> TreeRule:
    """Read ``TreeEnsemble``; ValueError for what is none."""
    numbers = np.asarray(nodes_modes).astype(np.int64).tolist()
    count, leaf_count = len(numbers), len(leaf_targetids)
    modes = [_MODES[number] for number in numbers] + [LEAF] * leaf_count
    branches = []
    for ids, are_leaves in (
        (nodes_truenodeids, nodes_trueleafs),
        (nodes_falsenodeids, nodes_falseleafs),
    ):
        if len(are_leaves) != count:
            raise ValueError("its lists about nodes differ in length")
        places = np.array(list(ids), np.int64) + count * (np.array(list(are_leaves)) != 0)
        branches.append(np.concatenate([places, np.zeros(leaf_count, np.int64)]))
    yes, no = branches
    values = np.concatenate([np.asarray(nodes_splits, np.float64), np.zeros(leaf_count)])
    features = np.array([*nodes_featureids, *[0] * leaf_count], np.int64)
    missing = np.zeros(len(modes), bool)
    missing[: len(nodes_missing_value_tracks_true)] = nodes_missing_value_tracks_true
    roots = np.array(list(tree_roots), np.int64)
    if any(len(item) != len(modes) for item in (yes, no, values, features)):
        raise ValueError("its lists about nodes differ in length")
    targets, weights = (
        np.array(list(leaf_targetids), np.int64),
        np.asarray(leaf_weights, np.float64),
    )
    if len(weights) != leaf_count or (
        leaf_count and not 0 <= int(targets.min()) <= int(targets.max()) < n_targets
    ):
        raise ValueError(f"its leaves are no {leaf_count} numbers for targets below {n_targets}")
    if not all(0 <= root < count for root in roots):
        raise ValueError("a tree has a root that is not there")
    roots = np.where(yes[roots] == no[roots], yes[roots], roots)  # a tree that is one leaf
    question = Question(features, modes, values, yes, no, missing, roots)
    check_trees(question)
    question = _with_members(question, membership_values)
    starts = np.zeros(len(question.modes) + 1, np.int64)
    starts[count + 1 : count + leaf_count + 1] = 1
    if min(aggregate_function, post_transform) < 0:
        raise ValueError(f"it has no function {min(aggregate_function, post_transform)}")
    return TreeRule(
        question,
        Votes(np.cumsum(starts), targets, weights),
        n_targets,
        np.asarray(nodes_splits).dtype == np.float64,
        _AGGREGATES[aggregate_function],
        _TRANSFORMS[post_transform],
        np.zeros(n_targets),
        False,
        _NO_LABELS,
    )


_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


TREE_READERS: Mapping[str, Callable[..., TreeRule]] = MappingProxyType(
    {
        "TreeEnsemble": read_ensemble,
        "TreeEnsembleClassifier": read_classifier,
        "TreeEnsembleRegressor": read_regressor,
    }
)
"""By operator of ai.onnx.ml, called with a node's attributes."""


def _with_members(question: Question, members: Array | None) -> Question:
    """Ask for each member of a set in a row: the sets follow each other, each ended by NaN."""
    asking = [place for place, mode in enumerate(question.modes) if mode == "MEMBER"]
    if not asking:
        return question
    numbers = np.asarray([] if members is None else members, np.float64)
    ends = np.flatnonzero(np.isnan(numbers))
    if len(ends) != len(asking):
        raise ValueError(f"{len(ends)} sets of members are given for {len(asking)} nodes")
    modes = [*question.modes]
    lists = (question.features, question.values, question.yes, question.no)
    features, values, yes, no = (item.tolist() for item in lists)
    for place, start, end in zip(asking, [0, *(ends[:-1] + 1)], ends, strict=True):
        modes[place], at, other = "EQ", place, no[place]
        values[place] = float(numbers[start]) if end > start else np.nan
        for member in numbers[start + 1 : end].tolist():
            no[at] = len(modes)
            at = len(modes)
            modes.append("EQ")
            features.append(features[place])
            values.append(member)
            yes.append(yes[place])
            no.append(other)
    missing = np.concatenate([question.missing, np.zeros(len(modes) - len(question.modes), bool)])
    places, answers = np.array(features, np.int64), np.array(values)
    following = np.array(yes, np.int64), np.array(no, np.int64)
    return Question(places, modes, answers, *following, missing, question.roots)
