"""Models that end in texts and maps: one plan, and what is made of its outputs."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import aioinfer
from aioinfer import Core
from aioinfer.backends.cpu.executable_network import CpuNetwork
from aioinfer.backends.cpu.native.extension import native_extension
from aioinfer.backends.cpu.pieces.pieced_network import PiecedNetwork
from aioinfer.errors import TensorError
from aioinfer.runtime.loops.inline_turn import InlineTurn
from aioinfer.runtime.runs import inline_gate
from aioinfer.runtime.runs.atomic_route import AtomicRoute
from onnx_text import parse_proto

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

OPTIONS: dict[str, Any] = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
WORDS = [b"hat", b"coat", b"shoe"]
W = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
MAPS = "seq(map(int64, float))"
HEAD = """g (float[N,4] x) => ({outputs}) <float[4,3] w, string[3] words> {{
    scores = MatMul(x, w)
    rows = Softmax<axis = 1>(scores)
    best = ArgMax<axis = 1, keepdims = 0>(scores)
    {tail}
}}"""
LABEL = "label = Gather(words, best)"
ZIPPED = "maps = ai.onnx.ml.ZipMap<classlabels_int64s = [3, 1, 4]>(rows)"
SPELLED = 'maps = ai.onnx.ml.ZipMap<classlabels_strings = ["x", "y", "z"]>(rows)'
TEXTS = MAPS.replace("int64", "string")

MODELS = {
    "label": ("string[N] label", LABEL),
    "maps": (f"{MAPS} maps", ZIPPED),
    "both": (f"string[N] label, {MAPS} maps", f"{LABEL} {ZIPPED}"),
    "texts": (f"{TEXTS} maps, string[N] label", f"{LABEL} {SPELLED}"),
    "tensors": (f"float[N,3] rows, string[N] label, {MAPS} maps", f"{LABEL} {ZIPPED}"),
    "twice": (f"{MAPS} maps, {TEXTS} more", f"{ZIPPED} {SPELLED.replace('maps', 'more')}"),
}


def proto(outputs: str, tail: str) -> onnx.ModelProto:
    made = parse_proto(HEAD.format(outputs=outputs, tail=tail), 18, ir_version=9)
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    del made.graph.initializer[:]
    made.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    made.graph.initializer.append(helper.make_tensor("words", onnx.TensorProto.STRING, [3], WORDS))
    return made


def rows(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32)


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> dict[str, Any]:
    session = ort.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x}), strict=True))


def check(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert [*found] == [*wanted]
    for name, right in wanted.items():
        if isinstance(right, list):
            assert len(found[name]) == len(right)
            for row, right_row in zip(found[name], right, strict=True):
                assert row == pytest.approx(right_row, rel=1e-5)
        elif right.dtype == object:
            assert found[name].tolist() == right.tolist()
        else:
            np.testing.assert_allclose(found[name], right, rtol=1e-5, atol=1e-6)


def load(core: Core, name: str, **config: Any) -> CpuNetwork:
    made = core.load_network(proto(*MODELS[name]), "CPU", OPTIONS | config)
    assert isinstance(made, CpuNetwork)
    return made


@pytest.fixture
def atomic(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One for each run that was tried as one call: whether it was."""
    seen: list[bool] = []
    carry = AtomicRoute.carry

    def watched(route: AtomicRoute, inputs: Any, request: Any, turn: InlineTurn) -> Any:
        run = carry(route, inputs, request, turn)
        seen.append(run is not None)
        return run

    monkeypatch.setattr(AtomicRoute, "carry", watched)
    monkeypatch.setattr(inline_gate, "BRIEF_NS", 60_000_000_000)
    return seen


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_outputs_are_onnxruntimes_on_every_way(
    core: Core, atomic: list[bool], name: str, count: int
) -> None:
    x, model = rows(count), proto(*MODELS[name])
    wanted = by_onnxruntime(model, x)
    with load(core, name, INLINE_THRESHOLD_US=60_000_000) as network:
        request = network.create_infer_request()
        for _ in range(8):
            check(request.infer_sync({"x": x}), wanted)
        check(asyncio.run(network.infer({"x": x})), wanted)
        check(request.results, wanted)
        request.start_async({"x": x})
        assert request.wait(20)
        check(request.results, wanted)
    assert atomic[-1], "none was one call"


