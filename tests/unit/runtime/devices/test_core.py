"""The Core: models read, devices found and configured, networks loaded, everything closed."""

from __future__ import annotations

import io
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import aioinfer
from aioinfer.errors import (
    BlobError,
    ClosedError,
    DeviceError,
    GraphError,
    ModelError,
    NotSupportedError,
    PropertyError,
    TensorError,
)
from aioinfer.executors import ImmediateExecutor
from aioinfer.runtime.blobs.network_record import NetworkRecord, write_network_record
from aioinfer.runtime.blobs.reader import Blob
from aioinfer.runtime.blobs.writer import BlobWriter
from aioinfer.testing import MockDevices
from unit.runtime.models import expected, tiny_model
from unit.runtime.toy_plugin import ToyPlugin

X = np.array([[-1, 2, 3]], np.float32)


@pytest.fixture
def toy(core: aioinfer.Core) -> aioinfer.Core:
    core.register_plugin("TOY", ToyPlugin)
    return core


def infer(network: aioinfer.ExecutableNetwork) -> np.ndarray:
    return network.create_infer_request().infer_sync(X)["y"]


def model_sources(folder: Path) -> list[Any]:
    proto = tiny_model()
    path = folder / "tiny.onnx"
    onnx.save(proto, path)
    content = path.read_bytes()
    return [
        str(path),
        path,
        content,
        bytearray(content),
        memoryview(content),
        io.BytesIO(content),
        proto,
        aioinfer.Core().read_model(proto),
    ]


def test_a_model_may_be_a_path_bytes_a_file_a_proto_or_a_model(
    toy: aioinfer.Core, tmp_path: Path
) -> None:
    for source in model_sources(tmp_path):
        with toy.load_network(source, "TOY") as network:
            np.testing.assert_array_equal(infer(network), expected(X))
    for source in model_sources(tmp_path):
        assert all(answer.supported for answer in toy.query_network(source, "TOY").values())
    with open(tmp_path / "tiny.onnx", "rb") as file:
        assert toy.read_model(file).name == "tiny"


@pytest.mark.parametrize(
    "source", [None, 5, "no such file.onnx", b"", b"junk", io.StringIO("text")]
)
def test_what_is_no_model_is_a_model_error(toy: aioinfer.Core, source: Any) -> None:
    for call in (toy.read_model, lambda it: toy.load_network(it, "TOY")):
        with pytest.raises(ModelError):
            call(source)


def test_loading_leaves_the_model_alone_and_later_edits_do_not_reach_the_network(
    toy: aioinfer.Core,
) -> None:
    model = toy.read_model(tiny_model())
    text = str(model)
    networks = [toy.load_network(model, device) for device in ("TOY", "REFERENCE", "AUTO:TOY")]
    assert str(model) == text
    ports = [(network.inputs, network.outputs) for network in networks]
    model.inputs[0].type = None
    model.inputs[0].name = "other"
    relu = model.node("relu")
    model.graph.replace_uses(relu.outputs[0], relu.inputs[0])
    model.graph.remove(relu)
    model.graph.name = "renamed"
    for network, (inputs, outputs) in zip(networks, ports, strict=True):
        assert (network.inputs, network.outputs) == (inputs, outputs)
        assert (network.name, network.inputs[0].name) == ("tiny", "x")
        np.testing.assert_array_equal(infer(network), expected(X))


@pytest.mark.parametrize("written", ["main_graph", "tiny"])
def test_a_network_is_called_what_its_file_is(
    toy: aioinfer.Core, tmp_path: Path, written: str
) -> None:
    path = tmp_path / "resnet.v2.onnx"
    path.write_bytes(tiny_model(written).SerializeToString())
    model = toy.read_model(path)
    assert model.name == model.copy().name == "resnet.v2"
    for source in (path, str(path), model):
        for device in ("TOY", "AUTO:TOY", "REFERENCE", "HETERO:REFERENCE"):
            with toy.load_network(source, device) as network:
                assert network.name == "resnet.v2"
                assert network.get_metric("NETWORK_NAME") == "resnet.v2"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("tiny", "tiny"),
        ("main_graph", "model"),
        ("torch-jit-export", "model"),
        ("tf2onnx", "model"),
    ],
)
def test_a_network_from_memory_has_its_graphs_name_unless_an_exporter_gave_it(
    toy: aioinfer.Core, written: str, name: str
) -> None:
    with toy.load_network(tiny_model(written), "TOY") as network:
        assert network.name == name


