"""What a blob says of itself: whatever is wrong with it is a BlobError, and it names no files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.errors import BlobError, DeviceError, NotSupportedError, PropertyError
from aioinfer.runtime.blobs.reader import Blob
from aioinfer.runtime.blobs.writer import BlobWriter
from unit.runtime.models import expected, tiny_model

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def core() -> Any:
    with aioinfer.Core() as made:
        yield made


def exported(core: aioinfer.Core, device: str, **config: Any) -> bytes:
    with core.load_network(tiny_model(), device, {"EXPORTABLE": True, **config}) as network:
        return network.export()


def changed(content: bytes, change: Change) -> bytes:
    """Change the facts of an exported network; its checksums are right again."""
    blob, writer = Blob.open(content), BlobWriter()
    for name in blob.names():
        if name == "network":
            facts = blob.json(name)
            change(facts)
            writer.add_json(name, facts)
        else:
            writer.add_bytes(name, blob.memory(name).tobytes())
    return b"".join(writer.chunks())


def given(**properties: Any) -> Change:
    return lambda facts: facts["given"].update(properties)


def setting(**fields: Any) -> Change:
    return lambda facts: facts.update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (setting(device=""), "names the device ''"),
        (setting(device="(("), "names the device"),
        (setting(device="REFERENZ"), "no device 'REFERENZ' here; did you mean 'REFERENCE'"),
        (setting(device="REFERENCE.77"), "REFERENCE has no device '77'.*'REFERENCE'"),
        (setting(device=7), "7 is no text"),
        (
            given(STATE={"x": "nothing"}),
            "STATE does not fit model .tiny.: there is no output .nothing.",
        ),
        (given(STATE=3), "bad value 3 for STATE"),
        (given(INPUT_SHAPES={"x": [2, 40, 1]}), "INPUT_SHAPES"),
        (given(INPUT_SHAPES="x"), "bad value 'x' for INPUT_SHAPES"),
        (given(OUTPUT_LOCATION={"q": "DEVICE"}), "OUTPUT_LOCATION names 'q'"),
        (given(NUM_STREAMS=-10), "NUM_STREAMS"),
        (given(NO_SUCH_KEY=1), "NO_SUCH_KEY"),
        (given(DEVICE_ID="77"), None),
        (setting(states={"x": "nothing"}), "states"),
        (setting(states=[1]), "no mapping"),
        (setting(capability=3), "no mapping"),
        (setting(removed_nodes={}), "no list"),
    ],
)
def test_facts_that_contradict_the_network_are_the_fault_of_the_blob(
    core: aioinfer.Core, change: Change, message: str | None
) -> None:
    blob = changed(exported(core, "REFERENCE"), change)
    if message is None:
        core.import_network(blob).close()
        return
    with pytest.raises(BlobError, match=message):
        core.import_network(blob)


def test_what_the_caller_gives_is_the_fault_of_the_caller(core: aioinfer.Core) -> None:
    blob = exported(core, "REFERENCE")
    for config in ({"INPUT_SHAPES": {"x": [2, 40, 1]}}, {"NUM_STREAMS": -10}, {"NO_SUCH_KEY": 1}):
        with pytest.raises(PropertyError):
            core.import_network(blob, config=config)
    with pytest.raises(DeviceError, match="REFERENCE has no device '77'"):
        core.import_network(blob, "REFERENCE.77")
    with pytest.raises(PropertyError, match="DEVICE_ID='77' disagree"):
        core.import_network(blob, config={"DEVICE_ID": "77"})


def test_an_import_on_another_device_needs_no_device_of_the_export(core: aioinfer.Core) -> None:
    blob = changed(exported(core, "REFERENCE"), setting(device="REFERENCE.77"))
    with core.import_network(blob, "REFERENCE.1") as network:
        assert network.device == "REFERENCE.1"


def test_what_names_files_is_in_no_export(core: aioinfer.Core, tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    with core.load_network(tiny_model(), "REFERENCE", {"CACHE_DIR": folder}) as network:
        assert network.get_config("CACHE_DIR") == folder
        assert folder.encode() not in exported(core, "REFERENCE", CACHE_DIR=folder)


def test_what_names_files_is_taken_from_no_blob(core: aioinfer.Core, tmp_path: Path) -> None:
    if core.why_missing("ONNXRUNTIME"):
        pytest.skip(core.why_missing("ONNXRUNTIME") or "")
    prefix = str(tmp_path / "profile")
    evil = {
        "ORT_PROFILE_PREFIX": prefix,
        "ORT_SESSION_CONFIG": {"session.model_external_initializers_file_folder_path": prefix},
    }
    nested = {"ONNXRUNTIME": evil, "MULTI": {"DEVICE_PROPERTIES": {"ONNXRUNTIME": evil}}}
    for device, values in (
        ("ONNXRUNTIME", evil),
        ("HETERO:ONNXRUNTIME", {"DEVICE_PROPERTIES": nested, "DUMP_GRAPH": str(tmp_path)}),
        ("MULTI:ONNXRUNTIME,REFERENCE", {"DEVICE_PROPERTIES": {"ONNXRUNTIME": evil}}),
    ):
        for part in ("given", "resolved"):
            blob = changed(exported(core, device), lambda facts: facts[part].update(values))  # noqa: B023
            try:
                with core.import_network(blob) as network:
                    network.create_infer_request().infer_sync([[1, 2, 3]])
                    assert "profile" not in json.dumps(str(network.config))
            except BlobError:
                pass
    assert list(tmp_path.iterdir()) == []


def test_what_auto_has_cut_is_exported(core: aioinfer.Core) -> None:
    if core.why_missing("CPU"):
        pytest.skip(core.why_missing("CPU") or "")
    source = half_model().SerializeToString()
    with core.load_network(source, "AUTO:CPU,REFERENCE", {"EXPORTABLE": True}) as network:
        assert network.device.startswith("HETERO:CPU")  # CPU has no float8
        with core.import_network(network.export()) as imported:
            inputs = {"x": np.ones((2, 512), np.float32)}
            wanted = network.create_infer_request().infer_sync(inputs)
            found = imported.create_infer_request().infer_sync(inputs)
            assert np.array_equal(found["y"], wanted["y"])
        with pytest.raises(NotSupportedError, match="freed its weights"):
            network.subgraph_models()


def half_model() -> onnx.ModelProto:
    """Make a model of which CPU runs all but the end, and much faster."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "w"], ["b"], "second"),
        helper.make_node("Cast", ["b"], ["c"], "narrow", to=TensorProto.FLOAT8E4M3FN),
        helper.make_node("Cast", ["c"], ["y"], "last", to=TensorProto.FLOAT),
    ]
    types = {"x": TensorProto.FLOAT, "y": TensorProto.FLOAT}
    ports = [helper.make_tensor_value_info(*item, ["n", 512]) for item in types.items()]
    weight = numpy_helper.from_array(np.eye(512, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "half", ports[:1], ports[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def large_model() -> onnx.ModelProto:
    """Fixed shapes, and a weight that is let go of once it is compiled."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weight = numpy_helper.from_array(np.random.default_rng(4).normal(size=(3, 4000)), "w")
    types = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, [1, k]) for n, k in SIZES]
    graph = helper.make_graph([node], "large", types[:1], types[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SIZES = (("x", 3), ("y", 4000))
ONES = np.ones((1, 3))


def test_a_network_of_a_file_is_exported_by_reading_it_again(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    path, blob = tmp_path / "large.onnx", tmp_path / "large.blob"
    path.write_bytes(large_model().SerializeToString())
    with core.load_network(path, "REFERENCE") as network:
        wanted = network.create_infer_request().infer_sync(ONES)["y"]
        network.export(blob)
    with core.import_network(blob) as imported:  # which is mapped, so that it is there again
        blob.unlink()
        again = imported.export()
    with core.import_network(again) as second:
        assert np.array_equal(second.create_infer_request().infer_sync(ONES)["y"], wanted)
        with pytest.raises(NotSupportedError, match="EXPORTABLE=True"):
            second.export()


def test_a_file_that_is_another_now_is_not_exported_for_the_network(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    path = tmp_path / "large.onnx"
    path.write_bytes(large_model().SerializeToString())
    with core.load_network(path, "REFERENCE") as network:
        path.write_bytes(tiny_model().SerializeToString())
        with pytest.raises(NotSupportedError, match=r"not what it was .*EXPORTABLE=True"):
            network.export()
        path.unlink()
        with pytest.raises(NotSupportedError, match="not what it was"):
            network.export()


def test_a_model_that_its_caller_holds_is_exported_as_it_was_loaded(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    path = tmp_path / "large.onnx"
    path.write_bytes(large_model().SerializeToString())
    held = core.read_model(path)
    with (
        core.load_network(held, "REFERENCE") as network,
        pytest.raises(NotSupportedError, match=r"load it from a path, .*EXPORTABLE=True"),
    ):
        network.export()


@pytest.mark.parametrize(
    ("exported_on", "imported_on", "computing"),
    [
        (
            "MULTI:REFERENCE.0,REFERENCE.1",
            "MULTI:REFERENCE.5,REFERENCE.6",
            ["REFERENCE.5", "REFERENCE.6"],
        ),
        (
            "MULTI:REFERENCE.0,REFERENCE.1",
            "MULTI:REFERENCE.1,REFERENCE.6(2)",
            ["REFERENCE.1", "REFERENCE.6"],
        ),
        (
            "HETERO:REFERENCE.0,REFERENCE.1",
            "HETERO:REFERENCE.6,REFERENCE.5",
            ["REFERENCE.5", "REFERENCE.6"],
        ),
        (
            "HETERO:REFERENCE.0,REFERENCE.1",
            "HETERO:REFERENCE.1,REFERENCE.6",
            ["REFERENCE.1", "REFERENCE.6"],
        ),
        ("HETERO:REFERENCE.0,REFERENCE.1", "HETERO:REFERENCE.6", ["REFERENCE.6"]),
        ("BATCH:REFERENCE.0(4)", "BATCH:REFERENCE.6(2)", ["BATCH:REFERENCE.6(2)"]),
    ],
)
def test_devices_of_a_kind_stand_in_for_those_of_the_export(
    monkeypatch: pytest.MonkeyPatch, exported_on: str, imported_on: str, computing: list[str]
) -> None:
    monkeypatch.setenv("AIOINFER_REFERENCE_DEVICES", "7")
    with aioinfer.Core() as core:
        affinity = {"AFFINITY": {"relu": "REFERENCE.1"}} if "HETERO" in exported_on else {}
        blob = exported(core, exported_on, **affinity)
        with core.import_network(blob, imported_on) as network:
            assert sorted(network.execution_devices) == computing
            y = network.create_infer_request().infer_sync(X)["y"]
            assert np.array_equal(y, expected(X))


X = np.array([[-1, 2, 3]], np.float32)
