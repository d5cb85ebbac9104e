"""Rungs of whole models, from a perceptron to ResNet-50, beside what REFERENCE gives."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from models import MODELS
from networks.builder import Builder
from networks.perceptron import perceptron

from aioinfer import Core
from aioinfer.backends.cuda.plan_workers import PlanWorkers
from gpu.oracle import relative_error
from gpu.watched_driver import WatchedDriver, cupy_driver, register

__all__ = [
    "attention",
    "attention_with_mask",
    "convolution_in_half",
    "convolution_in_strict_float32",
    "perceptron_by_cublas",
    "perceptron_by_cublaslt",
    "perceptron_by_kernels",
    "resnet50_in_half",
]

LADDER = "LADDER"
"""The name of CUDA on the watched driver."""
RUNS = 3
BOUNDS = {"f32": 1e-5, "f16": 1e-2}
HALF, STRICT = {"INFERENCE_PRECISION_HINT": "f16"}, {"INFERENCE_PRECISION_HINT": "f32"}
WITHOUT_GRAPHS, WITH_GRAPHS = {"CUDA_GRAPHS": "NO"}, {"CUDA_GRAPHS": "YES"}
Arrays = Mapping[str, np.ndarray[Any, Any]]


def perceptron_by_kernels() -> None:
    _perceptron({"cudnn", "cublas", "cublaslt"}, None)


def perceptron_by_cublas() -> None:
    _perceptron({"cudnn", "cublaslt"}, "cublas")


def perceptron_by_cublaslt() -> None:
    _perceptron({"cudnn", "cublas"}, "cublaslt")


def convolution_in_half() -> None:
    _convolution(HALF)


def convolution_in_strict_float32() -> None:
    _convolution(STRICT)


def attention() -> None:
    _attention(has_mask=False)


def attention_with_mask() -> None:
    _attention(has_mask=True)


def resnet50_in_half() -> None:
    inputs = MODELS["resnet50"].inputs(np.random.default_rng(1), 1)
    with counted_candidates():
        compare(MODELS["resnet50"].build(), inputs, HALF, library="cudnn")


def _perceptron(left_out: set[str], library: str | None) -> None:
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 16)).astype(np.float32)}
    for graphs in (WITHOUT_GRAPHS, WITH_GRAPHS):
        compare(perceptron(), inputs, {**STRICT, **graphs}, left_out, library)


def _convolution(precision: Mapping[str, str]) -> None:
    builder = Builder("convolution", seed=0)
    x = builder.input("x", (1, 64, 28, 28))
    weights = builder.constant(builder.normal((64, 64, 3, 3), 1 / 24))
    bias = builder.constant(builder.normal((64,)))
    made = builder.node("Conv", x, weights, bias, pads=[1, 1, 1, 1])
    builder.output(builder.node("Relu", made), "y", (1, 64, 28, 28))
    inputs = {"x": builder.normal((1, 64, 28, 28))}
    with counted_candidates() as counts:
        for graphs in (WITHOUT_GRAPHS, WITH_GRAPHS):
            compare(builder.model(), inputs, {**precision, **graphs}, library="cudnn")
    print(f"candidates that came from workers: {sum(counts)}")


def _attention(*, has_mask: bool, length: int = 64, heads: int = 4, depth: int = 32) -> None:
    builder = Builder("attention", seed=0)
    shape = (1, length, heads * depth)
    names = [builder.input(name, shape) for name in ("query", "key", "value")]
    inputs = {name: builder.normal(shape) for name in names}
    split = builder.integers(1, length, heads, depth)
    query, key, value = (
        builder.node("Transpose", builder.node("Reshape", name, split), perm=perm)
        for name, perm in zip(names, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    scale = builder.constant(1 / np.sqrt(depth))
    scores = builder.node("Mul", builder.node("MatMul", query, key), scale)
    if has_mask:
        mask = builder.input("mask", (1, 1, 1, length))
        inputs[mask] = np.where(np.arange(length) < length * 3 // 4, 0, -1e4).astype("f")
        inputs[mask] = inputs[mask].reshape(1, 1, 1, length)
        scores = builder.node("Add", scores, mask)
    made = builder.node("MatMul", builder.node("Softmax", scores, axis=-1), value)
    joined = builder.node("Transpose", made, perm=(0, 2, 1, 3))
    builder.output(builder.node("Reshape", joined, builder.integers(*shape)), "y", shape)
    with counted_candidates():
        for graphs in (WITHOUT_GRAPHS, WITH_GRAPHS):
            compare(builder.model(), inputs, {**HALF, **graphs}, library="cudnn")


def compare(
    model: Any,
    inputs: Arrays,
    config: Mapping[str, str],
    left_out: set[str] | frozenset[str] = frozenset(),
    library: str | None = None,
) -> None:
    """Print how far from REFERENCE runs of a model are, and assert it.

    ``library`` has to have been asked for a plan.
    """
    print(f"\n{dict(config)}", flush=True)
    captures = config.get("CUDA_GRAPHS") != "NO"
    driver = WatchedDriver(cupy_driver(), left_out)
    with Core() as core:
        register(core, LADDER, driver)
        with core.load_network(model, "REFERENCE") as network:
            wanted = network.create_infer_request().infer_sync(dict(inputs))
        began_s = time.perf_counter()
        with core.load_network(model, LADDER, dict(config)) as network:
            print(f"loaded in {time.perf_counter() - began_s:.2f} s", flush=True)
            request = network.create_infer_request()
            errors = []
            for _ in range(RUNS):
                began_s = time.perf_counter()
                found = dict(request.infer_sync(dict(inputs)))
                taken_ms = (time.perf_counter() - began_s) * 1e3
                errors.append(relative_error(found, wanted))
                print(f"ran in {taken_ms:.3f} ms; {numbers(found, wanted)}", flush=True)
            refused = captures and network.get_metric("EAGER_PLAN_COUNT")
    names = [f"{operation.library} {operation.label}" for operation in driver.operations]
    print(f"plans of libraries: {names}", flush=True)
    bound = BOUNDS[config["INFERENCE_PRECISION_HINT"]]
    print(f"errors {errors}, bound {bound}", flush=True)
    assert max(errors) < bound
    if library is not None:
        assert any(name.startswith(f"{library} ") for name in names), f"no plan of {library}"
    assert not refused, f"{refused} plans were not captured: the log says why"


def numbers(found: Arrays, wanted: Arrays) -> str:
    """Show how far results are off, with their first values. Pure."""
    said = []
    for name, array in wanted.items():
        made, right = found[name].astype(np.float64), array.astype(np.float64)
        off = float(np.abs(made - right).max())
        said.append(
            f"{name} {array.shape}: off by {off:.3g} of {np.abs(right).max():.3g}, "
            f"{np.count_nonzero(~np.isfinite(made))} not finite, "
            f"{made.ravel()[:4].round(4).tolist()} for {right.ravel()[:4].round(4).tolist()}"
        )
    return "; ".join(said)


@contextmanager
def counted_candidates() -> Iterator[list[int]]:
    """Print and count the plans that come from workers."""
    counts: list[int] = []
    build = PlanWorkers.build

    def counting(self: PlanWorkers, *given: Any, **named: Any) -> Any:
        began_s = time.perf_counter()
        found = build(self, *given, **named)
        counts.append(len(found))
        taken_s = time.perf_counter() - began_s
        print(f"  {len(found)} candidates came from a worker in {taken_s:.2f} s", flush=True)
        return found

    with patch.object(PlanWorkers, "build", counting):
        yield counts
