"""The benchmark beside a busy thread, on a small network."""

import functools
import importlib
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models import MODELS

import aioinfer
from unit.backends.cpu.comparing import missing_reason
from unit.benchmarks.small_networks import SIZE, SMALL

pytest.importorskip("onnxruntime")
busy = importlib.import_module("busy_thread")

SMALL_MODEL = replace(
    MODELS["mobilenet_v2"],
    build=SMALL["mobilenet_v2"],
    inputs=lambda chance, batch: {
        "image": chance.standard_normal((batch, 3, SIZE, SIZE)).astype(np.float32)
    },
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "mobilenet_v2", SMALL_MODEL)


def test_the_busy_thread_runs_only_inside() -> None:
    before = threading.active_count()
    with busy.busy_thread():
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_a_turn_has_enough_calls_however_long_they_take() -> None:
    calls: list[int] = []
    assert busy.turn_ms(functools.partial(calls.append, 1), 0.0) >= 0
    assert len(calls) == busy.FEWEST_CALLS


@pytest.mark.skipif(missing_reason() is not None, reason="there is no CPU device here")
def test_networks_are_loaded_without_the_extension_and_with_it_again(small: None) -> None:
    proto = MODELS["mobilenet_v2"].build()
    with aioinfer.Core() as core:
        with busy.without_extension(), core.load_network(proto, "CPU") as network:
            assert not network.get_metric("NATIVE_STEPS")
        with core.load_network(proto, "CPU") as network:
            assert network.get_metric("NATIVE_STEPS")


@pytest.mark.skipif(missing_reason() is not None, reason="there is no CPU device here")
def test_a_short_measurement_writes_rows(
    small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "rows.json"
    options = ["--models", "mobilenet_v2", "--rounds", "1", "--seconds", "0.01"]
    monkeypatch.setattr(sys, "argv", ["busy_thread.py", *options, "--json", str(file)])
    busy.main()
    written = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["test"], row["engine"]) for row in written["rows"]] == [
        ("blocking", "onnxruntime"),
        ("blocking", "CPU"),
        ("blocking", "CPU, Python steps"),
        ("awaited", "onnxruntime"),
        ("awaited", "CPU"),
    ]
    for row in written["rows"]:
        assert row["slowdown"] == pytest.approx(row["busy_ms"] / row["alone_ms"])
        assert (row["engine"] != "onnxruntime") or row["slower_than_peer"] == 1
