"""One case from a seed and a number: a model, and what its runs are given.

Half of the models are wrong; of the right ones, many are given something wrong at a run. A right
model may have its parameters as initializers or as inputs, and its dimensions known or open: it
means the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
from onnx import NodeProto

from .bases import Base
from .chains import append_links, fresh_chain
from .draft import Draft, elem_type_of, tensor_type
from .mutations import CONTENT, STRUCTURE, mutate

__all__ = ["Case", "Draw", "Run", "draw_case"]

Array = np.ndarray[Any, Any]

_MOST_WITH_LINKS = 6


@dataclass(frozen=True)
class Run:
    """What one run is given; ``is_valid`` if the model has an answer for it."""

    feeds: dict[str, Any]
    is_valid: bool


@dataclass(frozen=True)
class Case:
    """A model with a few runs, one after the other on the same network."""

    seed: int
    index: int
    name: str
    op_types: tuple[str, ...]
    """Of each node, in order."""
    model: bytes
    runs: tuple[Run, ...]
    notes: tuple[str, ...]
    has_extremes: bool
    at_end: bool
    """Place what is given before a guarded page; else behind one."""
    binds: bool
    """Give memory for the outputs, too."""
    thread_count: int
    states: Mapping[str, str] = field(default_factory=dict)
    """What STATE is set to; all runs are then of one request."""
    answer: Mapping[str, Array] | None = None
    """What every device must give at each run, where that is known beforehand."""

    @property
    def ops(self) -> str:
        """The first few operators, each once, for the name of a group."""
        return "+".join([*dict.fromkeys(self.op_types)][:4])

    def __str__(self) -> str:
        return f"{self.seed}:{self.index} {self.name} ({'; '.join(self.notes) or 'as it is'})"


Draw = Callable[[int], Case]
"""Makes the case of a number, the same one every time."""


_CASTS = {"Cast", "CastLike"}


def _is_finite(run: Run) -> bool:
    floats = (x for x in run.feeds.values() if isinstance(x, np.ndarray) and x.dtype.kind == "f")
    return all(bool(np.isfinite(x).all()) for x in floats)


def draw_case(bases: Sequence[Base], seed: int, index: int) -> Case:
    """Make a case, the same one every time."""
    rng = Random(f"{seed}:{index}")
    draft, name = _draft(rng, bases)
    _choose_constants(draft, rng)
    kind = rng.random()
    if kind < 0.45:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            mutate(draft, rng, STRUCTURE)
    _choose_declarations(draft, rng)
    is_valid = kind >= 0.45
    runs = [Run(draft.feeds(), is_valid)]
    if kind > 0.65 and draft.feeds():
        bad = _mutated_feeds(draft, rng)
        runs = [*runs[: rng.randrange(2)], Run(bad, is_valid=False), *runs]
    if draft.states:
        runs *= 3
    op_types = tuple(node.op_type for node in draft.nodes)
    if _CASTS.intersection(op_types) and not all(map(_is_finite, runs)):
        draft.has_extremes = True  # which integer they become is not defined
    return Case(
        seed,
        index,
        name,
        op_types,
        draft.model().SerializeToString(),
        tuple(runs),
        tuple(draft.notes),
        draft.has_extremes,
        at_end=rng.random() < 0.7,
        binds=rng.random() < 0.2,
        thread_count=2 if rng.random() < 0.1 else 1,
        states=draft.states,
    )


def _draft(rng: Random, bases: Sequence[Base]) -> tuple[Draft, str]:
    if rng.random() < 0.25:
        return fresh_chain(rng), "chain"
    by_operator: dict[str, list[Base]] = {}
    for base in bases:
        by_operator.setdefault(base.op_type, []).append(base)
    base = rng.choice(by_operator[rng.choice(list(by_operator))])
    draft = _draft_of(base, rng)
    floats = [
        name
        for name in draft.outputs
        if isinstance(value := draft.results.get(name), np.ndarray) and value.dtype == np.float32
    ]
    if floats and len(draft.nodes) <= _MOST_WITH_LINKS and rng.random() < 0.3:
        if draft.opsets[""] < 18:
            return draft, base.name
        source = rng.choice(floats)
        append_links(draft, rng, source, draft.results[source].shape, rng.randrange(1, 4))
    return draft, base.name


def _draft_of(base: Base, rng: Random) -> Draft:
    nodes = []
    for node in base.model.graph.node:
        copied = NodeProto()
        copied.CopyFrom(node)
        nodes.append(copied)
    opsets = {item.domain: item.version for item in base.model.opset_import}
    if base.opsets is not None:
        first, last = base.opsets
        opsets[""] = min(max(first, 21), last) if rng.random() < 0.7 else rng.randint(first, last)
    opsets.setdefault("", 21)
    return Draft(
        nodes,
        {info.name: base.inputs.get(info.name) for info in base.model.graph.input},
        [info.name for info in base.model.graph.output],
        dict(base.types),
        opsets,
        max(10, base.model.ir_version) if opsets[""] < 25 else 13,
        declared={name: base.types[name] for pair in base.states.items() for name in pair},
        results=dict(base.outputs),
        states=base.states,
    )


def _choose_constants(draft: Draft, rng: Random) -> None:
    names = draft.tensors()
    way = rng.random()
    if way < 0.3:
        return
    if way < 0.6:
        # Parameters are what comes after the first input.
        draft.constants = {name for name in names[1:] if _can_be_constant(draft, name)}
        return
    draft.constants = {
        name for name in names if rng.random() < 0.5 and _can_be_constant(draft, name)
    }


def _can_be_constant(draft: Draft, name: str) -> bool:
    value = draft.parameters[name]
    return name not in draft.states and value.dtype.kind in "fiub" and value.dtype.itemsize <= 8


def _choose_declarations(draft: Draft, rng: Random) -> None:
    """Leave dimensions open, or ranks; and results undeclared."""
    way = rng.random()
    for name in draft.tensors():
        value = draft.parameters[name]
        if name in draft.constants or name in draft.declared or way < 0.45:
            continue
        elem = elem_type_of(value)
        if way > 0.95:
            draft.declared[name] = tensor_type(elem, None)
        elif way > 0.6:
            draft.declared[name] = tensor_type(
                elem, [f"{name}_{axis}" for axis in range(value.ndim)]
            )
        else:
            shape = [
                n if rng.random() < 0.5 else f"{name}_{axis}" for axis, n in enumerate(value.shape)
            ]
            draft.declared[name] = tensor_type(elem, shape)
    for name in draft.outputs:
        made = draft.results.get(name)
        if name in draft.declared or not isinstance(made, np.ndarray):
            continue
        if way >= 0.45 or name not in draft.types or rng.random() < 0.2:
            draft.declared[name] = tensor_type(elem_type_of(made), None)


def _mutated_feeds(draft: Draft, rng: Random) -> dict[str, Any]:
    """Change what a run is given, and leave the model as it is."""
    given = draft.feeds()
    changed = replace(draft, parameters=dict(given), constants=set())
    for _ in range(rng.choice((1, 1, 2))):
        mutate(changed, rng, CONTENT)
    draft.has_extremes |= changed.has_extremes
    return changed.parameters
