"""What cuBLASLt is told, shown by the numbers that come of it in column-major memory."""

from __future__ import annotations

import contextlib
import gc
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.backends.cuda.libraries.cublaslt_library import CublasLt
from unit.backends.cuda.libraries.column_memory import Array, laid_out, matmul_operation
from unit.backends.cuda.libraries.fake_cublaslt import FakeCublas, FakeCublasLt, LtError

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


class Opened:
    def __init__(self) -> None:
        self.fake = FakeCublasLt()
        self.devices: list[int] = []
        self.library = CublasLt(self.fake, FakeCublas, self._on_device)

    def _on_device(self, device_id: int) -> Any:
        self.devices.append(device_id)
        return contextlib.nullcontext()

    def plans(self, operation: LibraryOperation, count: int = 8) -> Any:
        return self.library.candidates(operation, 0, count)


def strides_of(chance: np.random.Generator, rows: int, columns: int) -> tuple[int, int]:
    """Draw strides of a row- or column-major matrix, with a gap now and then."""
    gap = int(chance.integers(0, 3))
    return (columns + gap, 1) if chance.random() < 0.5 else (1, rows + gap)


def activated(x: Array, name: str | None) -> Array:
    if name == "relu":
        return np.maximum(x, 0)
    if name == "gelu_tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x


@pytest.mark.parametrize("seed", range(60))
def test_a_launch_gives_the_matmul_of_row_major_matrices(seed: int) -> None:
    chance = np.random.default_rng(seed)
    m, n, k, batch = (int(chance.integers(1, most)) for most in (7, 7, 7, 4))
    dtype = str(chance.choice(list(DTYPES)))
    has_residual = bool(chance.random() < 0.4)
    has_bias = bool(chance.random() < 0.5)
    activation = None if has_residual else chance.choice(["", "relu", "gelu_tanh"]) or None
    arrays = [
        chance.normal(size=shape).astype(DTYPES[dtype]) for shape in ((batch, m, k), (batch, k, n))
    ]
    strides = strides_of(chance, m, k), strides_of(chance, k, n)
    shares = [bool(chance.random() < 0.3) for _ in arrays]
    steps = [
        0 if shared else max(own) * max(array.shape[1:]) + 3
        for array, own, shared in zip(arrays, strides, shares, strict=True)
    ]
    for array, shared in zip(arrays, shares, strict=True):
        if shared:
            array[...] = array[:1]
    memory = [laid_out(*item) for item in zip(arrays, strides, steps, strict=True)]
    bias = chance.normal(size=n).astype(DTYPES[dtype])
    residual = chance.normal(size=(batch, m, n)).astype(DTYPES[dtype])
    made = np.full((batch, m, n), np.nan, DTYPES[dtype])
    operation = matmul_operation(
        **{"dtype": dtype, "batch": batch, "m": m, "n": n, "k": k, "activation": activation},
        **{"a_strides": strides[0], "b_strides": strides[1]},
        **{"a_batch_stride": steps[0], "b_batch_stride": steps[1]},
        **{"has_bias": has_bias, "has_residual": has_residual},
    )
    given = [*memory, *([bias] if has_bias else []), *([residual] if has_residual else []), made]
    (plan,) = Opened().plans(operation, 1)
    plan.enqueue([*(array.ctypes.data for array in given), 0], 77)
    wanted = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    wanted += bias.astype(np.float64) if has_bias else 0
    wanted += residual.astype(np.float64) if has_residual else 0
    wanted = activated(wanted, activation)
    bound = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    np.testing.assert_allclose(
        made.astype(np.float64), wanted, rtol=0, atol=bound * max(1.0, np.abs(wanted).max())
    )


def launched(opened: Opened, plan: Any, **changes: Any) -> dict[str, int]:
    """Launch 3 x 5 times 5 x 4 and give what the library noted."""
    arrays = [np.ones(size, np.float32) for size in (15, 20, 12)]
    plan.enqueue([*(array.ctypes.data for array in arrays), changes.get("workspace", 0)], 9)
    return opened.fake.launches[-1]


def test_candidates_are_the_algorithms_whose_workspace_fits_in_their_order() -> None:
    opened = Opened()
    plans = opened.plans(matmul_operation())
    assert [launched(opened, plan)["algorithm"] for plan in plans] == [11, 12]
    assert len(opened.plans(matmul_operation(), 1)) == 1


