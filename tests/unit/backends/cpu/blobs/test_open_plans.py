"""Plans of open shapes in blobs: used where they are right, and left aside where they are not."""

from __future__ import annotations

import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.cpu.compiler import Compiler
from aioinfer.backends.cpu.passes import PASS_NAMES
from aioinfer.backends.cpu.plans.packed_weights import PackedWeight
from aioinfer.errors import BlobError, PropertyError
from aioinfer.runtime.blobs.reader import Blob
from aioinfer.runtime.blobs.writer import BlobWriter
from aioinfer.runtime.passes.fusion import joined_matmuls

RANDOM = np.random.default_rng(0)
node = helper.make_node
LENGTHS = (5, 7, 9)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def model(
    nodes: list[Any],
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: list[str],
    constants: dict[str, np.ndarray],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info(name, *given) for name, given in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def transformer() -> onnx.ModelProto:
    """Three products of one input, which become one, and a step that numpy computes."""
    nodes = [
        *[node("MatMul", ["x", f"w{name}"], [name]) for name in "qkv"],
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "v"], ["o"]),
        node("Add", ["o", "x"], ["r"]),
        node("LayerNormalization", ["r", "scale", "shift"], ["n"]),
        node("MatMul", ["n", "w1"], ["h"]),
        node("CumSum", ["h", "one"], ["c"]),
        node("MatMul", ["c", "w2"], ["y"]),
    ]
    constants = {
        **{f"w{name}": weights(64, 64) for name in "qkv"},
        **{"w1": weights(64, 128), "w2": weights(128, 64)},
        **{"scale": np.ones(64, np.float32), "shift": np.zeros(64, np.float32)},
        "one": np.array(1),
    }
    return model(nodes, {"x": (TensorProto.FLOAT, ["b", "n", 64])}, ["y"], constants)


def texts(*lengths: int) -> list[np.ndarray]:
    return [weights(2, length, 64) for length in lengths]


def run(network: aioinfer.ExecutableNetwork, *inputs: Any) -> list[np.ndarray]:
    request = network.create_infer_request()
    return [request.infer_sync(given)["y"] for given in inputs]


def facts(network: aioinfer.ExecutableNetwork) -> list[Any]:
    asked = ["PLAN_COUNT", "PACKED_WEIGHTS_BYTES", "NETWORK_NAME"]
    kept = network.statistics().plans
    values = {key: network.get_config(key) for key in network.config}
    return [
        *[network.get_metric(key) for key in asked],
        (kept.kept_count, kept.kept_bytes),
        values,
    ]


