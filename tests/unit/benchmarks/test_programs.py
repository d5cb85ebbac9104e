"""Every measuring program runs from end to end, as short as can be, and writes its rows."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import MODELS
from onnx import helper
from programs import load_program

import aioinfer
from presence import skip_if_missing
from unit.backends.cpu.comparing import missing_reason, model_of
from unit.benchmarks.small_networks import FUSED, IMAGES, SIZE, SMALL

pytestmark = pytest.mark.exhaustive

GPU = Path(__file__).parents[3] / "benchmarks" / "gpu"
Rows = list[dict[str, Any]]
Measure = Callable[..., Rows]
needs_cpu = pytest.mark.skipif(missing_reason() is not None, reason="there is no CPU device here")
needs_peers = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed"
)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measure:
    """Run a program with some options, and read the rows that it writes."""

    def run(name: str, options: str) -> Rows:
        file = tmp_path / "rows.json"
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *options.split(), "--json", str(file)])
        load_program(name).main()
        rows: Rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        return rows

    return run


def test_requests_in_flight(measure: Measure) -> None:
    rows = measure("in_flight", "--devices REFERENCE --widths 8 --rounds 1 --seconds 0.05")
    assert {row["hint"] for row in rows} == {"LATENCY", "THROUGHPUT"}


@needs_cpu
@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,REFERENCE"])
def test_growing_states(measure: Measure, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    program = load_program("growing_states")
    monkeypatch.setattr(program, "SIZES", ((2, 4, 3),))
    (row,) = measure("growing_states", f"--device {device} --steps 2 --passes 5")
    assert row["growing_us"] > 0
    assert row["ratio"] == pytest.approx(row["growing_us"] / row["attention_us"], rel=0.05)


@needs_cpu
@needs_peers
@pytest.mark.skipif(importlib.util.find_spec("uvicorn") is None, reason="uvicorn is not installed")
def test_the_image_service(measure: Measure) -> None:
    options = "--engines aioinfer onnxruntime --clients 1 3 --rounds 1 --seconds 0.5"
    rows = measure("image_service", options)
    assert [(row["clients"], row["engine"]) for row in rows] == [
        (clients, engine) for clients in (1, 3) for engine in ("aioinfer", "onnxruntime")
    ]
    assert all(row["pictures_per_s"] > 0 and row["processor_ms"] > 0 for row in rows)
    assert all(row["ratio"] > 0 for row in rows if row["engine"] == "aioinfer")


@pytest.mark.skipif(importlib.util.find_spec("uvicorn") is None, reason="uvicorn is not installed")
def test_the_image_service_names_a_peer_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load_program("image_service")
    monkeypatch.setattr(program, "find_spec", lambda name: None if name == "openvino" else name)
    monkeypatch.setattr("sys.argv", ["image_service"])
    with pytest.raises(SystemExit, match="2"):
        program.main()
    assert "openvino is not installed: pip install 'aioinfer[bench]'" in capsys.readouterr().err


@needs_peers
@pytest.mark.skipif(importlib.util.find_spec("uvicorn") is None, reason="uvicorn is not installed")
def test_serving(measure: Measure) -> None:
    options = "tiny --connections 1 3 --rounds 1 --seconds 0.2 --device REFERENCE"
    rows = measure("serving", f"{options} --servers aioinfer client fastapi")
    ways = {(row["server"], row["wire"]) for row in rows}
    assert {("aioinfer", wire) for wire in ("json", "binary", "grpc")} <= ways
    assert ("client", "json") in ways
    assert {row["connections"] for row in rows} == {1, 3}
    assert all(row["requests_per_s"] > 0 and row["p99_ms"] >= row["p50_ms"] > 0 for row in rows)


@needs_cpu
@needs_peers
def test_loading(measure: Measure) -> None:
    rows = measure("loading", "--rounds 1 --size 8")
    assert [row["part_count"] for row in rows] == [8, 4] * (len(rows) // 2)
    assert {row["device"] for row in rows} == {"CPU", "REFERENCE", "ONNXRUNTIME"}
    assert all(row["ratio"] > 0 for row in rows)


@needs_cpu
@needs_peers
def test_new_shapes(measure: Measure, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    x = np.zeros((2, 3), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    constants = {"w": np.ones((3, 4), np.float32)}
    proto = model_of(nodes, {"x": x}, constants=constants, dynamic=True)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    onnx.save(proto, folder / "product.onnx")
    (row,) = measure("new_shapes", f"{folder} --shapes 4")
    assert row["model"] == "product"
    assert 0 < row["run_ms"] < row["first_ms"]


@needs_cpu
@needs_peers
def test_open_lengths(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    program, words = load_program("open_lengths"), replace(FUSED, vocabulary=30_522)
    image_net = partial(program.resnet50, width=8, blocks=(2, 1), classes=10)
    monkeypatch.setattr(program, "minilm_l6", partial(program.minilm_l6, kind=words))
    monkeypatch.setattr(program, "resnet50", image_net)
    rows = measure("open_lengths", "--requests 2 --passes 2")
    assert [row["model"] for row in rows] == ["minilm_l6", "resnet50"]
    assert all(row["first_ms"] > 0 and row["peer_later_ms"] > 0 for row in rows)


@needs_cpu
@needs_peers
def test_a_busy_thread(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(
        MODELS["mobilenet_v2"],
        build=SMALL["mobilenet_v2"],
        inputs=lambda chance, batch: {
            "image": chance.standard_normal((batch, 3, SIZE, SIZE)).astype(np.float32)
        },
    )
    monkeypatch.setitem(MODELS, "mobilenet_v2", small)
    rows = measure("busy_thread", "--models mobilenet_v2 --rounds 1 --seconds 0.01")
    assert {row["engine"] for row in rows} == {"CPU", "onnxruntime"}


@needs_cpu
@needs_peers
def test_trees(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    program = load_program("trees")
    monkeypatch.setattr(program, "TREES", 3)
    rows = measure("trees", "--rounds 1 --seconds 0.001 --row-counts 1 5")
    assert [row["form"] for row in rows] == [form for form in program.FORMS for _ in range(2)]
    assert all(min(row["sync_ratio"], row["await_ratio"]) > 0 for row in rows)
    with pytest.raises(RuntimeError, match="label is not"):
        program.check("texts", {"label": np.array(["a"], object)}, [np.array(["b"], object)])


@needs_cpu
def test_decoding_beside_computing(measure: Measure) -> None:
    pytest.importorskip("simplejpeg", reason="the extra image is not installed")
    (row,) = measure("decoding", "--rounds 1 --seconds 0.05")
    assert all(row[f"{way}_per_s"] > 0 for way in ("decode", "compute", "stages", "pool"))


@needs_cpu
@needs_peers
def test_requests_that_share_runs(measure: Measure) -> None:
    rows = measure("batching", "--models perceptron --rows 4 --tasks 5 --rounds 1 --seconds 0.02")
    assert {"batch", "fixed", "onnxruntime with a timer"} <= {row["way"] for row in rows}
    assert all(row["rows_per_s"] > 0 for row in rows)


@needs_cpu
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="wants two CPUs")
def test_a_pipeline_over_two_parts(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(MODELS["resnet50"], build=SMALL["resnet50"], inputs=IMAGES)
    monkeypatch.setitem(MODELS, "resnet50", small)
    rows = measure("balance", "--models resnet50 --rounds 1 --seconds 0.3")
    assert [row["way"] for row in rows] == ["sum", "pipeline", "estimated"]
    assert all(row["throughput"] > 0 and row["share"] > 0 for row in rows)
    assert all(row["expected"] > 0 for row in rows[1:])


@needs_cpu
@needs_peers
def test_lags_of_event_loops(measure: Measure) -> None:
    tiny = load_program("loop_lag").TINY
    rows = measure(
        "loop_lag",
        f"--load-models {tiny} --loading-models {tiny} --devices CPU --seconds 0.02 --loads 1",
    )
    assert [row["kind"] for row in rows] == ["idle", "hashing threads", "load", "loading"]


@needs_cpu
@needs_peers
def test_what_awaiting_costs(measure: Measure) -> None:
    rows = measure("overhead", "--loops uvloop --tasks 1 --requests 20 --rounds 1")
    assert "CPU network.infer" in {row["way"] for row in rows}


@pytest.mark.parametrize("series", ["timer", "native", "hetero", "diamond"])
def test_overlap(series: str, measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    program = load_program("overlap")
    monkeypatch.setattr(program, "ALONE_COUNT", 3)
    monkeypatch.setattr(program, "sleep_exactly", lambda: None)  # this thread stays as it is
    rows = measure("overlap", f"--series {series} --ms 0.2 --rounds 1 --seconds 0.2")
    assert {row["way"] for row in rows} == {"aioinfer", "queues"}


def test_a_turn_in_which_no_request_ends_is_too_short() -> None:
    figures = importlib.import_module("overlapping.figures")
    services = {"n0": [(5, 1), (9, 1)], "n1": [(6, 1)]}
    for ends_ns in ([], [6]):
        with pytest.raises(figures.TooShortError, match="more --seconds"):
            figures.overlap(ends_ns, services, 0, 10)
    with pytest.raises(figures.TooShortError):
        figures.slowest_ms(services, 7, 10)
    assert figures.slowest_ms(services, 0, 10) == 1e-6


def test_opencl_beside_numpy(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    with aioinfer.Core() as core:
        skip_if_missing(core, "OPENCL")
    program, chance = load_program("opencl"), np.random.default_rng(0)
    jobs = [program.matmul(chance, 8), program.elementwise(chance, 100)]
    monkeypatch.setattr(program, "jobs", lambda: jobs)
    rows = measure("opencl", "--rounds 2 --round-ms 1")
    assert [row["way"] for row in rows] == list(program.WAYS) * 2


@needs_peers
def test_neighbours(measure: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(load_program("neighbours"), "RESULTS", tmp_path)
    rows = measure(
        "neighbours",
        "--models perceptron --situations alone,busy1 --rounds 1 --seconds 0.01 --save "
        "--device ONNXRUNTIME --engines aioinfer,onnxruntime",
    )
    assert {row["situation"] for row in rows} == {"alone", "busy1"}
    assert len(list(tmp_path.glob("*-neighbours.json"))) == 1


@needs_peers
def test_peers(tmp_path: Path) -> None:
    peers = load_program("peers")
    model = importlib.import_module("networks.vision").mobilenet_v2(
        stages=((1, 4, 1, 2),), features=4, classes=4
    )
    onnx.save(model, tmp_path / "mobilenet_v2.onnx")
    run = peers.Run("ONNXRUNTIME", slot_count=2, slot_s=0.01, seed=1, say=lambda _line: None)
    options = ["--models", "mobilenet_v2", "--models-dir", str(tmp_path), "--rows", "latency2"]
    options += ["--engines", "aioinfer,onnxruntime", "--precision", "f32,int8"]
    peers.measure(run, peers.parser().parse_args(options), tmp_path)
    for result in run.results:
        assert set(result.numbers) == {"aioinfer", "onnxruntime"}
    assert {result.precision for result in run.results} == {"f32", "int8"}
    stored = {node.op_type for node in onnx.load(tmp_path / "mobilenet_v2.int8.onnx").graph.node}
    assert "DequantizeLinear" in stored
    assert not any(error for key, error in run.errors.items() if " f32 " in key)


FOR_GPUS = [
    file
    for file in sorted(GPU.glob("*.py"))
    if 'if __name__ == "__main__"' in file.read_text(encoding="utf-8")
]
RUN_EACH = """
import contextlib, io, json, pathlib, runpy, sys
said = {}
for file in sys.argv[1:]:
    sys.argv = [file, "--device", "CUDA.99"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            runpy.run_path(file, run_name="__main__")
        except SystemExit as end:
            out.write(f"exit status {end.code}" if end.code else "")
    said[pathlib.Path(file).stem] = out.getvalue()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said_without_a_gpu() -> dict[str, str]:
    """Run all programs for GPUs in one process: starting it costs more than they do."""
    ended = subprocess.run(
        [sys.executable, "-c", RUN_EACH, *map(str, FOR_GPUS)],
        env={**os.environ, "PYTHONPATH": str(GPU)},
        capture_output=True,
        text=True,
        check=True,
        timeout=170,
    )
    said: dict[str, str] = json.loads(ended.stdout)
    return said


@pytest.mark.parametrize("name", [file.stem for file in FOR_GPUS])
def test_a_program_for_gpus_says_that_there_is_none(
    name: str, said_without_a_gpu: dict[str, str]
) -> None:
    assert "nothing to measure here" in said_without_a_gpu[name]
    assert "exit status" not in said_without_a_gpu[name]


def test_a_network_is_measured_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GPU))
    runs, measuring = importlib.import_module("network_runs"), importlib.import_module("measuring")
    reporting = importlib.import_module("reporting")
    small = replace(MODELS["resnet50"], build=SMALL["resnet50"], inputs=IMAGES)
    monkeypatch.setitem(MODELS, "resnet50", small)
    report = reporting.Report("resnet50", "a GPU")
    settings = measuring.Settings("REFERENCE", rounds=2, round_s=0.002, until_s=math.inf)
    runs.measure_cases(report, settings, "resnet50", [runs.Case(2, "f32")], {}, "images/s")
    measured = {row.what for row in report.rows if row.measured is not None}
    assert "batch 2, f32, with transfers" in measured


