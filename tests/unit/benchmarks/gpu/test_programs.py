"""The programs run from end to end without a GPU: raw costs on a fake CuPy, networks on CPU's kin.

The numbers mean nothing; that each row is there, and that results are checked, does.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import models
import networks_vision
import numpy as np
import pytest
from measuring import Settings, cupy_reason
from network_runs import Case, cases_by_worth, draw_sets, measure_cases, with_batch
from predictions import RESNET50
from reporting import Report, Row

import aioinfer
from unit.benchmarks.gpu.fake_cupy import make_cupy
from unit.benchmarks.small_networks import SMALL

Program = Callable[[str], ModuleType]
SHORT = Settings("REFERENCE", rounds=2, round_s=0.002, until_s=math.inf)
LATE = Settings("REFERENCE", rounds=1, round_s=0.001, until_s=-math.inf)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = make_cupy()
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    return made


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ResNet-50 be a few layers on images of 64 pixels."""
    made = models.Model("resnet50", SMALL["resnet50"], models.images(64))
    monkeypatch.setitem(models.MODELS, "resnet50", made)
    monkeypatch.setitem(models.MODELS, "mobilenet_v2", made)


def measured(report: Report) -> dict[str, Row]:
    return {row.what: row for row in report.rows if row.measured is not None}


def test_a_device_that_cupy_does_not_see_is_refused(fake: ModuleType) -> None:
    assert cupy_reason("CUDA") is None
    assert cupy_reason("CUDA.1") == "CuPy sees 1 CUDA devices, and CUDA.1 is not one of them"
    fake.cuda.is_available = lambda: False  # type: ignore[attr-defined]
    assert cupy_reason("CUDA") == "CuPy sees no CUDA device"


@pytest.mark.usefixtures("fake")
def test_transfers_are_beside_what_is_predicted(program: Program) -> None:
    transfers, report = program("transfers"), Report("transfers", "a GPU")
    transfers.SIZES = {"one uint8 image": 150_528}
    transfers.measure_rates = functools.partial(transfers.measure_rates, size=1 << 16)
    transfers.measure(report, SHORT)
    rows = measured(report)
    assert rows["one uint8 image, pinned to device"].predicted == pytest.approx(6.5, abs=0.1)
    assert rows["one uint8 image, device to pageable"].predicted is None
    assert rows["rate, device to pinned"].unit == "GB/s"


@pytest.mark.usefixtures("fake")
def test_launches_and_graphs_have_costs(program: Program) -> None:
    report = Report("launch_cost", "a GPU")
    program("launch_cost").measure(report, SHORT)
    rows = measured(report)
    assert {"host, RawKernel", "host, CUDA graph of 200 nodes", "device, one more node"} <= set(
        rows
    )


@pytest.mark.usefixtures("fake")
def test_waits_are_compared_with_polling(program: Program) -> None:
    completion, report = program("completion"), Report("completion", "a GPU")
    completion.TURNS = 2
    completion.measure(report, SHORT)
    rows = measured(report)
    assert rows["blocking event, later than that"].predicted == 40.0
    assert "blocking event and asyncio loop, later than that" in rows
    assert [row.what for row in report.rows if row.measured is None] == ["written word"]


@pytest.mark.usefixtures("fake")
def test_facts_come_with_the_ceilings(program: Program) -> None:
    facts, report = program("device_facts"), Report("device_facts", "a GPU")
    facts.COPIED_BYTES, facts.SIDE = 1 << 16, 64
    facts.measure(report, SHORT)
    assert {"memory", "copy", "float16 product of 64"} <= set(measured(report))
    assert report.facts["properties"] == {"name": "A GPU", "uuid": "01", "warpSize": 32}
    assert report.facts["driver"] == 13000
    assert set(report.facts["mps"]) == {"pipe_directory", "is_there"}


@pytest.mark.usefixtures("fake")
def test_own_graphs_are_compared_in_every_look(program: Program) -> None:
    replay, report = program("graph_replay"), Report("graph_replay", "a GPU")
    replay.REPLAYS, replay.SIDE = 200, 16
    replay.measure_own(report)
    (row,) = report.rows
    assert (row.measured, row.is_met) == (0.0, True)


