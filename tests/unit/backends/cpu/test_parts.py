"""CPU.0 and CPU.1: parts of the one device, each with CPUs of its own, where a list names both."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper

import aioinfer
from aioinfer.backends.cpu import plugin as cpu_plugin
from aioinfer.backends.cpu.stream_choice import share_of
from aioinfer.errors import DeviceError, PropertyError
from aioinfer.executors import CpuAllowance
from aioinfer.executors.streams import StreamsConfig, StreamsExecutor

needs_two = pytest.mark.skipif(
    len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="wants two CPUs"
)
PIPELINE = {"PARTITION_POLICY": "PIPELINE", "NODE_TIMES": {"CPU": {"a": 1.0, "b": 1.0}}}


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made


def model() -> bytes:
    nodes = [
        helper.make_node("Softmax", ["x"], ["y"], name="a"),
        helper.make_node("Softmax", ["y"], ["z"], name="b", axis=0),
    ]
    x, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 8]) for n in "xz")
    graph = helper.make_graph(nodes, "two", [x], [z])
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)]
    ).SerializeToString()
    return made


def affinity_of_workers(prefix: str) -> dict[str, set[int]]:
    return {
        thread.name: os.sched_getaffinity(thread.native_id or 0)
        for thread in threading.enumerate()
        if thread.name.startswith(prefix)
    }


@needs_two
def test_a_pipeline_over_two_parts_has_disjoint_cpus(core: aioinfer.Core) -> None:
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    with core.load_network(model(), "CPU") as whole:
        expected = whole.create_infer_request().infer_sync(x)["z"]
    before = set(affinity_of_workers("CPU."))
    with core.load_network(model(), "HETERO:CPU.0,CPU.1", PIPELINE) as network:
        assert network.execution_devices == ("CPU.0", "CPU.1")
        assert [part.config["DEVICE_SHARE"] for part in network.networks] == ["0/2", "1/2"]
        np.testing.assert_allclose(
            network.create_infer_request().infer_sync(x)["z"], expected, rtol=1e-6
        )
        workers = affinity_of_workers("CPU.")
        sets = [cpus for name, cpus in workers.items() if name not in before]
        assert len(sets) == 2
        assert not sets[0] & sets[1]
        assert sets[0] | sets[1] == os.sched_getaffinity(os.getpid())


@needs_two
def test_cpu_alone_is_what_it_was(core: aioinfer.Core) -> None:
    assert "CPU" in core.available_devices
    assert core.get_metric("CPU", "AVAILABLE_DEVICES") == ["0"]
    for device in ("CPU", "CPU.0"):
        with core.load_network(model(), device) as network:
            assert network.device == "CPU.0"
            assert network.config["DEVICE_SHARE"] == ""


@needs_two
def test_a_later_part_alone_is_one_cpu(core: aioinfer.Core) -> None:
    cpus = sorted(os.sched_getaffinity(os.getpid()))
    with core.load_network(model(), "CPU.1") as network:
        network.create_infer_request().infer_sync(np.zeros((4, 8), np.float32))
        assert affinity_of_workers("CPU.1") == {"CPU.1.0": {cpus[1]}}


def test_more_parts_than_cpus_are_refused(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_plugin, "allowed_cpus", lambda: CpuAllowance((0, 1)))
    with pytest.raises(DeviceError, match=r"may use 2 CPUs, so the last part of one is CPU\.1"):
        core.load_network(model(), "CPU.2")
    with pytest.raises(PropertyError, match="3 parts with CPUs of their own are wanted"):
        core.load_network(model(), "CPU", {"DEVICE_SHARE": "0/3"})
    with pytest.raises(DeviceError, match="no device 'first'"):
        core.load_network(model(), "CPU.first")


@pytest.mark.parametrize("given", ["2/2", "1", "a/b", "/2", 3])
def test_a_share_that_is_none_is_refused(core: aioinfer.Core, given: object) -> None:
    with pytest.raises(PropertyError, match="'0/2' for the first of two"):
        core.load_network(model(), "CPU", {"DEVICE_SHARE": given})


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ({"DEVICE_ID": "0", "DEVICE_SHARE": ""}, (0, 1)),
        ({"DEVICE_ID": "3", "DEVICE_SHARE": ""}, (3, 8)),
        ({"DEVICE_ID": "5", "DEVICE_SHARE": "1/2"}, (1, 2)),
    ],
)
def test_the_share_of_a_name(values: dict[str, str], share: tuple[int, int]) -> None:
    assert share_of(values, CpuAllowance(tuple(range(8)))) == share


def test_callers_do_not_compute_for_a_stream_with_cpus_of_its_own() -> None:
    executor = StreamsExecutor(StreamsConfig("pinned", 1, 1, cpus=(0,)))
    assert executor.borrow_lane() is None
    executor.close()


@needs_two
def test_a_share_that_the_user_gives_goes_before_the_lists(core: aioinfer.Core) -> None:
    config = {**PIPELINE, "DEVICE_PROPERTIES": {"CPU.0": {"DEVICE_SHARE": "1/2"}}}
    with core.load_network(model(), "HETERO:CPU.0,CPU.1", config) as network:
        assert [part.config["DEVICE_SHARE"] for part in network.networks] == ["1/2", "1/2"]
