"""Devices of the host say what they copy: nothing where arrays are read and written in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from aioinfer import CopiedBytes, Core, InferRequest

X = np.arange(12, dtype=np.float32).reshape(3, 4)
COUNTED = {"PERF_COUNT": True}


def model(*ops: str) -> Any:
    """Chain unary operators from x to y."""
    names = ["x", *[f"v{index}" for index in range(len(ops) - 1)], "y"]
    nodes = [
        helper.make_node(op, [names[index]], [names[index + 1]], name=f"node{index}")
        for index, op in enumerate(ops)
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def ran(core: Core, device: str, given: Any) -> InferRequest:
    request = core.load_network(model("Neg"), device, COUNTED).create_infer_request()
    request.infer_sync({"x": given})
    return request


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_what_is_read_where_it_lies_is_not_copied(device: str) -> None:
    with Core() as core:
        request = ran(core, device, X)
        assert (request.profiling().copies, request.profiling().copied_bytes) == ([], {})
        assert len(request.profiling()) == 1
        (network,) = core.statistics().networks
        assert network.copied_bytes == {}


def test_cpu_copies_an_input_that_is_not_contiguous() -> None:
    with Core() as core:
        request = ran(core, "CPU", np.asfortranarray(X))
        assert request.profiling().copies == [CopiedBytes("compute", "host", X.nbytes)]
        (network,) = core.statistics().networks
        assert network.copied_bytes == {"compute": {"host": X.nbytes}}


@pytest.mark.parametrize(
    ("device", "copies"), [("CPU", False), ("REFERENCE", True), ("ONNXRUNTIME", True)]
)
def test_bound_memory_is_written_in_place_or_counted(device: str, copies: bool) -> None:
    output = np.empty_like(X)
    with Core() as core:
        network = core.load_network(model("Neg"), device)
        request = network.create_infer_request()
        request.set_tensor("y", output)
        request.infer_sync({"x": X})
        np.testing.assert_array_equal(output, -X)
        assert network.statistics().copied_bytes == (
            {"compute": {"host": X.nbytes}} if copies else {}
        )


def test_hetero_says_which_part_copied() -> None:
    with Core() as core:
        loaded = core.read_model(model("Neg", "Abs"))
        loaded.node("node0").affinity, loaded.node("node1").affinity = "CPU", "REFERENCE"
        network = core.load_network(loaded, "HETERO:CPU,REFERENCE", COUNTED)
        request, output = network.create_infer_request(), np.empty_like(X)
        request.set_tensor("y", output)
        request.infer_sync({"x": np.asfortranarray(X)})
        np.testing.assert_array_equal(output, X)
        parts = [f"subgraph{index}: compute" for index in range(2)]
        wanted = [CopiedBytes(part, "host", X.nbytes) for part in parts]
        assert request.profiling().copies == wanted
        assert network.statistics().copied_bytes == {part: {"host": X.nbytes} for part in parts}
        spans = {span.stage: dict(span.copied_bytes) for span in network.trace()}
        assert [spans[part] for part in parts] == [{"host": X.nbytes}] * 2


def test_multi_adds_up_what_its_devices_copied() -> None:
    given, output = np.asfortranarray(X), np.empty_like(X)
    with Core() as core, core.load_network(model("Neg"), "MULTI:CPU,REFERENCE") as network:
        request = network.create_infer_request()
        request.set_tensor("y", output)
        for _ in range(4):
            request.infer_sync({"x": given})
        np.testing.assert_array_equal(output, -X)
        (counts,) = network.statistics().copied_bytes.values()
        assert counts == {"host": 4 * X.nbytes}, "CPU copies the input, REFERENCE to the output"
