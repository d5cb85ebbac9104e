"""No room is an error that says so, and the device goes on; a forked child is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.errors import DeviceError
from child_process import HAS_FORK, run_script
from gpu.device import DEVICE, nearly_full
from gpu.test_racing_slots import assert_bitwise_equal
from unit.benchmarks.small_networks import SMALL, inputs_of


def square_chain(side: int, count: int) -> onnx.ModelProto:
    """Negate large matrices, all of which are outputs, so that each needs memory of its own."""
    names = [f"y{number}" for number in range(count)]
    nodes = [
        helper.make_node("Mul", [source, "two"], [name])
        for source, name in zip(["x", *names], names, strict=False)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [side, side])
        for name in ("x", *names)
    ]
    two = numpy_helper.from_array(np.float32(2), "two")
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.timeout(120)
def test_a_model_larger_than_the_device_is_refused_and_others_go_on(core: Core) -> None:
    name = "resnet50"
    with core.load_network(SMALL[name](), DEVICE) as network:
        inputs = {key: array[:1] for key, array in inputs_of(name).items()}
        wanted = dict(network.create_infer_request().infer_sync(inputs))
        with pytest.raises(DeviceError, match="MiB"):
            core.load_network(square_chain(side=16_384, count=256), DEVICE)  # 1 GiB each
        assert_bitwise_equal(network.create_infer_request().infer_sync(inputs), wanted)


@pytest.mark.timeout(120)
def test_a_device_that_others_have_filled_is_an_error_until_there_is_room(core: Core) -> None:
    model = square_chain(side=4096, count=8)  # 64 MiB each
    x = np.random.default_rng(1).standard_normal((4096, 4096)).astype(np.float32)
    name = "mobilenet_v2"
    inputs = {key: array[:1] for key, array in inputs_of(name).items()}
    with core.load_network(SMALL[name](), DEVICE) as network:
        wanted = dict(network.create_infer_request().infer_sync(inputs))
        with nearly_full(), pytest.raises(DeviceError, match=r"memory|MiB"):
            core.load_network(model, DEVICE)
        assert_bitwise_equal(network.create_infer_request().infer_sync(inputs), wanted)
    with core.load_network(model, DEVICE) as network:
        found = network.create_infer_request().infer_sync({"x": x})
    np.testing.assert_array_equal(found["y7"], x * 2**8)


FORKED = """
    from aioinfer import Core
    from aioinfer.errors import DeviceError

    device, file = sys.argv[1:]

    def check_child():
        with Core() as own:
            for call in (own.resolve_device, lambda name: own.load_network(file, name)):
                for text in ("fork", "spawn"):
                    refuses(lambda: call(device), kind=DeviceError, text=text)

    with Core() as core:
        core.resolve_device(device)
        in_child(check_child)
        core.resolve_device(device)
"""


@pytest.mark.usefixtures("core")
@pytest.mark.skipif(not HAS_FORK, reason="this system has no fork")
def test_a_child_that_was_forked_is_told(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(square_chain(side=4, count=1), file)
    run_script(FORKED, tmp_path, DEVICE, str(file))
