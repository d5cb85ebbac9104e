"""``aioinfer tune`` with BATCH around the device, by made up speeds and a clock of the test's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import aioinfer as ai
from aioinfer.cli.benchmarking.measure import Measurement
from aioinfer.cli.inputs import InputSets
from aioinfer.cli.tuning.network import Loaded, run_first, settled_of
from aioinfer.cli.tuning.placement import Placement
from aioinfer.cli.tuning.report import Found
from aioinfer.cli.tuning.search import Choice, Settled, Slice

Run = Callable[..., Any]
REFERENCE = ["-d", "REFERENCE", "--seconds", "200"]


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Choice], float]], None]:
    """Make choices as fast as a function says; each slice infers once, and takes a second."""
    now_s = [0.0]

    def use(rate: Callable[[Choice], float]) -> None:
        def measure(loaded: Loaded, _seconds: float) -> Slice:
            loaded.network.create_infer_request().infer_sync(loaded.inputs.at(0))
            now_s[0] += 1.0
            return Slice(rate(loaded.found.choice), 1.0, 2.0)

        monkeypatch.setattr(Loaded, "measure", measure)
        monkeypatch.setattr("aioinfer.cli.tuning.tune.monotonic", lambda: now_s[0])

    return use


@pytest.fixture
def centred(tmp_path: Path) -> str:
    """A model whose rows depend on each other."""
    text = '<ir_version: 9, opset_import: ["": 18]> g (float[batch, 4] x) => (float[batch, 4] y)'
    text += (
        "{ axis = Constant <value_ints = [0]> () mean = ReduceMean (x, axis) y = Sub (x, mean) }"
    )
    path = tmp_path / "centred.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return str(path)


def test_batch_around_the_device_is_found_and_can_be_loaded(
    aioinfer: Run,
    digits: str,
    tmp_path: Path,
    speeds: Callable[[Callable[[Choice], float]], None],
) -> None:
    speeds(lambda choice: {8: 2.0, 16: 3.0, 32: 4.0, 64: 1.0}.get(choice.joined_rows, 1.0))
    path = tmp_path / "tuned.json"
    arguments = [*REFERENCE, "--config", "NUM_STREAMS=2", "-o", str(path)]
    finished = aioinfer("tune", "-m", digits, *arguments)
    assert finished.code == 0, finished.err
    assert "BATCH of 32 rows" in finished.out
    assert "'BATCH:REFERENCE(32)', config)" in finished.out
    assert "tasks await network.infer at a time, of one row each" in finished.out
    assert "not possible: BATCH" not in finished.out
    chosen = json.loads(path.read_text("utf-8"))
    assert chosen["device"] == "BATCH:REFERENCE(32)"
    assert chosen["config"] == {"DEVICE_PROPERTIES": {"REFERENCE": {"NUM_STREAMS": "2"}}}
    assert (chosen["batch"], chosen["joined_rows"]) == (1, 32)
    with ai.Core() as core:
        model = core.read_model(chosen["model"])
        model.reshape(chosen["shapes"])
        with core.load_network(model, chosen["device"], chosen["config"]) as network:
            assert network.optimal_request_count == chosen["requests"]
            images = np.zeros((3, *chosen["shapes"]["image"][1:]), np.float32)
            result = network.create_infer_request().infer_sync(images)
            assert result["logits"].shape[0] == 3


@pytest.mark.exhaustive
def test_batch_that_has_lost_is_shown_beside_the_best(
    aioinfer: Run, digits: str, speeds: Callable[[Callable[[Choice], float]], None]
) -> None:
    speeds(lambda choice: float(choice.batch) + 0.5 * (choice.joined_rows == 16))
    document = json.loads(aioinfer("tune", "-m", digits, *REFERENCE, "--json").out)
    assert (document["device"], document["batch"]) == ("REFERENCE", 64)
    (beside,) = [row for row in document["measured"] if row["joined_rows"] > 1]
    assert beside["label"] == "with BATCH"
    assert beside["device"] == f"BATCH:REFERENCE({beside['joined_rows']})"
    assert not beside["is_best"]


def test_a_model_that_batch_refuses_is_told_of_once_with_the_reason(
    aioinfer: Run, centred: str, speeds: Callable[[Callable[[Choice], float]], None]
) -> None:
    speeds(lambda choice: float(choice.streams or 1) ** 0.5)
    document = json.loads(aioinfer("tune", "-m", centred, *REFERENCE, "--json").out)
    refused = {what: why for what, why in document["refused"].items() if "BATCH" in what}
    assert list(refused) == ["BATCH:REFERENCE(16)"]
    assert "ReduceMean" in refused["BATCH:REFERENCE(16)"]
    assert all(row["joined_rows"] == 1 for row in document["measured"])
    assert document["device"] == "REFERENCE"
    printed = aioinfer("tune", "-m", centred, *REFERENCE).out
    assert "not possible: BATCH:REFERENCE(16): BATCH cannot join requests" in printed


@pytest.mark.parametrize(
    ("device", "arguments"),
    [
        ("REFERENCE", ["--goal", "latency"]),
        ("REFERENCE", ["-b", "4"]),
        ("REFERENCE", ["--config", "ALLOW_AUTO_BATCHING=YES"]),
        ("BATCH:REFERENCE(4)", []),
    ],
)
def test_batch_is_not_tried_where_it_is_not_wanted_or_is_there_already(
    aioinfer: Run,
    digits: str,
    device: str,
    arguments: list[str],
    speeds: Callable[[Callable[[Choice], float]], None],
) -> None:
    asked: list[Choice] = []

    def rate(choice: Choice) -> float:
        asked.append(choice)
        return float(choice.joined_rows)

    speeds(rate)
    searched = aioinfer("tune", "-m", digits, "-d", device, "--seconds", "60", "--json", *arguments)
    document = json.loads(searched.out)
    assert {choice.joined_rows for choice in asked} == {1}
    assert not [what for what in document["refused"] if "BATCH" in what]


def test_devices_of_several_are_tuned_with_batch_around_them(
    aioinfer: Run, digits: str, speeds: Callable[[Callable[[Choice], float]], None]
) -> None:
    speeds(lambda choice: float(choice.joined_rows))
    arguments = ["-d", "HETERO:REFERENCE.0,REFERENCE.1", "--seconds", "200", "--json"]
    document = json.loads(aioinfer("tune", "-m", digits, *arguments).out)
    assert document["device"] == "BATCH:HETERO:REFERENCE.0,REFERENCE.1(64)"
    assert document["refused"] == {}


def test_a_device_by_another_spelling_gets_its_properties(
    aioinfer: Run, digits: str, speeds: Callable[[Callable[[Choice], float]], None]
) -> None:
    speeds(lambda choice: float(choice.joined_rows))
    arguments = ["-d", "reference", "--seconds", "100", "--config", "NUM_STREAMS=2", "--json"]
    document = json.loads(aioinfer("tune", "-m", digits, *arguments).out)
    assert document["device"] == "BATCH:REFERENCE(64)"
    assert document["config"] == {"DEVICE_PROPERTIES": {"REFERENCE": {"NUM_STREAMS": "2"}}}


def test_calls_of_tasks_are_measured_on_batch(digits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def once(requests: list[Any], inputs: InputSets, measurement: Measurement) -> None:
        asked.extend(requests)
        measurement.start()
        began_ns = measurement.clock()
        await asyncio.gather(*(request.infer(inputs.at(0)) for request in requests))
        for request in requests:
            measurement.finish(began_ns, request)

    monkeypatch.setattr("aioinfer.cli.tuning.network.measure_async", once)
    choice = Choice(joined_rows=4)
    with ai.Core() as core, core.load_network(digits, "BATCH:REFERENCE(4)") as network:
        settled = settled_of(network, choice, Settled(2, 3, 5))
        assert settled == Settled(2, 3, network.optimal_request_count)
        placement = Placement(network.device, {})
        found = Found("found", choice, settled, {"image": (1, 1, 8, 8)}, placement)
        loaded = run_first(network, found, seed=0)
        before = network.statistics().finished_request_count
        assert loaded.measure(1.0).items_per_s > 0
        assert asked == [network] * settled.requests
        assert network.statistics().finished_request_count == before + settled.requests
