"""Plans of CPU in blobs: the same steps again, in the blob's memory, or a refusal that says why."""

from __future__ import annotations

import copy
import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.cpu.blobs.primitive_calls import CALLS, find_misfit
from aioinfer.backends.cpu.executable_network import CpuNetwork
from aioinfer.backends.cpu.onednn.bindings import ARG, Attributes, Numbers, open_engine
from aioinfer.backends.cpu.passes import PASS_NAMES
from aioinfer.backends.cpu.precision import has_native_int8
from aioinfer.errors import AioInferError, BlobError, PropertyError
from aioinfer.runtime.blobs.reader import Blob
from aioinfer.runtime.blobs.writer import BlobWriter
from aioinfer.runtime.graph import DType, mapped_file
from aioinfer.runtime.graph.mapped_file import MappedFile
from unit.backends.cpu.compiled_plans import constants_of

RANDOM = np.random.default_rng(0)


def model(nodes: list[Any], x: list[int], **weights: np.ndarray) -> onnx.ModelProto:
    """A model of one input x and one output y."""
    graph = helper.make_graph(
        nodes,
        "planned",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def rewritten(blob: Blob, changed: str, content: Any) -> bytes:
    """The same blob with another frame of JSON."""
    writer = BlobWriter()
    for name in blob.names():
        if name == changed:
            writer.add_json(name, content)
        else:
            writer.add_bytes(name, blob.memory(name).tobytes())
    return b"".join(writer.chunks())


node = helper.make_node


def convolutional() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "k1"], ["a"], pads=[1, 1, 1, 1]),
        node("Clip", ["a", "low", "high"], ["b"]),
        node("Conv", ["b", "k2"], ["c"], group=16, pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c"], ["d"]),
        node("Mul", ["c", "d"], ["e"]),
        node("Add", ["e", "b"], ["f"]),
        node("AveragePool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ConvTranspose", ["g", "k3"], ["h"], strides=[2, 2]),
        node("LRN", ["h"], ["i"], size=3),
        node("Concat", ["i", "i"], ["j"], axis=1),
        node("InstanceNormalization", ["j", "scale", "shift"], ["y"]),
    ]
    return model(
        nodes,
        [1, 3, 12, 12],
        k1=weights(16, 3, 3, 3),
        k2=weights(16, 1, 3, 3),
        k3=weights(16, 4, 2, 2),
        low=np.array(0, np.float32),
        high=np.array(6, np.float32),
        scale=np.ones(8, np.float32),
        shift=np.zeros(8, np.float32),
    )


def recurrent(kind: str, gates: int) -> onnx.ModelProto:
    nodes = [
        node(kind, ["x", "w", "r", "b"], ["all", "last"], hidden_size=16),
        node("Squeeze", ["last", "zero"], ["y"]),
    ]
    return model(
        nodes,
        [5, 2, 8],
        w=weights(1, gates * 16, 8),
        r=weights(1, gates * 16, 16),
        b=weights(1, 2 * gates * 16),
        zero=np.array([0]),
    )


WEIGHT_BYTES = 32 * 32 * 4
"""Of the smallest weights of the transformer."""


def transformer() -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "x"], ["o"]),
        node("Add", ["o", "x"], ["r"]),
        node("LayerNormalization", ["r", "scale", "shift"], ["n"]),
        node("MatMul", ["n", "w1"], ["h"]),
        node("Tanh", ["h"], ["t"]),
        node("MatMul", ["t", "w2"], ["y"]),
    ]
    return model(
        nodes,
        [2, 7, 32],
        wq=weights(32, 32),
        wk=weights(32, 32),
        w1=weights(32, 64),
        w2=weights(64, 32),
        scale=np.ones(32, np.float32),
        shift=np.zeros(32, np.float32),
    )


