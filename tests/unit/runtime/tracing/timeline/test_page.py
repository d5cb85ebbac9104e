"""The page holds the data, needs nothing from elsewhere, and takes names for text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from aioinfer.runtime.tracing.timeline import Trace
from aioinfer.runtime.tracing.timeline.page import page_data, trace_page
from aioinfer.runtime.tracing.timeline.runs import ARRIVAL
from unit.runtime.tracing.timeline.spans import diamond, span


class Reader(HTMLParser):
    """Reads a page as a browser does: its tags with their attributes, and the text in each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._is_inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append("")
        self._is_inside = True

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = False

    def handle_data(self, data: str) -> None:
        if self._is_inside:
            self.texts[-1] += data

    def text_of(self, tag: str, **attributes: str) -> str:
        return next(
            text
            for (name, held), text in zip(self.tags, self.texts, strict=True)
            if name == tag and attributes.items() <= held.items()
        )


def data_of(trace: Trace) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Reader(trace_page(trace)).text_of("script", id="trace"))
    return data


def test_the_page_contains_the_data() -> None:
    trace = Trace("net", "HETERO:A,B", [*diamond(1, 1000), *diamond(2, 1300)])
    data = data_of(trace)
    assert data == page_data(trace)
    assert (data["network"], data["device"], data["elapsed"]) == ("net", "HETERO:A,B", 500)
    assert [(item["device"], item["name"]) for item in data["executors"]] == [
        ("A", "A"),
        ("B", "B"),
    ]
    assert [item["name"] for item in data["stages"]] == ["split", "left", "right", "join"]
    assert [item["count"] for item in data["stages"]] == [2, 2, 2, 2]
    assert data["runs"]["label"] == ["1", "2"]
    assert data["runs"]["arrived"] == [0, 300]
    assert data["runs"]["latency"] == [200, 200]


def test_spans_stand_row_by_row_in_order_of_start() -> None:
    spans = [*diamond(1, 1000), *diamond(2, 1300)]
    data = page_data(Trace("net", "A", spans))
    columns, first = data["spans"], 0
    for row in data["rows"]:
        held = range(first, first + row["count"])
        starts = [columns["queued"][place] + columns["waited"][place] for place in held]
        assert starts == sorted(starts)
        first += row["count"]
    assert first == len(spans)
    assert {len(column) for column in columns.values()} == {len(spans)}


def test_ten_thousand_spans_are_all_there_in_a_page_of_a_few_hundred_kilobytes() -> None:
    spans = [item for age in range(1, 2501) for item in diamond(age, 1000 * age)]
    page = trace_page(Trace("net", "HETERO:A,B", spans))
    data = json.loads(Reader(page).text_of("script", id="trace"))
    assert sum(stage["count"] for stage in data["stages"]) == len(spans) == 10_000
    assert len(data["runs"]["label"]) == 2500
    assert len(page) < 1_000_000


def test_following_what_was_waited_for_gives_the_critical_path() -> None:
    trace = Trace("net", "A", [*diamond(1, 1000), *diamond(2, 1300)])
    data = page_data(trace)
    columns = data["spans"]
    for number, run in enumerate(trace.runs):
        stages, place = [], data["runs"]["last"][number]
        while place != ARRIVAL:
            stages.append(data["stages"][columns["stage"][place]]["name"])
            assert columns["run"][place] == number
            place = columns["before"][place]
        parts = trace.critical_path(run)
        assert stages[::-1] == [trace[part.span].stage for part in parts]


def test_the_slowest_request_is_chosen_first() -> None:
    spans = [span(times=(age, age, age * 3), age=age, arrived_ns=age) for age in (1, 9, 5)]
    data = page_data(Trace("net", "A", spans))
    assert data["runs"]["label"][data["slowest"]] == "9"


def test_the_depths_of_queues_are_there() -> None:
    data = page_data(Trace("net", "A", diamond()))
    by_device = {item["device"]: item for item in data["depths"]}
    assert by_device["B"] == {
        "device": "B",
        "time": [50, 53, 70],
        "slot": [1, 0, 0],
        "queue": [0, 1, 0],
    }


@pytest.mark.parametrize("spans", [[], [span()]], ids=["no span", "one span"])
def test_little_is_a_page_as_well(spans: list[Any]) -> None:
    data = data_of(Trace("net", "A", spans))
    assert len(data["spans"]["stage"]) == len(spans)
    assert data["slowest"] == len(spans) - 1


NASTY = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"><img src=x onerror=alert(1)>',
    "&lt;b&gt; & 'quoted'",
    "]]></style><svg/onload=alert(1)>",
    "{title}{data} %s",
]


@pytest.mark.parametrize("name", NASTY)
def test_names_of_models_are_never_markup(name: str) -> None:
    plain = Reader(trace_page(Trace("net", "A", diamond())))
    nasty = [
        item._replace(stage=name, executor=name, lane=name, device=name, subgraph=name)
        for item in diamond()
    ]
    page = trace_page(Trace(name, name, nasty))
    reader = Reader(page)
    assert reader.tags == plain.tags, "the same elements with the same attributes"
    assert reader.text_of("title") == f"{name} on {name}: trace"
    data = json.loads(reader.text_of("script", id="trace"))
    assert data["network"] == data["stages"][0]["name"] == data["rows"][0]["name"] == name
    block = page.split('type="application/json">')[1].split("</script>")[0]
    assert not set("<>&") & set(block)


def test_the_page_needs_nothing_from_elsewhere_and_runs_only_its_own_script() -> None:
    page = trace_page(Trace("net", "A", diamond()))
    reader = Reader(page)
    for tag, attributes in reader.tags:
        assert not {"src", "href", "srcset", "action", "data"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
    assert not re.search(r"https?:|//\w+\.|@import|url\(|fetch\(|XMLHttpRequest|eval\(", page)
    (policy,) = [
        attributes["content"] or ""
        for _, attributes in reader.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; ")
    scripts = [
        text
        for (tag, attributes), text in zip(reader.tags, reader.texts, strict=True)
        if tag == "script" and "type" not in attributes
    ]
    assert len(scripts) == 1
    for kind, text in (("script", scripts[0]), ("style", reader.text_of("style"))):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_the_script_never_makes_markup_of_text() -> None:
    page = trace_page(Trace("net", "A", []))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser", page)
