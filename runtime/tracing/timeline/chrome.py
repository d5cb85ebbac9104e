"""A trace in the JSON format of Chrome's trace viewer, which Perfetto reads as well.

Source: "Trace Event Format", a document of the Chromium project. The network is a process with a
row for each request; each device is a process, each lane a thread. Times are microseconds since the
first run came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .node_rows import node_spans
from .queue_depth import queue_depths
from .rows import rows_of
from .runs import ARRIVAL, TracedRun

if TYPE_CHECKING:
    from .span_sequence import SpanSequence

__all__ = ["chrome_json", "flow_chains"]

_NETWORK = 1
Event = dict[str, Any]


def chrome_json(trace: SpanSequence) -> str:
    """Write spans, requests, flows and queue depths; one event a line."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in _events(trace))
    other = json.dumps({"network": trace.network, "device": trace.device})
    return f'{{"displayTimeUnit":"ms","otherData":{other},"traceEvents":[\n{lines}\n]}}\n'


def flow_chains(run: TracedRun) -> list[list[int]]:
    """Cut the tree of a run's spans into chains: each begins at a span that was waited for.

    The first goes from the first span; where a span was waited for by several, one of them goes on
    with its chain, and each other begins a new one there. A chain has at least two spans.
    """
    chains: list[list[int]] = []
    ending: dict[int, list[int]] = {}
    for index, previous in zip(run.spans, run.before, strict=True):
        if previous == ARRIVAL:
            ending[index] = [index]
            continue
        chain = ending.pop(previous, None)
        if chain is None:
            chain = [previous]
        if len(chain) == 1:
            chains.append(chain)
        chain.append(index)
        ending[index] = chain
    return chains


def _events(trace: SpanSequence) -> Iterator[Event]:
    origin_ns = trace.runs[0].arrived_ns if trace.runs else 0

    def us(time_ns: int) -> float:
        return round((time_ns - origin_ns) / 1e3, 3)

    yield from _named("process", _NETWORK, 0, f"{trace.network} on {trace.device}")
    nodes = node_spans(trace)
    shown = (*trace, *nodes)
    executors = rows_of(shown)
    names = dict.fromkeys(item.device for item in executors)
    processes = {name: number for number, name in enumerate(names, start=_NETWORK + 1)}
    for device, process in processes.items():
        yield from _named("process", process, 0, f"device {device}")
    label = {index: run.label for run in trace.runs for index in run.spans}
    label_of_age = {trace[run.spans[0]].age: run.label for run in trace.runs}
    label |= {len(trace) + place: label_of_age[node.age] for place, node in enumerate(nodes)}
    places: dict[int, tuple[int, int]] = {}
    thread = 0
    for item in executors:
        for row in item.rows:
            thread += 1
            process = processes[item.device]
            yield from _named("thread", process, thread, row.lane)
            for index in row.spans:
                places[index] = process, thread
                span = shown[index]
                arguments: Event = {
                    "run": label[index],
                    "request": span.run_id,
                    "queue_us": (span.started_ns - span.queued_ns) / 1e3,
                }
                if span.subgraph:
                    arguments["subgraph"] = span.subgraph
                for kind, size_bytes in span.copied_bytes.items():
                    arguments[f"{kind}_bytes"] = size_bytes
                if span.members:
                    arguments["members"] = list(span.members)
                yield {
                    "ph": "X",
                    "name": span.stage,
                    "cat": span.executor,
                    "pid": process,
                    "tid": thread,
                    "ts": us(span.started_ns),
                    "dur": (span.ended_ns - span.started_ns) / 1e3,
                    "args": arguments,
                }
    flow = 0
    for number, run in enumerate(trace.runs, start=1):
        request = {"name": f"request {run.label}", "cat": "request", "pid": _NETWORK, "id": number}
        yield {"ph": "b", **request, "tid": 0, "ts": us(run.arrived_ns)}
        yield {"ph": "e", **request, "tid": 0, "ts": us(run.ended_ns)}
        for chain in flow_chains(run):
            flow += 1
            for place, index in enumerate(chain):
                process, thread = places[index]
                event = {"ph": "t", "name": "request", "cat": "flow", "id": flow}
                if place == 0:
                    event["ph"] = "s"
                elif place == len(chain) - 1:
                    event |= {"ph": "f", "bp": "e"}
                yield {**event, "pid": process, "tid": thread, "ts": us(trace[index].started_ns)}
    for device, steps in queue_depths(trace.runs, trace).items():
        for step in steps:
            yield {
                "ph": "C",
                "name": f"waiting for {device}",
                "pid": processes[device],
                "ts": us(step.time_ns),
                "args": {"in a queue": step.queue, "for a slot": step.slot},
            }


def _named(kind: str, process: int, thread: int, name: str) -> Iterator[Event]:
    """Name a process or a thread, and have it drawn in the order of the numbers."""
    place: Event = {"ph": "M", "pid": process, "tid": thread}
    order = thread if kind == "thread" else process
    yield {**place, "name": f"{kind}_name", "args": {"name": name}}
    yield {**place, "name": f"{kind}_sort_index", "args": {"sort_index": order}}