def large() -> onnx.ModelProto:
    """A model that is worth more threads than one."""
    return model([node("MatMul", ["x", "w"], ["y"])], [512, 1024], w=weights(1024, 1024))


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "convolutional": convolutional,
    "LSTM": lambda: recurrent("LSTM", 4),
    "GRU": lambda: recurrent("GRU", 3),
    "RNN": lambda: recurrent("RNN", 1),
    "transformer": transformer,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("config", [{}, {"INFERENCE_PRECISION_HINT": "bf16"}], ids=["f32", "bf16"])
def test_an_imported_plan_computes_the_same_bits(
    name: str, config: dict[str, Any], core: aioinfer.Core, tmp_path: Path
) -> None:
    if config and "BF16" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor has no bf16")
    path = tmp_path / "net.blob"
    with core.load_network(MODELS[name](), "CPU", config) as network:
        network.export(path)
        x = RANDOM.normal(size=network.inputs[0].shape).astype(np.float32)
        wanted = network.create_infer_request().infer_sync(x)["y"]
        graph, profile = str(network.runtime_graph()), network.get_metric("PACKED_WEIGHTS_BYTES")
    for source in (path, path.read_bytes()):
        with core.import_network(source) as imported:
            found = imported.create_infer_request().infer_sync(x)["y"]
            assert np.array_equal(found, wanted)
            assert str(imported.runtime_graph()) == graph
            assert imported.get_metric("PACKED_WEIGHTS_BYTES") == profile
            assert imported.export() == path.read_bytes()


def test_an_imported_plan_is_made_for_a_smaller_team_as_well(core: aioinfer.Core) -> None:
    from aioinfer.backends.cpu.programs.resized_plan import resized_plan

    with core.load_network(convolutional(), "CPU", {"INFERENCE_NUM_THREADS": 2}) as network:
        blob = network.export()
    with core.import_network(blob) as imported:
        assert isinstance(imported, CpuNetwork)
        compiler = imported._compiler
        assert resized_plan(compiler.latest, 1, compiler.weights) is not None


def test_a_plan_of_more_threads_than_a_stream_has_is_refused(core: aioinfer.Core) -> None:
    with core.load_network(large(), "CPU", {"INFERENCE_NUM_THREADS": 2}) as network:
        blob = network.export()
        assert Blob.open(blob).json("only_plan/plan")["thread_count"] == 2
    for config in ({"INFERENCE_NUM_THREADS": 1}, {"NUM_STREAMS": 2}):
        wanted = r"with 2 threads, and each of . streams of CPU.0 has 1; .*NUM_THREADS="
        with pytest.raises(BlobError, match=wanted):
            core.import_network(blob, config=config)
    with core.import_network(blob, config={"NUM_STREAMS": 2, "INFERENCE_NUM_THREADS": 4}) as two:
        two.create_infer_request().infer_sync(np.zeros((512, 1024), np.float32))


def test_a_crafted_number_of_threads_is_refused(core: aioinfer.Core) -> None:
    with core.load_network(large(), "CPU") as network:
        blob = Blob.open(network.export())
    content = blob.json("only_plan/plan")
    crafted = rewritten(blob, "only_plan/plan", {**content, "thread_count": 64})
    with pytest.raises(BlobError, match="with 64 threads"):
        core.import_network(crafted)


def test_cached_plans_are_of_what_shapes_them(core: aioinfer.Core, tmp_path: Path) -> None:
    made = large()

    def is_cached(**config: Any) -> bool:
        given = {"CACHE_DIR": str(tmp_path), **config}
        with core.load_network(made, "CPU", given) as network:
            network.create_infer_request().infer_sync(np.zeros((512, 1024), np.float32))
            return bool(network.get_metric("LOADED_FROM_CACHE"))

    assert not is_cached(INFERENCE_NUM_THREADS=2)
    assert is_cached(INFERENCE_NUM_THREADS=2)
    mode = {"EXECUTION_MODE_HINT": "PERFORMANCE"}
    assert not is_cached(**mode)
    assert not is_cached(INFERENCE_PRECISION_HINT="f32", **mode)
    assert is_cached(**mode)


