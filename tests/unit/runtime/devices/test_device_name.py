"""Device strings: what each form means, and where a wrong one is said to be wrong."""

from __future__ import annotations

import pytest

from aioinfer.errors import DeviceError
from aioinfer.runtime.devices.device_name import (
    DeviceEntry,
    DeviceName,
    check_plugin_name,
    devices_inside,
    parse_device,
    parse_entries,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CPU", DeviceName("CPU")),
        ("  CPU ", DeviceName("CPU")),
        ("my_device2", DeviceName("my_device2")),
        ("CUDA.1", DeviceName("CUDA", "1")),
        ("CUDA.0.1", DeviceName("CUDA", "0.1")),
        ("NET.host-3", DeviceName("NET", "host-3")),
        ("HETERO:CUDA", DeviceName("HETERO", None, (DeviceEntry("CUDA"),))),
        (
            "MULTI:CUDA.1,CPU(2)",
            DeviceName("MULTI", None, (DeviceEntry("CUDA.1"), DeviceEntry("CPU", 2))),
        ),
        (
            "MULTI: CUDA.1 (04) , CPU",
            DeviceName("MULTI", None, (DeviceEntry("CUDA.1", 4), DeviceEntry("CPU"))),
        ),
        ("BATCH:CPU(8)", DeviceName("BATCH", None, (DeviceEntry("CPU", 8),))),
        ("BATCH:CPU,CUDA", DeviceName("BATCH", None, (DeviceEntry("CPU"), DeviceEntry("CUDA")))),
        (
            "MULTI:BATCH:CUDA(32),CPU",
            DeviceName("MULTI", None, (DeviceEntry("BATCH:CUDA(32)"), DeviceEntry("CPU"))),
        ),
        (
            "MULTI:CPU(2), BATCH:CUDA.1",
            DeviceName("MULTI", None, (DeviceEntry("CPU", 2), DeviceEntry("BATCH:CUDA.1"))),
        ),
        (
            "BATCH:HETERO:CPU,REFERENCE(8)",
            DeviceName("BATCH", None, (DeviceEntry("HETERO:CPU,REFERENCE", 8),)),
        ),
        ("BATCH:HETERO:A,B", DeviceName("BATCH", None, (DeviceEntry("HETERO:A,B"),))),
        (
            "MULTI:BATCH : HETERO : A , B (8) , C(2)",
            DeviceName("MULTI", None, (DeviceEntry("BATCH:HETERO:A,B(8)"), DeviceEntry("C", 2))),
        ),
        (
            "AUTO:-OPENCL, CUDA",
            DeviceName("AUTO", None, (DeviceEntry("OPENCL", None, True), DeviceEntry("CUDA"))),
        ),
        ("BATCH:AUTO:-CUDA(4)", DeviceName("BATCH", None, (DeviceEntry("AUTO:-CUDA", 4),))),
    ],
)
def test_a_device_string_is_a_name_an_id_or_a_list(text: str, expected: DeviceName) -> None:
    assert parse_device(text) == expected
    assert parse_device(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the device name is empty; give one such as 'CPU'"),
        ("  ", "empty"),
        (None, "a device is a string such as 'CPU', not NoneType"),
        (7, "not int"),
        ("CPU.", "the id after the dot is missing"),
        ("CPU.a b", "bad characters"),
        (".1", "'' is not a device name"),
        ("CPU,GPU", "'CPU,GPU' is not a device name; the grammar is NAME, NAME.ID or VIRTUAL:A"),
        ("1CPU", "not a device name"),
        ("CPU(2)", "not a device name"),
        (":CPU", "'' is not a device name"),
        ("HETERO.1:CPU", "'HETERO.1' is not a device name"),
        ("HETERO:", "'' is not NAME, NAME.ID or NAME\\(count\\); look for an empty item"),
        ("HETERO:A,,B", "empty item"),
        ("HETERO:A,B)", "'B\\)' is not NAME"),
        ("HETERO:A(2", "stray parenthesis"),
        ("HETERO:A(2)(3)", "stray parenthesis"),
        ("HETERO:(2)", "'\\(2\\)' is not NAME"),
        ("HETERO:A()", "the count in 'A\\(\\)' must be a number from 1 to 999999"),
        ("HETERO:A(0)", "the count in 'A\\(0\\)'"),
        ("HETERO:A(-1)", "the count"),
        ("HETERO:A(1.5)", "the count"),
        ("HETERO:A(²)", "the count"),
        (f"HETERO:A({'9' * 5000})", "the count"),
        ("HETERO:A,MULTI:B", "a device list cannot hold another list"),
        ("MULTI:HETERO:A,B", "nothing would say where 'HETERO:A' ends"),
        ("MULTI:BATCH:BATCH:A", "BATCH:BATCH:A holds itself"),
        ("BATCH:HETERO:BATCH:A(2),B(3)", "'BATCH:A\\(2\\)' would be a list in a list in a list"),
        ("MULTI:BATCH:A(2)(3)", "'A\\(2\\)\\(3\\)' is not NAME"),
        ("MULTI:BATCH:,A", "'' is not NAME"),
        ("MULTI:B.1:A,B", "'B.1' is not a device name"),
        ("AUTO:-A(2)", "'-A\\(2\\)' leaves a device out, and has a count"),
        ("AUTO:-BATCH:A", "would be a list in a list"),
        ("AUTO:--A", "'-A' is not a device name"),
        ("BATCH:" * 5000 + "A", "holds itself"),
        ("HETERO:A b", "'A b' is not a device name"),
    ],
)
def test_a_wrong_device_string_is_refused_where_it_is_wrong(text: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        parse_device(text)


def test_what_follows_the_colon_is_parsed_without_knowing_whose_it_is() -> None:
    assert parse_entries("HETERO:A,B(8)") == (DeviceEntry("HETERO:A,B", 8),)
    assert parse_entries("BATCH:A(8),B") == (DeviceEntry("BATCH:A(8)"), DeviceEntry("B"))
    with pytest.raises(DeviceError, match="empty item"):
        parse_entries("A,")


def test_the_devices_inside_are_those_at_every_depth_that_are_to_be_used() -> None:
    assert devices_inside("CPU.1") == ()
    assert devices_inside("AUTO:-CUDA,CPU") == ("CPU",)
    inside = devices_inside("MULTI:BATCH:HETERO:CUDA.1,CPU(8),OPENCL(2)")
    whole = "BATCH:HETERO:CUDA.1,CPU(8)"
    assert inside == (whole, "HETERO:CUDA.1,CPU", "CUDA.1", "CPU", "OPENCL")


@pytest.mark.parametrize("name", ["", "MY.DEVICE", "A:B", "A,B", "a b", "9GPU", "Ä"])
def test_a_plugin_is_registered_under_a_plain_word(name: str) -> None:
    with pytest.raises(DeviceError, match="cannot be a plugin's name"):
        check_plugin_name(name)


def test_a_plugin_name_that_is_no_string_is_refused() -> None:
    with pytest.raises(DeviceError, match="cannot be a plugin's name"):
        check_plugin_name(5)  # type: ignore[arg-type]
