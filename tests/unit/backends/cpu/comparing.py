"""Models of a few nodes on CPU, compared with REFERENCE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from aioinfer import Core
from aioinfer.errors import DeviceError
from unit.backends import comparing
from unit.backends.comparing import F32_BOUND, Arrays, model_of

__all__ = [
    "BF16_BOUND",
    "F32_BOUND",
    "INTEGERS",
    "Arrays",
    "assert_a_quantum_off",
    "assert_batches_of_a_run_and_of_a_blob",
    "assert_same_as_reference",
    "has_instructions",
    "has_wide_vectors",
    "missing_reason",
    "model_of",
    "precisions",
    "run",
    "run_stored",
    "skip_without_bfloat16",
    "skip_without_int8",
]

BF16_BOUND = 3e-2
"""Largest error over largest value; bfloat16 has 8 bits of mantissa."""

INTEGERS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
"""numpy's types of stored numbers, and ONNX's."""

_AVX512 = 0x27
"""dnnl_cpu_isa_avx512_core."""


def assert_same_as_reference(
    core: Core, model: Any, inputs: Arrays, *, bound: float = F32_BOUND, **config: Any
) -> dict[str, Any]:
    """Run on CPU and on REFERENCE, and return CPU's results; skips what the processor cannot."""
    _skip_unless_possible(config)
    return comparing.assert_same_on("CPU", core, model, inputs, bound=bound, **config)


def run(core: Core, model: Any, device: str, inputs: Arrays, **config: Any) -> dict[str, Any]:
    """Load a model on a device and run it once; skips what the processor cannot."""
    _skip_unless_possible(config)
    return comparing.run(core, model, device, inputs, **config)


def run_stored(
    core: Core, model: bytes, x: np.ndarray, device: str = "CPU", threads: int = 1
) -> np.ndarray:
    """Run a model from x to y, of which at least x is stored numbers, on so many threads."""
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1} if device == "CPU" else {}
    with core.load_network(model, device, config) as network:
        return np.asarray(network.create_infer_request().infer_sync({"x": x})["y"])


def assert_a_quantum_off(found: np.ndarray, wanted: np.ndarray) -> None:
    """Fail unless stored numbers, which use their range, are equal but for a few next to them."""
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    assert np.ptp(wanted.astype(int)) > 20
    apart = np.abs(found.astype(np.int32) - wanted)
    assert apart.max() <= 1
    assert np.mean(apart > 0) <= 0.001 or np.count_nonzero(apart) <= 1


def _skip_unless_possible(config: dict[str, Any]) -> None:
    if config.get("INFERENCE_PRECISION_HINT") == "bf16":
        skip_without_bfloat16()


def skip_without_bfloat16() -> None:
    """Skip the test that calls where the processor computes in float32 only."""
    if "bf16" not in precisions():
        pytest.skip("this CPU has no instructions for bf16")


def skip_without_int8(core: Core) -> None:
    """Skip the test that calls where the processor computes stored numbers in float32."""
    if "INT8" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this CPU sums up no products of 8 bits in 32")


def has_wide_vectors() -> bool:
    """True with AVX-512, for which oneDNN has kernels that it has for nothing else."""
    from aioinfer.backends.cpu.onednn.bindings import open_engine

    return open_engine().instruction_set & _AVX512 == _AVX512


def has_instructions(*flags: str) -> bool:
    """True if Linux names all of these instruction sets among the flags of the processor."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    found = next((line for line in lines if line.startswith("flags")), "")
    return {*flags} <= {*found.split()}


def precisions() -> list[str]:
    """List what this processor has instructions for; nothing without oneDNN."""
    from aioinfer.backends.cpu.onednn.bindings import open_engine
    from aioinfer.backends.cpu.precision import precisions_of

    return precisions_of(open_engine().instruction_set) if missing_reason() is None else []


def missing_reason() -> str | None:
    """Say why there is no CPU device here, or None."""
    from aioinfer.backends.cpu.onednn.bindings import open_engine

    try:
        open_engine()
    except DeviceError as error:
        return str(error)
    return None


def assert_batches_of_a_run_and_of_a_blob(core: Core, model: Any, x: np.ndarray) -> None:
    """Assert that batches give REFERENCE's results, and to the bit the same from a blob."""
    with core.load_network(model, "CPU") as network:
        request = network.create_infer_request()
        batches = [np.concatenate([x] * count) for count in (1, 2, 3, 2)]
        found = [request.infer_sync({"x": batch})["y"] for batch in batches]
        blob = network.export()
    for batch, made in zip(batches, found, strict=True):
        wanted = run(core, model, "REFERENCE", {"x": batch})["y"]
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)
    with core.import_network(blob, "CPU") as network:
        again = network.create_infer_request()
        for batch, made in zip(batches, found, strict=True):
            np.testing.assert_array_equal(again.infer_sync({"x": batch})["y"], made)
