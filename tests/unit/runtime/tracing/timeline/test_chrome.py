"""The file for Perfetto is valid, complete, and its flows begin and end."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from aioinfer.runtime.tracing.recorder import Span
from aioinfer.runtime.tracing.timeline import Trace
from aioinfer.runtime.tracing.timeline.chrome import flow_chains
from aioinfer.runtime.tracing.timeline.runs import runs_of
from unit.runtime.tracing.timeline.spans import diamond, span

Event = dict[str, Any]


def events(spans: list[Span]) -> dict[str, list[Event]]:
    """Write a trace, read it, and sort its events by their phase."""
    document = json.loads(Trace("net", "HETERO:A,B", spans).chrome_json())
    found: dict[str, list[Event]] = defaultdict(list)
    for event in document["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def test_an_empty_trace_is_a_file_that_names_the_network() -> None:
    found = events([])
    assert set(found) == {"M"}
    assert found["M"][0]["args"] == {"name": "net on HETERO:A,B"}


def test_a_span_is_an_event_with_its_waits_beside_it() -> None:
    found = events([span(times=(3000, 4500, 9500), age=5, run_id=2, arrived_ns=1000, subgraph="s")])
    (complete,) = found["X"]
    assert (complete["name"], complete["ts"], complete["dur"]) == ("compute", 3.5, 5.0)
    assert complete["args"] == {"run": "2", "request": 2, "queue_us": 1.5, "subgraph": "s"}
    assert not {"s", "t", "f"} & set(found), "one span alone has nowhere to flow"


def test_devices_are_processes_and_lanes_are_threads_with_names() -> None:
    found = events(diamond())
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in found["M"]
        if event["name"].endswith("_name")
    }
    for event in found["X"]:
        device = "device B" if event["name"] == "right" else "device A"
        lane = "B.0" if event["name"] == "right" else "A.0"
        assert names["process_name", event["pid"], 0] == device
        assert names["thread_name", event["pid"], event["tid"]] == lane


def test_every_flow_begins_and_ends_inside_spans() -> None:
    spans = [item for age in range(1, 20) for item in diamond(age, 100 * age)]
    found = events(spans)
    flows: dict[int, list[Event]] = defaultdict(list)
    for event in found["s"] + found["t"] + found["f"]:
        flows[event["id"]].append(event)
    assert len(flows) == 2 * 19, "one over the longer branch, one to the shorter"
    for steps in flows.values():
        ordered = sorted(steps, key=lambda event: event["ts"])
        assert [event["ph"] for event in ordered] == ["s", *["t"] * (len(steps) - 2), "f"]
        for event in ordered:
            assert any(
                (event["pid"], event["tid"]) == (item["pid"], item["tid"])
                and item["ts"] <= event["ts"] <= item["ts"] + item["dur"]
                for item in found["X"]
            )


def test_a_flow_follows_what_was_waited_for() -> None:
    spans = diamond()
    (run,) = runs_of(spans)
    chains = [[spans[index].stage for index in chain] for chain in flow_chains(run)]
    assert chains == [["split", "left"], ["split", "right", "join"]]


def test_a_request_lasts_from_its_arrival_to_its_end() -> None:
    found = events(diamond())
    (begin,), (end,) = found["b"], found["e"]
    assert (begin["id"], begin["name"]) == (end["id"], end["name"]) == (1, "request 1")
    assert (begin["ts"], end["ts"]) == (0.0, 0.2)


def test_the_counters_of_queues_end_at_0() -> None:
    found = events(diamond())
    last = {event["name"]: event["args"] for event in found["C"]}
    assert set(last) == {"waiting for A", "waiting for B"}
    for waiting in last.values():
        assert waiting == {"in a queue": 0, "for a slot": 0}
    assert max(event["args"]["in a queue"] for event in found["C"]) == 1


@pytest.mark.parametrize("name", ['"}]', "\\", "\u2028", "<b>", "ü\n"])
def test_names_of_models_cannot_break_the_file(name: str) -> None:
    trace = Trace(name, name, [span(name, lane=name, executor=name, device=name)])
    document = json.loads(trace.chrome_json())
    assert document["otherData"] == {"network": name, "device": name}
    (complete,) = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert complete["name"] == name