def test_the_name_that_is_given_is_in_errors_logs_traces_and_parts(
    toy: aioinfer.Core, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny_model("main_graph").SerializeToString())
    model = toy.read_model(path)
    for source in (path, model):
        for device in ("REFERENCE", "AUTO:REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"):
            caplog.clear()
            with (
                caplog.at_level("INFO", "aioinfer"),
                toy.load_network(source, device, name="detector") as network,
            ):
                assert repr(network).startswith(f"<{type(network).__name__} 'detector' on ")
                request = network.create_infer_request()
                assert "'detector'" in repr(request)
                infer(network)
                assert network.trace().network == "detector"
                with pytest.raises(TensorError, match="'detector'"):
                    request.infer_sync({"nothing": X})
                for part in getattr(network, "networks", ()):
                    assert part.name == "detector.subgraph0"
            with pytest.raises(ClosedError, match="network 'detector' on "):
                request.infer_sync(X)
            assert "model 'detector' is compiled for" in caplog.text
            assert "'tiny'" not in caplog.text
            assert "main_graph" not in caplog.text
    assert model.name == "tiny"
    model.name = "own"
    with toy.load_network(model, "TOY") as network:
        assert network.name == "own"


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\udc80", 5, b"text"])
def test_a_name_that_cannot_be_printed_is_refused(toy: aioinfer.Core, name: Any) -> None:
    with pytest.raises(PropertyError, match="a network cannot be called"):
        toy.load_network(tiny_model(), "TOY", name=name)


def test_a_file_name_that_is_no_text_still_makes_a_name_that_can_be_written(
    toy: aioinfer.Core, tmp_path: Path
) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.onnx")
    path.write_bytes(tiny_model().SerializeToString())
    assert toy.read_model(path).name == r"caf\xe9"


def test_devices_are_listed_with_an_id_only_if_there_are_several(core: aioinfer.Core) -> None:
    core.register_plugin("ONE", MockDevices(1).make_plugin)
    core.register_plugin("TWO", MockDevices(2).make_plugin)
    core.register_plugin("NO", MockDevices(0).make_plugin)
    listed = core.available_devices
    assert [name for name in listed if name.startswith(("ONE", "TWO", "NO."))] == [
        "ONE",
        "TWO.0",
        "TWO.1",
    ]
    assert {"REFERENCE.0", "REFERENCE.1"} <= set(listed)
    assert not {"NO", "AUTO", "HETERO"} & set(listed)
    assert core.resolve_device("ONE.0") == "ONE.0"
    assert core.resolve_device("TWO") == "TWO"


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("", "the device name is empty"),
        (None, "a device is a string such as 'CPU'"),
        ("TOI", "unknown device 'TOI'; did you mean 'TOY'"),
        ("TOY.7", "TOY has no device '7'; it has \\['TOY.0', 'TOY.1', 'TOY.2'\\]"),
        ("TOY:TOY.1", "TOY takes no list of devices; 'TOY:TOY.1' would need a virtual device"),
        ("HETERO.1", "HETERO has no device '1'"),
        ("REFERENCE.5", "REFERENCE has no device '5'"),
    ],
)
def test_a_device_that_is_not_there_is_a_device_error(
    toy: aioinfer.Core, device: str, message: str
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: toy.load_network(tiny_model(), device),
        lambda: toy.query_network(tiny_model(), device),
    ]
    if device is not None and ":" not in device:
        calls += [
            lambda: toy.get_metric(device, "FULL_DEVICE_NAME"),
            lambda: toy.get_config(device, "PERF_COUNT"),
            lambda: toy.set_config(device, {"PERF_COUNT": True}),
            lambda: toy.add_extension(aioinfer.Extension("Swirl", np.negative), device),
            lambda: toy.resolve_device(device),
        ]
    for call in calls:
        with pytest.raises(DeviceError, match=message):
            call()


