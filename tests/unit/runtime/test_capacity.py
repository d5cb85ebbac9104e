"""Values that no machine can hold are refused by name, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.errors import DeviceError
from aioinfer.runtime.capacity import refuse_what_cannot_fit

TERA = 1 << 40


def network_of(core: aioinfer.Core, op: str, **shape: np.ndarray) -> aioinfer.ExecutableNetwork:
    names = list(shape)
    inputs = names if op == "ConstantOfShape" else ["x", *names]
    graph = helper.make_graph(
        [
            helper.make_node(op, inputs, ["big"], "grow"),
            helper.make_node("ReduceSum", ["big"], ["y"], "sum"),
        ],
        "big",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in shape.items()],
    )
    opset = helper.make_opsetid("", 21)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    return core.load_network(model, "REFERENCE")


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("ConstantOfShape", np.array([TERA])),
        ("ConstantOfShape", np.array([1 << 31, 1 << 31, 1 << 31])),
        ("Expand", np.array([TERA, 1])),
        ("Tile", np.array([TERA])),
        ("Pad", np.array([0, TERA])),
    ],
)
def test_a_damaged_length_is_told_with_the_node_and_the_request_goes_on(
    core: aioinfer.Core, op: str, shape: np.ndarray
) -> None:
    with network_of(core, op, shape=shape) as network:
        request = network.create_infer_request()
        for _ in range(2):
            with pytest.raises(DeviceError, match=f"^{op} \\(node 'grow'\\) would make 'big', fl"):
                request.infer_sync(np.ones(1, np.float32))


def test_what_fits_runs(core: aioinfer.Core) -> None:
    with network_of(core, "Expand", shape=np.array([5, 1])) as network:
        outputs = network.create_infer_request().infer_sync(np.ones(3, np.float32))
    assert outputs["y"].item() == 15
    graph = network.runtime_graph()
    refuse_what_cannot_fit(graph)
    refuse_what_cannot_fit(graph, limit_bytes=4)  # lengths that are open cannot be judged