def test_the_facts_of_a_cached_plan(core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    from aioinfer.backends.cpu import plugin as module
    from aioinfer.backends.cpu.plugin import CpuPlugin
    from aioinfer.executors import CpuAllowance

    plugin = core._registry.get("CPU")
    assert isinstance(plugin, CpuPlugin)
    config = plugin.configuration("0", {"INFERENCE_NUM_THREADS": 0})
    facts = plugin.cache_facts(config)
    assert {"oneDNN", "instruction set", "kernels", "precision"} <= facts.keys()
    fewer = CpuAllowance((0,))
    monkeypatch.setattr(module, "allowed_cpus", lambda: fewer)
    assert plugin.cache_facts(config)["threads"] == 1
    monkeypatch.setattr(module, "build_mark", lambda: [0, 0])
    assert plugin.cache_facts(config)["kernels"] != facts["kernels"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("EXECUTION_MODE_HINT", "PERFORMANCE"),
        ("CPU_KEEP_NAN", True),
        ("CPU_DISABLED_PASSES", PASS_NAMES[0]),
        ("EXPORTABLE", True),
        ("STATE", {"x": "y"}),
    ],
)
def test_what_a_plan_was_not_made_with_is_refused(
    key: str, value: Any, core: aioinfer.Core
) -> None:
    with core.load_network(convolutional(), "CPU", {"NUM_STREAMS": 1}) as network:
        blob, had = network.export(), network.get_config(key)
    with pytest.raises(PropertyError, match=rf"{key}=.* cannot be given.*load the model") as raised:
        core.import_network(blob, config={key: value})
    assert raised.value.key == key
    core.import_network(blob, config={key: had}).close()


