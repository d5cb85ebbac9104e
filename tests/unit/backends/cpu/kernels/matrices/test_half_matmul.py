"""Products of few rows with weights of float16 and bfloat16, which stay in 16 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.cpu.passes import half_fusion
from aioinfer.backends.cpu.passes.half_fusion import MOST_ROWS
from aioinfer.runtime.graph import DType
from unit.backends.comparing import operator
from unit.backends.cpu.comparing import Arrays, model_of, run
from unit.backends.cpu.native_calls import run_native

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
NUMBERS = {"float16": DType.FLOAT16.value, "bfloat16": DType.BFLOAT16.value}
KINDS = sorted(DTYPES)
INNER, COLUMNS = 512, 1031
"""Of weights that are large enough, in bytes and as a remainder."""
WITHOUT = "half matmuls"


@pytest.fixture(autouse=True)
def _nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have several rows read weights that are not too large for a test."""
    monkeypatch.setattr(half_fusion, "CACHED_BYTES", 0)


def numbers(kind: Any, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(kind)


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    """Compare up to the rounding of float32 sums, of which all are as large as the largest."""
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=4e-6 * np.abs(wanted).max())


def product(
    kind: str, rows: int, op: str = "MatMul", *, widens: bool = True, has_bias: bool = False
) -> tuple[Any, Arrays, np.ndarray]:
    """Make a product of large weights, its data, and float32 results of numpy's.

    ``widens`` has a Cast in front of the weights, and float32 data.
    """
    is_turned = op == "Gemm"
    data_type = np.dtype(np.float32) if widens else DTYPES[kind]
    x = numbers(data_type, rows, INNER)
    w = numbers(DTYPES[kind], INNER, COLUMNS, seed=1)
    b = numbers(data_type, COLUMNS, seed=2)
    wanted = x.astype(np.float64) @ w.astype(np.float64)
    wanted = wanted + (b.astype(np.float64) if has_bias else 0.0)
    weights = "wide" if widens else "w"
    nodes = [operator("Cast", "w", outputs=["wide"], to=1)] if widens else []
    attributes = {"transB": 1} if is_turned else {}
    nodes.append(operator(op, "x", weights, *(["b"] if has_bias else []), **attributes))
    constants = {"w": np.ascontiguousarray(w.T) if is_turned else w}
    if has_bias:
        constants["b"] = b
    return model_of(nodes, {"x": x}, constants=constants), {"x": x}, wanted


