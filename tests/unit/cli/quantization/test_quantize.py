"""``aioinfer quantize``: onnxruntime's quantizer from the command line."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import aioinfer as ai
from aioinfer.cli.arguments import OptionError
from aioinfer.cli.quantization.differences import Differences
from aioinfer.cli.quantization.samples import read_samples
from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.tensors.tensor import Port

Run = Callable[..., Any]


@pytest.fixture
def images(heldout: str, tmp_path: Path) -> str:
    path = tmp_path / "samples.npz"
    with np.load(heldout) as held:
        np.savez(path, image=held["images"])
    return str(path)


def test_a_model_is_calibrated_and_compared(
    aioinfer: Run, digits: str, images: str, tmp_path: Path
) -> None:
    target = tmp_path / "small.onnx"
    given = ["--data", images, "-o", str(target), "-d", "REFERENCE"]
    finished = aioinfer("quantize", "-m", digits, *given)
    assert (finished.code, finished.err) == (0, "")
    assert "by 12 samples" in finished.out  # of 32 rows
    assert "logits" in finished.out
    assert "dB" in finished.out
    found = {node.op_type for node in onnx.load(target).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= found
    with ai.Core() as core:
        rows = {"image": np.load(images)["image"]}
        choices = []
        for model in (digits, str(target)):
            with core.load_network(model, "CPU") as network:
                made = network.create_infer_request().infer_sync(rows)["logits"]
                choices.append(made.argmax(axis=1))
        assert (choices[0] == choices[1]).mean() > 0.95


@pytest.mark.parametrize(
    ("options", "operator"),
    [
        (["--format", "qoperator", "--per-tensor"], "QLinearConv"),
        (["--dynamic"], "DynamicQuantizeLinear"),
        (["--activations", "int8", "--method", "percentile", "--samples", "2"], "QuantizeLinear"),
    ],
)
def test_ways_to_quantise(
    aioinfer: Run, digits: str, images: str, tmp_path: Path, options: list[str], operator: str
) -> None:
    target = tmp_path / "small.onnx"
    given = ["--data", images, "-o", str(target), "-d", "REFERENCE", *options]
    finished = aioinfer("quantize", "-m", digits, *given)
    assert (finished.code, finished.err) == (0, "")
    assert operator in [node.op_type for node in onnx.load(target).graph.node]
    assert "logits" in finished.out


def test_without_samples_there_is_nothing_to_compare(
    aioinfer: Run, digits: str, tmp_path: Path
) -> None:
    target = tmp_path / "small.onnx"
    finished = aioinfer("quantize", "-m", digits, "--dynamic", "-o", str(target))
    assert (finished.code, finished.err) == (0, "")
    assert "ranges of each run" in finished.out
    assert "logits" not in finished.out
    assert target.exists()


def test_what_is_missing_or_wrong_is_said(
    aioinfer: Run, digits: str, images: str, tmp_path: Path
) -> None:
    target = str(tmp_path / "small.onnx")
    for given, said in (
        ([], "--data is wanted"),
        (["--data", str(tmp_path / "none.npz")], "no file or folder"),
        (["--data", images, "--exclude", "Conf_0"], "--exclude: there is no node 'Conf_0'"),
        (["--data", images, "-o", digits], "is the model itself"),
        (["--data", digits], f"--data {digits!r}: cannot tell what"),
        (["--data", images, "-o", str(tmp_path / "none" / "y.onnx")], "there is no folder"),
        (["--data", images, "--weights", "int4"], "not one of int8, uint8"),
    ):
        finished = aioinfer("quantize", "-m", digits, "-o", target, *given)
        assert finished.code == 1
        assert finished.err.startswith("error: ")
        assert said in finished.err
        assert not Path(target).exists()


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_samples_that_are_no_numbers_are_named(
    aioinfer: Run, digits: str, images: str, tmp_path: Path, lost: float
) -> None:
    rows = np.load(images)["image"]
    rows[3, 0, 2, 1] = lost
    np.savez(tmp_path / "lost.npz", image=rows)
    given = ["-m", digits, "--data", str(tmp_path / "lost.npz"), "-o", str(tmp_path / "y.onnx")]
    finished = aioinfer("quantize", *given)
    assert finished.code == 1
    assert "input 'image' holds " in finished.err
    assert "lost.npz', at [3, 0, 2, 1]" in finished.err
    assert not (tmp_path / "y.onnx").exists()
    assert aioinfer("quantize", "--dynamic", *given).code == 0  # nothing is measured with them


def test_what_becomes_nan_inside_is_said(
    aioinfer: Run, images: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    node = onnx.helper.make_node
    types = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 1, 8, 8])
        for name in ("image", "y")
    ]
    weights = onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    minus = onnx.numpy_helper.from_array(np.float32(-100), "minus")
    nodes = [
        node("Add", ["image", "minus"], ["a"]),
        node("Log", ["a"], ["b"]),
        node("MatMul", ["b", "w"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", types[:1], types[1:], [weights, minus])
    opsets = [onnx.helper.make_opsetid("", 17)]
    path = tmp_path / "log.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    target = str(tmp_path / "y.onnx")
    finished = aioinfer("quantize", "-m", str(path), "--data", images, "-o", target)
    assert finished.code == 1
    assert "a value inside the model is NaN or infinite" in finished.err
    assert not [item for item in recwarn if issubclass(item.category, RuntimeWarning)]
    assert not Path(target).exists()


def test_a_quantised_model_is_refused_before_anything_is_written(
    aioinfer: Run, digits: str, images: str, tmp_path: Path
) -> None:
    once, twice = str(tmp_path / "once.onnx"), tmp_path / "twice.onnx"
    assert aioinfer("quantize", "-m", digits, "--dynamic", "-o", once).code == 0
    finished = aioinfer("quantize", "-m", once, "--data", images, "-o", str(twice))
    assert finished.code == 1
    assert "is quantised already" in finished.err
    assert not twice.exists()


def test_a_model_that_cannot_be_read_again_does_not_take_its_place(
    aioinfer: Run, digits: str, images: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = importlib.import_module("onnxruntime.quantization")

    def write_half(_model: str, target: str, *given: Any, **options: Any) -> None:
        Path(target).write_bytes(b"half a model")

    monkeypatch.setattr(library, "quantize_static", write_half)
    target = tmp_path / "y.onnx"
    target.write_bytes(b"what was there")
    finished = aioinfer("quantize", "-m", digits, "--data", images, "-o", str(target))
    assert finished.code == 1
    assert "is no model" in finished.err
    assert target.read_bytes() == b"what was there"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_one_sample_is_one(aioinfer: Run, digits: str, images: str, tmp_path: Path) -> None:
    given = ["--data", images, "-o", str(tmp_path / "y.onnx"), "-d", "REFERENCE"]
    finished = aioinfer("quantize", "-m", digits, *given, "--samples", "1")
    assert "by 1 sample\n" in finished.out
    assert "1 sample on REFERENCE" in finished.out


def test_a_model_that_the_quantizer_refuses(
    aioinfer: Run, digits: str, images: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = importlib.import_module("onnxruntime.quantization")

    def refuse(*given: Any, **options: Any) -> None:
        raise ValueError("scales\nare odd")

    monkeypatch.setattr(library, "quantize_static", refuse)
    finished = aioinfer("quantize", "-m", digits, "--data", images, "-o", str(tmp_path / "y.onnx"))
    assert finished.code == 1
    assert "quantizer cannot quantise" in finished.err
    assert "scales are odd" in finished.err


def test_without_onnxruntime_the_extra_is_named(
    aioinfer: Run, digits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_library(name: str, *rest: Any) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("aioinfer.cli.quantization.quantizer.importlib.import_module", no_library)
    target = str(tmp_path / "small.onnx")
    finished = aioinfer("quantize", "-m", digits, "--dynamic", "-o", target)
    assert finished.code == 1
    assert "pip install aioinfer[quantize]" in finished.err


def port(name: str, *shape: int | str) -> Port:
    return Port(name, TensorType(DType.FLOAT32, shape))


def saved(folder: Path, name: str, *shape: int) -> str:
    path = folder / f"{name}.npy"
    np.save(path, np.zeros(shape, np.float32))
    return str(path)


@pytest.mark.parametrize(
    ("shape", "array", "lengths"),
    [
        ((1, 3), (1, 3), [1]),
        ((1, 3), (4, 3), [1, 1, 1, 1]),
        ((2, 3), (4, 3), [2, 2]),
        ((2, 3), (5, 2, 3), [2] * 5),
        (("n", 3), (70, 3), [32, 32, 6]),
        (("n", 3), (2, 5, 3), [5, 5]),
    ],
)
def test_arrays_are_cut_into_samples(
    tmp_path: Path, shape: tuple[int | str, ...], array: tuple[int, ...], lengths: list[int]
) -> None:
    samples = read_samples([saved(tmp_path, "x", *array)], [port("x", *shape)])
    assert [len(sample["x"]) for sample in samples] == lengths


def test_inputs_need_as_many_samples(tmp_path: Path) -> None:
    ports = [port("a", 1, 3), port("b", 1, 2)]
    items = [f"a:{saved(tmp_path, 'a', 4, 3)}", f"b:{saved(tmp_path, 'b', 3, 2)}"]
    with pytest.raises(OptionError, match="4 of 'a', 3 of 'b'"):
        read_samples(items, ports)
    with pytest.raises(OptionError, match="0 of 'b'"):
        read_samples(items[:1], ports)


def test_lengths_that_differ_are_not_cut(tmp_path: Path) -> None:
    ports = [port("a", "n", 3), port("b", "m", 2)]
    items = [f"a:{saved(tmp_path, 'a', 70, 3)}", f"b:{saved(tmp_path, 'b', 3, 2)}"]
    (sample,) = read_samples(items, ports)
    assert {name: len(array) for name, array in sample.items()} == {"a": 70, "b": 3}


def test_differences_add_up() -> None:
    item = Differences("y")
    item.add(np.array([[1.0, 2.5]]), np.array([[1.0, 2.0]]))
    item.add(np.array([[3.0, 2.0]]), np.array([[1.0, 2.0]]))
    assert (item.largest, item.largest_error, item.mean_error) == (2.0, 2.0, 0.625)
    assert item.same_choice == 0.5
    assert item.noise_ratio_db == pytest.approx(10 * math.log10(10.0 / 4.25))


@pytest.mark.parametrize("found", [[np.nan, 1.0], [np.inf, 1.0], [1.0, 2.0, 3.0]])
def test_lost_numbers_are_infinitely_off(found: list[float]) -> None:
    item = Differences("y")
    item.add(np.array(found), np.array([0.5, 1.0]))
    assert item.largest_error == math.inf
    assert item.noise_ratio_db == -math.inf
    assert item.same_choice is None


def test_equal_outputs_have_no_noise() -> None:
    item = Differences("y")
    item.add(np.array([np.nan, np.inf, 1.0]), np.array([np.nan, np.inf, 1.0]))
    assert (item.largest_error, item.noise_ratio_db) == (0.0, math.inf)