def test_an_import_is_warmed_up_as_a_load_is(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    with core.load_network(transformer(), "CPU") as network:
        sound = network.export()
    config = {"INPUT_SHAPES": {"x": [2, 7, 32]}}
    warm_up = CpuNetwork.warm_up
    failures: list[list[str]] = []
    monkeypatch.setattr(CpuNetwork, "warm_up", lambda self: failures.append(warm_up(self)))
    core.import_network(sound).close()
    assert not failures
    core.import_network(sound, config=config).close()
    core.import_network(with_a_flipped_bit(sound), config=config).close()
    assert [len(failed) for failed in failures] == [0, 1]


def test_weights_are_read_in_the_memory_of_the_file(core: aioinfer.Core, tmp_path: Path) -> None:
    path = tmp_path / "net.blob"
    with core.load_network(transformer(), "CPU") as network:
        network.export(path)
    with core.import_network(path) as imported:
        assert isinstance(imported, CpuNetwork)
        plan = imported._compiler.latest
        assert all(map(mapped_file.is_mapped, constants_of(plan, WEIGHT_BYTES)))
        assert len(constants_of(plan, WEIGHT_BYTES)) >= 3
    with core.import_network(path, config={"ENABLE_MMAP": False}) as imported:
        assert isinstance(imported, CpuNetwork)
        plan = imported._compiler.latest
        assert not any(map(mapped_file.is_mapped, constants_of(plan, WEIGHT_BYTES)))


def test_how_weights_are_read_is_in_the_blob_and_in_the_device(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    def is_mapped(**config: Any) -> bool:
        with core.import_network(path, config=config) as imported:
            assert isinstance(imported, CpuNetwork)
            plan = imported._compiler.latest
            return any(map(mapped_file.is_mapped, constants_of(plan, WEIGHT_BYTES)))

    path = tmp_path / "net.blob"
    with core.load_network(transformer(), "CPU", {"ENABLE_MMAP": False}) as network:
        network.export(path)
    assert not is_mapped()
    assert is_mapped(ENABLE_MMAP=True)
    with core.load_network(transformer(), "CPU") as network:
        network.export(path)
    assert is_mapped()
    core.set_config("CPU", {"ENABLE_MMAP": False})
    assert not is_mapped()


def test_a_flipped_bit_of_a_weight_is_found_before_the_first_run(core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU") as network:
        blob = bytearray(network.export())
    frames = Blob.open(bytes(blob))._opened.frames
    frame = max(frames.values(), key=lambda found: found.size_bytes)
    blob[frame.offset + 5] ^= 4
    with core.import_network(bytes(blob)) as imported:
        for _ in range(2):
            with pytest.raises(BlobError, match=f"{frame.name!r} does not match its checksum"):
                imported.create_infer_request().infer_sync(np.zeros((2, 7, 32), np.float32))


def with_a_flipped_bit(blob: bytes) -> bytes:
    """The same blob with another byte in its largest frame."""
    frame = max(Blob.open(blob)._opened.frames.values(), key=lambda found: found.size_bytes)
    changed = bytearray(blob)
    changed[frame.offset + 5] ^= 4
    return bytes(changed)


def test_damage_is_not_exported_as_sound(core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU") as network:
        blob = with_a_flipped_bit(network.export())
    with (
        core.import_network(blob) as imported,
        pytest.raises(BlobError, match=r"cannot be exported.*does not match its checksum"),
    ):
        imported.export()


def test_a_damaged_weight_in_the_cache_is_found_once(core: aioinfer.Core, tmp_path: Path) -> None:
    made = transformer()

    def load() -> Any:
        return core.load_network(made, "CPU", {"CACHE_DIR": str(tmp_path)})

    x = np.zeros((2, 7, 32), np.float32)
    load().close()
    (entry,) = tmp_path.glob("networks/*.blob")
    whole = entry.read_bytes()
    entry.write_bytes(with_a_flipped_bit(whole))
    with load() as network, pytest.raises(BlobError, match="is removed; load the network again"):
        network.create_infer_request().infer_sync(x)
    with load() as network:
        assert not network.get_metric("LOADED_FROM_CACHE")
        network.create_infer_request().infer_sync(x)
    assert entry.read_bytes() == whole


def test_a_failed_check_leaves_no_map_behind(core: aioinfer.Core, tmp_path: Path) -> None:
    path = tmp_path / "net.blob"
    with core.load_network(transformer(), "CPU") as network:
        path.write_bytes(with_a_flipped_bit(network.export()))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with core.import_network(path) as imported, pytest.raises(BlobError) as raised:
                imported.create_infer_request().infer_sync(np.zeros((2, 7, 32), np.float32))
            del imported, raised
        files = [found for found in gc.get_objects() if isinstance(found, MappedFile)]
        assert not [file for file in files if file._name == str(path)]
    finally:
        gc.enable()


@pytest.mark.parametrize("is_mapped", [True, False])
def test_cached_weights_are_mapped_where_they_may_be(
    is_mapped: bool, core: aioinfer.Core, tmp_path: Path
) -> None:
    config = {"CACHE_DIR": str(tmp_path), "ENABLE_MMAP": is_mapped}
    made = transformer()
    core.load_network(made, "CPU", config).close()
    with core.load_network(made, "CPU", config) as network:
        assert network.get_metric("LOADED_FROM_CACHE")
        assert isinstance(network, CpuNetwork)
        plan = network._compiler.latest
        assert {*map(mapped_file.is_mapped, constants_of(plan, WEIGHT_BYTES))} == {is_mapped}


def test_a_network_that_is_closed_while_it_is_checked_leaves_nothing(core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU") as network:
        blob = network.export()
    for _ in range(20):
        imported = core.import_network(blob)
        imported.close()
        assert isinstance(imported, CpuNetwork)
        assert imported.only_plan is None


@pytest.mark.parametrize("is_exportable", [True, False])
def test_an_operator_of_a_user_is_that_of_the_importing_core(
    is_exportable: bool, core: aioinfer.Core
) -> None:
    def doubled(factor: float) -> aioinfer.Extension:
        return aioinfer.Extension(
            "Doubled",
            lambda x: x * np.float32(factor),
            domain="com.acme",
            infer_types=lambda inputs, _attributes: [inputs[0]],
        )

    core.add_extension(doubled(2), "CPU")
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Doubled", ["m"], ["y"], "doubled", domain="com.acme"),
    ]
    made = model(nodes, [2, 3], w=weights(3, 3))
    made.opset_import.append(helper.make_opsetid("com.acme", 1))
    x = np.ones((2, 3), np.float32)
    with core.load_network(made, "CPU", {"EXPORTABLE": is_exportable}) as network:
        blob = network.export()
        wanted = network.create_infer_request().infer_sync(x)["y"]
    with core.import_network(blob) as imported:
        assert np.array_equal(imported.create_infer_request().infer_sync(x)["y"], wanted)
        assert imported.export() == blob
    with aioinfer.Core() as other:
        with pytest.raises(AioInferError, match="Doubled"):
            other.import_network(blob)
        other.add_extension(doubled(4), "CPU")
        with other.import_network(blob) as imported:
            assert np.array_equal(imported.create_infer_request().infer_sync(x)["y"], 2 * wanted)


def test_steps_that_numpy_computes_are_made_again(core: aioinfer.Core) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("CumSum", ["m", "axis"], ["c"], exclusive=1),
        node("GatherElements", ["c", "rows"], ["e"], axis=0),
        node("Trilu", ["e"], ["t"], upper=0),
        node("ReduceSum", ["t", "last"], ["y"], keepdims=0),
    ]
    made = model(
        nodes,
        [4, 6],
        w=weights(6, 3),
        axis=np.array(1),
        rows=np.array([[0, 3, 1], [2, 2, 0]]),
        last=np.array([1]),
    )
    x = weights(4, 6)
    with core.load_network(made, "CPU") as network:
        blob = network.export()
        wanted = network.create_infer_request().infer_sync(x)["y"]
    steps = Blob.open(blob).json("only_plan/plan")["steps"]
    assert sum(step[0] == "python" for step in steps) == 3
    with core.import_network(blob) as imported:
        assert np.array_equal(imported.create_infer_request().infer_sync(x)["y"], wanted)
        assert imported.export() == blob


@pytest.mark.parametrize(
    ("key", "value"), [("oneDNN", "1.0.0"), ("instruction set", 1)], ids=["library", "processor"]
)
def test_another_library_or_processor_is_named(key: str, value: Any, core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU") as network:
        blob = Blob.open(network.export())
    facts = blob.json("network")
    facts["capability"][key] = value
    with pytest.raises(BlobError, match=f"the blob is for {key} {value!r}"):
        core.import_network(rewritten(blob, "network", facts))


def test_a_layout_that_a_primitive_does_not_have_is_refused(core: aioinfer.Core) -> None:
    with core.load_network(convolutional(), "CPU") as network:
        blob = Blob.open(network.export())
    content = blob.json("only_plan/plan")
    row = next(row for row in content["onednn"] if row[0] == "of")
    row[2:4] = ["scratchpad", 13]
    with pytest.raises(BlobError, match="scratchpad 13 failed: invalid arguments"):
        core.import_network(rewritten(blob, "only_plan/plan", content))


def test_no_step_writes_what_is_there_to_be_read(core: aioinfer.Core, tmp_path: Path) -> None:
    path = tmp_path / "net.blob"
    with core.load_network(transformer(), "CPU") as network:
        blob = Blob.open(network.export())
    content = blob.json("only_plan/plan")
    constants = {n for n, row in enumerate(content["buffers"]) if row[0] in ("constant", "input")}
    readable = [n for n, row in enumerate(content["operands"]) if row[0] in constants]
    tried = 0
    for number, step in enumerate(content["steps"]):
        for place in readable:
            crafted = copy.deepcopy(content)
            if step[0] == "native":
                crafted["steps"][number][3][-1] = place
            else:
                arguments = crafted["steps"][number][3]
                next(pair for pair in arguments if pair[0] == ARG.DST)[1] = place
            path.write_bytes(rewritten(blob, "only_plan/plan", crafted))
            with pytest.raises(BlobError):
                core.import_network(path)
            tried += 1
    assert tried > 50


def test_steps_for_another_team_than_the_plan_has_are_refused(core: aioinfer.Core) -> None:
    """Its scratchpad would be too small for each thread to have its part."""
    with core.load_network(transformer(), "CPU") as network:
        blob = Blob.open(network.export())
    content = blob.json("only_plan/plan")
    for row in content["onednn"]:
        if row[0] == "primitive":
            assert row[-1] == content["thread_count"]
            row[-1] += 1
    with pytest.raises(BlobError):
        core.import_network(rewritten(blob, "only_plan/plan", content))


def test_a_scratchpad_has_memory_of_its_own(core: aioinfer.Core) -> None:
    with core.load_network(transformer(), "CPU") as network:
        blob = Blob.open(network.export())
    content, texts = blob.json("only_plan/plan"), []
    for step in content["steps"]:
        roles = dict(step[3]) if step[0] == "primitive" else {}
        if ARG.SCRATCHPAD not in roles:
            continue
        scratchpad, target = (roles[role] for role in (ARG.SCRATCHPAD, ARG.DST))
        crafted = copy.deepcopy(content)
        crafted["operands"][scratchpad][0] = crafted["operands"][target][0]
        with pytest.raises(BlobError) as raised:
            core.import_network(rewritten(blob, "only_plan/plan", crafted))
        texts.append(str(raised.value))
        # In another buffer at the same place.
        crafted = copy.deepcopy(content)
        offsets = dict(crafted["offsets"])
        buffers = [crafted["operands"][place][0] for place in (scratchpad, target)]
        if buffers[1] in offsets:
            changed = {**offsets, buffers[0]: offsets[buffers[1]]}
            crafted["offsets"] = [list(row) for row in changed.items()]
            with pytest.raises(BlobError):
                core.import_network(rewritten(blob, "only_plan/plan", crafted))
    if not texts:
        pytest.skip("no primitive of this processor has a scratchpad")
    assert any("lies in the memory of" in text for text in texts)


def test_memory_of_a_plan_is_what_its_buffers_take(core: aioinfer.Core) -> None:
    with core.load_network(convolutional(), "CPU") as network:
        blob = Blob.open(network.export())
    content = blob.json("only_plan/plan")
    for arena_bytes in (content["arena_bytes"] - 64, content["arena_bytes"] + 64, 1 << 47):
        crafted = rewritten(blob, "only_plan/plan", {**content, "arena_bytes": arena_bytes})
        with pytest.raises(BlobError):
            core.import_network(crafted)


def test_no_call_is_made_with_arguments_that_it_does_not_take() -> None:
    try:
        engine = open_engine()
    except aioinfer.errors.DeviceError as error:
        pytest.skip(str(error))
    desc, attributes = engine.desc((2, 3), DType.FLOAT32), Attributes(engine)
    assert find_misfit("matmul", (engine, desc, desc, None, desc, attributes)) is None
    assert find_misfit("matmul", (engine, desc, desc, desc, desc, attributes)) is None
    assert find_misfit("matmul", (engine, desc, desc, None, desc)) is not None
    assert find_misfit("matmul", (engine, None, desc, None, desc, attributes)) is not None
    assert find_misfit("system", ()) == "there is no primitive 'system'"
    kind = ctypes.c_int(1)
    wide = [Numbers([1, 1, 1])] * 4
    given = (engine, kind, kind, desc, desc, None, desc, *wide, attributes)
    assert len(given) == len(CALLS["convolution_forward"])
    assert "for each of 0 axes" in str(find_misfit("convolution_forward", given))


def picking(op: str, attributes: dict[str, Any], **constants: np.ndarray) -> onnx.ModelProto:
    """A node on integers that numpy computes, beside an input of one element that nothing needs."""
    nodes = [
        node(op, ["x", *constants], ["y", "places"][: 2 if op == "TopK" else 1], **attributes),
        node("Identity", ["count"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "picking",
        [
            helper.make_tensor_value_info("x", TensorProto.INT64, [2, 9]),
            helper.make_tensor_value_info("count", TensorProto.INT64, [1]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "z")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


PICKING = {
    "TopK": lambda: picking("TopK", {}, k=np.array([3])),
    "OneHot": lambda: picking(
        "OneHot", {}, depth=np.array([4]), values=np.array([0, 1], np.float32)
    ),
}


@pytest.mark.parametrize("op", PICKING)
def test_no_run_decides_how_much_a_step_of_numpy_computes(op: str, core: aioinfer.Core) -> None:
    with core.load_network(PICKING[op](), "CPU") as network:
        whole = network.export()
    blob = Blob.open(whole)
    with core.import_network(whole) as imported:
        inputs = {"x": np.ones((2, 9), np.int64)}
        assert imported.create_infer_request().infer_sync({**inputs, "count": np.array([1 << 40])})
    content = blob.json("only_plan/plan")
    step = next(row for row in content["steps"] if row[0] == "python")
    count = step[3][1]
    step[3][1] = content["inputs"][1]
    with pytest.raises(BlobError, match="what is in its inputs decides"):
        core.import_network(rewritten(blob, "only_plan/plan", content))
    step[3][1] = count
    buffer = content["buffers"][content["operands"][count][0]]
    place = blob.json("only_plan/tensors")[buffer[4]][2]["at"]
    small = bytearray(blob.memory("only_plan/small_tensors").tobytes())
    small[place : place + 8] = (1 << 33).to_bytes(8, "little")
    writer = BlobWriter()
    for name in blob.names():
        is_changed = name == "only_plan/small_tensors"
        writer.add_bytes(name, bytes(small) if is_changed else blob.memory(name).tobytes())
    with pytest.raises(BlobError):
        core.import_network(b"".join(writer.chunks()))


def test_a_native_int8_step_goes_by_a_constant_and_writes_to_none(core: aioinfer.Core) -> None:
    """It does not look again where it reads and writes."""
    if not has_native_int8(open_engine().instruction_set):
        pytest.skip("int8 is oneDNN's on this processor")
    nodes = [
        node("DequantizeLinear", ["q", "scale", "zero"], ["a"]),
        node("DequantizeLinear", ["k", "scale"], ["b"]),
        node("Conv", ["a", "b"], ["y"], pads=[1, 1, 1, 1]),
    ]
    constants = {
        "scale": np.float32(0.1),
        "zero": np.uint8(3),
        "k": RANDOM.integers(-128, 128, (136, 136, 3, 3)).astype(np.int8),
    }
    graph = model([node("QuantizeLinear", ["x", "scale", "zero"], ["q"]), *nodes], [1, 136, 5, 5])
    for name, array in constants.items():
        graph.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    with core.load_network(graph, "CPU", {"INFERENCE_NUM_THREADS": 1}) as network:
        blob = Blob.open(network.export())
    content = blob.json("only_plan/plan")
    (operands,) = (row[3] for row in content["steps"] if row[2] == "int8_product")
    constant, places, scratch = (operands[index] for index in (1, 2, -2))

    def told(moved: int, into: int) -> str:
        crafted = copy.deepcopy(content)
        crafted["operands"][moved][0] = crafted["operands"][into][0]
        with pytest.raises(BlobError) as raised:
            core.import_network(rewritten(blob, "only_plan/plan", crafted))
        return str(raised.value)

    assert "which is no constant" in told(places, scratch)
    assert "which is there to be read" in told(scratch, constant)
    assert "go with data that a row has not" in told(places, constant)
