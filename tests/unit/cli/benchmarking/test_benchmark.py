import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from aioinfer import InferRequest
from aioinfer.errors import DeviceError
from exhaustive import all_but

Run = Callable[..., Any]

HETERO = "HETERO:REFERENCE.0,REFERENCE.1"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "report.json"


def read(report: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(report.read_text())
    return document


@pytest.mark.parametrize("device", ["REFERENCE", HETERO])
def test_it_prints_nine_steps_and_the_results(aioinfer: Run, digits: str, device: str) -> None:
    finished = aioinfer("benchmark", "-m", digits, "-d", device, "-niter", "8")
    assert (finished.code, finished.err) == (0, "")
    steps = [line for line in finished.out.splitlines() if line.startswith("[Step ")]
    assert [line.split("]")[0] for line in steps] == [f"[Step {n}/9" for n in range(1, 10)]
    for label in ("Count:", "Duration:", "Median:", "Average:", "Min:", "Max:", "Throughput:"):
        assert label in finished.out
    assert "image    float32[batch,1,8,8]" in finished.out
    assert "left out below" in finished.out
    assert "compute" in finished.out.split("Stages")[1]
    assert max(map(len, finished.out.splitlines())) <= 80


def test_the_report_holds_options_results_and_latencies(
    aioinfer: Run, digits: str, report: Path
) -> None:
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-nireq", "4", "-niter", "10"]
    arguments += ["-b", "2", "-latency_percentile", "90", "-report", str(report)]
    assert aioinfer(*arguments).code == 0
    document = read(report)
    assert document["command_line"].split()[:3] == ["aioinfer", "benchmark", "-m"]
    assert document["configuration"]["device"] == "REFERENCE"
    assert document["environment"]["REFERENCE"].startswith("numpy reference")
    execution, results = document["execution"], document["results"]
    assert execution["devices"] == ["REFERENCE.0"]
    assert execution["shapes"] == {"image": [2, 1, 8, 8]}
    assert (execution["batch"], execution["nireq"]) == (2, 4)
    assert execution["properties"]["PERFORMANCE_HINT_NUM_REQUESTS"] == 4
    assert results["count"] == len(document["latencies_ms"]) == 12
    assert results["latency"]["percentile"] == 90
    assert results["latency"]["chosen_ms"] == sorted(document["latencies_ms"])[10]
    assert results["throughput_fps"] == pytest.approx(12 * 2 / results["duration_ms"] * 1e3)
    assert results["first_inference_ms"] > 0
    assert sum(stage["count"] for stage in document["stages"] if stage["stage"] == "compute") == 12
    assert (document["error"], document["interrupted"]) == (None, False)


def test_sync_runs_one_request(aioinfer: Run, digits: str, report: Path) -> None:
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-api", "sync", "-niter", "3"]
    finished = aioinfer(*arguments, "-report", str(report))
    assert "requests in flight: 1" in finished.out
    document = read(report)
    assert (document["results"]["count"], document["execution"]["nireq"]) == (3, 1)
    assert document["execution"]["properties"]["PERFORMANCE_HINT"] == "LATENCY"


def test_the_number_of_requests_is_what_the_network_finds_optimal(
    aioinfer: Run, digits: str, report: Path
) -> None:
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-hint", "none", "-nstreams", "3"]
    assert aioinfer(*arguments, "-niter", "1", "-report", str(report)).code == 0
    document = read(report)
    optimal = document["execution"]["nireq"]
    assert optimal >= 3
    assert document["results"]["count"] == optimal


def test_a_note_says_which_lengths_were_chosen(aioinfer: Run, digits: str) -> None:
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-niter", "1"]
    assert "lengths that were not given are 1" in aioinfer(*arguments).out
    assert "image[3,1,8,8]: random" in aioinfer(*arguments, "-shape", "image[3,1,8,8]").out


def test_a_shape_that_is_given_makes_the_model_static(
    aioinfer: Run, digits: str, report: Path
) -> None:
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-niter", "1"]
    for option in (["-shape", "image[3,1,8,8]"], ["-b", "3"]):
        assert aioinfer(*arguments, *option, "-report", str(report)).code == 0
        execution = read(report)["execution"]
        assert execution["shapes"] == {"image": [3, 1, 8, 8]}
        assert not execution["properties"]["INPUT_SHAPES"]


def test_node_times_are_shown_slowest_first(aioinfer: Run, digits: str, report: Path) -> None:
    arguments = ["benchmark", "-m", digits, "-d", HETERO, "--affinity", "conv2=REFERENCE.1"]
    finished = aioinfer(*arguments, "-niter", "4", "-pc", "-report", str(report))
    assert finished.code == 0
    nodes = read(report)["nodes"]
    times = [node["mean_ms"] for node in nodes]
    assert times == sorted(times, reverse=True)
    assert {node["original_nodes"][0] for node in nodes} >= {"conv1", "conv2", "fc2"}
    assert sum(node["share"] for node in nodes) == pytest.approx(1.0)
    assert "all nodes" in finished.out


def test_given_inputs_rotate(
    aioinfer: Run,
    digits: str,
    heldout: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []
    images = np.load(heldout)["images"]
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", images[number : number + 1] * 0 + number)
    original = InferRequest.infer_sync

    def infer_sync(request: InferRequest, inputs: Any = None) -> Any:
        given.append(float(inputs["image"][0, 0, 0, 0]))
        return original(request, inputs)

    monkeypatch.setattr(InferRequest, "infer_sync", infer_sync)
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-api", "sync", "-niter", "5"]
    finished = aioinfer(*arguments, "-i", f"image:{tmp_path}")
    assert finished.code == 0
    assert "image[1,1,8,8]: 3 given" in finished.out
    assert given == [0.0, 0.0, 1.0, 2.0, 0.0, 1.0]


def test_files_of_different_batches_are_all_compiled_ahead(
    aioinfer: Run, digits: str, tmp_path: Path, report: Path
) -> None:
    for batch in (1, 2, 4):
        np.save(tmp_path / f"{batch}.npy", np.zeros((batch, 1, 8, 8), np.float32))
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-niter", "6", "-i", str(tmp_path)]
    assert aioinfer(*arguments, "-report", str(report)).code == 0
    assert read(report)["execution"]["properties"]["INPUT_SHAPES"] == [
        {"image": [batch, 1, 8, 8]} for batch in (1, 2, 4)
    ]


def test_inputs_of_every_kind_get_random_values(aioinfer: Run, tmp_path: Path) -> None:
    kinds = {"f": "FLOAT", "i": "INT64", "b": "BOOL", "s": "STRING", "h": "BFLOAT16"}
    types = {name: getattr(onnx.TensorProto, kind) for name, kind in kinds.items()}
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in kinds]
    nodes.append(helper.make_node("SequenceLength", ["seq"], ["seq_out"]))
    inputs = [helper.make_tensor_value_info(name, types[name], ["n", 2]) for name in kinds]
    inputs.append(helper.make_tensor_sequence_value_info("seq", onnx.TensorProto.FLOAT, ["m"]))
    outputs = [helper.make_tensor_value_info(f"{n}_out", types[n], ["n", 2]) for n in kinds]
    outputs.append(helper.make_tensor_value_info("seq_out", onnx.TensorProto.INT64, []))
    graph = helper.make_graph(nodes, "kinds", inputs, outputs)
    path = tmp_path / "kinds.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    finished = aioinfer("benchmark", "-m", str(path), "-d", "REFERENCE", "-niter", "2", "-b", "3")
    assert (finished.code, finished.err) == (0, "")
    assert "s[3,2]: random" in finished.out


def interrupt_after(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send Ctrl-C during the run after this number of measured ones."""
    started = 0

    def count() -> None:
        nonlocal started
        started += 1
        if started == runs + 1:  # callbacks run elsewhere, and a terminal tells the main thread
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)

    infer, infer_sync = InferRequest.infer, InferRequest.infer_sync
    start_async = InferRequest.start_async

    async def counted(request: InferRequest, inputs: Any = None) -> Any:
        count()
        return await infer(request, inputs)

    def counted_sync(request: InferRequest, inputs: Any = None) -> Any:
        result = infer_sync(request, inputs)
        count()
        return result

    def counted_start(request: InferRequest, inputs: Any = None, userdata: Any = None) -> None:
        start_async(request, inputs, userdata)
        count()

    monkeypatch.setattr(InferRequest, "infer", counted)
    monkeypatch.setattr(InferRequest, "infer_sync", counted_sync)
    monkeypatch.setattr(InferRequest, "start_async", counted_start)


@pytest.mark.parametrize("api", all_but(["sync", "async"], ["sync", "async", "callback"]))
def test_an_interrupt_prints_what_was_measured(
    aioinfer: Run, digits: str, report: Path, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    interrupt_after(20, monkeypatch)
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-api", api, "-t", "3600", "-pc"]
    finished = aioinfer(*arguments, "-report", str(report))
    assert finished.code == 130
    assert "interrupted; this is what was measured so far" in finished.out
    assert "Throughput:" in finished.out
    document = read(report)
    assert document["interrupted"] is True
    # A callback goes on beside the main thread, until that has taken notice.
    assert 0 < document["results"]["count"] <= (20 if api != "callback" else 3600 * 10**6)
    assert document["results"]["latency"]["count"] == document["results"]["count"]


def test_an_interrupt_before_the_measurement_is_told(
    aioinfer: Run, digits: str, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(request: InferRequest, inputs: Any = None) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(InferRequest, "infer_sync", interrupted)
    finished = aioinfer("benchmark", "-m", digits, "-d", "REFERENCE", "-report", str(report))
    assert (finished.code, finished.err) == (130, "interrupted\n")
    assert (read(report)["interrupted"], read(report)["error"]) == (True, "interrupted")


@pytest.mark.parametrize("api", ["sync", "async", "callback"])
def test_an_error_while_measuring_is_in_the_report_with_what_was_measured(
    aioinfer: Run, digits: str, report: Path, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    async def lost(request: InferRequest, inputs: Any = None) -> None:
        raise DeviceError("the device is lost")

    original = InferRequest.infer_sync
    runs: list[None] = []

    def lost_sync(request: InferRequest, inputs: Any = None) -> Any:
        runs.append(None)
        if len(runs) > 3:
            raise DeviceError("the device is lost")
        return original(request, inputs)

    def lost_start(request: InferRequest, inputs: Any = None, userdata: Any = None) -> None:
        raise DeviceError("the device is lost")

    monkeypatch.setattr(InferRequest, "start_async", lost_start)
    monkeypatch.setattr(InferRequest, "infer", lost)
    monkeypatch.setattr(InferRequest, "infer_sync", lost_sync)
    arguments = ["benchmark", "-m", digits, "-d", "REFERENCE", "-api", api, "-t", "3600"]
    finished = aioinfer(*arguments, "-report", str(report))
    assert (finished.code, finished.err) == (1, "error: the device is lost\n")
    assert read(report)["error"] == "the device is lost"
    assert read(report)["results"]["count"] == (2 if api == "sync" else 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-d", "REFERENC"], "unknown device 'REFERENC'; did you mean 'REFERENCE'?"),
        (["-d", "HETERO:REFERENCE.0,CUDO"], "'CUDO'"),
        (["-shape", "image[1,1,8]"], "-shape image[1,1,8]: the model wants 4 dimensions"),
        (["-shape", "img[1,1,8,8]"], "no input 'img'; did you mean 'image'?"),
        (["-i", "image:nix.npy"], "there is no file or folder 'nix.npy'"),
        (["--config", "NUM_STREAM=2"], "did you mean 'NUM_STREAMS'?"),
        (["--config", "PERF_COUNT=perhaps"], "bad value 'perhaps' for PERF_COUNT"),
        (["-nstreams", "0.5", "-hint", "none"], "bad value '0.5' for NUM_STREAMS"),
        (["-nstreams", "2"], "needs -hint none"),
        (["-latency_percentile", "101"], "'101' is not a percentile"),
    ],
)
def test_an_error_is_one_line_that_names_the_thing(
    aioinfer: Run, digits: str, arguments: list[str], message: str
) -> None:
    finished = aioinfer("benchmark", "-m", digits, "-d", "REFERENCE", "-niter", "1", *arguments)
    assert finished.code == 1
    assert finished.err.startswith("error: ")
    assert finished.err.count("\n") == 1
    assert message in finished.err


def test_an_error_is_in_the_report(aioinfer: Run, report: Path) -> None:
    finished = aioinfer("benchmark", "-m", "nix.onnx", "-d", "REFERENCE", "-report", str(report))
    assert finished.code == 1
    assert "nix.onnx" in finished.err
    assert finished.err == f"error: {read(report)['error']}\n"


def test_a_batch_needs_an_open_dimension(aioinfer: Run, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    made = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [made])
    path = tmp_path / "static.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    finished = aioinfer("benchmark", "-m", str(path), "-d", "REFERENCE", "-b", "4")
    assert finished.code == 1
    assert "error: -b 4: no input has a first dimension that may change" in finished.err


@pytest.mark.parametrize("suffix", ["html", "json"])
def test_the_trace_holds_the_measured_runs(
    aioinfer: Run, digits: str, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"trace.{suffix}"
    arguments = ["-m", digits, "-d", HETERO, "--affinity", "conv2=REFERENCE.1"]
    finished = aioinfer("benchmark", *arguments, "-nireq", "2", "-niter", "6", "-trace", str(file))
    assert (finished.code, finished.err) == (0, "")
    assert f"wrote {file}: " in finished.out
    text = file.read_text(encoding="utf-8")
    if suffix == "html":
        text = text.split('type="application/json">')[1].split("</script>")[0]
        trace = json.loads(text)
        assert len(trace["runs"]["label"]) == 6, "the first inference is left out"
        assert {item["device"] for item in trace["executors"]} == {"REFERENCE.0", "REFERENCE.1"}
    else:
        events = json.loads(text)["traceEvents"]
        assert sum(event["ph"] == "b" for event in events) == 6