def test_the_id_may_stand_in_the_name_or_in_the_configuration_but_not_differ(
    toy: aioinfer.Core,
) -> None:
    for device, config in (
        ("TOY.1", {}),
        ("TOY", {"DEVICE_ID": "1"}),
        ("TOY.1", {"DEVICE_ID": "1"}),
    ):
        with toy.load_network(tiny_model(), device, config) as network:
            assert network.device == "MOCK.1"
            assert network.get_config("DEVICE_ID") == "1"
    with pytest.raises(PropertyError, match=r"device 'TOY.1' and DEVICE_ID='2' disagree; give one"):
        toy.load_network(tiny_model(), "TOY.1", {"DEVICE_ID": "2"})
    with pytest.raises(PropertyError, match="disagree"):
        toy.query_network(tiny_model(), "TOY.1", {"DEVICE_ID": "2"})
    with pytest.raises(PropertyError, match=r"device 'TOY.1' and DEVICE_ID='2' disagree; give one"):
        toy.get_metric("TOY.1", "FULL_DEVICE_NAME", DEVICE_ID="2")
    with pytest.raises(PropertyError, match="disagree"):
        toy.load_network(tiny_model(), "HETERO:TOY.1", {"MULTI_DEVICE_PRIORITIES": "TOY.1,TOY.2"})


def test_facts_are_asked_for_by_device_or_by_id(toy: aioinfer.Core) -> None:
    assert toy.get_metric("TOY", "FULL_DEVICE_NAME") == "mock device 0"
    assert toy.get_metric("TOY.1", "FULL_DEVICE_NAME") == "mock device 1"
    assert toy.get_metric("TOY", "FULL_DEVICE_NAME", DEVICE_ID="1") == "mock device 1"
    assert toy.get_metric("TOY.1", "FULL_DEVICE_NAME", DEVICE_ID=1) == "mock device 1"
    with pytest.raises(PropertyError, match="TOY has no metric 'FULL_NAME'; did you mean 'FULL_D"):
        toy.get_metric("TOY", "FULL_NAME")


def test_a_property_of_a_kind_holds_for_its_devices_and_not_the_reverse(
    toy: aioinfer.Core,
) -> None:
    def streams() -> list[int]:
        return [toy.get_config(device, "NUM_STREAMS") for device in ("TOY", "TOY.1", "TOY.2")]

    toy.set_config("TOY", {"NUM_STREAMS": 2})
    assert streams() == [2, 2, 2]
    toy.set_config("TOY.1", {"NUM_STREAMS": 3})
    assert streams() == [2, 3, 2]
    with toy.load_network(tiny_model(), "TOY.1") as network:
        assert network.get_config("NUM_STREAMS") == 3
    with toy.load_network(tiny_model(), "TOY.1", {"NUM_STREAMS": 4}) as network:
        assert network.get_config("NUM_STREAMS") == 4
    assert streams() == [2, 3, 2]


def test_settings_for_all_devices_are_defaults(toy: aioinfer.Core) -> None:
    toy.set_config("TOY.1", {"PERF_COUNT": False})
    toy.set_config(None, {"PERF_COUNT": True, "NUM_STREAMS": 2})
    devices = ("TOY", "TOY.1", "REFERENCE.1", "AUTO")
    assert [toy.get_config(device, "PERF_COUNT") for device in devices] == [True, False, True, True]
    assert toy.get_config("REFERENCE", "NUM_STREAMS") == 2
    toy.set_config("REFERENCE", {"NUM_STREAMS": 3})
    assert toy.get_config("REFERENCE", "NUM_STREAMS") == 3
    with pytest.raises(PropertyError, match="HETERO has no NUM_STREAMS of its own"):
        toy.get_config("HETERO", "NUM_STREAMS")


