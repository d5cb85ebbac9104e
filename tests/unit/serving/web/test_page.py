"""The page at ``/``: what it is told, what it may do, and what a browser makes of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import aioinfer
from aioinfer.runtime.tracing.recorder import Span
from aioinfer.serving import Limits, app
from aioinfer.serving.inference import Inference
from aioinfer.serving.repository.fixed import FixedRepository
from aioinfer.serving.web.page import PageState, page, timeline
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import DIGITS, scaled
from unit.serving.serve_process import serve

X = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
EVIL = "<img src=x onerror=alert(1)>"


def test_its_policy_lets_only_its_own_script_run() -> None:
    text = page().decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; connect-src 'self';")
    assert "unsafe" not in policy
    addresses = re.findall(r"https?://[^\s\"']+", text)
    assert addresses == ["http://www.w3.org/2000/svg"]  # a name, which nobody fetches
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", script)


async def test_it_is_told_what_each_model_does(core: aioinfer.Core, tmp_path: Path) -> None:
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        client = AsgiClient(app(network, token="secret"))
        assert (await client.get("/")).status == 200
        assert (await client.get("/page.json")).status == 401
        given = {"authorization": "Bearer secret"}
        body = json.dumps({"inputs": [X]}).encode()
        for _ in range(3):
            await client.post("/v2/models/double/infer", body, **given)
        told = (await client.get("/page.json", **given)).json()
        again = (await client.get("/page.json", **given)).json()
    (model,) = told["models"]
    assert (model["model"], model["state"], model["finished"]) == ("double", "READY", 3)
    assert model["batch_sizes"] == {"1": 3}
    assert told["devices"] == ["REFERENCE.0"]
    assert told["bodies_bytes"] == 0
    assert again["models"][0]["finished"] == 3


async def test_a_closed_network_is_shown_as_such(core: aioinfer.Core, tmp_path: Path) -> None:
    with core.load_network(scaled(tmp_path / "gone.onnx", 2.0), "REFERENCE") as network:
        client = AsgiClient(app(network))
    (model,) = (await client.get("/page.json")).json()["models"]
    assert (model["state"], model["reason"]) == ("UNAVAILABLE", "closed")


async def test_a_timeline_that_is_dear_is_made_seldom(
    core: aioinfer.Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a second here, so it is kept for twenty; the numbers are made each time."""
    now_s = traced_count = 0

    def trace(network: aioinfer.ExecutableNetwork) -> list[Span]:
        nonlocal now_s, traced_count
        now_s, traced_count = now_s + 1, traced_count + 1
        return []

    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        monkeypatch.setattr(type(network), "trace", trace)
        state = PageState(Inference(FixedRepository(network), Limits()), lambda: now_s * 10**9)
        for count, (at_s, traced) in enumerate([(0, 1), (10, 1), (19, 1), (20, 2), (39, 2)]):
            now_s = at_s
            told = json.loads(await state.document())
            assert (told["models"][0]["finished"], traced_count) == (count, traced)
            await network.infer({"x": np.ones((1, 3), np.float32)})


def span(lane: str, started_ms: float, ended_ms: float) -> tuple[str, Span]:
    fields = dict.fromkeys(Span._fields, 0) | {
        "stage": "compute",
        "device": "D",
        "executor": "E",
        "lane": lane,
        "started_ns": round(started_ms * 1e6),
        "ended_ns": round(ended_ms * 1e6),
    }
    return "m", Span(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ([], []),
        ([span("1", 0, 999)], []),  # before the window
        ([span("1", 900, 1100)], [[0, 0.0, 100.0, "m: compute"]]),  # cut at its edge
        (
            [span("2", 2000, 2001), span("1", 3000, 3002)],
            [[1, 1000.0, 1.0, "m: compute"], [0, 2000.0, 2.0, "m: compute"]],
        ),
    ],
)
def test_the_timeline_is_of_the_last_seconds(
    spans: Sequence[tuple[str, Span]], told: list[object]
) -> None:
    assert timeline(spans, 6_000_000_000)["spans"] == told


def test_the_timeline_is_bounded() -> None:
    spans = [span("1", 1000 + place / 10, 1000 + place / 10 + 0.01) for place in range(9999)]
    shown = timeline(spans, 6_000_000_000)["spans"]
    assert len(shown) == 1500
    assert shown[-1][1] == pytest.approx(999.8)


def document(url: str, profile: Path) -> str:
    """Open the page in a browser without a window, and return what it has made of it."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    options = [f"--user-data-dir={profile}", "--virtual-time-budget=2500", "--dump-dom", url]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.exhaustive
@pytest.mark.timeout(180)
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_draws_it_and_numbers_move(tmp_path: Path) -> None:
    for name in (EVIL, "digits"):
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True)
        shutil.copy(DIGITS, folder / "model.onnx")
    entry = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0] * 64}
    with serve(tmp_path / "models", "-d", "REFERENCE") as started:
        for count in (5, 12):
            for _ in range(5 if count == 5 else 7):
                request = urllib.request.Request(
                    f"{started.url}/v2/models/digits/infer",
                    json.dumps({"inputs": [entry]}).encode(),
                )
                urllib.request.urlopen(request, timeout=60).close()
            drawn = ""
            while f"<td>{count}</td><td>0</td><td>0</td><td>1: {count}</td>" not in drawn:
                drawn = document(started.url, tmp_path / "profile")
            assert "<polyline" in drawn
            assert "<td>&lt;img src=x onerror=alert(1)&gt;</td>" in drawn
            assert "<img" not in drawn
