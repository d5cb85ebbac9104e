"""The fuzzer draws the same cases again, tells what is wrong, and outlives what it tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from fuzz import pool
from fuzz.bases import Base
from fuzz.drawing import Case, Run, draw_case
from fuzz.guarded import GuardedMemory
from fuzz.oracle import Failure, Finding, Outcome, judge

Y = np.array([1, 2], np.float32)
OURS = Failure(True, "TensorError", "no")
CASE = Case(
    1, 0, "case", ("Relu",), b"", (Run({}, is_valid=True),), (), False, True, False, thread_count=1
)


def base() -> Base:
    text = (
        "<ir_version: 10, opset_import: ['' : 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }"
    )
    model = onnx.parser.parse_model(text.replace("'", '"'))
    types = {info.name: info.type for info in (*model.graph.input, *model.graph.output)}
    return Base("relu", "Relu", model, {"x": Y}, {"y": Y}, (14, 21), types)


def outcome(run: Any) -> Outcome:
    return Outcome(runs=[run])


def test_a_case_is_the_same_every_time() -> None:
    bases = [base()]
    for index in range(200):
        one, other = draw_case(bases, 3, index), draw_case(bases, 3, index)
        assert (one.model, str(one)) == (other.model, str(other))
    assert len({draw_case(bases, 3, index).model for index in range(200)}) > 100


@pytest.mark.parametrize(
    ("got", "wanted", "category"),
    [
        ({"y": Y}, {"y": Y}, None),
        ({"y": Y + 1}, {"y": Y}, "differs"),
        ({"y": Y[:1]}, {"y": Y}, "differs"),
        ({"y": Y.astype(np.float64)}, {"y": Y}, "differs"),
        ({"z": Y}, {"y": Y}, "differs"),
        ({"y": Y}, OURS, "accepted"),
        (OURS, {"y": Y}, "refused"),
        (OURS, OURS, None),
        (Failure(False, "KeyError", "x", "a.py:f:1"), OURS, "raw"),
        (Failure(True, "UnsupportedOpError", "no", is_refusal=True), {"y": Y}, None),
    ],
)
def test_an_outcome_is_judged_by_that_of_reference(
    got: Any, wanted: Any, category: str | None
) -> None:
    found = judge(CASE, "CPU", outcome(got), outcome(wanted))
    assert [finding.category for finding in found] == ([category] if category else [])


def test_an_error_after_a_wrong_run_means_that_the_network_is_unusable() -> None:
    case = replace(CASE, runs=(Run({}, is_valid=False), Run({}, is_valid=True)))
    wanted = Outcome(runs=[OURS, {"y": Y}])
    (found,) = judge(case, "CPU", Outcome(runs=[OURS, OURS]), wanted)
    assert found.category == "unusable"


def test_memory_is_guarded_on_either_side() -> None:
    guarded = GuardedMemory(place_count=2, place_bytes=4096)
    for at_end in (True, False):
        placed = guarded.place(Y, at_end=at_end)
        np.testing.assert_array_equal(placed, Y)
        assert placed.ctypes.data % 4096 == (4096 - Y.nbytes if at_end else 0)


def test_a_death_is_a_finding_and_the_cases_behind_it_are_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_batch(
        _bases: Sequence[Base], _seed: int, indices: range, _devices: Sequence[str], progress: Any,
        say: int,
    ) -> None:  # fmt: skip
        for index in indices:
            progress.note(index, 1)
            if index == 2:
                os._exit(7)
            if index == 5:
                line = (
                    b'{"index": 5, "category": "raw", "device": "CPU", "group": "g", "detail": "d"}'
                )
                os.write(say, line + b"\n")

    monkeypatch.setattr("fuzz.worker.run_batch", run_batch)
    told: list[tuple[int, Finding]] = []
    batches = iter([range(0, 4), range(4, 6)])
    count = pool.run_cases(
        [base()], 1, batches, ["REFERENCE", "CPU"], 2, lambda *item: told.append(item)
    )
    assert count == 6
    found = {index: (finding.category, finding.device) for index, finding in told}
    assert found == {2: ("died", "CPU"), 5: ("raw", "CPU")}
