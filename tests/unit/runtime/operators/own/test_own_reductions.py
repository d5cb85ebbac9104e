"""Norms and one-hot rows, beside onnxruntime."""

import warnings

import numpy as np
import pytest

from unit.runtime.operators.beside_peers import by_onnxruntime, by_us


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_first_of_the_greatest_is_one(dtype, axis) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (4, 5, 6)).astype(dtype)
    x[1, 2] = [np.inf, 1, np.inf, -np.inf, 2, 0]
    x[2, 3] = -np.inf
    made = by_us("Hardmax", x, axis=axis)
    assert made.dtype == dtype
    if dtype == np.float32:  # onnxruntime has no other
        np.testing.assert_array_equal(made, by_onnxruntime("Hardmax", x, axis=axis))
    np.testing.assert_array_equal(made.sum(axis=axis), 1)


@pytest.mark.parametrize("length", [2, 3])
def test_nan_is_never_the_greatest(length) -> None:
    """In rows too short for vectors, and where a number comes first, onnxruntime ignores NaN."""
    x = np.random.default_rng(length).choice([np.nan, -1, 0, 2], (90, length)).astype(np.float32)
    made, wanted = (by("Hardmax", x) for by in (by_us, by_onnxruntime))
    begins = ~np.isnan(x[:, 0])
    np.testing.assert_array_equal(made[begins], wanted[begins])
    assert not made[np.isnan(x)].any()
    assert not wanted[np.isnan(x)].any()
    np.testing.assert_array_equal(made.sum(axis=1), ~np.isnan(x).all(axis=1))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_rows_of_nothing(shape) -> None:
    assert by_us("Hardmax", np.zeros(shape, np.float32)).shape == shape


@pytest.mark.parametrize("axes", [None, [0, 2, 3], [1], [-1, 0]])
@pytest.mark.parametrize("shift", [0, 300])
def test_means_and_variances_are_normalized(axes, shift) -> None:
    x = (np.random.default_rng(1).standard_normal((3, 4, 5, 6)) + shift).astype(np.float32)
    settings = {} if axes is None else {"axes": axes}
    made = by_us("MeanVarianceNormalization", x, **settings)
    wanted = by_onnxruntime("MeanVarianceNormalization", x, **settings)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, wanted, atol=1e-5 * (1 + shift))


def test_what_does_not_vary_is_zero_and_nothing_is_nothing() -> None:
    x = np.full((2, 3, 2, 2), 7.3, np.float32)
    np.testing.assert_allclose(by_us("MeanVarianceNormalization", x), 0, atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empty = by_us("MeanVarianceNormalization", x[:0])
    assert empty.shape == (0, 3, 2, 2)
