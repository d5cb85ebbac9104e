"""The rows that spans are drawn in."""

from __future__ import annotations

from aioinfer.runtime.tracing.timeline.rows import ExecutorRows, LaneRow, rows_of
from unit.runtime.tracing.timeline.spans import span


def test_devices_come_as_they_began_and_lanes_by_name_and_number() -> None:
    spans = [
        span(times=(0, 0, 1), device="B", executor="B", lane="B.10"),
        span(times=(0, 1, 2), device="A", executor="A", lane="A.0"),
        span(times=(0, 2, 3), device="B", executor="B", lane="B.9"),
        span(times=(0, 3, 4), device="B", executor="B", lane="B.10"),
        span(times=(0, 4, 5), device="A", executor="copy", lane="copy"),
    ]
    assert rows_of(spans) == (
        ExecutorRows("B", "B", 2, (LaneRow("B.9", (2,)), LaneRow("B.10", (0, 3)))),
        ExecutorRows("A", "A", 1, (LaneRow("A.0", (1,)),)),
        ExecutorRows("A", "copy", 1, (LaneRow("copy", (4,)),)),
    )


def test_spans_that_overlap_on_one_lane_get_rows_of_their_own() -> None:
    spans = [span(times=(0, 0, 10)), span(times=(0, 5, 8)), span(times=(0, 10, 12))]
    (executor,) = rows_of(spans)
    assert executor.rows == (LaneRow("A.0", (0, 2)), LaneRow("A.0 (2)", (1,)))
    assert executor.lane_count == 1


def test_names_that_begin_with_numbers_and_those_that_do_not_can_be_compared() -> None:
    lanes = ["7", "x7", "", "x", "7x", "²"]
    spans = [span(times=(0, place, place), lane=lane) for place, lane in enumerate(lanes)]
    (executor,) = rows_of(spans)
    assert sorted(row.lane for row in executor.rows) == sorted(lanes)


def test_without_spans_there_are_no_rows() -> None:
    assert rows_of([]) == ()
