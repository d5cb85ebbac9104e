"""Which devices MULTI loads a model on, and what it says of the others."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.errors import (
    BlobError,
    ClosedError,
    DeviceError,
    NotSupportedError,
    PropertyError,
)
from aioinfer.runtime.devices.device_name import MOST_REQUESTS
from aioinfer.testing import MockDevices, MockPlugin
from unit.runtime.blobs.test_crafted_records import blob_of, frames_of

HEADER = '<ir_version: 9, opset_import: ["": 20]> g'
WAIT_S = 20
RELU = f"{HEADER} (float[b, 2] x) => (float[b, 2] y) {{ y = Relu (x) }}"


def load(core: aioinfer.Core, device: str, **config: Any) -> aioinfer.ExecutableNetwork:
    return core.load_network(parser.parse_model(RELU), device, config)


def test_a_name_without_an_id_is_all_devices_of_that_name(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, "MULTI:MOCK")
    assert network.execution_devices == ("MOCK.0", "MOCK.1", "MOCK.2")
    assert network.device == "MULTI:MOCK.0,MOCK.1,MOCK.2"
    assert network.get_config("MULTI_DEVICE_PRIORITIES") == "MOCK.0,MOCK.1,MOCK.2"
    assert network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 6


def test_one_device_is_that_device(core: aioinfer.Core, mock: MockDevices) -> None:
    assert load(core, "MULTI:MOCK.1").device == "MOCK.1"
    assert load(core, "MULTI:MOCK.1(3)").device == "MULTI:MOCK.1"


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("MULTI", "name them, the preferred one first"),
        ("MULTI:MOCK.0,MULTI", "would hold itself"),
        ("MULTI:MOCK.0,MOCK", "twice, by its name and by its id"),
        ("MULTI:MOCK.0,MOKC", "did you mean 'MOCK'"),
        ("MULTI:MOCK.7,MOCK.8", "none of its devices can be used.*MOCK has no device '7'"),
    ],
)
def test_a_bad_list_is_refused(
    device: str, message: str, core: aioinfer.Core, mock: MockDevices
) -> None:
    with pytest.raises(DeviceError, match=message):
        load(core, device)


def test_a_device_that_cannot_load_is_left_out_with_its_reason(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    class Liar(MockPlugin):
        def compile_network(self, model: Any, config: Any) -> aioinfer.ExecutableNetwork:
            raise NotSupportedError("out of registers")

    core.register_plugin("LIAR", lambda handle, name: Liar(handle, name, mock.devices[2:]))
    network = load(core, "MULTI:LIAR,MOCK.0,MOCK.1")
    assert network.execution_devices == ("MOCK.0", "MOCK.1")
    assert "LIAR was left out: out of registers" in network.explain()
    with pytest.raises(DeviceError, match=r"LIAR: out of registers"):
        load(core, "MULTI:LIAR,MOCK.9")


@pytest.mark.parametrize("call", ["load_network", "query_network"])
def test_a_core_that_is_closed_meanwhile_is_no_fault_of_a_device(
    core: aioinfer.Core, mock: MockDevices, call: str
) -> None:
    is_asked, is_closed, errors = threading.Event(), threading.Event(), list[BaseException]()

    class Slow(MockPlugin):
        def why_no_device(self) -> str | None:
            is_asked.set()
            assert is_closed.wait(WAIT_S)
            return super().why_no_device()

    core.register_plugin("SLOW", lambda handle, name: Slow(handle, name, mock.devices))

    def ask() -> None:
        try:
            getattr(core, call)(parser.parse_model(RELU), "MULTI:SLOW")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert is_asked.wait(WAIT_S)
    core.close()
    is_closed.set()
    thread.join()
    assert [type(error) for error in errors] == [ClosedError]
    assert "this Core is closed" in str(errors[0])


def test_a_query_is_answered_by_the_device_that_takes_all(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    mock[0].refused_ops["Relu"] = "it is positive"
    proto = parser.parse_model(RELU)
    answers = core.query_network(proto, "MULTI:MOCK.0,MOCK.1")
    assert all(answer.supported for answer in answers.values())
    (answer,) = core.query_network(proto, "MULTI:MOCK.0").values()
    assert (answer.supported, answer.reason) == (False, "MOCK.0: it is positive")


@pytest.mark.parametrize("device", ["MULTI:REFERENCE.0", "MULTI:REFERENCE.0,REFERENCE.1"])
def test_what_a_request_keeps_goes_with_it_to_any_device(device: str, core: aioinfer.Core) -> None:
    text = (
        "(float[b, 2] x, float[b, 2] past) => (float[b, 2] y, float[b, 2] now) "
        "{ now = Add (x, past) y = Identity (now) }"
    )
    model = parser.parse_model(f"{HEADER} {text}")
    config: dict[str, Any] = {"STATE": {"past": "now"}}
    if "," in device:
        config["SCHEDULE_POLICY"] = "ROUND_ROBIN"
    with core.load_network(model, device, config) as network:
        request = network.create_infer_request()
        one = np.ones((1, 2), np.float32)
        for count in range(1, 5):
            np.testing.assert_array_equal(request.infer_sync({"x": one})["y"], count * one)
        assert all(used.run_count == 2 for used in network.statistics().devices)


def test_properties_reach_the_devices(core: aioinfer.Core) -> None:
    nested = {"REFERENCE": {"NUM_STREAMS": 2}, "REFERENCE.1": {"NUM_STREAMS": 3}}
    network = load(core, "MULTI:REFERENCE.0,REFERENCE.1", DEVICE_PROPERTIES=nested)
    given = network.get_config("DEVICE_PROPERTIES")
    assert given["REFERENCE.0"]["NUM_STREAMS"] == 2
    assert given["REFERENCE.1"]["NUM_STREAMS"] == 3
    with pytest.raises(PropertyError, match="CUDDA"):
        load(core, "MULTI:REFERENCE.0,REFERENCE.1", DEVICE_PROPERTIES={"CUDDA": {}})
    with pytest.raises(PropertyError, match="DEVICE_PROPERTIES"):
        core.set_config("MULTI", {"NUM_STREAMS": 2})


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({}, "THROUGHPUT"),
        ({"PERFORMANCE_HINT": "LATENCY"}, "LATENCY"),
        ({"DEVICE_PROPERTIES": {"REFERENCE": {"NUM_STREAMS": 1}}}, "LATENCY"),
    ],
)
def test_devices_are_tuned_for_throughput_unless_something_else_is_said(
    config: dict[str, Any], hint: str, core: aioinfer.Core
) -> None:
    network = load(core, "MULTI:REFERENCE.0,REFERENCE.1", **config)
    given = network.get_config("DEVICE_PROPERTIES")
    assert given["REFERENCE.1"]["PERFORMANCE_HINT"] == hint


def test_a_warm_up_reaches_every_device(core: aioinfer.Core) -> None:
    network = load(core, "MULTI:REFERENCE.0,REFERENCE.1", INPUT_SHAPES={"x": (3, 2)})
    assert network.warm_up() == []
    assert network.statistics().finished_request_count == 0


def test_functions_of_a_user_stand_around_it(core: aioinfer.Core) -> None:
    network = core.load_network(
        parser.parse_model(RELU),
        "MULTI:REFERENCE.0,REFERENCE.1",
        preprocess=lambda given: {"x": np.full((1, 2), given["x"], np.float32)},
        postprocess=lambda outputs: float(outputs["y"].sum()),
    )
    with network:
        assert network.create_infer_request().infer_sync({"x": 3}) == 6.0


def test_an_exported_network_comes_back_on_all_its_devices(core: aioinfer.Core) -> None:
    network = load(core, "MULTI:REFERENCE.0,REFERENCE.1(2)")
    with core.import_network(network.export()) as imported:
        assert imported.device == network.device
        assert imported.execution_devices == network.execution_devices
        assert imported.optimal_request_count == network.optimal_request_count


@pytest.mark.parametrize("count", [0, -1, True, 2.5, "2", MOST_REQUESTS + 1, 1 << 31])
def test_a_count_that_no_list_takes_is_refused_in_a_blob(core: aioinfer.Core, count: Any) -> None:
    frames = frames_of(load(core, "MULTI:REFERENCE.0,REFERENCE.1(2)").export())
    members = json.dumps([["REFERENCE.0", count], ["REFERENCE.1", 2]]).encode()
    with pytest.raises(BlobError, match=r"damaged: REFERENCE\.0 takes .* requests"):
        core.import_network(blob_of({**frames, "members": members}))


def test_more_requests_than_devices_take_make_no_more_slots(core: aioinfer.Core) -> None:
    config = {"PERFORMANCE_HINT_NUM_REQUESTS": 65_536}
    with load(core, "MULTI:REFERENCE.0(2),REFERENCE.1(3)", **config) as network:
        assert network.optimal_request_count == 5


def test_an_import_is_on_those_of_its_devices_that_are_listed(core: aioinfer.Core) -> None:
    blob = load(core, "MULTI:REFERENCE.0,REFERENCE.1(2)").export()
    with core.import_network(blob, "MULTI:REFERENCE.1") as imported:
        assert imported.execution_devices == ("REFERENCE.1",)
    with core.import_network(blob, "MULTI:REFERENCE") as imported:
        assert imported.execution_devices == ("REFERENCE.0", "REFERENCE.1")
    with core.import_network(
        blob, config={"MULTI_DEVICE_PRIORITIES": "REFERENCE.1(5),REFERENCE.0"}
    ) as imported:
        assert imported.execution_devices == ("REFERENCE.1", "REFERENCE.0")
        assert "REFERENCE.1: up to 5 requests" in imported.explain()
    with pytest.raises(PropertyError, match=r"CPU in its list, .* REFERENCE.0, REFERENCE.1; list"):
        core.import_network(blob, "MULTI:REFERENCE.0,CPU")
