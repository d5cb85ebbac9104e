"""Nodes in a trace: rows of their own below the stages in which they ran."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import aioinfer
from aioinfer.runtime.tracing.recorder import NodeSpan, SpanRecorder
from aioinfer.runtime.tracing.timeline import Trace
from aioinfer.runtime.tracing.timeline.node_rows import node_spans
from aioinfer.runtime.tracing.timeline.page import page_data
from unit.runtime.models import tiny_model
from unit.runtime.tracing.timeline.spans import diamond, span

X = np.ones((1, 3), np.float32)


def node(start: int, end: int, age: int = 1, name: str = "relu") -> NodeSpan:
    return NodeSpan(age, age, name, "Relu", start, end)


def test_a_node_is_drawn_below_the_stage_that_it_shares_most_time_with() -> None:
    upload = span("upload", (0, 0, 10), lane="A.0")
    compute = span("compute", (10, 10, 20), lane="A.1")
    trace = Trace("net", "A", [upload, compute], 0, [node(9, 19), node(2, 3), node(5, 6, age=9)])
    found = node_spans(trace)
    assert [(item.stage, item.executor, item.lane) for item in found] == [
        ("Relu relu", "nodes", "A.0 nodes"),
        ("Relu relu", "nodes", "A.1 nodes"),
    ]
    assert [(item.started_ns, item.ended_ns) for item in found] == [(2, 3), (9, 19)]


def test_nodes_change_no_run_and_no_path() -> None:
    spans = diamond()
    plain = Trace("net", "A", spans)
    trace = Trace("net", "A", spans, 0, [node(spans[0].started_ns, spans[0].ended_ns)])
    assert trace.runs == plain.runs
    data, before = page_data(trace), page_data(plain)
    assert data["runs"] == before["runs"]
    assert data["stages"][: len(before["stages"])] == before["stages"]
    assert data["stages"][-1]["name"] == "Relu relu"
    assert len(data["spans"]["run"]) == len(before["spans"]["run"]) + 1


def test_a_recorder_forgets_the_nodes_of_the_oldest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioinfer.runtime.tracing.recorder.RING_SPANS", 5)
    network = SpanRecorder()
    profile = _profile(2)
    for age in range(1, 5):
        network.keep_nodes((age, age, 0), profile)
    assert {item.age for item in network.nodes()} == {3, 4}
    network.keep_nodes((9, 9, 0), _profile(100))
    assert {item.age for item in network.nodes()} == {9}


@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"])
async def test_nodes_of_a_network_are_in_its_trace_where_they_are_recorded(
    core: aioinfer.Core, device: str, tmp_path: Path
) -> None:
    silent = core.load_network(tiny_model(), device)
    await silent.infer(X)
    assert silent.trace().nodes == ()
    network = core.load_network(tiny_model(), device, {"PERF_COUNT": True})
    for _ in range(3):
        await network.infer(X)
    trace = network.trace()
    assert sorted(item.name.split()[-1] for item in trace.nodes) == ["add"] * 3 + ["relu"] * 3
    assert len(node_spans(trace)) == 6
    for item, drawn in zip(trace.nodes, node_spans(trace), strict=True):
        assert (item.run_id, item.age) == (drawn.run_id, drawn.age)
    page, events = tmp_path / "trace.html", tmp_path / "trace.json"
    await trace.save_async(page)
    await trace.save_async(events)
    drawn_name = node_spans(trace)[0].stage
    assert drawn_name in page.read_text(encoding="utf-8")
    names = [event["name"] for event in json.loads(events.read_text())["traceEvents"]]
    assert names.count(drawn_name) == 3
    assert trace.since(trace.runs[-1].arrived_ns).nodes == trace.nodes[-2:]


async def test_a_core_draws_all_its_networks_on_one_page(core: aioinfer.Core) -> None:
    assert len(core.trace()) == 0
    one = core.load_network(tiny_model("one"), "REFERENCE")
    two = core.load_network(tiny_model("two"), "HETERO:REFERENCE.0,REFERENCE.1")
    for network in (one, two, two):
        await network.infer(X)
    trace = core.trace()
    assert trace.network == f"{one.name}, {two.name}"
    assert [run.label for run in trace.runs] == [f"{one.name} 0", f"{two.name} 0", f"{two.name} 1"]
    assert {item.stage.partition(": ")[0] for item in trace} == {one.name, two.name}
    assert len(trace) == len(one.trace()) + len(two.trace())
    slowest = trace.slowest_run()
    assert slowest is not None
    path = trace.critical_path(slowest)
    took = sum(part.slot_ns + part.queue_ns + part.service_ns for part in path)
    assert math.isclose(took, slowest.latency_ns)
    assert "Content-Security-Policy" in trace.html()


async def test_a_core_tells_networks_of_one_name_apart(core: aioinfer.Core) -> None:
    networks = [core.load_network(tiny_model("twin"), "REFERENCE") for _ in range(2)]
    for network in networks:
        await network.infer(X)
    trace = core.trace()
    assert trace.network == "twin, twin#2"
    assert [run.label for run in trace.runs] == ["twin 0", "twin#2 0"]
    assert {item.stage.partition(": ")[0] for item in trace} == {"twin", "twin#2"}
    for network in networks:
        network.close()


def _profile(count: int) -> list[aioinfer.NodeProfile]:
    return [aioinfer.NodeProfile(f"n{index}", "Relu", (), 0, 1) for index in range(count)]
