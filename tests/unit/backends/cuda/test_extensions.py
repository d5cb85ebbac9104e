"""Operators of users on CUDA: on the driver that stands in for a GPU's, with arrays of numpy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from aioinfer import Core, Extension, Tensor, TensorType
from aioinfer.errors import TensorError, UnsupportedOpError
from aioinfer.testing import ConformanceCase, conformance_cases
from unit.backends.cuda.planning import cuda_core
from unit.backends.cuda.stand_in_driver import StandInDriver

DOMAIN = "com.example"
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
CASES = [case for case in conformance_cases() if "users_operator" in case.name]


@pytest.fixture
def core(stand_in_core: Core) -> Any:
    """Give a Core of the test's own, since extensions stay."""
    with cuda_core(StandInDriver(), "STANDIN") as made:
        yield made


def like_first(
    types: Sequence[TensorType | None], _attributes: Mapping[str, Any]
) -> Sequence[TensorType | None]:
    return types[:1]


def between(dtype: int = TensorProto.FLOAT, rows: int | str = 3) -> onnx.ModelProto:
    """Make y = relu(mine(relu(x))) with an attribute."""
    ports = [helper.make_tensor_value_info(name, dtype, [rows, 4]) for name in "xy"]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "before"),
        helper.make_node("Mine", ["a"], ["b"], "mine", domain=DOMAIN, factor=3.0),
        helper.make_node("Relu", ["b"], ["y"], "behind"),
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets)


def add(core: Core, kernel: Callable[..., Any], rule: Any = like_first) -> None:
    core.add_extension(Extension("Mine", kernel, DOMAIN, rule), "STANDIN")


def times(x: Any, *, factor: float) -> Any:
    return x * np.float32(factor)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_conforms(case: ConformanceCase, core: Core) -> None:
    case.run(core, "STANDIN")


@pytest.mark.parametrize("hint", ["f32", "f16", "bf16"])
def test_its_arrays_have_the_types_of_the_model(core: Core, hint: str) -> None:
    seen: list[np.dtype[Any]] = []

    def kernel(x: Any, *, factor: float) -> Any:
        seen.append(x.dtype)
        return x * np.float32(factor)

    add(core, kernel)
    config = {"INFERENCE_PRECISION_HINT": hint}
    with core.load_network(between(), "STANDIN", config) as network:
        found = network.create_infer_request().infer_sync({"x": X})["y"]
    np.testing.assert_allclose(found, 3 * np.maximum(X, 0), rtol=1e-2)
    assert set(seen) == {np.dtype(np.float32)}


def test_a_plan_with_it_is_not_captured_and_runs_on_threads_for_it(core: Core) -> None:
    threads: set[str] = set()

    def kernel(x: Any, *, factor: float) -> Any:
        threads.add(threading.current_thread().name)
        return times(x, factor=factor)

    add(core, kernel)
    with core.load_network(between(), "STANDIN") as network:
        requests = [network.create_infer_request() for _ in range(8)]
        for number, request in enumerate(requests):
            request.start_async({"x": X * number})
        for number, request in enumerate(requests):
            request.wait()
            np.testing.assert_allclose(request.results["y"], 3 * np.maximum(X * number, 0))
        assert network.get_metric("CAPTURED_PLAN_COUNT") == 0
        assert network.get_metric("EAGER_PLAN_COUNT") > 0
        assert "extensions" in [stage.stage for stage in network.statistics().stages]
    assert threads
    assert all(name.startswith("STANDIN.0 extensions") for name in threads), threads


def test_each_shape_has_a_plan(core: Core) -> None:
    add(core, times)
    with core.load_network(between(rows="n"), "STANDIN") as network:
        request = network.create_infer_request()
        for rows in (1, 3, 0, 2, 3):
            x = np.ones((rows, 4), np.float32)
            np.testing.assert_array_equal(request.infer_sync({"x": x})["y"], 3 * x)


def test_outputs_that_stay_are_read_by_it_in_place(core: Core) -> None:
    add(core, times)
    stays = {"OUTPUT_LOCATION": {"y": "DEVICE"}}
    with core.load_network(between(), "STANDIN", stays) as network:
        tensor: Any = X
        for _ in range(3):
            tensor = network.create_infer_request().infer_sync({"x": tensor})["y"]
            assert isinstance(tensor, Tensor)
        np.testing.assert_allclose(tensor.numpy(), 27 * np.maximum(X, 0), rtol=1e-6)
        assert network.statistics().copied_bytes["upload"] == {"upload": X.nbytes, "host": X.nbytes}


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda x, *, factor: x[:1], r"output 0 is float32\[1,4\], and was to be float32\[3,4\]"),
        (lambda x, *, factor: x.astype(np.float64), r"output 0 is float64\[3,4\]"),
        (lambda x, *, factor: x.tolist(), "output 0 is a list, and a numpy.ndarray is wanted"),
        (lambda x, *, factor: (), "it gave 0 outputs where output 0 is used"),
        (lambda x, *, factor: 1 / 0, "division by zero"),
        (lambda x: x, "unexpected keyword argument 'factor'"),
    ],
    ids=["shape", "type", "list", "none", "raises", "attributes"],
)
def test_what_is_wrong_with_it_is_told_with_its_node(
    core: Core, kernel: Callable[..., Any], reason: str
) -> None:
    add(core, kernel)
    with core.load_network(between(), "STANDIN") as network:
        request = network.create_infer_request()
        for _ in range(2):
            with pytest.raises(TensorError, match=reason) as caught:
                request.infer_sync({"x": X})
            assert (caught.value.node, caught.value.op) == ("mine", f"{DOMAIN}::Mine")


def test_optional_inputs_and_unused_outputs(core: Core) -> None:
    seen: list[tuple[bool, ...]] = []

    def pick(*given: Any) -> tuple[Any, ...]:
        seen.append(tuple(item is None for item in given))
        return given[0] * 0, given[0] + given[2]

    core.add_extension(
        Extension("Pick", pick, DOMAIN, lambda types, _: [types[0], types[0]]), "STANDIN"
    )
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "xzy"]
    node = helper.make_node("Pick", ["x", "", "z"], ["", "y"], "pick", domain=DOMAIN)
    graph = helper.make_graph([node], "g", ports[:2], ports[2:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    with core.load_network(model, "STANDIN") as network:
        found = network.create_infer_request().infer_sync({"x": X, "z": X + 1})["y"]
    np.testing.assert_allclose(found, 2 * X + 1, rtol=1e-6)
    assert seen[0] == (False, True, False)


@pytest.mark.parametrize(
    ("dtype", "rule", "reason"),
    [
        (TensorProto.BFLOAT16, like_first, "arrays of numpy's types only"),
        (TensorProto.FLOAT, None, "element type of 'b'"),
        (TensorProto.FLOAT, lambda types, _: [TensorType(types[0].dtype, None)], "which shape"),
    ],
    ids=["type", "no rule", "no shape"],
)
def test_what_cannot_be_placed_is_refused_with_the_reason(
    core: Core, dtype: int, rule: Any, reason: str
) -> None:
    add(core, times, rule)
    with pytest.raises(UnsupportedOpError, match=reason):
        core.load_network(between(dtype), "STANDIN")


def test_one_for_an_operator_of_onnx_takes_its_place(core: Core) -> None:
    core.add_extension(Extension("Relu", lambda x: x - 1), "STANDIN")
    add(core, times)
    with core.load_network(between(), "STANDIN") as network:
        found = network.create_infer_request().infer_sync({"x": X})["y"]
    np.testing.assert_allclose(found, 3 * (X - 1) - 1, rtol=1e-6)
