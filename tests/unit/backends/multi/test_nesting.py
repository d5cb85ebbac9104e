"""Which devices made of devices hold which others, and that what is said reaches those inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.errors import DeviceError

TEXT = (
    '<ir_version: 9, opset_import: ["": 20]> g (float[b, 2] x) => (float[b, 2] y) '
    "{ z = Relu (x) y = Neg (z) }"
)
LISTS = {
    "AUTO": "REFERENCE.1,REFERENCE.0",
    "BATCH": "REFERENCE.1(8)",
    "HETERO": "REFERENCE.1,REFERENCE.0",
    "MULTI": "REFERENCE.1,REFERENCE.0",
}
STREAMS = {"REFERENCE": {"NUM_STREAMS": 3}}
NESTING = [
    ("AUTO:BATCH,REFERENCE", "BATCH", {"REFERENCE.1"}),
    ("AUTO:HETERO,REFERENCE", "HETERO", {"REFERENCE.1"}),
    ("AUTO:MULTI,REFERENCE", "MULTI", {"REFERENCE.1", "REFERENCE.0"}),
    ("BATCH:AUTO", "AUTO", {"REFERENCE.1"}),
    ("BATCH:HETERO", "HETERO", {"REFERENCE.1"}),
    ("HETERO:AUTO,REFERENCE", "AUTO", {"REFERENCE.1"}),
    ("HETERO:MULTI,REFERENCE", "MULTI", {"REFERENCE.1", "REFERENCE.0"}),
    ("MULTI:AUTO,REFERENCE.0", "AUTO", {"REFERENCE.1"}),
    ("MULTI:BATCH,REFERENCE.0", "BATCH", {"REFERENCE.1"}),
    ("MULTI:HETERO,REFERENCE.0", "HETERO", {"REFERENCE.1"}),
]


def load(
    core: aioinfer.Core, device: str, properties: dict[str, Any] | None = None
) -> aioinfer.ExecutableNetwork:
    model = parser.parse_model(TEXT)
    return core.load_network(model, device, {"DEVICE_PROPERTIES": properties or {}})


def inside(network: Any) -> list[aioinfer.ExecutableNetwork]:
    """List the networks of single devices that one is made of."""
    parts = getattr(network, "networks", ()) or (getattr(network, "compiled", None),)
    if parts == (None,):
        return [network]
    return [leaf for part in parts for leaf in inside(part)]


def check(network: aioinfer.ExecutableNetwork, count: int = 6) -> None:
    requests = [network.create_infer_request() for _ in range(count)]
    for number, request in enumerate(requests):
        request.start_async(np.full((1, 2), number, np.float32))
    for number, request in enumerate(requests):
        request.wait()
        np.testing.assert_array_equal(request.results["y"], [[-number, -number]])


@pytest.mark.parametrize(("device", "inner", "devices"), NESTING)
def test_an_inner_list_is_given_by_properties_which_reach_its_devices(
    device: str, inner: str, devices: set[str], core: aioinfer.Core
) -> None:
    said = {inner: {"MULTI_DEVICE_PRIORITIES": LISTS[inner], "DEVICE_PROPERTIES": STREAMS}}
    with load(core, device, said) as network:
        told = {leaf.device for leaf in inside(network) if leaf.config["NUM_STREAMS"] == 3}
        assert told == devices
        check(network)
        statistics = network.statistics()
        assert statistics.finished_request_count == 6
        assert statistics.running_run_count == statistics.waiting_run_count == 0
    assert all(leaf.is_closed for leaf in inside(network))


@pytest.mark.parametrize(
    ("device", "devices"),
    [
        ("AUTO:BATCH:REFERENCE.1(8),REFERENCE", {"REFERENCE.1"}),
        ("MULTI:BATCH:REFERENCE.1(8),REFERENCE.0", {"REFERENCE.0", "REFERENCE.1"}),
        ("BATCH:HETERO:REFERENCE.1,REFERENCE.0(8)", {"REFERENCE.1"}),
        ("BATCH:AUTO:REFERENCE.1,REFERENCE.0(8)", {"REFERENCE.1"}),
    ],
)
def test_what_is_written_out_tells_the_devices_at_every_depth(
    device: str, devices: set[str], core: aioinfer.Core
) -> None:
    with load(core, device, STREAMS) as network:
        assert {leaf.device for leaf in inside(network)} == devices
        assert all(leaf.config["NUM_STREAMS"] == 3 for leaf in inside(network))
        check(network)


@pytest.mark.parametrize("name", ["AUTO", "HETERO", "MULTI"])
def test_three_deep_is_as_good(name: str, core: aioinfer.Core) -> None:
    innermost = {"MULTI_DEVICE_PRIORITIES": LISTS[name], "DEVICE_PROPERTIES": STREAMS}
    said = {"BATCH": {"MULTI_DEVICE_PRIORITIES": name, "DEVICE_PROPERTIES": {name: innermost}}}
    outer = "AUTO" if name == "MULTI" else "MULTI"
    with load(core, f"{outer}:BATCH,REFERENCE.0", said) as network:
        assert {leaf.config["NUM_STREAMS"] for leaf in inside(network)} >= {3}
        check(network)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("MULTI:AUTO:REFERENCE.0,REFERENCE.1", "'AUTO': {'MULTI_DEVICE_PRIORITIES'"),
        ("AUTO:MULTI:REFERENCE.0,REFERENCE.1", "'MULTI': {'MULTI_DEVICE_PRIORITIES'"),
        ("HETERO:MULTI:REFERENCE.0,REFERENCE.1", "'MULTI': {'MULTI_DEVICE_PRIORITIES'"),
        ("MULTI:HETERO:REFERENCE.0,REFERENCE.1", "'HETERO': {'MULTI_DEVICE_PRIORITIES'"),
        ("HETERO:BATCH,REFERENCE", "HETERO cannot hold BATCH.*join requests around it"),
        ("AUTO:AUTO,REFERENCE", "AUTO:AUTO,REFERENCE would hold itself"),
        ("HETERO:HETERO,REFERENCE", "would hold itself"),
        ("MULTI:MULTI,REFERENCE", "would hold itself"),
        ("BATCH:BATCH", "would hold itself"),
        ("MULTI:HETERO,HETERO", "HETERO twice"),
    ],
)
def test_what_does_not_nest_is_refused_with_the_way_out(
    device: str, message: str, core: aioinfer.Core
) -> None:
    with pytest.raises(DeviceError, match=message):
        load(core, device)


def test_a_list_without_an_inner_list_says_what_it_lacks(core: aioinfer.Core) -> None:
    with pytest.raises(DeviceError, match="MULTI shares out requests among devices; name them"):
        load(core, "HETERO:MULTI,REFERENCE")
