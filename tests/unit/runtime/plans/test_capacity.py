"""Values that no machine can hold are refused by name, before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.errors import DeviceError
from aioinfer.runtime.graph import DType, Graph, Node, TensorType, Value
from aioinfer.runtime.plans.capacity import (
    COUNTED_IN_32_BITS,
    find_uncountable,
    refuse_what_cannot_fit,
)

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


def graph_of(shape: tuple[int, ...], **attributes: object) -> Graph:
    graph = Graph("g")
    x, y = (Value(name, TensorType(DType.FLOAT32, shape)) for name in "xy")
    graph.inputs.append(x)
    graph.append(Node("MaxPool", (x,), (y,), attributes, name="pool"))
    graph.outputs = [y]
    return graph


def test_a_device_that_counts_in_32_bits_is_given_no_longer_axes() -> None:
    most = COUNTED_IN_32_BITS
    refuse_what_cannot_fit(graph_of((0, most)), most_length=most)
    refuse_what_cannot_fit(graph_of((0, most + 1)))
    with pytest.raises(DeviceError, match=r"the network has 'x', .*2147483648.*no axes longer"):
        refuse_what_cannot_fit(graph_of((0, most + 1)), most_length=most)


def test_attributes_that_count_have_a_bound() -> None:
    (node,) = graph_of((1, 1, 4), kernel_shape=[2], dilations=[COUNTED_IN_32_BITS + 1]).nodes
    reason = find_uncountable(node, COUNTED_IN_32_BITS)
    assert reason == "dilations is [2147483648], and this device cannot count beyond 2147483647"
    assert find_uncountable(node, COUNTED_IN_32_BITS + 1) is None
    (node,) = graph_of((1, 1, 4), group=1 << 40, p=1 << 50).nodes
    assert str(find_uncountable(node, COUNTED_IN_32_BITS)).startswith("group is 1099511627776")


def test_no_array_has_more_bytes_than_can_be_counted_though_it_is_empty() -> None:
    with pytest.raises(DeviceError, match="no array can be that large"):
        refuse_what_cannot_fit(graph_of((0, 1 << 62, 1 << 62)))


def test_no_array_has_more_axes_than_numpys() -> None:
    refuse_what_cannot_fit(graph_of((1,) * 64))
    with pytest.raises(DeviceError, match="the network has 'x' with 65 axes, and no array has"):
        refuse_what_cannot_fit(graph_of((1,) * 65))