def test_an_algorithm_that_the_heuristics_doubt_is_left_out() -> None:
    opened = Opened()
    opened.fake.failing_states = {11: 7}
    (plan,) = opened.plans(matmul_operation())
    assert launched(opened, plan)["algorithm"] == 12


def test_an_algorithm_comes_back_by_its_bytes() -> None:
    opened = Opened()
    second = opened.plans(matmul_operation())[1]
    assert (second.workspace_bytes, len(second.blob)) == (4096, 64)
    again = opened.library.restored(matmul_operation(), 0, second.blob)
    assert launched(opened, again)["algorithm"] == 12
    assert again.workspace_bytes == 4096


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"algorithms": [(11, 0)]}, "status 15"),
        ({"algorithms": [(12, 1 << 21)]}, "workspace has 2097152 bytes of 1048576"),
        ({"failing_states": {12: 7}}, "status 7"),
    ],
)
def test_an_algorithm_that_the_library_does_not_take_again_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    opened = Opened()
    blob = opened.plans(matmul_operation())[1].blob
    vars(opened.fake).update(changes)
    with pytest.raises(DriverError, match=reason):
        opened.library.restored(matmul_operation(), 0, blob)


@pytest.mark.parametrize("blob", [b"", b"short", bytes(128)])
def test_bytes_that_are_no_algorithm_are_refused(blob: bytes) -> None:
    with pytest.raises(DriverError, match=f"64 bytes, not {len(blob)}"):
        Opened().library.restored(matmul_operation(), 0, blob)


def test_workspace_and_stream_are_passed_on() -> None:
    opened = Opened()
    found = launched(opened, opened.plans(matmul_operation())[0], workspace=4096)
    assert (found["workspace"], found["workspace_bytes"], found["stream"]) == (4096, 1 << 20, 9)


@pytest.mark.parametrize(
    ("dtype", "has_tf32", "compute"),
    [("float32", False, 68), ("float32", True, 77), ("float16", True, 68)],
)
def test_only_float32_is_rounded_and_only_if_allowed(
    dtype: str, has_tf32: bool, compute: int
) -> None:
    opened = Opened()
    plan = opened.plans(matmul_operation(dtype=dtype, has_tf32=has_tf32))[0]
    assert launched(opened, plan)["compute"] == compute


def test_launches_of_one_plan_have_each_their_own_bias() -> None:
    opened = Opened()
    (plan,) = opened.plans(matmul_operation(has_bias=True), 1)
    left, right = np.zeros(15, np.float32), np.zeros(20, np.float32)
    made = [np.empty(12, np.float32) for _ in range(2)]
    for number, target in enumerate(made, 1):
        bias = np.full(4, number, np.float32)
        plan.enqueue([item.ctypes.data for item in (left, right, bias, target, bias)], 0)
    assert [target.tolist() for target in made] == [[1.0] * 12, [2.0] * 12]


def test_descriptors_live_as_long_as_a_plan() -> None:
    opened = Opened()
    plans = opened.plans(matmul_operation())
    kept = plans[1]
    del plans
    gc.collect()
    launched(opened, kept)
    del kept
    gc.collect()
    assert not opened.fake.alive


def test_a_device_has_one_handle_made_while_it_is_current() -> None:
    opened = Opened()
    for device_id in (1, 0, 1):
        opened.library.candidates(matmul_operation(), device_id, 1)
    assert len(opened.fake.handles) == 2
    assert opened.devices == [1, 0, 1]


def test_no_algorithm_is_an_error_that_names_the_operation() -> None:
    opened = Opened()
    opened.fake.algorithms = []
    with pytest.raises(DriverError, match="no algorithm") as found:
        opened.plans(matmul_operation())
    assert "matmul" in str(found.value)


def test_strides_that_the_library_does_not_have_are_refused() -> None:
    with pytest.raises(DriverError, match="neither row- nor column-major"):
        Opened().plans(matmul_operation(b_strides=(8, 2)))


@pytest.mark.parametrize(("status", "kind"), [(3, ErrorKind.OUT_OF_MEMORY), (13, ErrorKind.OTHER)])
def test_an_error_of_the_library_is_the_drivers(status: int, kind: ErrorKind) -> None:
    opened = Opened()
    plan = opened.plans(matmul_operation())[0]
    opened.fake.error = LtError(status)
    with pytest.raises(DriverError, match=f"status {status}") as found:
        launched(opened, plan)
    assert found.value.kind is kind
