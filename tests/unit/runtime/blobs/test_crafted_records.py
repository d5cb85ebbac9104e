"""Blobs whose checksums are right and whose content is not: an error of ours, or a network."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.errors import AioInferError
from aioinfer.runtime.blobs.reader import Blob
from unit.runtime.blobs.made_blobs import blob_of

JSON_FRAMES = ("network", "model", "tensors", "plan", "index", "weights")
CASES = 500
REPLACEMENTS: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    7,
    1 << 31,
    1 << 63,
    1 << 200,
    0.5,
    1e308,
    "",
    "x",
    "float32",
    "no such type",
    "\0",
    "é" * 50,
    [],
    {},
    [[]],
    [1, 2, 3],
    {"graph": {}},
    {"tensor": 10**6},
    {"float": "nan"},
    {"bytes": "%%"},
    {"tuple": 3},
    {"filled": "AAAA"},
]


def model() -> onnx.ModelProto:
    """Nodes with attributes of each kind, a branch, an open batch, small and large constants."""
    branch = helper.make_graph(
        [helper.make_node("Neg", ["m"], ["n"])],
        "branch",
        [],
        [helper.make_tensor_value_info("n", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], "reshape"),
        helper.make_node("MatMul", ["r", "weight"], ["m"], "matmul"),
        helper.make_node("If", ["flag"], ["i"], "if", then_branch=branch, else_branch=branch),
        helper.make_node("LeakyRelu", ["i"], ["l"], "leaky", alpha=0.25),
        helper.make_node("Transpose", ["l"], ["y"], "transpose", perm=[1, 0]),
    ]
    weights = {
        "weight": np.ones((40, 30), np.float32),
        "shape": np.array([-1, 40]),
        "fixed": np.zeros(3, np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "crafted",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 40]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [30, "n"])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def frames_of(content: bytes) -> dict[str, bytes]:
    blob = Blob.open(content)
    return {name: blob.memory(name).tobytes() for name in blob.names()}


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each part of a JSON document."""
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content)
    if isinstance(content, dict | list):
        for key, item in items:
            yield from (
                places(item, (*path, key)) if isinstance(item, dict | list) else [(*path, key)]
            )


def mutated(content: Any, choose: random.Random) -> Any:
    """Replace, remove, double or exchange one part."""
    made = copy.deepcopy(content)
    path = choose.choice(list(places(made)))
    if not path:
        return choose.choice(REPLACEMENTS)
    parent = made
    for key in path[:-1]:
        parent = parent[key]
    how = choose.randrange(4)
    if how == 0:
        del parent[path[-1]]
    elif how == 1 and isinstance(parent, list):
        parent.insert(path[-1], copy.deepcopy(parent[path[-1]]))
    elif how == 2 and isinstance(parent, list) and parent:
        other = choose.randrange(len(parent))
        parent[path[-1]], parent[other] = parent[other], parent[path[-1]]
    else:
        parent[path[-1]] = choose.choice(REPLACEMENTS)
    return made


def convolutions() -> onnx.ModelProto:
    """Static shapes, with primitives of several kinds, native kernels and packed weights."""
    random_weights = np.random.default_rng(1).normal(size=(16, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c"], ["s"], "sigmoid"),
        helper.make_node("Mul", ["c", "s"], ["m"], "mul"),
        helper.make_node("MaxPool", ["m"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Transpose", ["p"], ["t"], "transpose", perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["t", "weight"], ["l"], "matmul"),
        helper.make_node("Softmax", ["l"], ["y"], "softmax"),
        helper.make_node("Gather", ["y", "rows"], ["z"], "gather", axis=3),
        helper.make_node("Concat", ["y", "z"], ["j"], "concat", axis=3),
    ]
    weights = {
        "kernel": random_weights,
        "weight": np.ones((16, 70), np.float32),
        "rows": np.array([3, 1]),
    }
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("j", TensorProto.FLOAT, [1, 4, 4, 72])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def open_products() -> onnx.ModelProto:
    """Open shapes, with products that become one, and steps that numpy computes."""
    nodes = [
        helper.make_node("MatMul", ["x", "left"], ["l"], "left"),
        helper.make_node("MatMul", ["x", "right"], ["r"], "right"),
        helper.make_node("Mul", ["l", "r"], ["m"], "mul"),
        helper.make_node("CumSum", ["m", "axis"], ["c"], "cumsum", reverse=1),
        helper.make_node("Softmax", ["c"], ["y"], "softmax"),
    ]
    weights = {
        "left": np.ones((40, 30), np.float32),
        "right": np.full((40, 30), 0.5, np.float32),
        "axis": np.array(1),
    }
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 30])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


OPEN = {"x": np.ones((2, 40), np.float32), "flag": np.array(True)}
STATIC = {"x": np.ones((1, 3, 8, 8), np.float32)}


@pytest.mark.parametrize(
    ("device", "make_model", "inputs"),
    [
        ("REFERENCE", model, OPEN),
        pytest.param("HETERO:CPU,REFERENCE", model, OPEN, marks=pytest.mark.exhaustive),
        pytest.param("CPU", convolutions, STATIC, marks=pytest.mark.exhaustive),
        pytest.param("CPU", open_products, {"x": OPEN["x"]}, marks=pytest.mark.exhaustive),
    ],
    ids=["REFERENCE", "HETERO", "plans of CPU", "open plans of CPU"],
)
def test_crafted_content_is_refused_or_runs(
    device: str, make_model: Callable[[], onnx.ModelProto], inputs: dict[str, np.ndarray]
) -> None:
    choose = random.Random(18)
    with aioinfer.Core() as core:
        if "CPU" in device and core.why_missing("CPU"):
            pytest.skip(core.why_missing("CPU") or "")
        with core.load_network(make_model(), device) as network:
            network.create_infer_request().infer_sync(inputs)
            frames = frames_of(network.export())
        documents = [name for name in frames if name.rpartition("/")[2] in JSON_FRAMES]
        assert documents
        refused = 0
        for case in range(CASES):
            name = choose.choice(documents)
            content = mutated(json.loads(frames[name]), choose)
            blob = blob_of({**frames, name: json.dumps(content).encode()})
            try:
                with core.import_network(blob) as imported:
                    imported.create_infer_request().infer_sync(inputs)
            except AioInferError:
                refused += 1
            except Exception as error:
                raise AssertionError(f"case {case} in {name}: {error!r}") from error
        assert refused > CASES // 3


def test_frames_of_any_size_are_refused_or_run() -> None:
    choose = random.Random(19)
    with aioinfer.Core() as core, core.load_network(model(), "REFERENCE") as network:
        frames = frames_of(network.export())
        for _ in range(200):
            name = choose.choice(list(frames))
            kept = frames[name][: choose.randrange(len(frames[name]) + 1)]
            changed = {**frames, name: kept + bytes(choose.randrange(3))}
            if choose.randrange(3) == 0:
                del changed[name]
            try:
                core.import_network(blob_of(changed)).close()
            except AioInferError:
                continue
            assert changed[name].startswith(frames[name])