def test_a_graph_that_writes_nothing_is_seen(
    program: Program, fake: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay, report = program("graph_replay"), Report("graph_replay", "a GPU")
    replay.REPLAYS, replay.SIDE = 200, 16
    real, calls = fake.cuda.runtime.memcpyAsync, []

    def write_twice(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 1:  # when it runs for real; what is captured does nothing
            real(*given)

    monkeypatch.setattr(fake.cuda.runtime, "memcpyAsync", write_twice)
    replay.measure_own(report)
    assert report.rows[0].is_met is False


@pytest.mark.usefixtures("small")
def test_a_network_is_measured_from_the_host_and_the_rest_is_named() -> None:
    report = Report("resnet50", "a GPU")
    measure_cases(report, SHORT, "resnet50", [Case(2, "f32", has_eager=True)], RESNET50, "images/s")
    assert {what: row.unit for what, row in measured(report).items()} == {
        "batch 2, f32, with transfers": "/s",
        "batch 2, f32, with transfers, one by one": "us",
    }
    refused = {row.what: row.note for row in report.rows if row.measured is None}
    assert "CUDA_GRAPHS" in refused["batch 2, f32, without CUDA graphs"]
    assert "batch 2, f32, device memory" in refused


@pytest.mark.usefixtures("small")
def test_predictions_are_for_float16(program: Program) -> None:
    runs, report = program("network_runs"), Report("resnet50", "a GPU")
    runs.add_rows(report, "all", 256, 6400.0, runs.DEVICE, RESNET50[256])
    runs.add_rows(report, "one", 256, 6400.0, f"{runs.DEVICE}, {runs.ALONE}", RESNET50[256])
    runs.add_rows(report, "host", 256, 6400.0, runs.HOST, None)
    fast, alone, host = report.rows
    assert (fast.measured, fast.unit, fast.is_met) == (40_000.0, "/s", True)
    assert (alone.measured, alone.predicted, alone.unit) == (6400.0, 5170.0, "us")
    assert (host.predicted, host.wanted) == (None, None)


def test_what_there_is_no_time_for_is_named() -> None:
    report = Report("resnet50", "a GPU")
    measure_cases(report, LATE, "mobilenet_v2", [Case(1, "f16")], RESNET50, "images/s")
    assert [row.note for row in report.rows] == ["left out: no time"]


def test_the_largest_and_the_smallest_batch_come_first() -> None:
    cases = cases_by_worth((1, 8, 64, 256), ("f16", "f32"))
    assert [case.batch for case in cases] == [256, 1, 64, 8] * 2
    assert [case.precision for case in cases] == ["f16"] * 4 + ["f32"] * 4
    assert {case.batch for case in cases if case.has_eager} == {1, 8}


def test_a_symbolic_batch_becomes_a_number() -> None:
    model = networks_vision.resnet50(batch="batch", size=32, width=8, blocks=(1,), classes=4)
    fixed = with_batch(model, 3)
    (given,), (made,) = fixed.graph.input, fixed.graph.output
    shapes = [
        [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in (given, made)
    ]
    assert shapes == [[3, 3, 32, 32], [3, 4]]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_sets_of_inputs_fit_into_what_they_may_take() -> None:
    sets = list(draw_sets(models.images(64), 4, most_bytes=1 << 20))
    assert len(sets) == (1 << 20) // (4 * 3 * 64 * 64 * 4)
    assert not np.array_equal(sets[0]["image"], sets[1]["image"])


@pytest.mark.usefixtures("small")
def test_images_of_bytes_give_what_normalised_ones_give(program: Program) -> None:
    requests = program("async_requests")
    model = models.MODELS["resnet50"].build()
    pixels = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), np.uint8)
    mean, deviation = np.float32(requests.MEAN), np.float32(requests.DEVIATION)
    image = ((pixels.astype(np.float32) - mean) / deviation).transpose(0, 3, 1, 2)
    with (
        aioinfer.Core() as core,
        core.load_network(model, "REFERENCE") as plain,
        core.load_network(requests.from_uint8(model), "REFERENCE") as network,
    ):
        wanted = plain.create_infer_request().infer_sync({"image": image})
        found = network.create_infer_request().infer_sync({"pixels": pixels})
    np.testing.assert_allclose(found["logits"], wanted["logits"], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("small")
async def test_awaited_requests_have_a_rate_and_latencies(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = program("async_requests")
    clock = map(float, itertools.count())
    times = SimpleNamespace(perf_counter=lambda: next(clock), thread_time=lambda: 0.0)
    monkeypatch.setattr(requests, "time", times)
    model = requests.from_uint8(models.MODELS["resnet50"].build())
    images = itertools.repeat(np.zeros((1, 64, 64, 3), np.uint8))
    with aioinfer.Core() as core, core.load_network(model, "REFERENCE") as network:
        made = [network.create_infer_request() for _ in range(2)]
        await requests.once(made, images)
        found = await requests.turn(made, images, 50.0)
    assert found.per_s > 0
    assert 1000 <= found.p50_ms <= found.p99_ms
    assert found.loop_share == 0


def test_requests_count_between_the_warm_up_and_the_end(program: Program) -> None:
    ends = [(0.1, 9.0), (1.0, 0.002), (1.5, 0.004), (2.0, 0.006), (2.1, 9.0)]
    found = program("async_requests").summed_up(ends, 1.0, 2.0, 0.25)
    assert (found.per_s, found.p50_ms, found.p99_ms, found.loop_share) == (3.0, 4.0, 6.0, 0.25)
    with pytest.raises(ValueError, match="measure longer"):
        program("async_requests").summed_up(ends, 3.0, 4.0, 0.25)


def span(lane: str, run_id: int, began_us: int, ended_us: int) -> Any:
    device, stage = lane.split(" ", 1)
    return SimpleNamespace(
        lane=f"{device} {stage}",
        stage=stage.split(" ")[0],
        run_id=run_id,
        started_ns=began_us * 1000,
        ended_ns=ended_us * 1000,
    )


def test_copies_beside_computing_are_overlap(program: Program) -> None:
    spans = [
        span("CUDA.0 upload", 1, 0, 10),
        span("CUDA.0 compute", 1, 10, 30),
        span("CUDA.0 compute host", 1, 9, 10),
        span("CUDA.0 upload", 2, 10, 20),
        span("CUDA.0 download", 1, 30, 40),
        span("CUDA.0 compute", 2, 30, 50),
    ]
    report = Report("overlap", "a GPU")
    program("overlap").add_shares(report, "batch 8", spans, "CUDA.0", 1000)
    rows = measured(report)
    assert len(rows) == len(report.rows)
    assert rows["batch 8, of the time: copies beside computing"].measured == pytest.approx(40.0)
    assert rows["batch 8, of the time: all computing"].measured == pytest.approx(80.0)
    assert rows["batch 8, upload"].measured == 10.0


def test_a_trace_without_the_device_is_named(program: Program) -> None:
    report = Report("overlap", "a GPU")
    spans = [span("CUDA.0 compute host", 1, 0, 1)]
    program("overlap").add_shares(report, "batch 8", spans, "CUDA.0", 1000)
    assert report.rows[0].note == "the trace has no times of the device"


def test_the_host_enqueues_in_the_time_of_its_lane(program: Program) -> None:
    spans: Sequence[Any] = [
        span("CUDA.0 compute host", 1, 0, 5),
        span("CUDA.0 compute host", 2, 10, 17),
        span("CUDA.0 compute host", 3, 20, 26),
        span("CUDA.0 compute", 1, 0, 500),
    ]
    assert program("graph_replay").enqueue_us(spans, "CUDA.0") == 6.0


def test_torch_is_measured_eager_first_and_compiled_by_worth(program: Program) -> None:
    jobs = list(program("torch_baseline").jobs())
    assert [job[0] for job in jobs[:8]] == ["eager"] * 8
    assert jobs[8] == ("compile max-autotune", "resnet50", 1)
    assert len(set(jobs)) == len(jobs)


def test_aioinfer_is_compared_with_torch_where_both_were_measured() -> None:
    from against_torch import comparisons

    def row(what: str, measured: float | None, unit: str = "/s") -> dict[str, Any]:
        return {"what": what, "unit": unit, "measured": measured}

    found = comparisons(
        {
            "resnet50": [
                row("batch 1, f16, device memory", 9000.0),
                row("batch 1, f16, device memory, one by one", 300.0, "us"),
                row("batch 8, f16, device memory", None),
            ],
            "torch_baseline": [
                row("resnet50, compile max-autotune, batch 1", 5000.0),
                row("resnet50, eager, batch 1", 1000.0),
                row("resnet50, eager, batch 8", 8000.0),
            ],
        }
    )
    assert [(one.way, one.ratio, one.verdict) for one in found] == [
        ("eager", 9.0, ""),
        ("compile max-autotune", 1.8, "met: 1.5 wanted"),
    ]