@pytest.mark.parametrize("device", ["HETERO:CPU,REFERENCE", "MULTI:CPU"])
def test_outer_devices_give_them_as_well(core: Core, device: str) -> None:
    x, model = rows(2), proto(*MODELS["both"])
    with core.load_network(model, device) as network:
        check(asyncio.run(network.infer({"x": x})), by_onnxruntime(model, x))


def test_an_export_holds_the_whole_model(core: Core) -> None:
    x, model = rows(2), proto(*MODELS["tensors"])
    stream = io.BytesIO()
    with load(core, "tensors") as network:
        network.create_infer_request().infer_sync({"x": x})
        stream.write(network.export())
    with core.import_network(stream.getvalue()) as imported:
        assert isinstance(imported, CpuNetwork)
        check(imported.create_infer_request().infer_sync({"x": x}), by_onnxruntime(model, x))


def test_profiles_graphs_and_bound_memory_know_them(core: Core) -> None:
    x, model = rows(2), proto(*MODELS["tensors"])
    with load(core, "tensors", PERF_COUNT=True) as network:
        request, memory = network.create_infer_request(), np.empty((2, 3), np.float32)
        request.set_tensor("rows", memory)
        found = request.infer_sync({"x": x})
        check(found, by_onnxruntime(model, x))
        assert found["rows"] is memory
        times = {node.op: node.end_ns - node.start_ns for node in request.profiling()}
        assert min(times.values()) >= 0
        assert {"Gather", "ai.onnx.ml::ZipMap"} <= times.keys()
        assert "ai.onnx.ml::ZipMap" in [node.op for node in network.runtime_graph().nodes]
        assert [port.name for port in network.outputs] == ["rows", "label", "maps"]


def test_a_label_that_is_not_there_is_an_error_of_the_run(core: Core, atomic: list[bool]) -> None:
    tail = """two = Constant<value = int64 {2}>()
    place = Add(best, two)
    label = Gather(words, place)"""
    model = proto("string[N] label", tail)
    with core.load_network(model, "CPU", OPTIONS | {"INLINE_THRESHOLD_US": 60_000_000}) as network:
        assert isinstance(network, CpuNetwork)
        request = network.create_infer_request()
        x = np.linalg.pinv(W)[:1]  # whose best is the first: its label is the third
        for _ in range(8):
            assert request.infer_sync({"x": x})["label"].tolist() == ["shoe"]
        assert atomic[-1]
        with pytest.raises(TensorError, match=r"Gather.*'label'.*out of bounds"):
            request.infer_sync({"x": -x})
        assert not atomic[-1]
        statistics = network.statistics()
        assert (statistics.finished_request_count, statistics.failed_request_count) == (8, 1)


@pytest.mark.parametrize(
    ("outputs", "tail"),
    [
        (
            "int64[N] place",
            f"{LABEL} place = ai.onnx.ml.LabelEncoder<keys_strings = "
            '["hat", "coat", "shoe"], values_int64s = [5, 6, 7]>(label)',
        ),
        ("string[N] label, string[3] words", LABEL),
    ],
    ids=["read by another", "handed on"],
)
def test_texts_amid_a_model_are_steps(core: Core, outputs: str, tail: str) -> None:
    x, model = rows(2), proto(outputs, tail)
    with core.load_network(model, "CPU", OPTIONS) as network:
        assert isinstance(network, PiecedNetwork)
        check(network.create_infer_request().infer_sync({"x": x}), by_onnxruntime(model, x))


def test_rows_are_zipped_as_they_are() -> None:
    zip_rows = native_extension().zip_rows
    given = np.array([[0.5, np.nan], [np.inf, -0.0]], np.float32)
    made = zip_rows(("a", 7), given)
    assert [[*row] for row in made] == [["a", 7]] * 2
    np.testing.assert_array_equal([[*row.values()] for row in made], given)
    assert zip_rows(("a", 7), given[:0]) == []
    for wrong in (given.astype(np.float64), given[0], given[:, :1], given.view(np.int32)):
        with pytest.raises(ValueError, match="2 keys want a float32 tensor"):
            zip_rows(("a", 7), np.ascontiguousarray(wrong))
    with pytest.raises(TypeError):
        zip_rows(["a", 7], given)
    with pytest.raises(TypeError):
        zip_rows((["unhashable"], 7), given)


def test_a_closed_network_is_gone(core: Core) -> None:
    network = load(core, "both")
    request = network.create_infer_request()
    request.infer_sync({"x": rows(1)})
    assert network.close()
    with pytest.raises(aioinfer.errors.ClosedError):
        request.infer_sync({"x": rows(1)})