def test_a_key_of_one_kind_of_device_is_sent_to_it(toy: aioinfer.Core) -> None:
    hint = "{'DEVICE_PROPERTIES': {'CPU': {'CPU_DISABLED_PASSES': ...}}}"
    with pytest.raises(PropertyError, match=re.escape(hint)):
        toy.set_config("HETERO", {"CPU_DISABLED_PASSES": "attention fusion"})
    with pytest.raises(PropertyError, match="HETERO has no property 'HETERO_SPEED'"):
        toy.set_config("HETERO", {"HETERO_SPEED": 1})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"PERF_COUNT": True, "PERF_COUNTS": 1}, "no property 'PERF_COUNTS' can be set for all"),
        ({"PERF_COUNT": True, "SPEED": 1}, "'SPEED' .*a property of one device needs its name"),
        ({"PERF_COUNT": True, "DEVICE_ID": "1"}, "'DEVICE_ID' can be set for all devices"),
        ({"PERF_COUNT": True, "INPUT_SHAPES": {}}, "'INPUT_SHAPES' can be set for all devices"),
        ({"PERF_COUNT": True, "NUM_STREAMS": -10}, "Core: bad value -10 for NUM_STREAMS"),
        (5, "a configuration is a mapping"),
    ],
)
def test_settings_for_all_devices_are_refused_at_once_and_as_a_whole(
    toy: aioinfer.Core, values: Any, message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        toy.set_config(None, values)
    assert toy.get_config("TOY", "PERF_COUNT") is False
    assert toy.get_config("REFERENCE", "PERF_COUNT") is False


def test_a_device_that_cannot_honour_a_setting_for_all_keeps_its_own(toy: aioinfer.Core) -> None:
    toy.set_config(None, {"INFERENCE_NUM_THREADS": 2, "INFERENCE_PRECISION_HINT": "f16"})
    assert toy.get_config("TOY", "INFERENCE_NUM_THREADS") == 2
    assert toy.get_config("TOY", "INFERENCE_PRECISION_HINT") == "f32"
    assert toy.get_config("REFERENCE", "INFERENCE_NUM_THREADS") == 0
    assert toy.get_config("AUTO", "INFERENCE_PRECISION_HINT") == "f16"
    toy.load_network(tiny_model(), "AUTO:TOY").close()


@pytest.mark.parametrize(
    "call",
    [
        lambda core: core.set_config("TOY", {"SPED": 1}),
        lambda core: core.get_config("TOY", "SPED"),
        lambda core: core.load_network(tiny_model(), "TOY", {"SPED": 1}),
        lambda core: core.query_network(tiny_model(), "TOY", {"SPED": 1}),
    ],
)
def test_an_unknown_key_is_refused_at_once_and_everywhere(
    toy: aioinfer.Core, call: Callable[[aioinfer.Core], object]
) -> None:
    with pytest.raises(PropertyError, match=r"TOY has no property 'SPED'; did you mean 'SPEED'?"):
        call(toy)


def test_a_list_of_devices_is_for_loading_and_asking_about_a_model(toy: aioinfer.Core) -> None:
    for call in (
        lambda: toy.get_config("HETERO:TOY", "PERF_COUNT"),
        lambda: toy.set_config("HETERO:TOY", {"PERF_COUNT": True}),
        lambda: toy.get_metric("HETERO:TOY", "FULL_DEVICE_NAME"),
    ):
        with pytest.raises(DeviceError, match="ask and set the bare 'HETERO', or a device of the"):
            call()
    assert toy.get_metric("HETERO", "FULL_DEVICE_NAME") == "HETERO"


def test_log_level_is_honoured_from_set_config_and_from_loading(
    toy: aioinfer.Core, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("aioinfer").setLevel(logging.DEBUG)
    toy.set_config("TOY", {"LOG_LEVEL": "LOG_NONE"})
    toy.load_network(tiny_model(), "TOY").close()
    assert not caplog.records
    toy.set_config("TOY.1", {"LOG_LEVEL": "LOG_INFO"})
    toy.load_network(tiny_model(), "TOY.1").close()
    assert [record.name for record in caplog.records] == ["aioinfer.TOY.1"]
    assert "model 'tiny' is compiled for MOCK.1" in caplog.text
    caplog.clear()
    toy.load_network(tiny_model(), "TOY", {"LOG_LEVEL": "LOG_DEBUG"}).close()
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO"]
    caplog.clear()
    toy.set_config(None, {"LOG_LEVEL": "LOG_ERROR"})
    toy.load_network(tiny_model(), "REFERENCE").close()
    assert not caplog.records
    levels = {logging.getLogger(f"aioinfer.{name}").level for name in ("TOY", "REFERENCE")}
    assert levels == {logging.ERROR}


def test_threads_may_set_get_load_and_unregister_at_once(core: aioinfer.Core) -> None:
    model = core.read_model(tiny_model())
    errors: list[BaseException] = []

    def work(index: int) -> None:
        for turn in range(100):
            name = f"TOY{(index + turn) % 3}"
            try:
                if turn % 7 == index % 7:
                    core.register_plugin(name, ToyPlugin)
                core.set_config(name, {"SPEED": turn})
                assert core.get_config(f"{name}.1", "SPEED") >= 0
                assert core.get_metric(name, "AVAILABLE_DEVICES") == ["0", "1", "2"]
                core.load_network(model, f"{name}.{turn % 3}").close()
                assert core.available_devices
                if turn % 5 == index % 5:
                    core.unregister_plugin(name)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = ("unknown device 'TOY", "no plugin 'TOY", "is already registered")
    unexpected = [
        error
        for error in errors
        if not (isinstance(error, DeviceError) and any(text in str(error) for text in told))
    ]
    assert not unexpected
    assert len(errors) < 800  # most of the work was done


def test_an_import_goes_to_the_device_that_has_exported(toy: aioinfer.Core) -> None:
    with toy.load_network(tiny_model(), "REFERENCE.1") as network:
        blob = network.export()
    with toy.import_network(blob) as imported, toy.import_network(blob, "REFERENCE.0") as other:
        assert imported.device == "REFERENCE.1"
        assert other.device == "REFERENCE.0"
    with pytest.raises(BlobError, match=r"exported by 'REFERENCE.1' and cannot be imported on"):
        toy.import_network(blob, "TOY")
    with pytest.raises(PropertyError, match="no property 'SPED'"):
        toy.import_network(blob, config={"SPED": 1})
    with toy.import_network(blob, config={"NUM_STREAMS": 2}) as imported:
        assert imported.get_config("NUM_STREAMS") == 2
    with pytest.raises(BlobError, match="no network exported by aioinfer"):
        toy.import_network(tiny_model().SerializeToString())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("given", {"SPED": 1}),
        ("given", {"NUM_STREAMS": "many"}),
        ("resolved", {"NUM_STREAMS": "many"}),
        ("states", {"x": "nothing"}),
        ("states", {"nothing": "y"}),
    ],
)
def test_facts_of_a_blob_that_make_no_sense_are_its_fault(
    key: str, value: dict[str, Any], toy: aioinfer.Core
) -> None:
    with toy.load_network(tiny_model(), "REFERENCE") as network:
        blob = Blob.open(network.export())
    facts = blob.json("network")
    writer = BlobWriter()
    for name in blob.names():
        if name == "network":
            writer.add_json(name, {**facts, key: {**facts[key], **value}})
        else:
            writer.add_bytes(name, blob.memory(name).tobytes())
    with pytest.raises(BlobError):
        toy.import_network(b"".join(writer.chunks()))


