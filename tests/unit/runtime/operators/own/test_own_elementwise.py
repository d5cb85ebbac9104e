"""Erf, Gelu, Einsum and draws, beside onnx.reference and onnxruntime."""

import math

import ml_dtypes
import numpy as np
import pytest

from aioinfer.runtime.operators.own import own_einsum, own_operators
from unit.runtime.operators.beside_peers import by_onnx, by_onnxruntime, by_us

SPECIAL = [-np.inf, -7, -4, -3.99, -1e-30, -0.0, 0, 1e-40, 0.5, 3.9, 4, 6, np.inf, np.nan]
CHANCE = np.random.default_rng(2)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(), (3, 5), (20_000,), (0, 2)])
def test_the_error_function_is_rounded_once(shape, dtype) -> None:
    x = (CHANCE.standard_normal(shape) * 2).astype(dtype)
    wanted = np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(dtype)
    made = by_us("Erf", x)
    assert made.shape == shape
    np.testing.assert_array_max_ulp(made, wanted, 1)


def test_the_error_function_of_special_numbers() -> None:
    for dtype in (np.float32, np.float64):
        x = np.array(SPECIAL, dtype)
        made = by_us("Erf", x)
        wanted = np.array([math.erf(number) for number in x.tolist()], dtype)
        np.testing.assert_allclose(made, wanted, rtol=1e-6 if dtype == np.float32 else 1e-15)
        assert np.array_equal(np.signbit(made[:-1]), np.signbit(wanted[:-1]))


def test_the_error_function_in_bfloat16_and_of_integers() -> None:
    made = by_us("Erf", np.array([-1, 0, 9], ml_dtypes.bfloat16))
    wanted = np.array([-math.erf(1), 0, 1]).astype(ml_dtypes.bfloat16)
    assert made.dtype == wanted.dtype
    assert made.tolist() == wanted.tolist()
    assert by_us("Erf", np.array([-9, 0, 9])).tolist() == [-1, 0, 1]


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_that_of_onnx(approximate) -> None:
    x = (CHANCE.standard_normal((7, 1501)) * 3).astype(np.float32)
    made = by_us("Gelu", x, approximate=approximate)
    for peer in (by_onnx, by_onnxruntime):
        wanted = peer("Gelu", x, opset=20, approximate=approximate)
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
    for dtype in (np.float16, np.float64):
        other = by_us("Gelu", x.astype(dtype), approximate=approximate)
        assert other.dtype == dtype
        np.testing.assert_allclose(other, made, atol=1e-6 if dtype == np.float64 else 5e-3)


def test_gelu_of_special_numbers() -> None:
    x = np.array([-50, -10, 0, 10, 50, np.inf, np.nan], np.float32)
    for approximate in ("none", "tanh"):
        made = by_us("Gelu", x, approximate=approximate)
        np.testing.assert_array_equal(made, [0, 0, 0, 10, 50, np.inf, np.nan])


def test_gelu_refuses_an_unknown_approximation() -> None:
    with pytest.raises(ValueError, match="sigmoid"):
        by_us("Gelu", np.zeros(2, np.float32), approximate="sigmoid")


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("abc,cde,efa->bdf", [(3, 4, 5), (5, 2, 3), (3, 4, 3)]),
        ("...ij,...jk,k->...i", [(2, 3, 4), (2, 4, 5), (5,)]),
        ("ii->i", [(4, 4)]),
        ("i,i,i->", [(0,), (0,), (0,)]),
        (" ij , j ", [(2, 3), (3,)]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_einsum_is_that_of_onnx(equation, shapes, dtype) -> None:
    operands = [CHANCE.integers(-5, 6, shape).astype(dtype) for shape in shapes]
    made = by_us("Einsum", *operands, equation=equation)
    wanted = by_onnx("Einsum", *operands, equation=equation)
    np.testing.assert_array_equal(made, wanted, strict=True)


def test_einsum_multiplies_two_at_a_time(monkeypatch) -> None:
    paths = []
    einsum = np.einsum

    def watched(equation, *operands, optimize):
        paths.append(np.einsum_path(equation, *operands, optimize=optimize)[0])
        return einsum(equation, *operands, optimize=optimize)

    monkeypatch.setattr(own_einsum.np, "einsum", watched)
    by_us("Einsum", *[np.ones((20, 20, 20), np.float32)] * 3, equation="abc,cde,efa->bdf")
    assert [len(pair) for pair in paths[0][1:]] == [2, 2]


def test_einsum_of_bfloat16_is_rounded_at_its_end() -> None:
    operands = [CHANCE.standard_normal((3, 3)).astype(ml_dtypes.bfloat16) for _ in range(3)]
    made = by_us("Einsum", *operands, equation="ij,jk,kl->il")
    wide = [operand.astype(np.float32) for operand in operands]
    wanted = (wide[0] @ wide[1] @ wide[2]).astype(ml_dtypes.bfloat16)
    assert made.dtype == wanted.dtype
    np.testing.assert_allclose(made.astype(np.float32), wanted.astype(np.float32), rtol=1e-2)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_draws_follow_the_probabilities(dtype) -> None:
    logits = np.log(np.array([[1, 2, 0, 5], [0, 0, 3, 0]], np.float32) + 1e-30)
    code = {np.int32: 6, np.int64: 7}[dtype]
    drawn = own_operators.multinomial(logits, sample_size=40_000, seed=3.0, dtype=code)
    assert drawn.dtype == dtype
    shares = [np.bincount(row, minlength=4) / 40_000 for row in drawn]
    np.testing.assert_allclose(shares, [[0.125, 0.25, 0, 0.625], [0, 0, 1, 0]], atol=0.01)
    again = own_operators.multinomial(logits, sample_size=40_000, seed=3.0, dtype=code)
    np.testing.assert_array_equal(drawn, again)
