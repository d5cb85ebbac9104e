"""A trace as one HTML page that needs nothing from elsewhere.

Python decides (rows, critical paths, tables, depths) and writes numbers; the script draws what is
asked for on canvases. Names come from models and are never markup: they stand in a data block in
which no tag can begin or end, and the script puts them in as text. The page's policy allows what
was written here, by its hash, and no loading.
"""

from __future__ import annotations

import json
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..script_page import script_page
from .node_rows import node_spans
from .queue_depth import queue_depths
from .rows import rows_of
from .runs import ARRIVAL
from .stage_table import executor_table, stage_table

if TYPE_CHECKING:
    from .span_sequence import SpanSequence

__all__ = ["page_data", "trace_page"]

SCRIPTS = ("numbers.js", "drawing.js", "timeline.js", "panels.js", "main.js")  # in this order

BODY = """\
<noscript>This page draws a trace with a script of its own; scripts are switched off.</noscript>
<script id="trace" type="application/json">{data}</script>"""


def trace_page(trace: SpanSequence) -> str:
    """Write the page."""
    style, script = _page_files()
    title = escape(f"{trace.network} on {trace.device}: trace")
    return script_page(title, style, script, BODY.format(data=_as_block(page_data(trace))))


def page_data(trace: SpanSequence) -> dict[str, Any]:
    """Collect what the page draws: columns of numbers, in nanoseconds since the first run came.

    Spans stand row by row, in each in order of start; ``before`` is the place of the span that one
    waited for, or -1. ``copied`` has the bytes of those that copied something, by place and kind,
    and ``members`` the requests of those that several share, by place.
    Nodes have rows of their own, and none of them waited for anything.
    """
    runs, nodes = trace.runs, node_spans(trace)
    shown = (*trace, *nodes)
    executors = rows_of(shown)
    origin_ns = min((run.arrived_ns for run in runs), default=0)
    elapsed_ns = max((run.ended_ns for run in runs), default=0) - origin_ns
    stages = stage_table(shown, executors, elapsed_ns)
    stage_numbers = {(row.stage, row.device, row.executor): n for n, row in enumerate(stages)}
    rows = [(number, row) for number, item in enumerate(executors) for row in item.rows]
    order = [index for _, row in rows for index in row.spans]
    places = {index: place for place, index in enumerate(order)}
    run_of = {index: number for number, run in enumerate(runs) for index in run.spans}
    run_of_age = {trace[run.spans[0]].age: number for number, run in enumerate(runs)}
    run_of |= {len(trace) + place: run_of_age[node.age] for place, node in enumerate(nodes)}
    before = {
        index: places.get(previous, ARRIVAL)
        for run in runs
        for index, previous in zip(run.spans, run.before, strict=True)
    }
    spans = [shown[index] for index in order]
    parts = {name: number for number, name in enumerate(dict.fromkeys(s.subgraph for s in spans))}
    slowest = trace.slowest_run()
    return {
        "network": trace.network,
        "device": trace.device,
        "elapsed": elapsed_ns,
        "slowest": ARRIVAL if slowest is None else runs.index(slowest),
        "executors": [
            {
                "device": item.device,
                "name": item.executor,
                "lanes": item.lane_count,
                "share": round(item.share, 6),
            }
            for item in executor_table(shown, executors, elapsed_ns)
        ],
        "stages": [
            {
                "name": row.stage,
                "device": row.device,
                "executor": row.executor,
                "count": row.count,
                "service": [row.service_p50_ns, row.service_p99_ns],
                "queue": [row.queue_p50_ns, row.queue_p99_ns],
                "share": round(row.share, 6),
            }
            for row in stages
        ],
        "rows": [
            {"name": row.lane, "executor": number, "count": len(row.spans)} for number, row in rows
        ],
        "parts": list(parts),
        "spans": {
            "stage": [stage_numbers[s.stage, s.device, s.executor] for s in spans],
            "run": [run_of[index] for index in order],
            "queued": [s.queued_ns - origin_ns for s in spans],
            "waited": [s.started_ns - s.queued_ns for s in spans],
            "took": [s.ended_ns - s.started_ns for s in spans],
            "part": [parts[s.subgraph] for s in spans],
            "before": [before.get(index, ARRIVAL) for index in order],
        },
        "copied": {
            place: dict(span.copied_bytes) for place, span in enumerate(spans) if span.copied_bytes
        },
        "members": {place: list(span.members) for place, span in enumerate(spans) if span.members},
        "runs": {
            "label": [run.label for run in runs],
            "arrived": [run.arrived_ns - origin_ns for run in runs],
            "latency": [run.latency_ns for run in runs],
            "last": [places[max(run.spans, key=lambda i: trace[i].ended_ns)] for run in runs],
            "stages": [len(run.spans) for run in runs],
            "complete": [int(run.is_complete) for run in runs],
        },
        "depths": [
            {
                "device": device,
                "time": [step.time_ns - origin_ns for step in steps],
                "slot": [step.slot for step in steps],
                "queue": [step.queue for step in steps],
            }
            for device, steps in queue_depths(runs, trace).items()
        ],
    }


def _as_block(data: dict[str, Any]) -> str:
    """Write JSON in which no tag, comment or entity can begin."""
    text = json.dumps(data, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


@cache
def _page_files() -> tuple[str, str]:
    folder = files(__package__) / "page_files"
    script = "".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    style = (folder / "page.css").read_text(encoding="utf-8")
    return style, f'(() => {{\n"use strict";\n{script}}})();'