def test_a_graph_of_a_blob_that_contradicts_itself_is_its_fault(toy: aioinfer.Core) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[3, 2] y) '
        "{ y = Transpose <perm = [1, 0]> (x) }"
    )
    with toy.load_network(model, "CPU", {"EXPORTABLE": True}) as network:
        blob = Blob.open(network.export())
    writer = BlobWriter()
    for name in blob.names():
        content = blob.memory(name).tobytes()
        writer.add_bytes(name, content.replace(b"[1,0]", b"[1,1]") if name == "model" else content)
    with pytest.raises(BlobError, match=r"holds what CPU.0 cannot compile: .*export it again"):
        toy.import_network(b"".join(writer.chunks()))


def test_an_import_for_a_device_that_is_not_there_says_so(toy: aioinfer.Core) -> None:
    blob = BlobWriter()
    write_network_record(blob, NetworkRecord("GONE", "0", "net", {}, {}))
    with pytest.raises(BlobError, match="no device 'GONE' here; install its package"):
        toy.import_network(b"".join(blob.chunks()))


def test_a_network_without_its_weights_says_how_to_keep_them(toy: aioinfer.Core) -> None:
    model = toy.read_model(tiny_model())
    model.reshape({"x": [2, 3]})
    with (
        toy.load_network(model, "REFERENCE") as network,
        pytest.raises(NotSupportedError, match=r"load it from a path, .*with EXPORTABLE=True"),
    ):
        network.export()
    with toy.load_network(model, "REFERENCE", {"EXPORTABLE": True}) as network:
        assert network.export()


def test_a_closed_network_exports_nothing(toy: aioinfer.Core) -> None:
    network = toy.load_network(tiny_model(), "REFERENCE")
    network.close()
    with pytest.raises(ClosedError):
        network.export()


def test_functions_are_given_to_the_import(toy: aioinfer.Core) -> None:
    with toy.load_network(tiny_model(), "REFERENCE") as network:
        blob = network.export()
    with toy.import_network(blob, preprocess={"x": np.float32}, postprocess=list) as imported:
        assert imported.create_infer_request().infer_sync({"x": [[1, 2, 3]]}) == ["y"]


