"""``aioinfer tune`` as a user sees it: short searches on a device of numpy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioinfer as ai
from aioinfer.cli.tuning.network import Loaded
from aioinfer.cli.tuning.search import Slice

Run = Callable[..., Any]
FOR_A_MOMENT = ["-d", "REFERENCE", "--seconds", "0.2"]


def speeds(monkeypatch: pytest.MonkeyPatch, rate: Callable[[Loaded], float]) -> None:
    """Make networks as fast as the function says, and infer once for each slice.

    Time passes with the slices, a hundredth of a second each.
    """
    now_s = [0.0]

    def measure(loaded: Loaded, _seconds: float) -> Slice:
        loaded.network.create_infer_request().infer_sync(loaded.inputs.at(0))
        now_s[0] += 0.01
        return Slice(rate(loaded), 1.0, 2.0)

    monkeypatch.setattr(Loaded, "measure", measure)
    monkeypatch.setattr("aioinfer.cli.tuning.tune.monotonic", lambda: now_s[0])


def test_a_short_search_prints_a_table_and_lines_to_paste(aioinfer: Run, digits: str) -> None:
    finished = aioinfer("tune", "-m", digits, *FOR_A_MOMENT)
    assert finished.code == 0, finished.err
    assert "default (latency hint)" in finished.out
    assert "throughput hint" in finished.out
    assert finished.out.count("(take this)") == 1
    assert "network = core.load_network(model, 'REFERENCE', config)" in finished.out
    assert "model.reshape({'image': (1, 1, 8, 8)})" in finished.out
    assert "in flight" in finished.out
    assert "bf16" not in finished.out


def test_a_precision_that_was_asked_for_and_is_missing_is_told(aioinfer: Run, digits: str) -> None:
    finished = aioinfer("tune", "-m", digits, *FOR_A_MOMENT, "--precision", "bf16")
    assert finished.code == 0
    assert "not possible: precision bf16: REFERENCE computes in the model's own" in finished.out


def test_the_file_is_a_configuration_to_load_with(
    aioinfer: Run, digits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds(monkeypatch, lambda loaded: float(loaded.found.choice.batch))
    path = tmp_path / "tuned.json"
    arguments = ["-d", "REFERENCE", "--seconds", "2", "--config", "NUM_STREAMS=2"]
    assert aioinfer("tune", "-m", digits, *arguments, "-o", str(path)).code == 0
    chosen = json.loads(path.read_text("utf-8"))
    assert chosen["config"] == {"NUM_STREAMS": "2"}
    assert chosen["batch"] == 64
    assert chosen["shapes"] == {"image": [64, 1, 8, 8]}
    with ai.Core() as core:
        model = core.read_model(chosen["model"])
        model.reshape(chosen["shapes"])
        with core.load_network(model, chosen["device"], chosen["config"]) as network:
            request = network.create_infer_request()
            result = request.infer_sync(np.zeros(chosen["shapes"]["image"], np.float32))
            assert result["logits"].shape[0] == 64


def test_the_best_is_the_configuration_that_measures_best(
    aioinfer: Run, digits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds(monkeypatch, lambda loaded: loaded.found.settled.streams**0.5)
    arguments = ["-d", "REFERENCE", "--seconds", "3", "-b", "1", "--json"]
    document = json.loads(aioinfer("tune", "-m", digits, *arguments).out)
    (best,) = [row for row in document["measured"] if row["is_best"]]
    assert best["items_per_s"] == max(row["items_per_s"] for row in document["measured"])
    assert document["config"] == best["config"]
    assert document["ended"] == "no step makes it better"
    assert "precision bf16" in document["refused"]


def test_where_all_is_equal_the_default_is_kept(
    aioinfer: Run, digits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds(monkeypatch, lambda _: 5.0)
    arguments = ["-d", "REFERENCE", "--seconds", "3", "--json"]
    document = json.loads(aioinfer("tune", "-m", digits, *arguments).out)
    assert (document["config"], document["batch"]) == ({}, 1)
    assert document["measured"][0]["is_best"]


def test_what_a_precision_changes_is_told(aioinfer: Run, digits: str) -> None:
    with ai.Core() as core:
        if "CPU" not in core.available_devices:
            pytest.skip("oneDNN is not installed")
        if "BF16" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES"):
            pytest.skip("this processor has no bf16")
    arguments = ["-d", "CPU", "--seconds", "0.2", "--precision", "bf16", "--json"]
    document = json.loads(aioinfer("tune", "-m", digits, *arguments).out)
    (error,) = document["precisions"]["bf16"]
    assert error["output"] == "logits"
    assert 0 < error["relative"] < 0.1


@pytest.mark.parametrize("slices", [1, 6, 7, 8, 9, 20, 47])
def test_an_interrupt_prints_what_was_found_so_far(
    aioinfer: Run, digits: str, monkeypatch: pytest.MonkeyPatch, slices: int
) -> None:
    left = [slices]

    def rate(loaded: Loaded) -> float:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return float(loaded.found.choice.batch)

    speeds(monkeypatch, rate)
    finished = aioinfer("tune", "-m", digits, "-d", "REFERENCE", "--seconds", "30")
    assert finished.code == 130
    if slices == 1:
        assert "Nothing was measured" in finished.out
        return
    assert "(interrupted)" in finished.out
    assert "(take this)" in finished.out


def test_devices_of_several_are_tuned_by_batch_and_requests(aioinfer: Run, digits: str) -> None:
    arguments = ["-d", "HETERO:REFERENCE.0,REFERENCE.1", "--seconds", "0.2", "--json"]
    document = json.loads(aioinfer("tune", "-m", digits, *arguments).out)
    assert document["device"] == "HETERO:REFERENCE.0,REFERENCE.1"
    assert document["refused"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--precision", "f33"], "'f33' is not one of f32"),
        (["--seconds", "0"], "not a number of seconds above 0"),
        (["-shape", "image[1,2,8,8]"], "dimension 1 of 'image'"),
        (["--config", "NONSENSE=1"], "has no property 'NONSENSE'"),
    ],
)
def test_a_mistake_is_one_line(
    aioinfer: Run, digits: str, arguments: list[str], message: str
) -> None:
    finished = aioinfer("tune", "-m", digits, "-d", "REFERENCE", *arguments)
    assert finished.code == 1
    assert message in finished.err
    assert finished.err.count("\n") == 1
