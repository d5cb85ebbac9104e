"""Users' kernels as steps of a plan on CPU: what they may do, and what is made of what they do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.errors import DeviceError, GraphError, TensorError, UnsupportedOpError
from aioinfer.runtime.graph import DType, TensorType

Types = Sequence[TensorType | None]
X = np.array([[1, -2, 3]], np.float32)


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made


def same(types: Types, _attributes: Mapping[str, Any]) -> Any:
    return [types[0]]


def model_of(
    *nodes: onnx.NodeProto,
    lengths: Sequence[int | str] = ("n", 3),
    outputs: Sequence[str] = ("y",),
    **weights: np.ndarray,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "m",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, lengths)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.acme", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def own(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    names = [part.strip() for part in inputs.split(",")]
    return helper.make_node(op, names, outputs.split(), "own", domain="com.acme", **attributes)


def in_the_middle(lengths: Sequence[int | str] = ("n", 3)) -> onnx.ModelProto:
    return model_of(
        helper.make_node("Relu", ["x"], ["a"], "before"),
        own("Own", "a", "b"),
        helper.make_node("Neg", ["b"], ["y"], "behind"),
        lengths=lengths,
    )


def add(core: aioinfer.Core, kernel: Callable[..., Any], rule: Any = same, op: str = "Own") -> None:
    core.add_extension(aioinfer.Extension(op, kernel, "com.acme", rule), "CPU")


@pytest.mark.parametrize("lengths", [("n", 3), (2, 3), (None, None)])
def test_a_users_kernel_is_a_step_of_the_plan(
    core: aioinfer.Core, lengths: Sequence[int | str]
) -> None:
    add(core, lambda x: x * np.float32(3))
    with core.load_network(in_the_middle(lengths), "CPU") as network:
        for rows in (2,) if lengths[0] == 2 else (1, 2, 5, 7, 11):
            x = np.linspace(-1, 1, rows * 3, dtype=np.float32).reshape(rows, 3)
            found = network.create_infer_request().infer_sync(x)["y"]
            np.testing.assert_array_equal(found, -3 * np.maximum(x, 0))


def test_a_rule_computes_with_lengths_and_new_ones_are_replayed(core: aioinfer.Core) -> None:
    def doubled(types: Types, _attributes: Mapping[str, Any]) -> Any:
        first = types[0]
        assert first is not None
        assert first.shape is not None
        rows, columns = first.shape
        return [TensorType(first.dtype, (rows * 2 if isinstance(rows, int) else None, columns))]

    add(core, lambda x: np.concatenate([x, x + 1]), doubled)
    with core.load_network(in_the_middle(), "CPU") as network:
        for rows in (1, 4, 3, 6, 9):
            x = np.ones((rows, 3), np.float32)
            found = network.create_infer_request().infer_sync(x)["y"]
            np.testing.assert_array_equal(found, np.repeat([[-1.0], [-2.0]], rows, 0) * X[:1] ** 0)


def test_kernels_have_constants_optional_inputs_and_several_outputs(core: aioinfer.Core) -> None:
    def both(x: Any, w: Any, bias: Any, *, factor: float) -> tuple[Any, ...]:
        assert bias is None
        assert factor == 2
        return x + w, (x - w) * np.float32(factor), x

    add(core, both, lambda types, _: [types[0]] * 3)
    weight = np.array([1, 2, 3], np.float32)
    model = model_of(
        own("Own", "x, w,", "up down unused", factor=2.0), outputs=("up", "down"), w=weight
    )
    with core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync(X)
    np.testing.assert_array_equal(found["up"], X + weight)
    np.testing.assert_array_equal(found["down"], (X - weight) * 2)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda x: 1 / 0, "failed with ZeroDivisionError: division by zero"),
        (lambda: None, "failed with TypeError"),
        (lambda x: object(), "a result of type object is no tensor"),
        (lambda x: (), "gave 0 outputs where output 0 is used"),
        (lambda x: None, "output 0 is none, and a tensor is wanted"),
        (lambda x: [x], "output 0 is seq of 1"),
        (lambda x: x.astype(np.float64), "output 0 is float64, and the model, .* float32"),
        (lambda x: x[0], r"output 0 is float32\[3\], and was to be float32\[1,3\]"),
        (lambda x: x[:, :1], r"output 0 is float32\[1,1\], and was to be float32\[1,3\]"),
        (lambda x: np.float32(1), "output 0 is float32.*, and was to be"),
        (lambda x: np.negative(x, out=x), "read-only"),
        (lambda x: [][0], "failed with IndexError"),
    ],
)
def test_a_kernel_that_fails_names_its_node_and_the_network_goes_on(
    core: aioinfer.Core, kernel: Callable[..., Any], reason: str
) -> None:
    is_bad = True
    add(core, lambda *inputs: kernel(*inputs) if is_bad else inputs[0] * 2)
    with core.load_network(in_the_middle(), "CPU") as network:
        request = network.create_infer_request()
        given = X.copy()
        with pytest.raises(TensorError, match=rf"com.acme::Own \(node 'own'\).*{reason}") as caught:
            request.infer_sync(given)
        assert (caught.value.node, caught.value.op) == ("own", "com.acme::Own")
        np.testing.assert_array_equal(given, X)
        is_bad = False
        np.testing.assert_array_equal(request.infer_sync(X)["y"], -2 * np.maximum(X, 0))


def test_want_of_memory_in_a_kernel_is_told_as_such(core: aioinfer.Core) -> None:
    def hungry(x: Any) -> Any:
        raise MemoryError("so much")

    add(core, hungry)
    with core.load_network(in_the_middle(), "CPU") as network:
        with pytest.raises(DeviceError, match="ran out of memory") as caught:
            network.create_infer_request().infer_sync(X)
        assert caught.value.resource == "memory"


def test_a_kernel_may_return_its_input_and_may_keep_it_longer_than_the_network(
    core: aioinfer.Core,
) -> None:
    kept: list[np.ndarray] = []

    def keeping(x: np.ndarray) -> np.ndarray:
        kept.append(x)
        return x

    add(core, keeping)
    model = model_of(
        helper.make_node("Relu", ["x"], ["a"], "before"), own("Own", "a", "y"), lengths=(4096, 64)
    )
    x = np.random.default_rng(1).standard_normal((4096, 64), np.float32)
    with core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync(x)["y"]
        np.testing.assert_array_equal(found, np.maximum(x, 0))
        before = kept[0].copy()
    core.close()
    np.testing.assert_array_equal(kept[0], before)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (None, "the extension of com.acme::Own has no infer_types, and .* the element type of 'b'"),
        (lambda types, _: [None], "infer_types .* does not tell the element type of 'b'"),
        (lambda types, _: [], "infer_types .* does not tell the element type of 'b'"),
        (lambda types, _: [TensorType(DType.FLOAT32)], "leaves open which shape 'b' has"),
        (
            lambda types, _: [TensorType(DType.FLOAT32, (None, 3))],
            "infer_types .* leaves open which shape 'b' has",
        ),
    ],
)
@pytest.mark.parametrize("lengths", [("n", 3), (2, 3)])
def test_what_memory_cannot_be_placed_for_is_refused_before_a_run(
    core: aioinfer.Core, rule: Any, reason: str, lengths: Sequence[int | str]
) -> None:
    add(core, lambda x: x, rule)
    model = in_the_middle(lengths)
    answer = core.query_network(model, "CPU")["own"]
    assert not answer.supported
    with pytest.raises(UnsupportedOpError, match=reason):
        core.load_network(model, "CPU")
    core.add_extension(aioinfer.Extension("Own", lambda x: x, "com.acme", rule))
    with core.load_network(model, "HETERO:CPU,REFERENCE") as network:
        found = network.create_infer_request().infer_sync(np.ones((2, 3), np.float32))["y"]
    np.testing.assert_array_equal(found, -np.ones((2, 3)))


def test_a_rule_that_fails_for_the_lengths_of_a_run_is_that_runs_error(core: aioinfer.Core) -> None:
    def pairs(types: Types, _attributes: Mapping[str, Any]) -> Any:
        first = types[0]
        assert first is not None
        assert first.shape is not None
        rows = first.shape[0]
        if isinstance(rows, int) and rows % 2:
            raise ValueError("an even number of rows is wanted")
        return [first]

    add(core, lambda x: x, pairs)
    with core.load_network(in_the_middle(), "CPU") as network:
        request = network.create_infer_request()
        with pytest.raises(GraphError, match=r"rule of com.acme::Own failed on node 'own': .*even"):
            request.infer_sync(X)
        found = request.infer_sync(np.ones((2, 3), np.float32))["y"]
    np.testing.assert_array_equal(found, -np.ones((2, 3)))


def test_an_override_is_neither_fused_nor_folded(core: aioinfer.Core) -> None:
    five = np.float32(5)
    core.add_extension(aioinfer.Extension("Relu", lambda x: x + five), "CPU")
    core.add_extension(aioinfer.Extension("Identity", lambda x: x * five), "CPU")
    core.add_extension(aioinfer.Extension("Abs", lambda x: x * five), "CPU")
    model = model_of(
        helper.make_node("MatMul", ["x", "w"], ["a"], "matmul"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Identity", ["b"], ["c"], "identity"),
        helper.make_node("Abs", ["k"], ["d"], "abs"),
        helper.make_node("Add", ["c", "d"], ["y"], "add"),
        w=np.eye(3, dtype=np.float32),
        k=np.array([1, 2, 3], np.float32),
    )
    with core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync(X)["y"]
    np.testing.assert_array_equal(found, (X + 5) * 5 + np.array([5, 10, 15]))
    # Another device's own operators are as ever.
    with core.load_network(model, "REFERENCE") as network:
        found = network.create_infer_request().infer_sync(X)["y"]
    np.testing.assert_array_equal(found, np.maximum(X, 0) + np.array([1, 2, 3]))


def test_a_users_kernel_never_runs_on_the_thread_that_awaits(core: aioinfer.Core) -> None:
    import asyncio

    threads: set[int] = set()

    def noting(x: np.ndarray) -> np.ndarray:
        threads.add(threading.get_ident())
        return x

    add(core, noting)

    async def use() -> None:
        config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1}
        async with core.load_network(in_the_middle(), "CPU", config) as network:
            for _ in range(50):
                await network.infer({"x": X})

    asyncio.run(use())
    assert threads
    assert threading.get_ident() not in threads


def test_runs_side_by_side_call_the_kernel_with_their_own_arrays(core: aioinfer.Core) -> None:
    meeting = threading.Barrier(2, timeout=30)

    def meet(x: np.ndarray) -> np.ndarray:
        meeting.wait()
        return x + np.float32(1)

    add(core, meet)
    with core.load_network(in_the_middle(), "CPU", {"NUM_STREAMS": 2}) as network:
        requests = [network.create_infer_request() for _ in range(2)]
        for number, request in enumerate(requests):
            request.start_async(X * 0 + number)
        for number, request in enumerate(requests):
            request.wait()
            np.testing.assert_array_equal(request.results["y"], X * 0 - number - 1)


def test_hetero_gives_a_node_to_the_device_whose_extension_it_is(core: aioinfer.Core) -> None:
    add(core, lambda x: x + np.float32(1))
    core.add_extension(
        aioinfer.Extension("Own", lambda x: x + np.float32(100), "com.acme", same), "REFERENCE"
    )
    for device, expected in (("CPU,REFERENCE", 1), ("REFERENCE,CPU", 100)):
        with core.load_network(in_the_middle(), f"HETERO:{device}") as network:
            found = network.create_infer_request().infer_sync(X * 0)["y"]
            np.testing.assert_array_equal(found, X * 0 - expected)
    with core.load_network(
        in_the_middle(), "HETERO:CPU,REFERENCE", {"AFFINITY": {"own": "REFERENCE"}}
    ) as network:
        found = network.create_infer_request().infer_sync(X * 0)["y"]
        np.testing.assert_array_equal(found, X * 0 - 100)


def test_networks_keep_the_kernels_that_they_were_loaded_with(core: aioinfer.Core) -> None:
    add(core, lambda x: x + np.float32(1))
    with core.load_network(in_the_middle(), "CPU") as network:
        add(core, lambda x: x + np.float32(100))
        for rows in (1, 2, 3):
            found = network.create_infer_request().infer_sync(np.zeros((rows, 3), np.float32))["y"]
            np.testing.assert_array_equal(found, np.full((rows, 3), -1))
