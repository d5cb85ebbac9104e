"""The way out of a refusal: another one than what the user has asked for."""

from __future__ import annotations

import pytest

from aioinfer.errors import UnsupportedOpError


@pytest.mark.parametrize(
    ("device", "way_out"),
    [
        ("CPU", "try device 'HETERO:CPU,REFERENCE'"),
        ("OPENCL.1", "try device 'HETERO:OPENCL.1,REFERENCE'"),
        ("HETERO", "change the list of its devices, in MULTI_DEVICE_PRIORITIES"),
        ("AUTO", "change the list of its devices, in MULTI_DEVICE_PRIORITIES"),
        ("REFERENCE", "add the operator with Core.add_extension"),
        ("REFERENCE.1", "add the operator with Core.add_extension"),
        (
            "HETERO:CPU,REFERENCE",
            "give the node to another device with AFFINITY={'n': ...}, or change the list of "
            "'HETERO:CPU,REFERENCE'",
        ),
    ],
)
def test_the_way_out_is_not_the_device_that_was_asked_for(device: str, way_out: str) -> None:
    refusal = UnsupportedOpError("n", "Relu", "CPU", "it is too hot").told_to(device)
    assert str(refusal) == f"CPU cannot run Relu (node 'n'): it is too hot; {way_out}"
    assert (refusal.node, refusal.op, refusal.device) == ("n", "Relu", "CPU")
    assert str(UnsupportedOpError("n", "Relu", device, "why")).endswith(way_out)
