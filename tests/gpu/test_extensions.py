"""A user's kernel on CuPy's arrays, between kernels of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from aioinfer import Core, Extension, TensorType
from gpu.device import DEVICE, cupy

X = np.linspace(-2, 2, 4096, dtype=np.float32).reshape(16, 256)
DOMAIN = "com.example"


def like_first(
    types: Sequence[TensorType | None], _attributes: Mapping[str, Any]
) -> Sequence[TensorType | None]:
    return types[:1]


def test_it_stands_between_kernels_of_ours_on_their_stream() -> None:
    module, streams = cupy(), set[int]()

    def swirl(x: Any, *, factor: float) -> Any:
        assert isinstance(x, module.ndarray)
        streams.add(module.cuda.get_current_stream().ptr)
        return x + module.float32(factor) * module.sin(x)

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 256]) for name in "xy"]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "before"),
        helper.make_node("Swirl", ["a"], ["b"], "swirl", domain=DOMAIN, factor=2.0),
        helper.make_node("Sigmoid", ["b"], ["y"], "behind"),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    with Core() as core:
        core.add_extension(Extension("Swirl", swirl, DOMAIN, like_first), DEVICE.partition(".")[0])
        with core.load_network(helper.make_model(graph, opset_imports=opsets), DEVICE) as network:
            requests = [network.create_infer_request() for _ in range(8)]
            for number, request in enumerate(requests):
                request.start_async({"x": X * number})
            for number, request in enumerate(requests):
                request.wait()
                relu = np.maximum(X * number, 0)
                wanted = 1 / (1 + np.exp(-(relu + 2 * np.sin(relu))))
                np.testing.assert_allclose(request.results["y"], wanted, rtol=1e-4, atol=1e-5)
    assert 0 not in streams, "the legacy stream"
