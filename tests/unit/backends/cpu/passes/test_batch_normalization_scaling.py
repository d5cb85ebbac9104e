import numpy as np
import pytest

from aioinfer.backends.cpu.passes.batch_normalization_scaling import BatchNormalizationScaling
from aioinfer.runtime.passes.folding.constant_cache import ConstantCache
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed
from unit.runtime.passes.small_models import constants

# scale / sqrt(variance + epsilon) is 2 for the first channel and 3 for the second.
MODEL = """g ({type} x) => ({type} y) <
    float[2] scale = {{4, 3}}, float[2] beta = {{1, 10}}, float[2] mean = {{1, 2}},
    float[2] variance = {{3, 0}}
> {{
    a = Relu(x)
    y = BatchNormalization<epsilon=1.0{more}>(a, scale, beta, mean, variance)
}}"""


def _model(kind: str = "float[n,2,h,w]", more: str = ""):
    return parse_typed(MODEL.format(type=kind, more=more))


def test_it_becomes_a_product_and_a_sum() -> None:
    model = _model()
    name = "BatchNormalization_0"
    assert fuse_by(model, BatchNormalizationScaling(ConstantCache())) == [
        "a = Relu(x)  # Relu_0",
        f"y_Mul = Mul(a, {name}_Mul_constant)  # {name}",
        f"y = Add(y_Mul, {name}_Add_constant)  # {name}",
    ]
    assert constants(model)[f"{name}_Mul_constant"] == [[[2]], [[3]]]
    assert constants(model)[f"{name}_Add_constant"] == [[[-1]], [[4]]]


def test_plans_share_the_constants() -> None:
    cache, arrays = ConstantCache(), []
    model = _model()
    for special in (model.copy(), model.copy()):
        fuse_by(special, BatchNormalizationScaling(cache))
        arrays.append(special.graph.initializers["BatchNormalization_0_Mul_constant"].constant)
    assert arrays[0] is arrays[1]
    assert arrays[0].dtype == np.float32


@pytest.mark.parametrize(
    ("kind", "more"),
    [("float[n,2,h,w]", ", training_mode=1"), ("double[n,2,h,w]", "")],
)
def test_what_trains_or_is_no_float32_stays(kind: str, more: str) -> None:
    model = _model(kind, more)
    lines = fuse_by(model, BatchNormalizationScaling(ConstantCache()))
    assert "BatchNormalization(" in lines[1]
