"""The comparison's shell: workers in processes of their own, and a table that fits a terminal."""

import argparse
import io
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from networks_vision import mobilenet_v2
from peers import ROWS, Outputs, Run, largest_error, listed, measure, outputs_of, parser
from peers_engines import Setting
from peers_judgement import Slot
from peers_process import WorkerError, import_s, started
from peers_report import Result, number_text, table_of
from peers_worker import peak_bytes, status_of
from rich.console import Console

pytest.importorskip("onnxruntime", reason="the device whose threads can be set everywhere")

ONE_THREAD = Setting(has_streams=False, thread_count=1, precision="f32", device="ONNXRUNTIME")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Write a small model and its inputs."""
    model, inputs = tmp_path / "model.onnx", tmp_path / "inputs.npz"
    onnx.save(mobilenet_v2(size=16, stages=((1, 16, 1, 1),), features=16, classes=4), model)
    np.savez(inputs, image=np.ones((1, 3, 16, 16), np.float32))
    return model, inputs


@pytest.mark.parametrize("has_streams", [False, True])
def test_a_worker_loads_infers_and_takes_slots(
    files: tuple[Path, Path], tmp_path: Path, has_streams: bool
) -> None:
    setting = ONE_THREAD._replace(has_streams=has_streams, thread_count=2)
    with started("aioinfer") as worker:
        loaded = worker.load(*files, setting)
        worker.write_outputs(tmp_path / "outputs.npz")
        slot = worker.slot(0.01)
    assert worker.process.returncode == 0
    assert min(loaded["load_s"], loaded["first_s"], slot.value) > 0
    assert loaded["peak_bytes"] > 10 << 20
    assert slot.foreign_cpus >= 0
    outputs = outputs_of(tmp_path / "outputs.npz")
    assert outputs["logits"].shape == (1, 4)
    assert largest_error(outputs, outputs) == 0


def test_a_refusal_comes_with_its_reason(files: tuple[Path, Path]) -> None:
    with started("aioinfer") as worker:
        with pytest.raises(WorkerError, match=r"DeviceError.*NOWHERE"):
            worker.load(*files, ONE_THREAD._replace(device="NOWHERE"))
        with pytest.raises(WorkerError, match="before anything was loaded"):
            worker.slot(0.01)


def test_a_dead_worker_is_an_error() -> None:
    with started("aioinfer") as worker:
        worker.process.kill()
        worker.process.wait(10)
        with pytest.raises(WorkerError, match="ended with status -9: no message"):
            worker.slot(0.01)


def test_an_engine_that_is_missing_is_an_error() -> None:
    with pytest.raises(WorkerError, match=r"ModuleNotFoundError.*no_such_engine"):
        import_s("no_such_engine")


def test_memory_is_read_of_running_processes_only(tmp_path: Path) -> None:
    assert peak_bytes() > 10 << 20
    assert int(status_of(Path(f"/proc/{os.getpid()}/status"))["Pid"]) == os.getpid()
    assert status_of(tmp_path / "none") == {}


def test_a_run_measures_what_can_run_and_says_why_the_rest_cannot(tmp_path: Path) -> None:
    model = mobilenet_v2(stages=((1, 4, 1, 2),), features=4, classes=4)
    onnx.save(model, tmp_path / "mobilenet_v2.onnx")
    said: list[str] = []
    run = Run("ONNXRUNTIME", slot_count=2, slot_s=0.01, seed=1, say=said.append)
    options = ["--models", "mobilenet_v2", "--models-dir", str(tmp_path), "--rows", "latency2"]
    options += ["--engines", "aioinfer,onnxruntime", "--precision", "f32,bf16"]
    measure(run, parser().parse_args(options), tmp_path)
    plain, quartile = run.results
    assert [result.quantity for result in (plain, quartile)] == [
        "latency, 2 threads",
        "  its lower quartile",
    ]
    assert set(plain.numbers) == {"aioinfer", "onnxruntime"}
    assert plain.peer == "onnxruntime"
    assert all(len(taken) == 2 for taken in plain.slots.values())
    assert run.errors == {"mobilenet_v2 f32 aioinfer": 0, "mobilenet_v2 f32 onnxruntime": 0}
    assert list(run.left_out) == ["aioinfer bf16 on mobilenet_v2"]
    assert "PropertyError" in said[-1]


def test_the_worst_output_decides_the_error() -> None:
    wanted: Outputs = {"a": np.array([1.0, -4.0]), "b": np.array([10.0])}
    assert largest_error({"a": np.array([1.0, -3.0]), "b": np.array([11.0])}, wanted) == 0.25
    assert largest_error({"a": np.array([np.nan, 0]), "b": wanted["b"]}, wanted) == float("inf")


def test_lists_have_commas_and_known_names() -> None:
    assert listed(ROWS)("load,latency1") == ["load", "latency1"]
    with pytest.raises(argparse.ArgumentTypeError, match="unknown: speed; there are latency1"):
        listed(ROWS)("load,speed")


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "-"), (0.012347, "0.01235"), (7.1, "7.100"), (123.456, "123.5"), (12345.6, "12346")],
)
def test_numbers_have_four_digits(number: float | None, text: str) -> None:
    assert number_text(number) == text


def test_the_table_fits_100_columns() -> None:
    numbers = {"aioinfer": 1234.5, "onnxruntime": 1234.5, "openvino": 1234.5}
    slots = {name: [Slot(1.0, 1.0)] * 33 for name in numbers}
    result = Result(
        model="mobilenet_v3_large",
        precision="bf16",
        quantity="throughput, 2 streams",
        unit="/s",
        numbers=numbers,
        ratio=1.0,
        peer="openvino",
        verdict="behind",
        noisy_count=99,
        slots=slots,
    )
    text = io.StringIO()
    Console(file=text, width=100).print(table_of([result]))
    for word in ("mobilenet_v3_large, bf16", "throughput, 2 streams", "behind", "99 of 99", "1.00"):
        assert word in text.getvalue()
    assert text.getvalue().count("1234") + text.getvalue().count("1235") == 3
