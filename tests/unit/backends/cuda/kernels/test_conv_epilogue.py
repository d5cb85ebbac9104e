"""What of a convolution's steps cuDNN computes: every form of every activation, and what is not."""

from __future__ import annotations

import pytest

from aioinfer.backends.accelerator.elementwise.fused_step import FusedStep
from aioinfer.backends.cuda.kernels.conv_epilogue import fit_epilogue
from aioinfer.backends.cuda.kernels.library_call import FittedSteps
from aioinfer.runtime.graph import DType

NUMBERS = {"zero": 0.0, "half": 0.5, "one": 1.0, "three": 3.0, "six": 6.0, "root": 1.41421}


def steps_of(text: str) -> tuple[FusedStep, ...]:
    """Read steps like `Add(acc,map) Clip(s0,zero,six)`; numbers of a step follow a semicolon."""
    found = []
    for item in text.split():
        op, _, rest = item.rstrip(")").partition("(")
        operands, _, numbers = rest.partition(";")
        given = tuple(map(float, numbers.split(","))) if numbers else ()
        found.append(FusedStep(op, tuple(operands.split(",")), DType.FLOAT32, given))
    return tuple(found)


def fit(text: str) -> FittedSteps:
    return fit_epilogue(steps_of(text), {"map", "other"}, NUMBERS)


def summary(text: str) -> tuple[str | None, str | None, str]:
    """Give residual, activation, and the rest as text."""
    fitted = fit(text)
    rest = " ".join(f"{step.op}({','.join(step.operands)})" for step in fitted.rest)
    return fitted.residual, fitted.activation, rest


def test_nothing_is_nothing() -> None:
    assert fit("") == FittedSteps()


@pytest.mark.parametrize(
    ("text", "activation"),
    [
        ("Relu(acc)", "relu"),
        ("Clip(acc,zero)", "relu"),
        ("Clip(acc,zero,_)", "relu"),
        ("Max(zero,acc)", "relu"),
        ("Clip(acc,zero,six)", "relu6"),
        ("Relu(acc) Min(s0,six)", "relu6"),
        ("Swish(acc;1.0)", "silu"),
        ("Sigmoid(acc) Mul(acc,s0)", "silu"),
        ("Sigmoid(acc) Mul(s0,acc)", "silu"),
        ("HardSwish(acc)", "hardswish"),
        ("HardSigmoid(acc;0.16666667,0.5) Mul(s0,acc)", "hardswish"),
        ("Add(acc,three) Clip(s0,zero,six) Div(s1,six) Mul(acc,s2)", "hardswish"),
        ("Add(three,acc) Clip(s0,zero,six) Mul(s1,acc) Div(s2,six)", "hardswish"),
        ("Gelu(acc;0.0)", "gelu"),
        ("Div(acc,root) Erf(s0) Add(s1,one) Mul(acc,s2) Mul(s3,half)", "gelu"),
        ("Sigmoid(acc)", "sigmoid"),
        ("Tanh(acc)", "tanh"),
        ("LeakyRelu(acc;0.1)", "leaky_relu"),
    ],
)
def test_an_activation_alone_and_behind_a_residual(text: str, activation: str) -> None:
    assert summary(text) == (None, activation, "")
    shifted = text
    for number in reversed(range(5)):
        shifted = shifted.replace(f"s{number}", f"s{number + 1}")
    assert summary(f"Add(map,acc) {shifted.replace('acc', 's0')}") == ("map", activation, "")
    count = len(text.split())
    assert summary(f"{text} Mul(s{count - 1},other)") == (None, activation, "Mul(acc,other)")


def test_a_residual_alone() -> None:
    assert summary("Add(acc,map)") == ("map", None, "")


def test_leaky_relu_keeps_its_number() -> None:
    assert fit("LeakyRelu(acc;0.3)").number == 0.3


def test_a_residual_behind_the_activation_is_left_to_a_fused_group() -> None:
    assert summary("Relu(acc) Add(s0,map)") == (None, "relu", "Add(acc,map)")


@pytest.mark.parametrize(
    "text",
    [
        "Add(acc,small)",
        "Sub(acc,map)",
        "Add(acc,acc)",
        "Clip(acc,one,six)",
        "Clip(acc,_,six)",
        "Swish(acc;1.5)",
        "Gelu(acc;1.0)",
        "HardSigmoid(acc;0.2,0.5)",
        "Relu(map)",
        "Add(acc,map) Mul(s0,acc)",
        "Relu(acc) Mul(s0,acc)",
        "Sigmoid(acc) Mul(acc,map)",
    ],
)
def test_what_cudnn_has_no_form_for_is_left_to_a_fused_group(text: str) -> None:
    rest = " ".join(item.split(";")[0].rstrip(")") + ")" for item in text.split())
    assert summary(text) == (None, None, rest)


def test_a_residual_is_taken_where_the_activation_is_not() -> None:
    assert summary("Add(acc,map) Exp(s0) Mul(s1,s0)") == ("map", None, "Exp(acc) Mul(s0,acc)")


def test_the_rest_counts_its_own_steps() -> None:
    text = "Add(map,acc) Relu(s0) Exp(s1) Mul(s2,s1) Add(s3,other)"
    assert summary(text) == ("map", "relu", "Exp(acc) Mul(s0,acc) Add(s1,other)")