def implementations(core: Core, model: Any, inputs: Arrays, **config: Any) -> str:
    with core.load_network(model, "CPU", config) as network:
        network.create_infer_request().infer_sync(dict(inputs))
        nodes = network.runtime_graph().nodes
        return " ".join(str(node.metadata["implementation"]) for node in nodes)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_takes_odd_lengths(kind: str, rows: int, has_bias: bool) -> None:
    for inner, columns in ((1, 1), (7, 3), (8, 2), (31, 5), (32, 4), (131, 33), (257, 18)):
        x = numbers(np.float32, rows, inner)
        w = numbers(DTYPES[kind], columns, inner, seed=1)
        b = numbers(np.float32, columns, seed=2)
        wanted = x.astype(np.float64) @ w.astype(np.float64).T
        found = np.full((rows, columns), np.nan, np.float32)
        arrays = [x, w.view(np.uint16), *([b] if has_bias else []), found]
        for threads in (1, 2):
            words = [rows, inner, columns, NUMBERS[kind], has_bias, threads]
            run_native("half_matmul", arrays, words, threads)
            close(found, wanted + b if has_bias else wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inner", [5, 40])
def test_every_number_of_16_bits_is_what_it_is_in_float32(kind: str, inner: int) -> None:
    """Subnormal numbers, infinite ones and NaN, among a vector and behind the last one."""
    every = np.arange(1 << 16, dtype=np.uint16)
    weights = np.zeros((1 << 16, inner), np.uint16)
    weights[:, -1] = every
    x = np.zeros((1, inner), np.float32)
    x[0, -1] = 1.0
    found = np.full((1, 1 << 16), 3.0, np.float32)
    words = [1, inner, 1 << 16, NUMBERS[kind], 0, 1]
    run_native("half_matmul", [x, weights, found], words)
    np.testing.assert_array_equal(found[0], every.view(DTYPES[kind]).astype(np.float32))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("rows", [1, MOST_ROWS])
@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_read_weights_as_they_are_stored(
    core: Core, kind: str, rows: int, op: str, threads: int
) -> None:
    model, inputs, wanted = product(kind, rows, op, has_bias=op == "Gemm")
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    assert implementations(core, model, inputs, **config) == "native:half_matmul"
    close(run(core, model, "CPU", inputs, **config)["y"], wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_16_bits_keeps_its_types(core: Core, kind: str) -> None:
    model, inputs, wanted = product(kind, 2, "Gemm", widens=False, has_bias=True)
    assert "native:half_matmul" in implementations(core, model, inputs)
    found = run(core, model, "CPU", inputs)["y"]
    assert found.dtype == DTYPES[kind]
    bound = {"float16": 1e-3, "bfloat16": 8e-3}[kind]
    np.testing.assert_allclose(
        found.astype(float), wanted, rtol=bound, atol=bound * np.abs(wanted).max()
    )


def test_what_follows_is_computed_as_behind_widened_weights(core: Core) -> None:
    x, w = numbers(np.float16, 1, INNER), numbers(np.float16, INNER, COLUMNS, seed=1)
    constants = {"w": w, "b": numbers(np.float16, COLUMNS, seed=2)}
    nodes = [
        operator("MatMul", "x", "w", outputs=["p"]),
        operator("Add", "p", "b", outputs=["s"]),
        operator("Sigmoid", "s", outputs=["g"]),
        operator("Mul", "s", "g", outputs=["m"]),
        operator("Cast", "m", to=1),
    ]
    model = model_of(nodes, {"x": x}, constants=constants)
    found = run(core, model, "CPU", {"x": x})["y"]
    close(found, run(core, model, "CPU", {"x": x}, CPU_DISABLED_PASSES=WITHOUT)["y"])


def test_other_matmuls_are_widened_as_before(core: Core) -> None:
    """Of many rows, of rows that are not known, scaled ones, and where the hint says otherwise."""
    model, inputs, _ = product("float16", MOST_ROWS + 1)
    assert "half_matmul" not in implementations(core, model, inputs)
    x, w = numbers(np.float16, 1, INNER), numbers(np.float16, INNER, COLUMNS, seed=1)
    node = operator("MatMul", "x", "w")
    opened = model_of([node], {"x": x}, constants={"w": w}, dynamic=True)
    assert "half_matmul" not in implementations(core, opened, {"x": x})
    scaled = model_of([operator("Gemm", "x", "w", alpha=0.5)], {"x": x}, constants={"w": w})
    assert "half_matmul" not in implementations(core, scaled, {"x": x})
    model, inputs, _ = product("float16", 1)
    config = {"CPU_DISABLED_PASSES": WITHOUT}
    assert "half_matmul" not in implementations(core, model, inputs, **config)


def test_weights_that_two_matmuls_use_are_kept_once(core: Core) -> None:
    inputs = {"x": numbers(np.float16, 1, INNER), "z": numbers(np.float16, 64, INNER, seed=3)}
    constants = {"w": numbers(np.float16, INNER, COLUMNS, seed=1)}
    nodes = [
        operator("MatMul", "x", "w", outputs=["few"]),
        operator("MatMul", "z", "w", outputs=["many"]),
    ]
    model = model_of(nodes, inputs, ["few", "many"], constants)
    assert "half_matmul" not in implementations(core, model, inputs)


def test_a_table_that_is_multiplied_with_too_is_read_in_16_bits_by_both(core: Core) -> None:
    inputs = {"i": np.array([3]), "x": numbers(np.float16, 1, INNER)}
    constants = {"w": numbers(np.float16, COLUMNS, INNER, seed=1)}
    nodes = [
        operator("Gather", "w", "i", outputs=["e"]),
        operator("Add", "x", "e", outputs=["s"]),
        operator("Gemm", "s", "w", transB=1),
    ]
    model = model_of(nodes, inputs, ["y", "e"], constants)
    assert "native:half_matmul" in implementations(core, model, inputs)
    found = run(core, model, "CPU", inputs)
    wanted = run(core, model, "CPU", inputs, CPU_DISABLED_PASSES=WITHOUT)
    np.testing.assert_array_equal(found["e"], wanted["e"])
    np.testing.assert_allclose(
        found["y"].astype(float), wanted["y"].astype(float), rtol=2e-3, atol=0.1
    )


def test_weights_take_what_they_take_in_the_file_and_explain_says_it(core: Core) -> None:
    model, inputs, _ = product("float16", 1)
    with core.load_network(model, "CPU") as network:
        network.create_infer_request().infer_sync(dict(inputs))
        assert network.get_metric("PACKED_WEIGHTS_BYTES") == 2 * INNER * COLUMNS
        told = "with weights in 16 bits, as they are stored, data in float32: 1 node: MatMul"
        assert told in network.explain()


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_network_computes_the_same(
    core: Core, tmp_path: Path, kind: str, op: str
) -> None:
    model, inputs, _ = product(kind, 2, op, has_bias=op == "Gemm")
    path = tmp_path / "halves.blob"
    with core.load_network(model, "CPU", {"EXPORTABLE": True}) as network:
        wanted = network.create_infer_request().infer_sync(dict(inputs))["y"]
        network.export(path)
    assert path.stat().st_size < 3 * INNER * COLUMNS
    with core.import_network(path) as network:
        found = network.create_infer_request().infer_sync(dict(inputs))["y"]
        assert network.get_metric("PACKED_WEIGHTS_BYTES") >= 2 * INNER * COLUMNS
    np.testing.assert_array_equal(found, wanted)


def decoder(kind: str, width: int = 512, inner: int = 1408, heads: int = 8) -> tuple[Any, Arrays]:
    """Make a layer of a decoder that takes one token: attention to a cache, and a gated product."""
    half, depth = DTYPES[kind], width // heads
    inputs = {
        "x": numbers(half, 1, 1, width),
        "keys": numbers(half, 1, heads, 5, depth, seed=1),
        "values": numbers(half, 1, heads, 5, depth, seed=2),
    }
    names = ("q", "k", "v", "o", "gate", "up", "down", "head")
    sizes = [(width, width)] * 4 + [(width, inner)] * 2 + [(inner, width), (width, 2053)]
    constants: dict[str, Any] = {
        name: (numbers(np.float32, *size, seed=3 + place) / size[0] ** 0.5).astype(half)
        for place, (name, size) in enumerate(zip(names, sizes, strict=True))
    }
    constants |= {
        "split": np.array([1, 1, heads, depth]),
        "joined": np.array([1, 1, width]),
        "scale": np.array(depth**-0.5, half),
        "norm": np.ones(width, half),
    }
    nodes = [operator("LayerNormalization", "x", "norm", outputs=["n"])]
    for name in "qkv":
        nodes += [
            operator("MatMul", "n", name, outputs=[f"{name}_flat"]),
            operator("Reshape", f"{name}_flat", "split", outputs=[f"{name}_split"]),
            operator("Transpose", f"{name}_split", outputs=[f"{name}_new"], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        operator("Concat", "keys", "k_new", outputs=["all_keys"], axis=2),
        operator("Concat", "values", "v_new", outputs=["all_values"], axis=2),
        operator("Transpose", "all_keys", outputs=["turned"], perm=[0, 1, 3, 2]),
        operator("MatMul", "q_new", "turned", outputs=["raw"]),
        operator("Mul", "raw", "scale", outputs=["scores"]),
        operator("Softmax", "scores", outputs=["shares"], axis=-1),
        operator("MatMul", "shares", "all_values", outputs=["mixed"]),
        operator("Transpose", "mixed", outputs=["back"], perm=[0, 2, 1, 3]),
        operator("Reshape", "back", "joined", outputs=["flat"]),
        operator("MatMul", "flat", "o", outputs=["attended"]),
        operator("Add", "x", "attended", outputs=["h"]),
        operator("LayerNormalization", "h", "norm", outputs=["m"]),
        operator("MatMul", "m", "gate", outputs=["g"]),
        operator("MatMul", "m", "up", outputs=["u"]),
        operator("Sigmoid", "g", outputs=["s"]),
        operator("Mul", "g", "s", outputs=["silu"]),
        operator("Mul", "silu", "u", outputs=["gated"]),
        operator("MatMul", "gated", "down", outputs=["d"]),
        operator("Add", "h", "d", outputs=["z"]),
        operator("MatMul", "z", "head"),
    ]
    for place, node in enumerate(nodes):
        node.name = f"{node.op_type}_{place}"
    return model_of(nodes, inputs, ["y", "all_keys", "all_values"], constants), inputs


@pytest.mark.parametrize("kind", KINDS)
def test_a_decoder_answers_as_with_widened_weights(core: Core, kind: str) -> None:
    model, inputs = decoder(kind)
    assert implementations(core, model, inputs).count("native:half_matmul") == 4
    found = run(core, model, "CPU", inputs)
    wanted = run(core, model, "CPU", inputs, CPU_DISABLED_PASSES=WITHOUT)
    bound = {"float16": 2e-3, "bfloat16": 1e-2}[kind]
    for name, array in wanted.items():
        assert found[name].dtype == DTYPES[kind]
        np.testing.assert_allclose(
            found[name].astype(float),
            array.astype(float),
            rtol=bound,
            atol=bound * np.abs(array.astype(float)).max(),
        )
