"""What a trace says in numbers."""

from __future__ import annotations

import pytest

from aioinfer.runtime.tracing.timeline.rows import rows_of
from aioinfer.runtime.tracing.timeline.stage_table import (
    ExecutorRow,
    StageRow,
    executor_table,
    percentile_ns,
    stage_table,
)
from unit.runtime.tracing.timeline.spans import span


def test_stages_and_executors_are_summed_up() -> None:
    spans = [span(times=(0, 10 * place, 10 * place + 5), age=place) for place in range(1, 101)]
    spans += [span("copy", (0, 10, 20), executor="copy", lane="copy")]
    executors = rows_of(spans)
    assert stage_table(spans, executors, 1000) == [
        StageRow("compute", "A", "A", 100, 5, 5, 500, 990, 0.5),
        StageRow("copy", "A", "copy", 1, 10, 10, 10, 10, 0.01),
    ]
    assert executor_table(spans, executors, 1000) == [
        ExecutorRow("A", "A", 1, 0.5),
        ExecutorRow("A", "copy", 1, 0.01),
    ]


def test_a_share_is_of_all_lanes() -> None:
    spans = [span(times=(0, 0, 50), lane=lane) for lane in ("A.0", "A.1")]
    assert executor_table(spans, rows_of(spans), 100) == [ExecutorRow("A", "A", 2, 0.5)]


def test_no_time_at_all_is_no_share() -> None:
    spans = [span(times=(5, 5, 5))]
    assert executor_table(spans, rows_of(spans), 0) == [ExecutorRow("A", "A", 1, 0.0)]


@pytest.mark.parametrize(("number", "value"), [(1, 10), (50, 20), (51, 30), (99, 40), (100, 40)])
def test_a_percentile_is_one_of_the_values(number: int, value: int) -> None:
    assert percentile_ns([10, 20, 30, 40], number) == value
