"""BATCH inside of other devices, other devices inside of BATCH, and what their devices are told."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.backends.batch.executable_network import BatchNetwork
from aioinfer.errors import BlobError, DeviceError, PropertyError

HEADER = '<ir_version: 9, opset_import: ["": 20]> g'
TEXT = "(float[b, 2] x) => (float[b, 2] y) { z = Relu (x) y = Neg (z) }"
PROPERTIES = "DEVICE_PROPERTIES"


def load(
    core: aioinfer.Core, device: str, properties: dict[str, dict[str, object]] | None = None
) -> aioinfer.ExecutableNetwork:
    model = parser.parse_model(f"{HEADER} {TEXT}")
    return core.load_network(model, device, {PROPERTIES: properties or {}})


def check(network: aioinfer.ExecutableNetwork) -> None:
    x = np.array([[1, -1], [2, 3]], np.float32)
    (y,) = network.create_infer_request().infer_sync(x).values()
    np.testing.assert_array_equal(y, -np.maximum(x, 0))


def test_requests_share_runs_of_a_model_that_is_divided(core: aioinfer.Core) -> None:
    network = load(core, "BATCH:HETERO:REFERENCE.0,REFERENCE.1(8)")
    assert network.get_metric("MAX_BATCH_SIZE") == 8
    assert network.device == "BATCH:HETERO:REFERENCE.0,REFERENCE.1(8)"
    check(network)


def test_what_is_chosen_may_join_requests(core: aioinfer.Core) -> None:
    network = load(core, "AUTO:BATCH:REFERENCE(8),REFERENCE")
    assert network.get_metric("MAX_BATCH_SIZE") == 8
    check(network)


@pytest.mark.parametrize(
    ("device", "named"),
    [
        ("BATCH:MULTI:REFERENCE.0,REFERENCE.1(8)", "BATCH:MULTI:REFERENCE.0,REFERENCE.1(8)"),
        ("BATCH:MULTI:REFERENCE.0,REFERENCE.1", "BATCH:MULTI:REFERENCE.0,REFERENCE.1(32)"),
        ("BATCH:AUTO:REFERENCE(8)", "BATCH:REFERENCE.0(8)"),
        (
            "MULTI:BATCH:REFERENCE.0(8),REFERENCE.1",
            "MULTI:BATCH:REFERENCE.0(8),REFERENCE.1",
        ),
        (
            "MULTI:BATCH:HETERO:REFERENCE.0(8),REFERENCE.1",
            "MULTI:BATCH:HETERO:REFERENCE.0(8),REFERENCE.1",
        ),
        (
            "AUTO:BATCH:MULTI:REFERENCE.0,REFERENCE.1(8),REFERENCE",
            "BATCH:MULTI:REFERENCE.0,REFERENCE.1(8)",
        ),
    ],
)
def test_each_pair_that_nests_answers(core: aioinfer.Core, device: str, named: str) -> None:
    network = load(core, device)
    assert network.device == named
    check(network)


async def test_requests_that_share_runs_go_to_several_devices(core: aioinfer.Core) -> None:
    network = load(core, "BATCH:MULTI:REFERENCE.0,REFERENCE.1(4)")
    rows = [np.array([[number, -number]], np.float32) for number in range(20)]
    found = await asyncio.gather(*(network.infer(x) for x in rows))
    for x, outputs in zip(rows, found, strict=True):
        np.testing.assert_array_equal(outputs["y"], -np.maximum(x, 0))
    (multi,) = network.statistics().parts
    assert sum(rows * count for rows, count in multi.batch_sizes.items()) == 20
    assert [part.device for part in multi.parts] == ["REFERENCE.0", "REFERENCE.1"]


def test_properties_reach_the_devices_inside_at_every_depth(core: aioinfer.Core) -> None:
    said = {"REFERENCE": {"NUM_STREAMS": 3}, "BATCH": {"AUTO_BATCH_TIMEOUT": 7}}
    network = load(core, "AUTO:BATCH:HETERO:REFERENCE(8)", said)
    assert network.get_config("AUTO_BATCH_TIMEOUT") == 7
    (hetero,) = network.statistics().parts
    (part,) = hetero.parts
    assert part.device == "REFERENCE.0"
    inner = core.load_network(
        parser.parse_model(f"{HEADER} {TEXT}"), "REFERENCE", said["REFERENCE"]
    )
    optimal = "OPTIMAL_NUMBER_OF_INFER_REQUESTS"
    streams = inner.get_metric(optimal)
    assert isinstance(network, BatchNetwork)
    assert network.compiled.get_metric(optimal) == streams


def test_what_is_said_of_the_nearer_one_wins(core: aioinfer.Core) -> None:
    said = {
        "BATCH": {PROPERTIES: {"REFERENCE": {"NUM_STREAMS": 2}}},
        "REFERENCE": {"NUM_STREAMS": 3},
    }
    network = load(core, "AUTO:BATCH:REFERENCE(8)", said)
    assert isinstance(network, BatchNetwork)
    assert network.compiled.get_config("NUM_STREAMS") == 2


def test_properties_of_a_device_that_is_nowhere_inside_are_refused(core: aioinfer.Core) -> None:
    with pytest.raises(PropertyError, match="names 'OPENCL', which is not among its devices"):
        load(core, "AUTO:BATCH:HETERO:REFERENCE(8)", {"OPENCL": {"NUM_STREAMS": 3}})


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("HETERO:BATCH:REFERENCE(8),REFERENCE", r"HETERO cannot hold BATCH:REFERENCE\(8\).*around"),
        ("BATCH:BATCH:REFERENCE(8)", "would hold itself"),
        ("AUTO:HETERO:REFERENCE.0,REFERENCE.1", "cannot hold another list"),
        ("AUTO:MULTI:REFERENCE.0,REFERENCE.1", "cannot hold another list"),
        ("MULTI:AUTO:REFERENCE,REFERENCE", "cannot hold another list"),
        ("MULTI:AUTO:REFERENCE", "Write AUTO alone, and give what it holds by DEVICE_PROPERTIES"),
        ("HETERO:MULTI:REFERENCE.0,REFERENCE.1", "cannot hold another list"),
        ("BATCH:MULTI:BATCH:REFERENCE(4),REFERENCE(8)", "a list in a list in a list"),
        ("BATCH:-REFERENCE", "leaves REFERENCE out, and uses only what is listed"),
        ("HETERO:-REFERENCE.0,REFERENCE", "leaves REFERENCE.0 out"),
        ("AUTO:BATCH:NOWHERE(8),REFERENCE", "NOWHERE"),
    ],
)
def test_what_does_not_nest_is_refused_with_the_way_out(
    core: aioinfer.Core, device: str, message: str
) -> None:
    with pytest.raises(DeviceError, match=message):
        load(core, device)


@pytest.mark.parametrize(
    ("exported", "wanted", "named"),
    [
        ("BATCH:REFERENCE(4)", "MULTI", "BATCH:REFERENCE.0(4)"),
        ("BATCH:REFERENCE(4)", "MULTI:REFERENCE", "BATCH:REFERENCE.0(4)"),
        ("BATCH:REFERENCE(4)", "HETERO:REFERENCE", "BATCH:REFERENCE.0(4)"),
        ("BATCH:REFERENCE(4)", "REFERENCE", "BATCH:REFERENCE.0(4)"),
        ("BATCH:REFERENCE(4)", "AUTO", "BATCH:REFERENCE.0(4)"),
        ("BATCH:REFERENCE(4)", "BATCH:HETERO:REFERENCE(4)", "REFERENCE.0"),
        ("HETERO:REFERENCE", "MULTI", "HETERO:REFERENCE"),
        ("HETERO:REFERENCE", "BATCH:REFERENCE(4)", "HETERO:REFERENCE"),
    ],
)
def test_a_blob_of_another_device_is_refused_with_the_way_out(
    core: aioinfer.Core, exported: str, wanted: str, named: str
) -> None:
    model = parser.parse_model(f"{HEADER} {TEXT}")
    blob = core.load_network(model, exported, {"EXPORTABLE": True}).export()
    with pytest.raises(BlobError) as refused:
        core.import_network(blob, wanted)
    text = str(refused.value)
    assert f"exported by {named!r} and cannot be imported on" in text
    assert "import it without a device" in text
    check(core.import_network(blob))


def test_a_blob_of_batch_takes_another_number_of_rows(core: aioinfer.Core) -> None:
    blob = load(core, "BATCH:REFERENCE(4)").export()
    network = core.import_network(blob, "BATCH:REFERENCE(8)")
    assert network.get_metric("MAX_BATCH_SIZE") == 8
    check(network)


@pytest.mark.parametrize(
    ("device", "held", "named"),
    [
        ("MULTI:AUTO", "AUTO", "REFERENCE.0"),
        ("MULTI:AUTO,REFERENCE.1", "AUTO", "MULTI:AUTO,REFERENCE.1"),
        ("AUTO:MULTI", "MULTI", "MULTI:REFERENCE.0,REFERENCE.1"),
        ("HETERO:AUTO", "AUTO", "HETERO:AUTO"),
        ("HETERO:MULTI", "MULTI", "HETERO:MULTI"),
        ("BATCH:MULTI(4)", "MULTI", "BATCH:MULTI:REFERENCE.0,REFERENCE.1(4)"),
    ],
)
def test_a_list_whose_devices_stand_among_the_properties_may_be_held(
    core: aioinfer.Core, device: str, held: str, named: str
) -> None:
    devices = "REFERENCE.0" if held == "AUTO" else "REFERENCE.0,REFERENCE.1"
    network = load(core, device, {held: {"MULTI_DEVICE_PRIORITIES": devices}})
    assert network.device == named
    check(network)
