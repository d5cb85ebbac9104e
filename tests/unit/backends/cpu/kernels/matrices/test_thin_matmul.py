"""Products of few rows with many matrices: which take the native kernel, and what it makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.cpu.kernels.matrices.thin_matmul import MOST_ROWS, thin_matmul
from aioinfer.backends.cpu.plans.operand_layout import Layout
from aioinfer.runtime.graph import DType
from onnx_text import parse_proto

F32 = DType.FLOAT32


def implementations(network: aioinfer.ExecutableNetwork) -> list[str]:
    graph = network.runtime_graph()
    return [node.metadata["implementation"] for node in graph.nodes if "MatMul" in node.op]


def results_of(core: aioinfer.Core, text: str, inputs: dict[str, Any], threads: int) -> Any:
    """Return y on CPU and on REFERENCE, and what has computed the products there."""
    model = parse_proto(text)
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    with (
        core.load_network(model, "CPU", config) as network,
        core.load_network(model, "REFERENCE") as oracle,
    ):
        found = network.create_infer_request().infer_sync(inputs)["y"]
        expected = oracle.create_infer_request().infer_sync(inputs)["y"]
        return found, expected, implementations(network)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, MOST_ROWS])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1)])
@pytest.mark.parametrize(("inner", "columns"), [(64, 7), (37, 16), (16, 33), (19, 21)])
@pytest.mark.parametrize("is_turned", [False, True])
def test_it_makes_what_reference_makes(
    core: aioinfer.Core,
    threads: int,
    rows: int,
    batch: tuple[int, ...],
    inner: int,
    columns: int,
    is_turned: bool,
) -> None:
    rank = len(batch) + 2
    dims = (*batch, columns, inner) if is_turned else (*batch, inner, columns)
    order = [*range(rank - 2), rank - 1, rank - 2] if is_turned else list(range(rank))
    shapes = [
        ",".join(map(str, shape))
        for shape in ((*batch, rows, inner), dims, (*batch, rows, columns))
    ]
    text = f"""
        g (float[{shapes[0]}] a, float[{shapes[1]}] b) => (float[{shapes[2]}] y)
        <float half = {{0.5}}> {{
            turned = Transpose <perm = {order}> (b)
            whole = MatMul (a, turned)
            y = Mul (whole, half)
        }}
    """
    random = np.random.default_rng(rows)
    inputs = {
        "a": random.normal(size=(*batch, rows, inner)).astype(np.float32),
        "b": random.normal(size=dims).astype(np.float32),
    }
    found, expected, names = results_of(core, text, inputs, threads)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    together = inner if is_turned else columns
    assert ("native:thin_matmul" in names) == (together >= 16)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_large_one_is_shared_among_threads(core: aioinfer.Core, threads: int) -> None:
    text = "g (float[1,700] a, float[700,300] b) => (float[1,300] y) { y = MatMul (a, b) }"
    random = np.random.default_rng(1)
    inputs = {
        "a": random.normal(size=(1, 700)).astype(np.float32),
        "b": random.normal(size=(700, 300)).astype(np.float32),
    }
    found, expected, names = results_of(core, text, inputs, threads)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert names == ["native:thin_matmul"]


@pytest.mark.parametrize(
    ("left", "right", "target"),
    [
        (Layout.plain((5, 64), F32), Layout.plain((64, 32), F32), Layout.plain((5, 32), F32)),
        (Layout.plain((1, 64), F32), Layout.plain((64, 8), F32), Layout.plain((1, 8), F32)),
        (
            Layout.plain((1, 64), F32, (1, 2)),
            Layout.plain((64, 32), F32),
            Layout.plain((1, 32), F32),
        ),
        (
            Layout.plain((1, 64), F32),
            Layout.plain((64, 32), F32, (64, 2)),
            Layout.plain((1, 32), F32),
        ),
        (
            Layout.plain((1, 64), DType.BFLOAT16),
            Layout.plain((64, 32), DType.BFLOAT16),
            Layout.plain((1, 32), DType.BFLOAT16),
        ),
        (
            Layout.plain((2, 3, 4, 1, 64), F32),
            Layout.plain((2, 3, 4, 64, 32), F32),
            Layout.plain((2, 3, 4, 1, 32), F32),
        ),
    ],
    ids=["many rows", "short pieces", "apart", "apart on the right", "bf16", "three batch axes"],
)
def test_others_are_left_to_onednn(left: Layout, right: Layout, target: Layout) -> None:
    assert thin_matmul(left, right, target) is None


def test_heads_that_share_keys_are_rows_of_one_product() -> None:
    queries = Layout.plain((2, 3, 4, 1, 64), F32)
    keys = Layout.plain((2, 3, 1, 64, 9), F32, (1728, 576, 576, 1, 64))
    found = thin_matmul(queries, keys, Layout.plain((2, 3, 4, 1, 9), F32))
    assert found is not None
    assert (found.outer.length, found.pairs.length, found.rows.length) == (2, 3, 4)
    assert found.is_standing
