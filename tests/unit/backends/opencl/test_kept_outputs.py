"""Outputs that stay in the memory of a real OpenCL device: read there, downloaded once, freed."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from aioinfer import Core, ExecutableNetwork, Tensor
from aioinfer.errors import ClosedError, RequestCancelledError
from opencl_device import choose_device

SIDE = 256
X = np.linspace(-1, 1, SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
STAYS = {"OUTPUT_LOCATION": {"y": "DEVICE"}, "PERF_COUNT": True}


def model() -> onnx.ModelProto:
    """Make y = relu(x @ w)."""
    weights = np.eye(SIDE, dtype=np.float32) * 2
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, SIDE]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "g",
        ports[:1],
        ports[1:],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def expected(times: int = 1) -> np.ndarray:
    return np.asarray(np.maximum(X, 0) * np.float32(2**times))


@pytest.fixture
def own_core(core: Core) -> Iterator[Core]:
    with Core() as own:
        choose_device(own)
        yield own


@pytest.fixture
def network(own_core: Core) -> ExecutableNetwork:
    return own_core.load_network(model(), "OPENCL", STAYS)


def kept(network: ExecutableNetwork, given: object = X) -> Tensor:
    tensor = network.create_infer_request().infer_sync({"x": given})["y"]
    assert isinstance(tensor, Tensor)
    assert tensor.device == network.device
    return tensor


def test_a_chain_of_networks_uploads_once_and_downloads_once(
    own_core: Core, network: ExecutableNetwork
) -> None:
    second = own_core.load_network(model(), "OPENCL", STAYS)
    tensor = kept(network)
    for _ in range(5):
        tensor = kept(second, tensor)
    for _ in range(3):
        np.testing.assert_allclose(tensor.numpy(), expected(6), rtol=1e-5)
    copied = network.statistics().copied_bytes
    assert copied["upload"]["upload"] == X.nbytes
    assert not [stage for stage, counts in copied.items() if "download" in counts]
    assert second.statistics().copied_bytes == {"compute": {"later_download": X.nbytes}}


def test_runs_on_both_read_it_behind_its_event(own_core: Core, network: ExecutableNetwork) -> None:
    second = own_core.load_network(model(), "OPENCL")
    readers = []
    for _ in range(8):
        tensor = kept(network)
        request = second.create_infer_request()
        request.start_async({"x": tensor})
        del tensor
        readers.append(request)
        kept(network, X * 0)  # would write what nobody held
    for request in readers:
        request.wait()
        np.testing.assert_allclose(request.results["y"], expected(2), rtol=1e-5)


def test_a_network_elsewhere_downloads_it_once_on_a_thread_of_its_own(
    own_core: Core, network: ExecutableNetwork
) -> None:
    elsewhere = own_core.load_network(model(), "CPU")
    tensor = kept(network)
    for _ in range(3):
        found = elsewhere.create_infer_request().infer_sync({"x": tensor})["y"]
        np.testing.assert_allclose(found, expected(2), rtol=1e-5)
    assert network.statistics().copied_bytes["compute"] == {"later_download": X.nbytes}
    downloads = [span for span in elsewhere.trace() if span.stage == "download inputs"]
    assert [span.executor for span in downloads] == ["downloads"]


def test_dlpack_gives_the_hosts_copy_and_refuses_the_devices(network: ExecutableNetwork) -> None:
    tensor = kept(network)
    np.testing.assert_allclose(np.from_dlpack(tensor, device="cpu"), expected(), rtol=1e-5)
    with pytest.raises(BufferError, match="no library takes memory of OPENCL"):
        tensor.__dlpack__()
    assert tensor.__dlpack_device__() != (1, 0)


def test_its_memory_serves_the_next_run_once_nobody_holds_it(network: ExecutableNetwork) -> None:
    gc.collect()
    gc.disable()
    try:
        tensor = kept(network)
        block = tensor.content.block
        first, pool = block.memory, block._pool
        assert list(pool._free) == []
        reader = tensor.content
        del tensor, block
        assert list(pool._free) == [], "somebody still has it"
        del reader
        assert list(pool._free) == [first]
        assert kept(network).content.block.memory is first
    finally:
        gc.enable()


def test_a_reader_that_is_cancelled_leaves_it_as_it_was(
    own_core: Core, network: ExecutableNetwork
) -> None:
    second = own_core.load_network(model(), "OPENCL", STAYS)
    tensor = kept(network)
    for _ in range(20):
        request = second.create_infer_request()
        request.start_async({"x": tensor})
        request.cancel()
        try:
            request.wait()
        except RequestCancelledError:
            pass
        del request
    np.testing.assert_allclose(kept(second, tensor).numpy(), expected(2), rtol=1e-5)
    np.testing.assert_allclose(tensor.numpy(), expected(), rtol=1e-5)


def test_it_outlives_the_network_and_not_the_core(core: Core) -> None:
    with Core() as own:
        choose_device(own)
        network = own.load_network(model(), "OPENCL", STAYS)
        read, unread = kept(network), kept(network)
        network.close()
        np.testing.assert_allclose(read.numpy(), expected(), rtol=1e-5)
    np.testing.assert_allclose(read.numpy(), expected(), rtol=1e-5)
    with pytest.raises(ClosedError, match="its Core was closed"):
        unread.numpy()
