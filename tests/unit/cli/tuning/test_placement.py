"""Where BATCH can be around a device, and where the properties go then."""

from __future__ import annotations

import pytest

from aioinfer.cli.tuning.placement import Placement, batch_around, placed_on_batch

OF_BATCH = {"PERFORMANCE_HINT", "MAX_QUEUED_REQUESTS", "DEVICE_PROPERTIES"}


@pytest.mark.parametrize(
    ("device", "around"),
    [
        ("CPU", "BATCH:CPU(8)"),
        ("CUDA.1", "BATCH:CUDA.1(8)"),
        ("HETERO:CUDA,CPU", "BATCH:HETERO:CUDA,CPU(8)"),
        ("AUTO:-OPENCL", "BATCH:AUTO:-OPENCL(8)"),
        ("BATCH:CPU", None),
        ("BATCH:CPU(4)", None),
        ("MULTI:CUDA(2),CPU", None),
        ("MULTI:CUDA,CPU(2)", None),
        ("MULTI:BATCH:CUDA(32),CPU", None),
        ("MULTI:CPU,BATCH:CUDA(32)", None),
        ("", None),
    ],
)
def test_batch_is_around_what_its_name_can_hold(device: str, around: str | None) -> None:
    assert batch_around(device, 8) == around


def test_what_batch_does_not_know_is_for_the_device_inside() -> None:
    config = {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": 2, "MAX_QUEUED_REQUESTS": "4"}
    assert placed_on_batch("CPU", config, 8, OF_BATCH.__contains__) == Placement(
        "BATCH:CPU(8)",
        {
            "PERFORMANCE_HINT": "THROUGHPUT",
            "MAX_QUEUED_REQUESTS": "4",
            "DEVICE_PROPERTIES": {"CPU": {"NUM_STREAMS": 2}},
        },
    )


def test_what_was_said_of_devices_stays() -> None:
    said = {"CPU": {"NUM_STREAMS": "3"}}
    config = {"DEVICE_PROPERTIES": said}
    placed = placed_on_batch("HETERO:CUDA,CPU", config, 8, OF_BATCH.__contains__)
    assert placed == Placement("BATCH:HETERO:CUDA,CPU(8)", config)
    config = {"DEVICE_PROPERTIES": said, "PARTITION_POLICY": "PIPELINE"}
    placed = placed_on_batch("HETERO:CUDA,CPU", config, 8, OF_BATCH.__contains__)
    assert placed.config["DEVICE_PROPERTIES"] == {
        "CPU": {"NUM_STREAMS": "3"},
        "HETERO:CUDA,CPU": {"PARTITION_POLICY": "PIPELINE"},
    }
    assert said == {"CPU": {"NUM_STREAMS": "3"}}


def test_nothing_is_said_of_a_device_that_is_given_nothing() -> None:
    assert placed_on_batch("CPU", {}, 2, OF_BATCH.__contains__) == Placement("BATCH:CPU(2)", {})
