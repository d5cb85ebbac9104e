"""Trace: a sequence of spans that can be saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aioinfer.errors import PropertyError
from aioinfer.runtime.tracing.timeline import Trace
from unit.runtime.tracing.timeline.spans import diamond, span


def test_it_is_a_sequence_in_order_of_start() -> None:
    spans = diamond()
    trace = Trace("net", "A", reversed(spans))
    assert list(trace) == spans
    assert (len(trace), trace[0], trace[-1]) == (4, spans[0], spans[3])
    assert trace[1:3] == tuple(spans[1:3])
    assert spans[2] in trace
    assert repr(trace) == "<Trace of 'net' on A: 4 spans>"


def test_parts_are_merged_and_remember_the_latest_that_one_forgot() -> None:
    spans = diamond()
    parts = [Trace("a", "A", [spans[3], spans[0]], 7), Trace("b", "B", spans[1:3], 9)]
    merged = Trace.merged("net", "HETERO:A,B", parts)
    assert list(merged) == spans
    assert (merged.network, merged.device, merged.forgot_until_ns) == ("net", "HETERO:A,B", 9)
    assert len(Trace.merged("net", "A", [])) == 0


def test_since_leaves_out_whole_runs_that_came_before() -> None:
    trace = Trace("net", "A", [*diamond(1, 100), *diamond(2, 150), *diamond(3, 200)])
    later = trace.since(150)
    assert [run.label for run in later.runs] == ["2", "3"]
    assert len(later) == 8


def test_it_tells_the_slowest_run_and_its_path() -> None:
    trace = Trace("net", "A", [*diamond(1, 100), span(times=(400, 900, 901), age=2)])
    slowest = trace.slowest_run()
    assert slowest is not None
    assert slowest.label == "2"
    (part,) = trace.critical_path(slowest)
    assert (part.slot_ns, part.queue_ns, part.service_ns) == (0, 500, 1)
    assert Trace("net", "A", []).slowest_run() is None


@pytest.mark.parametrize("name", ["trace.html", "trace.HTML", "trace.json"])
def test_the_suffix_says_the_format(tmp_path: Path, name: str) -> None:
    trace = Trace("nét", "A", diamond())
    trace.save(tmp_path / name)
    trace.save(str(tmp_path / name))
    text = (tmp_path / name).read_text(encoding="utf-8")
    if name.endswith("json"):
        assert text == trace.chrome_json()
        assert json.loads(text)["otherData"]["network"] == "nét"
    else:
        assert text == trace.html()
        assert text.startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("name", ["trace", "trace.png", ".html"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PropertyError, match=r"the suffix says the format; .html is a page, .json"):
        Trace("net", "A", []).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