def rewritten(content: bytes, changed: str, document: Any) -> bytes:
    """The same blob with another frame of JSON."""
    blob, writer = Blob.open(content), BlobWriter()
    for name in blob.names():
        if name == changed:
            writer.add_json(name, document)
        else:
            writer.add_bytes(name, blob.memory(name).tobytes())
    return b"".join(writer.chunks())


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes that graphs were rewritten for from now on."""
    shapes: list[Any] = []
    rewrite = Compiler._rewritten

    def noted(self: Compiler, given: Any, contents: Any) -> Any:
        shapes.append(given)
        return rewrite(self, given, contents)

    monkeypatch.setattr(Compiler, "_rewritten", noted)
    return shapes


@pytest.mark.parametrize("config", [{}, {"INFERENCE_PRECISION_HINT": "bf16"}], ids=["f32", "bf16"])
def test_stored_plans_compute_the_same_bits_and_nothing_is_compiled(
    config: dict[str, Any], core: aioinfer.Core, tmp_path: Path, compiled: list[Any]
) -> None:
    if config and "BF16" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor has no bf16")
    path, given = tmp_path / "net.blob", texts(*LENGTHS)
    with core.load_network(transformer(), "CPU", config) as network:
        wanted = run(network, *given)
        network.export(path)
        had, graph = facts(network), str(network.runtime_graph())
    for source in (path, path.read_bytes()):
        compiled.clear()
        with core.import_network(source) as imported:
            assert facts(imported) == had
            found = run(imported, *given)
            assert not compiled
            assert all(map(np.array_equal, found, wanted))
            assert facts(imported) == had
            assert str(imported.runtime_graph()) == graph
            again = imported.export()
        with core.import_network(again) as imported:
            assert facts(imported) == had
            assert all(map(np.array_equal, run(imported, *given), wanted))


@pytest.mark.parametrize("pads", [{"pads": [2, 1, 2, 0]}, {"auto_pad": "SAME_LOWER"}])
def test_windows_whose_pads_depend_on_open_lengths(
    pads: dict[str, Any], core: aioinfer.Core
) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"], strides=[2, 2], dilations=[1, 2], **pads),
        node("Relu", ["c"], ["y"]),
    ]
    images = model(
        nodes, {"x": (TensorProto.FLOAT, ["b", 4, "h", "w_"])}, ["y"], {"w": weights(8, 4, 3, 2)}
    )
    given = [weights(2, 4, 9 + size, 8 + 2 * size) for size in range(3)]
    with core.load_network(images, "CPU") as network:
        wanted = run(network, *given)
        blob = network.export()
    with core.import_network(blob) as imported:
        assert imported.get_metric("PLAN_COUNT") == 3
        assert all(map(np.array_equal, run(imported, *given), wanted))


def test_plans_that_nobody_asked_for_are_exported_again(core: aioinfer.Core) -> None:
    given = texts(*LENGTHS)
    with core.load_network(transformer(), "CPU") as network:
        wanted = run(network, *given)
        blob = network.export()
    for _ in range(2):
        with core.import_network(blob) as imported:
            assert imported.get_metric("PLAN_COUNT") == 3
            blob = imported.export()
    with core.import_network(blob) as imported:
        assert all(map(np.array_equal, run(imported, *given), wanted))


def test_a_new_length_packs_nothing_and_is_replayed(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, compiled: list[Any]
) -> None:
    given, new = texts(*LENGTHS), texts(11, 12, 13)
    with core.load_network(transformer(), "CPU") as network:
        run(network, *given)
        blob = network.export()
        packed_bytes = network.get_metric("PACKED_WEIGHTS_BYTES")
        wanted = run(network, *new)
    packed: list[Any] = []
    init = PackedWeight.__init__

    def noted(self: PackedWeight, *arguments: Any) -> None:
        packed.append(arguments[0].shape)
        init(self, *arguments)

    with core.import_network(blob) as imported:
        monkeypatch.setattr(PackedWeight, "__init__", noted)
        compiled.clear()
        assert all(map(np.array_equal, run(imported, *new), wanted))
        assert len(compiled) == 1  # the first is traced, the others are replayed
        assert imported.get_metric("PACKED_WEIGHTS_BYTES") == packed_bytes
        assert imported.get_metric("PLAN_COUNT") == 6
    # Those of an import begin with the packing itself; nothing was to be packed.
    assert bool(packed) == bool(packed_bytes)
    assert all(len(shape) == 1 for shape in packed)


@pytest.mark.parametrize("is_graph", [False, True], ids=["new length", "graph"])
def test_joined_weights_go_where_a_blob_has_them_packed(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, is_graph: bool
) -> None:
    joined: list[weakref.ref[np.ndarray]] = []
    join = joined_matmuls._joined

    def noted(arrays: Any) -> np.ndarray:
        made = join(arrays)
        joined.append(weakref.ref(made))
        return made

    with core.load_network(transformer(), "CPU") as network:
        run(network, *texts(*LENGTHS))
        if not network.get_metric("PACKED_WEIGHTS_BYTES"):
            pytest.skip("this processor has no weight packed")
        blob = network.export()
    monkeypatch.setattr(joined_matmuls, "_joined", noted)
    with core.import_network(blob) as imported:
        run(imported, *texts(*LENGTHS))
        assert not joined
        if is_graph:
            imported.runtime_graph()
        else:
            run(imported, *texts(11, 12))
        gc.collect()
        assert [made() is None for made in joined] == [True]


def test_what_was_exported_is_held_no_longer_than_that(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[weakref.ref[BlobWriter]] = []
    init = BlobWriter.__init__

    def noted(self: BlobWriter) -> None:
        init(self)
        writers.append(weakref.ref(self))

    monkeypatch.setattr(BlobWriter, "__init__", noted)
    with core.load_network(transformer(), "CPU") as network:
        run(network, *texts(*LENGTHS))
        gc.collect()
        gc.disable()
        try:
            network.export()
            assert writers
            assert all(writer() is None for writer in writers)
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("INFERENCE_PRECISION_HINT", "bf16"),
        ("CPU_KEEP_NAN", True),
        ("INFERENCE_NUM_THREADS", 1),
        ("EXECUTION_MODE_HINT", "PERFORMANCE"),
    ],
)
def test_plans_that_are_not_right_are_left_aside(
    key: str, value: Any, core: aioinfer.Core, compiled: list[Any]
) -> None:
    if "BF16" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor has no bf16")
    had = {"INFERENCE_NUM_THREADS": 2}
    (given,) = texts(5)
    with core.load_network(transformer(), "CPU", had) as network:
        run(network, given)
        blob = network.export()
    with core.load_network(transformer_of(blob), "CPU", {**had, key: value}) as network:
        (wanted,) = run(network, given)
    compiled.clear()
    with core.import_network(blob, config={key: value}) as imported:
        assert imported.get_metric("PLAN_COUNT") == 0
        assert imported.get_config(key) == value
        assert np.array_equal(run(imported, given)[0], wanted)
        assert compiled


def transformer_of(blob: bytes) -> onnx.ModelProto:
    """The transformer with the weights of a blob, which are the first of their kind."""
    made = transformer()
    from aioinfer.runtime.blobs.graph_record import read_model_record

    known = read_model_record(Blob.open(blob)).graph.initializers
    for item in made.graph.initializer:
        if item.name in known:
            array = known[item.name].constant
            assert array is not None
            item.CopyFrom(numpy_helper.from_array(np.array(array), item.name))
    return made


def test_another_library_leaves_plans_aside_and_says_so(
    core: aioinfer.Core, caplog: pytest.LogCaptureFixture
) -> None:
    given = texts(5)
    with core.load_network(transformer(), "CPU") as network:
        (wanted,) = run(network, *given)
        blob = network.export()
    index = Blob.open(blob).json("plans/index")
    index["made_with"]["oneDNN"] = "1.0.0"
    with (
        caplog.at_level(logging.INFO, "aioinfer"),
        core.import_network(rewritten(blob, "plans/index", index)) as imported,
    ):
        assert imported.get_metric("PLAN_COUNT") == 0
        np.testing.assert_allclose(run(imported, *given)[0], wanted, rtol=1e-4, atol=1e-4)
    assert "are for oneDNN '1.0.0'" in caplog.text


def test_passes_that_have_run_cannot_be_disabled_by_an_import(core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU") as network:
        run(network, *texts(5))
        blob = network.export()
    with pytest.raises(PropertyError, match=r"CPU_DISABLED_PASSES=.*load the model") as raised:
        core.import_network(blob, config={"CPU_DISABLED_PASSES": PASS_NAMES[-1]})
    assert raised.value.key == "CPU_DISABLED_PASSES"
    core.import_network(blob, config={"CPU_DISABLED_PASSES": ""}).close()


def test_an_exportable_network_exports_its_model_alone(core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU", {"EXPORTABLE": True}) as network:
        run(network, *texts(5))
        blob = Blob.open(network.export())
    assert "model" in blob
    assert not any(name.startswith("plans/") for name in blob.names())


def test_plans_for_the_content_of_inputs(core: aioinfer.Core, compiled: list[Any]) -> None:
    made = model(
        [node("Reshape", ["x", "shape"], ["r"]), node("MatMul", ["r", "w"], ["y"])],
        {"x": (TensorProto.FLOAT, ["n", 8]), "shape": (TensorProto.INT64, [2])},
        ["y"],
        {"w": weights(4, 6)},
    )
    x = weights(6, 8)
    given = [{"x": x, "shape": np.array([12, 4])}, {"x": x, "shape": np.array([-1, 4])}]
    with core.load_network(made, "CPU") as network:
        wanted = run(network, *given)
        blob = network.export()
    compiled.clear()
    with core.import_network(blob) as imported:
        assert imported.get_metric("PLAN_COUNT") == 2
        assert all(map(np.array_equal, run(imported, *given), wanted))
    assert not compiled


def test_states_that_grow_and_that_are_written(core: aioinfer.Core, compiled: list[Any]) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Concat", ["past", "m"], ["present"], axis=1),
        node("ScatterND", ["kept", "place", "row"], ["kept_out"]),
        node("ReduceSum", ["present", "one"], ["sum"], keepdims=0),
        node("ReduceSum", ["kept_out", "zero"], ["all"], keepdims=0),
        node("Add", ["sum", "all"], ["y"]),
    ]
    made = model(
        nodes,
        {
            "x": (TensorProto.FLOAT, [1, "n", 8]),
            "past": (TensorProto.FLOAT, [1, "p", 8]),
            "kept": (TensorProto.FLOAT, [16, 8]),
            "place": (TensorProto.INT64, [1, 1]),
            "row": (TensorProto.FLOAT, [1, 8]),
        },
        ["y", "present", "kept_out"],
        {"w": weights(8, 8), "one": np.array([1]), "zero": np.array([0])},
    )
    config = {"STATE": {"past": "present", "kept": "kept_out"}}
    steps = [
        {"x": weights(1, 1, 8), "place": np.array([[index]]), "row": weights(1, 8)}
        for index in range(4)
    ]
    with core.load_network(made, "CPU", config) as network:
        wanted = run(network, *steps)
        blob = network.export()
        count = network.get_metric("PLAN_COUNT")
    compiled.clear()
    with core.import_network(blob) as imported:
        assert imported.get_metric("PLAN_COUNT") == count
        found = run(imported, *steps)
        assert all(map(np.array_equal, found, wanted))
    assert not compiled


@pytest.mark.parametrize("frame", ["plans/", "tensor"])
def test_damage_is_found_before_what_it_is_in_is_used(frame: str, core: aioinfer.Core) -> None:
    (known, new) = texts(5, 11)
    with core.load_network(transformer(), "CPU") as network:
        wanted = run(network, known)
        is_packed = network.get_metric("PACKED_WEIGHTS_BYTES") > 0
        content = bytearray(network.export())
    frames = Blob.open(bytes(content))._opened.frames
    named = [found for name, found in frames.items() if name.startswith(frame)]
    content[max(named, key=lambda found: found.size_bytes).offset + 5] ^= 4
    with core.import_network(bytes(content)) as imported:
        if frame == "tensor" and is_packed:  # of the model, which stored plans do not need
            assert np.array_equal(run(imported, known)[0], wanted[0])
        else:
            with pytest.raises(BlobError, match="does not match its checksum"):
                run(imported, known)
        for _ in range(2):
            with pytest.raises(BlobError, match="does not match its checksum"):
                run(imported, new)
        with pytest.raises(BlobError, match="does not match its checksum"):
            imported.export()


def test_plans_beyond_the_bound_of_a_network_are_left(core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU") as network:
        run(network, *texts(*LENGTHS))
        blob = network.export()
    with core.import_network(blob, config={"PLAN_CACHE_COUNT": 2}) as imported:
        assert imported.get_metric("PLAN_COUNT") == 2
        run(imported, *texts(LENGTHS[-1], LENGTHS[0]))
        assert imported.get_metric("PLAN_COUNT") == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.append(rows[0]),
        lambda rows: rows.extend([rows[0]] * 2000),
        lambda rows: rows[0][0].update(x=[2, 5, 63]),
        lambda rows: rows[0][0].update(x=[2, 5]),
        lambda rows: rows[0][0].update(z=[2, 5]),
        lambda rows: rows[0].append(1),
        lambda rows: rows[0][1].update(x="AAAA"),
    ],
)
def test_an_index_that_contradicts_the_model_is_refused(change: Any, core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU") as network:
        run(network, *texts(5))
        blob = network.export()
    index = Blob.open(blob).json("plans/index")
    change(index["plans"])
    with pytest.raises(BlobError):
        core.import_network(rewritten(blob, "plans/index", index))


def test_a_plan_of_other_shapes_than_its_signature_is_refused(core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU") as network:
        run(network, *texts(5))
        blob = network.export()
    index = Blob.open(blob).json("plans/index")
    index["plans"][0][0]["x"] = [2, 500, 64]
    with (
        core.import_network(rewritten(blob, "plans/index", index)) as imported,
        pytest.raises(BlobError, match="an input of its plan is"),
    ):
        run(imported, *texts(500))


def test_a_plan_of_more_threads_than_the_network_has_is_refused(core: aioinfer.Core) -> None:
    (given,) = texts(5)
    with core.load_network(transformer(), "CPU", {"INFERENCE_NUM_THREADS": 1}) as network:
        run(network, given)
        blob = network.export()
    plan = Blob.open(blob).json("plans/plan0/plan")
    crafted = rewritten(blob, "plans/plan0/plan", {**plan, "thread_count": 65})
    with (
        core.import_network(crafted) as imported,
        pytest.raises(BlobError, match="65 is no number from 1 to 1"),
    ):
        run(imported, given)


def test_a_constant_that_plans_use_as_it_is_lies_once(core: aioinfer.Core, tmp_path: Path) -> None:
    table = weights(1000, 64)
    made = model(
        [node("Gather", ["table", "x"], ["g"]), node("MatMul", ["g", "w"], ["y"])],
        {"x": (TensorProto.INT64, ["b", "n"])},
        ["y"],
        {"table": table, "w": weights(64, 64)},
    )
    onnx.save(made, tmp_path / "net.onnx")
    inputs = [np.arange(12).reshape(2, 6), np.arange(14).reshape(2, 7)]
    for source in (made, tmp_path / "net.onnx"):
        with core.load_network(source, "CPU") as network:
            wanted = run(network, *inputs)
            whole = network.export()
        assert len(whole) < 1.5 * table.nbytes
        with core.import_network(whole) as imported:
            assert all(map(np.array_equal, run(imported, *inputs), wanted))
            again = imported.export()
        assert len(again) < 1.5 * table.nbytes
        blob = Blob.open(again)
        rows = blob.json("plans/tensors")
        shared = [blob.memory(row[2]["outer"]).tobytes() for row in rows if "outer" in row[2]]
        assert table.tobytes() in shared


def test_damage_of_what_the_model_and_plans_share_is_found(core: aioinfer.Core) -> None:
    made = model(
        [node("Gather", ["table", "x"], ["y"])],
        {"x": (TensorProto.INT64, ["n"])},
        ["y"],
        {"table": weights(1000, 64)},
    )
    with core.load_network(made, "CPU") as network:
        run(network, np.arange(5))
        whole = bytearray(network.export())
    blob = Blob.open(bytes(whole))
    (name,) = [row[2]["outer"] for row in blob.json("plans/tensors") if "outer" in row[2]]
    whole[bytes(whole).find(blob.memory(name).tobytes())] ^= 1
    with (
        core.import_network(bytes(whole)) as imported,
        pytest.raises(BlobError, match=name),
    ):
        run(imported, np.arange(5))
