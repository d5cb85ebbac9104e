"""What onnxruntime's optimizer writes for float models, on devices that know ONNX's operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, load_from_string, numpy_helper

import aioinfer

RANDOM = np.random.default_rng(11)
DEVICES = ["REFERENCE", "CPU"]
TYPES = {
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
}


class Case(NamedTuple):
    op_type: str
    given: Mapping[str, np.ndarray | None]
    """In order; None is an input that is left out. Upper case: a constant of the model."""
    attributes: Mapping[str, Any] = {}
    outputs: tuple[str, ...] = ("y",)
    domain: str = "com.microsoft"

    def fed(self) -> dict[str, np.ndarray]:
        items = self.given.items()
        return {name: item for name, item in items if item is not None and not name.isupper()}

    def model(self, *, dynamic: bool) -> bytes:
        names = [name if item is not None else "" for name, item in self.given.items()]
        node = helper.make_node(
            self.op_type, names, self.outputs, name="n", domain=self.domain, **self.attributes
        )
        inputs = []
        for name, item in self.fed().items():
            free = dynamic and item.ndim > 1
            shape = [
                f"{name}{axis}" if free and axis < 2 else n for axis, n in enumerate(item.shape)
            ]
            if dynamic and item.ndim == 4:
                shape = [f"{name}0", item.shape[1], f"{name}2", item.shape[3]]
            inputs.append(helper.make_tensor_value_info(name, TYPES[item.dtype], shape))
        stored = [
            numpy_helper.from_array(item, name)
            for name, item in self.given.items()
            if name.isupper() and item is not None
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in self.outputs if name]
        for result, kind in zip(results, self.kinds(), strict=True):
            result.type.tensor_type.elem_type = kind
        graph = helper.make_graph([node], "g", inputs, results, stored)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return bytes(made.SerializeToString())

    def kinds(self) -> list[int]:
        return [
            TensorProto.INT32 if name == "counts" else TensorProto.FLOAT
            for name in self.outputs
            if name
        ]


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int32)


def angles(count: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    turns = np.outer(np.arange(count), 0.3 ** np.arange(half)).astype(np.float32)
    return np.cos(turns), np.sin(turns)


X, ROW, MASK = floats(2, 3, 8), floats(8), ints([1, 1, 0], [1, 1, 1])
COS, SIN = angles(16, 4)
QKV = {"q": floats(2, 3, 8), "k": floats(2, 5, 8), "v": floats(2, 5, 8)}
SMALL = {"q": floats(2, 3, 16), "k": floats(2, 3, 16), "v": floats(2, 3, 16)}
TABLES = {"WORDS": floats(9, 8), "PLACES": floats(6, 8), "SEGMENTS": floats(2, 8)}
IDS = {"ids": ints([1, 2, 3], [0, 8, 4]), "segments": ints([0, 1, 1], [0, 0, 1])}
NORMAL = {"G": ROW, "B": floats(8)}
ROTARY = {"COS": COS, "SIN": SIN}
WIDE = dict(zip(("COS", "SIN"), angles(16, 8), strict=True))

CASES = {
    "gelu": Case("Gelu", {"x": X}),
    "bias gelu": Case("BiasGelu", {"x": X, "B": ROW}),
    "fast gelu": Case("FastGelu", {"x": X}),
    "fast gelu with a bias": Case("FastGelu", {"x": X, "B": ROW}),
    "quick gelu": Case("QuickGelu", {"x": X}, {"alpha": 1.5}),
    "skip": Case("SkipLayerNormalization", {"x": X, "s": floats(2, 3, 8), **NORMAL}),
    "skip with all": Case(
        "SkipLayerNormalization",
        {"x": X, "s": floats(2, 3, 8), **NORMAL, "BIAS": floats(8)},
        {"epsilon": 1e-3},
        ("y", "", "", "total"),
    ),
    "skip with statistics": Case(
        "SkipLayerNormalization",
        {"x": X, "s": floats(2, 3, 8), **NORMAL},
        {"epsilon": 1e-3},
        ("y", "mean", "inverse", "total"),
    ),
    "simplified with statistics": Case(
        "SkipSimplifiedLayerNormalization",
        {"x": X, "s": floats(2, 3, 8), "G": ROW},
        {"epsilon": 1e-3},
        ("y", "mean", "inverse", "total"),
    ),
    "skip of one": Case("SkipLayerNormalization", {"x": X, "s": floats(1, 3, 8), **NORMAL}),
    "simplified": Case(
        "SkipSimplifiedLayerNormalization",
        {"x": X, "s": floats(2, 3, 8), "G": ROW},
        {"epsilon": 1e-5},
        ("y", "", "", "total"),
    ),
    "simplified without a skip": Case(
        "SimplifiedLayerNormalization",
        {"x": X, "G": ROW},
        {"axis": -1, "epsilon": 1e-6, "stash_type": 1},
        domain="",
    ),
    "embed": Case(
        "EmbedLayerNormalization",
        {**IDS, **TABLES, **NORMAL, "mask": MASK},
        {"epsilon": 1e-6},
        ("y", "counts"),
    ),
    "embed words alone": Case(
        "EmbedLayerNormalization",
        {
            "ids": IDS["ids"],
            "none": None,
            "WORDS": TABLES["WORDS"],
            "PLACES": TABLES["PLACES"],
            "nothing": None,
            **NORMAL,
        },
        {"epsilon": 1e-6},
        ("y", "counts"),
    ),
    "matmul": Case(
        "FusedMatMul", {"a": floats(2, 4, 3), "b": floats(2, 4, 5)}, {"transA": 1, "alpha": 0.5}
    ),
    "matmul turned": Case(
        "FusedMatMul", {"a": floats(2, 3, 4), "b": floats(2, 5, 4)}, {"transB": 1}
    ),
    "matmul of batches": Case(
        "FusedMatMul", {"a": floats(3, 2, 4), "b": floats(2, 4, 5)}, {"transBatchA": 1}
    ),
    "gemm": Case(
        "FusedGemm",
        {"a": floats(3, 4), "b": floats(5, 4), "C": floats(5)},
        {"transB": 1, "activation": "Relu"},
    ),
    "gemm leaky": Case(
        "FusedGemm",
        {"a": floats(3, 4), "b": floats(4, 5)},
        {"activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    "conv": Case(
        "FusedConv",
        {"x": floats(1, 3, 6, 6), "W": floats(4, 3, 3, 3), "B": floats(4)},
        {"activation": "Relu", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    ),
    "conv with a sum": Case(
        "FusedConv",
        {"x": floats(1, 3, 6, 6), "W": floats(4, 3, 3, 3), "B": floats(4), "z": floats(1, 4, 6, 6)},
        {"activation": "Relu", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    ),
    "conv clipped": Case(
        "FusedConv",
        {"x": floats(1, 3, 6, 6), "W": floats(4, 3, 3, 3)},
        {"activation": "Clip", "activation_params": [0.0, 1.5], "kernel_shape": [3, 3]},
    ),
    "attention": Case("Attention", {"x": X, "W": floats(8, 24), "B": floats(24)}, {"num_heads": 2}),
    "attention masked": Case(
        "Attention", {"x": X, "W": floats(8, 24), "B": floats(24), "mask": MASK}, {"num_heads": 2}
    ),
    "attention of lengths": Case(
        "Attention",
        {"x": X, "W": floats(8, 24), "B": floats(24), "LENGTHS": ints(2, 3)},
        {"num_heads": 2},
    ),
    "attention of ends and starts": Case(
        "Attention",
        {"x": floats(2, 5, 8), "W": floats(8, 24), "B": floats(24), "ENDS": ints(4, 5, 1, 0)},
        {"num_heads": 2},
    ),
    "attention of nothing": Case(
        "Attention",
        {"x": floats(2, 5, 8), "W": floats(8, 24), "B": floats(24), "ENDS": ints(2, 5, 2, 1)},
        {"num_heads": 2, "mask_filter_value": -100.0},
    ),
    "attention of uneven sizes": Case(
        "Attention",
        {"x": X, "W": floats(8, 28), "B": floats(28)},
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]},
    ),
    "attention with a past": Case(
        "Attention",
        {
            "x": X,
            "W": floats(8, 24),
            "B": floats(24),
            "none": None,
            "PAST": floats(2, 2, 2, 4, 4),
        },
        {"num_heads": 2, "unidirectional": 1},
        ("y", "present"),
    ),
    "heads": Case("MultiHeadAttention", QKV, {"num_heads": 2}),
    "heads with a bias": Case(
        "MultiHeadAttention",
        {**QKV, "B": floats(24), "mask": ints([1, 1, 0, 1, 0], [1, 1, 1, 1, 1])},
        {"num_heads": 2, "scale": 0.3},
    ),
    "heads with additions": Case(
        "MultiHeadAttention",
        {**QKV, "a": None, "b": None, "bias": floats(2, 2, 3, 5)},
        {"num_heads": 2},
    ),
    "heads with scores": Case(
        "MultiHeadAttention",
        {**QKV, "a": None, "b": None, "bias": floats(2, 2, 3, 5)},
        {"num_heads": 2},
        ("y", "", "", "scores"),
    ),
    "heads with a past": Case(
        "MultiHeadAttention",
        {
            **SMALL,
            "a": None,
            "b": None,
            "c": None,
            "pk": floats(2, 2, 4, 8),
            "pv": floats(2, 2, 4, 8),
        },
        {"num_heads": 2, "unidirectional": 1},
        ("y", "pk2", "pv2"),
    ),
    "groups": Case(
        "GroupQueryAttention",
        {
            "q": floats(1, 3, 64),
            "k": floats(1, 3, 32),
            "v": floats(1, 3, 32),
            "pk": floats(1, 2, 4, 16),
            "pv": floats(1, 2, 4, 16),
            "LAST": ints(6),
            "TOTAL": np.array(7, np.int32),
        },
        {"num_heads": 4, "kv_num_heads": 2},
        ("y", "pk2", "pv2"),
    ),
    "groups of a prompt, turned": Case(
        "GroupQueryAttention",
        {
            "q": floats(2, 3, 64),
            "k": floats(2, 3, 32),
            "v": floats(2, 3, 32),
            "a": None,
            "b": None,
            "LAST": ints(2, 2),
            "TOTAL": np.array(3, np.int32),
            **WIDE,
        },
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 2},
        ("y", "pk2", "pv2"),
    ),
    **{
        name: Case(
            "GroupQueryAttention",
            {
                "q": floats(2, 3, 64),
                "k": floats(2, 3, 32),
                "v": floats(2, 3, 32),
                "a": None,
                "b": None,
                "LAST": ints(2, 2),
                "TOTAL": np.array(3, np.int32),
                **{f"none{place}": None for place in range(4)},
                "SINKS": sinks,
            },
            {"num_heads": 4, "kv_num_heads": heads, "smooth_softmax": is_smooth, **more},
            ("y", "pk2", "pv2"),
        )
        for name, sinks, heads, is_smooth, more in (
            ("groups, smooth", None, 2, 1, {"local_window_size": 2}),
            ("groups with sinks", floats(4), 2, 0, {"softcap": 4.0}),
            ("groups with sinks, smooth", floats(4), 2, 1, {}),
        )
    },
    "groups of one word": Case(
        "GroupQueryAttention",
        {
            "q": floats(2, 1, 128),
            "k": None,
            "v": None,
            "pk": floats(2, 2, 6, 16),
            "pv": floats(2, 2, 6, 16),
            "LAST": ints(6, 6),
            "TOTAL": np.array(7, np.int32),
            **WIDE,
        },
        {
            "num_heads": 4,
            "kv_num_heads": 2,
            "do_rotary": 1,
            "softcap": 5.0,
            "rotary_interleaved": 1,
            "scale": 0.2,
        },
        ("y", "pk2", "pv2"),
    ),
    "turned": Case(
        "RotaryEmbedding", {"x": floats(2, 3, 16), "p": np.array([[1, 2, 3], [4, 5, 6]]), **ROTARY}
    ),
    "turned by heads": Case(
        "RotaryEmbedding",
        {"x": floats(2, 2, 3, 8), "p": np.array([5]), **ROTARY},
        {"interleaved": 1},
    ),
    "turned in part": Case(
        "RotaryEmbedding",
        {"x": floats(2, 3, 24), "p": np.array([[1, 2, 3], [4, 5, 6]]), **ROTARY},
        {"num_heads": 2, "rotary_embedding_dim": 8},
    ),
}


OF_LISTS = ("attention of lengths", "attention of ends and starts", "attention of nothing")
"""Which the batch tells from other lists."""
RUNS = [
    (name, dynamic)
    for name in CASES
    for dynamic in (False, True)
    if not (dynamic and name in OF_LISTS)
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "dynamic"), RUNS)
def test_as_onnxruntime_has_it(core: aioinfer.Core, name: str, device: str, dynamic: bool) -> None:
    case = CASES[name]
    model = case.model(dynamic=dynamic)
    wanted = onnxruntime.InferenceSession(model).run(None, case.fed())
    with core.load_network(model, device) as network:
        found = network.create_infer_request().infer_sync(case.fed())
    assert list(found) == [name for name in case.outputs if name]
    for array, right in zip(found.values(), wanted, strict=True):
        assert array.dtype == right.dtype
        np.testing.assert_allclose(array, right, atol=2e-5 * max(1.0, float(np.abs(right).max())))


@pytest.mark.parametrize(
    "case",
    [
        Case("FusedGemm", {"a": floats(3, 4), "b": floats(4, 5)}, {"activation": "Softplus"}),
        Case(
            "Attention",
            {"x": X, "W": floats(8, 24), "B": floats(24)},
            {"num_heads": 2, "do_rotary": 1},
        ),
        Case("RotaryEmbedding", {"x": X, "p": np.array([0]), **ROTARY}, {"scale": 2.0}),
    ],
)
def test_what_cannot_be_written_so_is_refused_by_name(core: aioinfer.Core, case: Case) -> None:
    with pytest.raises(aioinfer.errors.AioInferError, match=case.op_type):
        core.load_network(case.model(dynamic=False), "CPU")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("number", "dtype"), [(300, np.float16), (1e20, np.float32)])
def test_statistics_of_mean_squares_are_float32_and_their_mean_is_zero(
    core: aioinfer.Core, device: str, number: float, dtype: type
) -> None:
    x = np.full((1, 2, 8), number, dtype)
    case = Case(
        "SkipSimplifiedLayerNormalization",
        {"x": x, "s": np.zeros_like(x), "G": np.ones(8, dtype)},
        outputs=("y", "mean", "inverse"),
    )
    model = load_from_string(case.model(dynamic=False))
    model.graph.output[0].type.tensor_type.elem_type = TYPES[x.dtype]
    with core.load_network(model, device) as network:
        found = network.create_infer_request().infer_sync(case.fed())
    assert found["mean"].dtype == found["inverse"].dtype == np.float32
    assert not found["mean"].any()
    right = 1 / number if dtype is np.float16 else 0.0
    np.testing.assert_allclose(found["inverse"], right, rtol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_groups_write_each_sequence_at_its_own_place(core: aioinfer.Core, device: str) -> None:
    """In memory for nine keys, which onnxruntime wants bound as an output, too."""
    lasts = [3, 6]
    given = {
        **{name: floats(2, 1, 64) for name in "qkv"},
        **{name: floats(2, 4, 9, 16) for name in ("pk", "pv")},
    }
    constants = {"LAST": ints(*lasts), "TOTAL": np.array(7, np.int32)}
    attributes = {"num_heads": 4, "kv_num_heads": 4}
    outputs = ("y", "pk2", "pv2")
    case = Case("GroupQueryAttention", {**given, **constants}, attributes, outputs)
    with core.load_network(case.model(dynamic=False), device) as network:
        found = network.create_infer_request().infer_sync(given)
    q, k, v = (given[name].reshape(2, 4, 16) for name in "qkv")
    for row, last in enumerate(lasts):
        keys, values = given["pk"][row].copy(), given["pv"][row].copy()
        keys[:, last], values[:, last] = k[row], v[row]
        np.testing.assert_array_equal(found["pk2"][row], keys)
        np.testing.assert_array_equal(found["pv2"][row], values)
        scores = np.einsum("nh,nth->nt", q[row], keys[:, : last + 1]) / 4
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        wanted = np.einsum("nt,nth->nh", shares, values[:, : last + 1])
        np.testing.assert_allclose(found["y"][row, 0], wanted.ravel(), atol=1e-5)