@needs_cpu
def test_an_awaited_request_on_cpu_calls_no_more_functions_than_its_goal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "trio", raising=False)  # two calls more where it is
    program = load_program("call_count")
    bounded = [item for item in program.SITUATIONS if "CPU" in item.device and item.most]
    assert bounded
    with program.profiled() as calls, aioinfer.Core() as core:
        counts = [program.count_of(item, core, calls, 5) for item in bounded]
    for count in counts:
        assert 0 < count.call_count <= count.situation.most, count.situation.name


def test_an_awaited_request_on_an_accelerator_calls_no_more_functions_than_its_goal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "trio", raising=False)
    program = load_program("call_count")
    bounded = [item for item in program.SITUATIONS if item.device == "FAKE"]
    with program.profiled() as calls, program.core_with_fake() as core:
        counts = [program.count_of(item, core, calls, 9) for item in bounded]
    assert len(counts) == 2
    for count in counts:
        assert 0 < count.call_count <= count.situation.most, count.situation.name


def test_counting_of_a_package_that_lies_elsewhere_is_refused_and_not_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = load_program("call_count")
    monkeypatch.setattr(program, "PACKAGE", ("/no/such/folder/",))
    situation = program.Situation("anything", "REFERENCE", {})
    refused = pytest.raises(SystemExit, match=r"anything: no call of aioinfer was seen.*pip inst")
    with program.profiled() as calls, aioinfer.Core() as core, refused:
        program.count_of(situation, core, calls, 1)
