"""Copies find their spans, are summed up by stage, and stand in every form of a trace."""

from __future__ import annotations

import json
from typing import Any

from aioinfer.executors import Lane
from aioinfer.runtime.tracing.copied_bytes import CopiedBytes, copies_of_spans, merged_counts
from aioinfer.runtime.tracing.recorder import RunMark, Span, SpanRecorder
from aioinfer.runtime.tracing.timeline import Trace
from aioinfer.runtime.tracing.timeline.chrome import chrome_json
from aioinfer.runtime.tracing.timeline.page import page_data


def span(stage: str, started_ns: int, age: int = 7, lane: str = "L") -> Span:
    return Span(1, stage, "E", lane, started_ns - 1, started_ns, started_ns + 5, age=age)


def test_copies_go_to_the_last_span_of_their_stage_and_run() -> None:
    spans = [span("upload", 10), span("upload", 30, age=8), span("compute", 40), span("upload", 20)]
    noted = [
        (7, 0, CopiedBytes("upload", "upload", 100)),
        (7, 0, CopiedBytes("upload", "host", 1)),
        (7, 0, CopiedBytes("upload", "upload", 50)),
        (9, 0, CopiedBytes("upload", "upload", 1000)),
        (7, 0, CopiedBytes("join", "host", 1000)),
    ]
    assert copies_of_spans(spans, noted) == {3: {"upload": 150, "host": 1}}


def test_parts_of_a_stage_have_what_each_has_copied() -> None:
    spans = [span("fill", 10), span("fill", 11), span("fill", 12)]
    noted = [(7, start, CopiedBytes("fill", "host", start)) for start in (12, 10, 11)]
    assert copies_of_spans(spans, noted) == {
        0: {"host": 10},
        1: {"host": 11},
        2: {"host": 12},
    }


def test_sums_are_added_stage_by_stage() -> None:
    one = {"upload": {"upload": 3}, "compute": {"host": 1}}
    assert merged_counts([one, {"upload": {"upload": 4, "host": 2}}, {}]) == {
        "upload": {"upload": 7, "host": 2},
        "compute": {"host": 1},
    }


class _Stage:
    def __init__(self, name: str) -> None:
        self.place, self.part = (name, "E"), ""


def recorded() -> Trace:
    recorder = SpanRecorder()
    mark: RunMark = (1, 7, 5)
    recorder.record(mark, _Stage("upload"), Lane("L"), 6, 10, 20)
    recorder.note_copies(mark[1], [(CopiedBytes("upload", "upload", 4096), 0)])
    recorder.record(mark, _Stage("compute"), Lane("L"), 20, 20, 30)
    return Trace("net", "D", recorder.spans("D"))


def test_a_recorder_keeps_the_sums_of_more_than_its_ring_holds() -> None:
    recorder = SpanRecorder(capacity=10)
    for age in range(5000):
        recorder.note_copies(age, [(CopiedBytes("upload", "upload", 2), 0)])
    assert recorder.copied_bytes() == {"upload": {"upload": 10_000}}
    assert recorder.spans() == []


def test_every_form_of_a_trace_says_what_a_span_copied() -> None:
    trace = recorded()
    assert [dict(item.copied_bytes) for item in trace] == [{"upload": 4096}, {}]
    events: list[dict[str, Any]] = json.loads(chrome_json(trace))["traceEvents"]
    said = {event["name"]: event["args"] for event in events if event["ph"] == "X"}
    assert said["upload"]["upload_bytes"] == 4096
    assert not [key for key in said["compute"] if key.endswith("_bytes")]
    data = page_data(trace)
    (place,) = data["copied"]
    assert data["copied"][place] == {"upload": 4096}
    assert data["stages"][data["spans"]["stage"][place]]["name"] == "upload"
