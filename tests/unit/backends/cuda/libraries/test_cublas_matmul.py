"""What cuBLAS is told, shown by the numbers that come of it in column-major memory."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.cuda.libraries.cublas_calls import CublasCalls, CublasError, load_calls
from aioinfer.backends.cuda.libraries.cublas_matmul import Cublas
from unit.backends.cuda.libraries.column_memory import (
    column_major,
    laid_out,
    matmul_operation,
    number_at,
)


class FakeCalls:
    """Calls of cuBLAS on host memory; a handle works on its stream."""

    OP_N, OP_T, GEMM_DEFAULT = CublasCalls.OP_N, CublasCalls.OP_T, CublasCalls.GEMM_DEFAULT
    COMPUTE_32F = CublasCalls.COMPUTE_32F
    COMPUTE_32F_FAST_TF32 = CublasCalls.COMPUTE_32F_FAST_TF32

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}
        self.launches: list[tuple[int, int, int]] = []
        self.error: Exception | None = None

    def set_stream(self, handle: int, stream: int) -> None:
        self.streams[handle] = stream

    def gemm(self, *given: int) -> None:
        if self.error is not None:
            raise self.error
        handle, turn_a, turn_b, m, n, k, alpha, *rest = given
        a, a_type, a_leading, a_stride, b, b_type, b_leading, b_stride, beta, *rest = rest
        c, c_type, c_leading, c_stride, batch, compute, algorithm = rest
        assert algorithm == self.GEMM_DEFAULT
        assert number_at(beta, np.float32) == 0
        rows, columns = (k, m) if turn_a else (m, k)
        left = column_major(a, a_type, rows, columns, a_leading, batch, a_stride)
        rows, columns = (n, k) if turn_b else (k, n)
        right = column_major(b, b_type, rows, columns, b_leading, batch, b_stride)
        left = left.astype(np.float64)
        left = left.swapaxes(1, 2) if turn_a else left
        right = right.swapaxes(1, 2) if turn_b else right
        made = column_major(c, c_type, m, n, c_leading, batch, c_stride)
        made[...] = number_at(alpha, np.float32) * (left @ right)
        self.launches.append((handle, self.streams[handle], compute))


def opened() -> tuple[FakeCalls, Cublas]:
    fake = FakeCalls()
    return fake, Cublas(cast(CublasCalls, fake), lambda: 5)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("is_turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_launch_gives_the_matmul_of_row_major_matrices(
    dtype: str, is_turned: tuple[bool, bool], is_shared: bool
) -> None:
    chance = np.random.default_rng(0)
    arrays = [chance.normal(size=shape).astype(dtype) for shape in ((2, 3, 5), (2, 5, 4))]
    if is_shared:
        arrays[1][1] = arrays[1][0]
    strides = (1, 4) if is_turned[0] else (5, 1), (1, 5) if is_turned[1] else (6, 1)
    steps = 30, 0 if is_shared else 33
    memory = [laid_out(*item) for item in zip(arrays, strides, steps, strict=True)]
    made = np.full((2, 3, 4), np.nan, dtype)
    fake, library = opened()
    operation = matmul_operation(
        "cublas",
        **{"dtype": dtype, "batch": 2, "a_strides": strides[0], "b_strides": strides[1]},
        **{"a_batch_stride": steps[0], "b_batch_stride": steps[1]},
    )
    library.plan(operation).enqueue([*(item.ctypes.data for item in (*memory, made)), 0], 77)
    wanted = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    np.testing.assert_allclose(made, wanted, rtol=0, atol=5e-3 if dtype == "float16" else 1e-6)
    assert fake.launches == [(5, 77, fake.COMPUTE_32F)]


def test_tf32_has_to_be_allowed() -> None:
    fake, library = opened()
    arrays = [np.ones(size, np.float32) for size in (15, 20, 12, 1)]
    plan = library.plan(matmul_operation("cublas", has_tf32=True))
    plan.enqueue([array.ctypes.data for array in arrays], 0)
    assert fake.launches[-1][2] == fake.COMPUTE_32F_FAST_TF32


@pytest.mark.parametrize(
    "more", [{"has_bias": True}, {"has_residual": True}, {"activation": "relu"}]
)
def test_more_than_a_matmul_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(DriverError, match=f"cublas has no {next(iter(more))}"):
        opened()[1].plan(matmul_operation("cublas", **more))


def test_an_error_of_the_library_is_the_drivers() -> None:
    fake, library = opened()
    fake.error = RuntimeError("CUBLAS_STATUS_INTERNAL_ERROR")
    plan = library.plan(matmul_operation("cublas"))
    with pytest.raises(DriverError, match="INTERNAL_ERROR") as found:
        plan.enqueue([1, 2, 3, 4], 0)
    assert found.value.kind is ErrorKind.OTHER


def bindings_of_cupy() -> Any:
    """Load the library as CuPy does."""
    libraries = pytest.importorskip("cupy_backends.cuda.libs", exc_type=ImportError)
    try:
        return libraries.cublas
    except ImportError as error:
        pytest.skip(str(error))


def true_calls() -> CublasCalls:
    """Give the calls of the library that is installed."""
    bindings_of_cupy()
    cupy = pytest.importorskip("cupy")
    return load_calls(cupy.cuda.runtime.runtimeGetVersion() // 1000)


@pytest.mark.parametrize("number", range(2))
def test_the_library_takes_our_arguments_and_names_its_refusal(number: int) -> None:
    calls = true_calls()
    without_handle = [lambda: calls.set_stream(0, 7), lambda: calls.gemm(*[0] * 24)]
    with pytest.raises(CublasError, match="CUBLAS_STATUS_NOT_INITIALIZED") as raised:
        without_handle[number]()
    assert raised.value.status == 1


def test_its_numbers_are_those_that_cupy_has() -> None:
    cublas = bindings_of_cupy()
    for name in ("OP_N", "OP_T", "GEMM_DEFAULT", "COMPUTE_32F", "COMPUTE_32F_FAST_TF32"):
        assert getattr(CublasCalls, name) == getattr(cublas, f"CUBLAS_{name}")
