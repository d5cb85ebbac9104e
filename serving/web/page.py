"""The page at ``/``: what a server does now, as numbers, and as a timeline of the last seconds.

The page is static and says nothing of the server; its script asks for one document a second, which
wants the token as every other address does. The document is made on a thread, once for all that
look within half a second, and is bounded however busy the server is. A full ring of spans takes a
third of a second to read, of which the event loop loses its part: the timeline is made anew when
twenty times that has passed, so that looking costs a twentieth. The page's policy allows what was
written here, by its hash, and no other server.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from anyio import to_thread

from ...runtime.tracing.recorder import Span
from ...runtime.tracing.script_page import script_page
from ..inference import Inference
from ..repository.models import ServedVersion, VersionState

__all__ = ["PageState", "page"]

_WINDOW_S = 5.0
_MOST_SPANS = 1500  # of the newest; what is drawn more narrowly is a blur
_FRESH_S = 0.5
_TIMELINE_SHARE = 20

_BODY = """\
<h1>aioinfer</h1>
<div>Devices: <span id="devices"></span></div>
<div id="trouble"></div>
<form id="login" hidden>
<label>Token <input id="token" type="password" autocomplete="off"></label> <button>Show</button>
</form>
<div id="cards" class="cards"></div>
<h2>Models</h2>
<table>
<thead><tr><th>model</th><th>version</th><th>state</th><th>device</th><th>requests/s</th>
<th>p50 ms</th><th>p99 ms</th><th>waiting</th><th>running</th><th>finished</th><th>failed</th>
<th>cancelled</th>
<th>lengths</th><th>requests a run</th></tr></thead>
<tbody id="models"></tbody>
</table>
<h2>Requests a second, of the last minute</h2>
<svg id="throughput"></svg>
<h2>Stages of the last seconds</h2>
<svg id="timeline"></svg>
<noscript>This page draws with a script of its own; scripts are switched off.</noscript>"""


@cache
def page() -> bytes:
    """Return the page."""
    folder = files(__package__) / "page_files"
    style = (folder / "page.css").read_text(encoding="utf-8")
    script = (folder / "page.js").read_text(encoding="utf-8")
    document = script_page(
        "aioinfer",
        style,
        script,
        _BODY,
        head='<link rel="icon" href="data:,">\n',
        allowed="connect-src 'self'; img-src data:; form-action 'none'; ",
    )
    return document.encode()


class PageState:
    """The document that the page asks for. Used on one event loop."""

    def __init__(
        self, inference: Inference, clock_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._inference, self._clock_ns = inference, clock_ns
        self._turn = asyncio.Lock()
        self._made_ns, self._made = 0, b""
        self._timeline: dict[str, Any] = {}
        self._timeline_due_ns = 0

    async def document(self) -> bytes:
        """Return it as JSON, not older than half a second."""
        async with self._turn:
            if not self._made or self._clock_ns() - self._made_ns > _FRESH_S * 1e9:
                repository = self._inference.repository
                served, states = list(repository.served()), list(repository.states())
                facts = {
                    "bodies_bytes": self._inference.bodies.taken_bytes,
                    "sequences": self._inference.sequences.open_count,
                }
                now_ns = self._clock_ns()
                self._made = await to_thread.run_sync(self._make, served, states, facts, now_ns)
                self._made_ns = now_ns
            return self._made

    def _make(
        self,
        served: Sequence[ServedVersion],
        states: Sequence[VersionState],
        facts: dict[str, int],
        now_ns: int,
    ) -> bytes:
        if now_ns >= self._timeline_due_ns:
            spans = [(each.model, span) for each in served for span in each.network.trace()]
            self._timeline = timeline(spans, now_ns)
            took_ns = self._clock_ns() - now_ns
            self._timeline_due_ns = now_ns + _TIMELINE_SHARE * took_ns
        return _document(served, states, {**facts, "timeline": self._timeline}, now_ns)


def _document(
    served: Sequence[ServedVersion],
    states: Sequence[VersionState],
    facts: dict[str, Any],
    now_ns: int,
) -> bytes:
    networks = {(each.model, each.version): each.network for each in served}
    models = []
    devices: dict[str, None] = {}
    for state in states:
        network = networks.get((state.model, state.version))
        entry: dict[str, Any] = {
            "model": state.model,
            "version": state.version,
            "state": state.state,
            "reason": state.reason,
            "device": "" if network is None else network.device,
        }
        statistics = None if network is None else network.statistics()
        entry |= {
            "finished": 0 if statistics is None else statistics.finished_request_count,
            "failed": 0 if statistics is None else statistics.failed_request_count,
            "cancelled": 0 if statistics is None else statistics.cancelled_request_count,
            "waiting": 0 if statistics is None else statistics.waiting_run_count,
            "running": 0 if statistics is None else statistics.running_run_count,
            "p50_ms": 0 if statistics is None else statistics.latency.p50_s * 1e3,
            "p99_ms": 0 if statistics is None else statistics.latency.p99_s * 1e3,
            "batch_sizes": {} if statistics is None else dict(statistics.batch_sizes),
            "group_sizes": {} if statistics is None else dict(statistics.group_sizes),
        }
        models.append(entry)
        if network is not None:
            devices.update(dict.fromkeys(network.execution_devices))
    told = {
        "now_s": now_ns / 1e9,
        "devices": list(devices),
        "models": models,
        **facts,
    }
    return json.dumps(told, separators=(",", ":")).encode()


def timeline(spans: Sequence[tuple[str, Span]], now_ns: int) -> dict[str, Any]:
    """Return the newest spans of the last seconds, by row; times in milliseconds. Pure.

    spans: with the model's name. Rows are the lanes of executors, in order of their names. Each
    span is its row, when it began in the window, how long it took, and what it was.
    """
    start_ns = now_ns - round(_WINDOW_S * 1e9)
    shown = [(model, span) for model, span in spans if span.ended_ns > start_ns]
    shown = sorted(shown, key=lambda item: item[1].ended_ns)[-_MOST_SPANS:]
    names = sorted({_row(span) for _, span in shown})
    places = {name: place for place, name in enumerate(names)}
    return {
        "window_ms": _WINDOW_S * 1e3,
        "rows": names,
        "spans": [
            [
                places[_row(span)],
                round((max(span.started_ns, start_ns) - start_ns) / 1e6, 3),
                round((span.ended_ns - max(span.started_ns, start_ns)) / 1e6, 3),
                f"{model}: {span.stage}",
            ]
            for model, span in shown
        ],
    }


def _row(span: Span) -> str:
    return f"{span.executor} {span.lane}".rstrip()