def test_an_extension_goes_to_a_device_that_takes_it(toy: aioinfer.Core) -> None:
    with pytest.raises(NotSupportedError, match="TOY takes no extensions"):
        toy.add_extension(aioinfer.Extension("Swirl", np.negative), "TOY")
    with pytest.raises(GraphError, match=r"wants an aioinfer.Extension, not function"):
        toy.add_extension(lambda x: x)  # type: ignore[arg-type]


CALLS: dict[str, Callable[[aioinfer.Core], object]] = {
    "read_model": lambda core: core.read_model(tiny_model()),
    "load_network": lambda core: core.load_network(tiny_model(), "TOY"),
    "query_network": lambda core: core.query_network(tiny_model(), "TOY"),
    "import_network": lambda core: core.import_network(b""),
    "set_config": lambda core: core.set_config("TOY", {}),
    "set_config of all": lambda core: core.set_config(None, {}),
    "get_config": lambda core: core.get_config("TOY", "SPEED"),
    "get_metric": lambda core: core.get_metric("TOY", "WEIGHT"),
    "add_extension": lambda core: core.add_extension(aioinfer.Extension("Swirl", np.negative)),
    "register_plugin": lambda core: core.register_plugin("NEW", ToyPlugin),
    "unregister_plugin": lambda core: core.unregister_plugin("TOY"),
    "available_devices": lambda core: core.available_devices,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_closed_core_refuses(toy: aioinfer.Core, call: Callable[[aioinfer.Core], object]) -> None:
    toy.close()
    toy.close()
    assert repr(toy).startswith("<Core closed: AUTO")
    with pytest.raises(ClosedError, match="this Core is closed; make a new one"):
        call(toy)


def test_closing_the_core_closes_its_networks(toy: aioinfer.Core) -> None:
    kept = toy.load_network(tiny_model(), "TOY")
    outer = toy.load_network(tiny_model(), "HETERO:TOY,REFERENCE")
    toy.close()
    assert kept.is_closed
    assert outer.is_closed
    with pytest.raises(ClosedError, match=r"network 'tiny' on MOCK.0 is closed; load it again"):
        kept.create_infer_request()


async def test_a_core_is_a_block_of_either_kind() -> None:
    with aioinfer.Core() as core:
        with core.load_network(tiny_model(), "REFERENCE") as network:
            assert not network.is_closed
        assert network.is_closed
    async with aioinfer.Core() as core:
        async with core.load_network(tiny_model(), "REFERENCE") as network:
            np.testing.assert_array_equal((await network.infer(X))["y"], expected(X))
        assert network.is_closed
    with pytest.raises(ClosedError):
        core.read_model(tiny_model())


def test_an_immediate_device_needs_no_thread(
    toy: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of other tests may begin and end meanwhile; those that these calls start count."""
    started, start, here = list[str](), threading.Thread.start, threading.get_ident()

    def note_start(thread: threading.Thread) -> None:
        if threading.get_ident() == here:
            started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note_start)
    with toy.load_network(tiny_model(), "TOY") as network:
        np.testing.assert_array_equal(infer(network), expected(X))
    assert started == []
    with toy.load_network(tiny_model(), "REFERENCE") as other:
        infer(other)
    assert started != []
    assert isinstance(network, aioinfer.ExecutableNetwork)
    assert ImmediateExecutor("toy").name == "toy"


@pytest.mark.parametrize(
    ("device", "key"),
    [
        ("REFERENCE", "PLAN_CACHE_BYTES"),
        ("OPENCL", "PLAN_CACHE_BYTES"),
        ("ONNXRUNTIME", "PLAN_CACHE_BYTES"),
        ("ONNXRUNTIME", "PLAN_CACHE_COUNT"),
    ],
)
def test_a_bound_that_a_device_cannot_keep_is_no_property_of_it(
    core: aioinfer.Core, device: str, key: str
) -> None:
    reason = core.why_missing(device)
    if reason is not None:
        pytest.skip(reason)
    with pytest.raises(PropertyError, match=f"has no property '{key}'") as caught:
        core.set_config(device, {key: 1})
    assert caught.value.key == key
    core.set_config(None, {key: 1})  # for the devices that know it
    assert key not in core.get_metric(device, "SUPPORTED_CONFIG_KEYS")
    with core.load_network(tiny_model(), f"HETERO:{device}", {key: 7}) as network:
        assert network.get_config(key) == 7
