"""What a closed network or Core leaves, with the collector off: nothing that takes memory."""

from __future__ import annotations

import gc
import os
import re
from typing import Any
from weakref import ref

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core, ExecutableNetwork
from aioinfer.errors import ClosedError, TensorError
from aioinfer.runtime.graph import Value
from exhaustive import all_but
from resident_memory import resident_bytes

pytestmark = pytest.mark.usefixtures("no_collector")

SIDE = 700
COUNT = 6
WEIGHT_BYTES = COUNT * SIDE * SIDE * 4  # 11 MiB
NAMES = [f"w{index}" for index in range(COUNT)]
HETERO = {"AFFINITY": {"product0": "CPU", "product1": "REFERENCE"}}
DEVICES: dict[str, tuple[str, dict[str, Any]]] = {
    "CPU": ("CPU", {}),
    "CPU with two streams": ("CPU", {"NUM_STREAMS": 2}),
    "REFERENCE": ("REFERENCE", {}),
    "ONNXRUNTIME": ("ONNXRUNTIME", {}),
    "HETERO": ("HETERO:CPU,REFERENCE", HETERO),
    "AUTO": ("AUTO", {}),
    "BATCH": ("BATCH:CPU", {}),
    "MULTI": ("MULTI:CPU,REFERENCE", {}),
    "MULTI of BATCH": ("MULTI:BATCH:CPU(4),REFERENCE", {}),
    "OPENCL": ("OPENCL", {}),
}
Loaded = tuple[Core, str, dict[str, Any], str]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    chance = np.random.default_rng(5)
    nodes, last = [], "x"
    for index, name in enumerate(NAMES):
        nodes.append(helper.make_node("MatMul", [last, name], [f"p{index}"], f"product{index}"))
        last = "y" if index == COUNT - 1 else f"a{index}"
        nodes.append(helper.make_node("Relu", [f"p{index}"], [last], f"act{index}"))
    weights = [
        numpy_helper.from_array(chance.standard_normal((SIDE, SIDE)).astype(np.float32), name)
        for name in NAMES
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", SIDE])] for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "weighty", *ends, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = tmp_path_factory.mktemp("models") / "weighty.onnx"
    onnx.save(proto, file)
    return os.fspath(file)


@pytest.fixture(params=all_but(["CPU", "HETERO", "OPENCL"], DEVICES))
def loaded(core: Core, path: str, request: pytest.FixtureRequest) -> Loaded:
    device, config = DEVICES[request.param]
    for name in re.findall("[A-Z]+", device):
        is_made = name in ("AUTO", "HETERO", "BATCH", "MULTI")
        if not is_made and not any(item.startswith(name) for item in core.available_devices):
            pytest.skip(f"{name} is not here")
    return core, device, config, path


def load(loaded: Loaded) -> ExecutableNetwork:
    core, device, config, path = loaded
    return core.load_network(path, device, config)


def use(network: ExecutableNetwork) -> list[ref[Any]]:
    """Run requests that end in all ways; return references to all that is not to stay."""
    requests = [network.create_infer_request() for _ in range(4)]
    for rows, request in enumerate(requests, start=1):
        assert request.infer_sync(np.ones((rows, SIDE), np.float32))["y"].shape == (rows, SIDE)
    requests[0].start_async(np.ones((9, SIDE), np.float32))
    requests[0].cancel()
    with pytest.raises(TensorError):
        requests[1].start_async(np.ones((2, 3), np.float32))
    requests[2].set_callback(lambda *_: None)
    requests[2].start_async(np.ones((1, SIDE), np.float32), deadline_s=60.0)
    requests[2].wait(30.0)
    slots = list(network.admission._idle)
    runs = [request._run for request in requests]
    return [ref(item) for item in (network, network.admission, *requests, *slots, *runs)]


def real_weights() -> list[str]:
    """List the values of all graphs whose content is a weight of this model, and no stand-in."""
    return [
        item.name
        for item in gc.get_objects()
        if isinstance(item, Value)
        and item.name in NAMES
        and item.constant is not None
        and item.constant.strides != (0, 0)
    ]


def test_a_closed_network_that_nothing_holds_is_gone_at_once(loaded: Loaded) -> None:
    network = load(loaded)
    alive = use(network)
    network.close()
    del network
    assert [type(item()).__name__ for item in alive if item() is not None] == []
    assert real_weights() == []


def test_a_closed_network_that_is_held_keeps_no_weights(loaded: Loaded) -> None:
    network = load(loaded)
    use(network)
    request = network.create_infer_request()
    network.close()
    assert real_weights() == []
    with pytest.raises(ClosedError, match="is closed; load it again"):
        request.infer_sync(np.ones((1, SIDE), np.float32))
    assert network.statistics().finished_request_count >= 4
    assert network.statistics().running_run_count == 0
    assert len(network.runtime_graph()) > 0
    assert "closed" in repr(network)
    assert network.explain()
    for key in network.get_metric("SUPPORTED_METRICS"):
        network.get_metric(key)


@pytest.mark.parametrize("holds", [False, True], ids=["dropped", "held"])
def test_reloading_again_and_again_takes_no_more_memory(loaded: Loaded, holds: bool) -> None:
    """Load the new one, swap, close the old one."""
    if loaded[1] in ("ONNXRUNTIME", "OPENCL"):
        pytest.skip("its library gives memory back to the system when it likes")
    held: list[ExecutableNetwork] = []
    current = load(loaded)
    use(current)
    for turn in range(8):
        if turn == 2:
            before = resident_bytes()
        old, current = current, load(loaded)
        use(current)
        old.close()
        held += [old] if holds else []
        del old
    grown = resident_bytes() - before
    current.close()
    assert grown < WEIGHT_BYTES, f"{grown / 2**20:.1f} MiB more after six reloads"


@pytest.mark.parametrize("device", ["CPU", "REFERENCE", "HETERO:CPU,REFERENCE", "AUTO"])
def test_a_closed_core_that_nothing_holds_is_gone_at_once(path: str, device: str) -> None:
    config = HETERO if device.startswith("HETERO") else {}
    core = Core()
    assert core.available_devices
    network = core.load_network(path, device, config)
    network.create_infer_request().infer_sync(np.ones((1, SIDE), np.float32))
    plugin = core.plugin_of("REFERENCE")
    gone = [ref(core), ref(core.executors), ref(core.plugin_of("CPU"))]
    core.unregister_plugin("REFERENCE")
    core.close()
    assert plugin.core is not core, "a plugin that is held keeps no Core"
    del core, network, plugin
    assert [type(item()).__name__ for item in gone if item() is not None] == []


def test_a_closed_core_and_its_plugins_say_so_and_close_again() -> None:
    made = Core()
    names, plugin = made.plugin_names, made.plugin_of("HETERO")
    made.close()
    assert made.plugin_names == names
    assert "closed" in repr(made)
    assert made.close()
    for ask in (
        lambda: made.get_metric("CPU", "FULL_DEVICE_NAME"),
        lambda: made.why_missing("CPU"),
        lambda: made.available_devices,
        lambda: made._registry.get("CPU"),
        lambda: plugin.core.load_network("model.onnx", "CPU"),
        lambda: plugin.core.available_devices,
    ):
        with pytest.raises(ClosedError, match="this Core is closed; make a new one"):
            ask()
