"""Evaluates models with attention and normalisations of the CPU's domain, and compares them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from aioinfer.backends.cpu.onednn.post_ops import CPU_DOMAIN
from aioinfer.backends.reference.finder import ExtensionKernel, KernelFinder
from aioinfer.runtime.graph import Model, TensorType, Value
from aioinfer.runtime.onnx_native import infer_types
from aioinfer.runtime.passes import (
    ConstantFolding,
    DeadCode,
    IdentityElimination,
    Pass,
    run_passes,
)
from onnx_text import parse

Arrays = Mapping[str, np.ndarray]


def typed(text: str, opset: int = 21) -> Model:
    """Read a graph in ONNX's text format, as passes get it: constants folded, types inferred."""
    model = parse(text, opset)
    infer_types(model)
    run_passes(model, [ConstantFolding(), IdentityElimination()])
    return model


def fused(model: Model, *passes: Pass) -> Model:
    """Run passes on a copy, whose types are then known again as far as the CPU's nodes tell."""
    copy = model.copy()
    run_passes(copy, [*passes, DeadCode()])
    return copy


def ops(model: Model) -> Counter[str]:
    """Count the operators, the CPU's own as `cpu::Attention`."""
    return Counter(node.op.replace(CPU_DOMAIN, "cpu") for node in model.graph.nodes)


def lines(model: Model) -> list[str]:
    """Print the nodes: `y = cpu::Attention(q, k, v) {num_heads=2, scale=0.5}`."""
    found = []
    for node in model.graph.nodes:
        outputs = ", ".join(value.name for value in node.outputs)
        inputs = ", ".join("_" if value is None else value.name for value in node.inputs)
        items = sorted(node.attributes.items())
        attributes = ", ".join(f"{key}={_text(item)}" for key, item in items)
        text = f"{outputs} = {node.op.replace(CPU_DOMAIN, 'cpu')}({inputs})"
        found.append(text + (f" {{{attributes}}}" if attributes else ""))
    return found


def random_inputs(model: Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw the inputs of a static model: normal numbers, small integers, mostly true booleans."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for value in model.inputs:
        assert isinstance(value.type, TensorType)
        assert value.type.shape is not None
        numbers = generator.normal(size=[int(dim) for dim in value.type.shape if dim is not None])
        dtype = value.type.dtype.numpy
        if dtype.kind in "iu":
            numbers = np.abs(numbers) < 1
        arrays[value.name] = (numbers > -1 if dtype.kind == "b" else numbers).astype(dtype)
    return arrays


def assert_same(original: Model, rewritten: Model, inputs: Arrays | None = None) -> None:
    """Compare all outputs of two models, to 1e-5 of the largest element."""
    inputs = random_inputs(original) if inputs is None else inputs
    expected, found = run(original, inputs), run(rewritten, inputs)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        assert np.isfinite(array).all()
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-5 * np.abs(array).max())


def run(model: Model, inputs: Arrays) -> dict[str, np.ndarray]:
    """Run a model without control flow on REFERENCE's kernels; check the types that are known."""
    known: dict[Value | None, Any] = {None: None}
    known.update({value: inputs[value.name] for value in model.inputs})
    known.update({value: value.constant for value in model.graph.initializers.values()})
    finder = KernelFinder(model.opsets, _KERNELS)
    for node in model.graph.nodes:
        with np.errstate(invalid="ignore"):
            results = finder(node)(*[known[value] for value in node.inputs])
        for value, result in zip(node.outputs, results, strict=False):
            if isinstance(value.type, TensorType) and value.type.shape is not None:
                pairs = zip(value.type.shape, result.shape, strict=True)
                assert all(dim == length or not isinstance(dim, int) for dim, length in pairs)
            known[value] = result
    return {value.name: known[value] for value in model.outputs}


def _layer_normalization(
    x: np.ndarray, scale: np.ndarray, shift: np.ndarray, *, axis: int, epsilon: float
) -> np.ndarray:
    assert scale.shape == shift.shape == x.shape[axis:]
    axes = tuple(range(axis, 0))
    x = x.astype(np.float64)
    centred = x - x.mean(axes, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon)
    return (centred / deviation * scale + shift).astype(np.float32)


def _rms_normalization(
    x: np.ndarray, scale: np.ndarray, *, axis: int, epsilon: float
) -> np.ndarray:
    assert scale.shape == x.shape[axis:]
    x = x.astype(np.float64)
    squares = (x**2).mean(tuple(range(axis, 0)), keepdims=True)
    return (x / np.sqrt(squares + epsilon) * scale).astype(np.float32)


def _attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask: np.ndarray | None = None,
    *,
    num_heads: int,
    scale: float,
    zero_empty_rows: int = 0,
) -> np.ndarray:
    query, key, value = (_heads(array, num_heads) for array in (query, key, value))
    scores = query @ key.swapaxes(-1, -2) * scale
    if mask is not None:
        assert np.broadcast_shapes(mask.shape, scores.shape) == scores.shape
        scores = scores + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    if zero_empty_rows:
        weights[np.isneginf(scores).all(-1)] = 0
    mixed = weights @ value
    merged = mixed.swapaxes(1, 2).reshape(len(mixed), mixed.shape[2], -1)
    return merged.astype(np.float32)


def _heads(array: np.ndarray, count: int) -> np.ndarray:
    batch, rows, width = array.shape
    return array.astype(np.float64).reshape(batch, rows, count, width // count).swapaxes(1, 2)


_KERNELS: Mapping[tuple[str, str], ExtensionKernel] = {
    (CPU_DOMAIN, "Attention"): _attention,
    (CPU_DOMAIN, "LayerNormalization"): _layer_normalization,
    (CPU_DOMAIN, "RMSNormalization"): _rms_normalization,
}


def _text(item: Any) -> str:
    return f"{item:.6g}" if isinstance(item, float) else str(item)
