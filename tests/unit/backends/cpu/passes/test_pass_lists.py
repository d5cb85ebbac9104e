"""The lists of the passes' package: names, order, and leaving some out."""

from collections.abc import Collection

from aioinfer.backends.cpu.passes import PASS_NAMES, first_passes, plan_passes, shared_passes
from aioinfer.runtime.passes import Pass, run_passes
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed

NAMES = (
    "packed weights",
    "half matmuls",
    "scan batching",
    "half widening",
    "einsum decomposition",
    "pad folding",
    "batch normalization folding",
    "movement hoisting",
    "scale shift folding",
    "transpose elimination",
    "int8 fusion",
    "stored rows",
    "dynamic int8 fusion",
    "int8 movement",
    "int8 tables",
    "rounding fusion",
    "distance fusion",
    "layer normalization fusion",
    "flat gemm fusion",
    "activation fusion",
    "shared input fusion",
    "attention fusion",
    "batch normalization scaling",
    "epilogue fusion",
    "eltwise fusion",
)
MODEL = """g (float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] w = {2}, float two = {2}> {
    a = Conv(x, w) b = Mul(a, two) s = Sigmoid(b) y = Mul(b, s)
}"""


def _listed(disabled: Collection[str] = ()) -> list[Pass]:
    return [*first_passes(disabled), *shared_passes(disabled), *plan_passes(disabled)]


def test_names_are_told_in_the_order_in_which_passes_run() -> None:
    assert PASS_NAMES == NAMES
    assert tuple(item.name for item in _listed()) == NAMES


def test_each_can_be_left_out_by_its_name() -> None:
    for name in NAMES:
        left = [item.name for item in _listed([name])]
        assert left == [other for other in NAMES if other != name]


def test_together_they_leave_one_node() -> None:
    model = parse_typed(MODEL)
    assert fuse_by(model, *shared_passes(), *plan_passes()) == [
        "y = cpu::Conv(x, w_1) [swish]  # Conv_0 Mul_0 Mul_1 Sigmoid_0"
    ]


def test_a_second_run_finds_nothing() -> None:
    model = parse_typed(MODEL)
    passes = (*shared_passes(), *plan_passes())
    run_passes(model, passes)
    assert run_passes(model, passes).patch_count == 0


def test_without_a_fusion_its_nodes_are_left_to_the_others() -> None:
    model = parse_typed(MODEL)
    disabled = ("scale shift folding", "activation fusion")
    assert fuse_by(model, *shared_passes(disabled), *plan_passes(disabled)) == [
        "b = cpu::Conv(x, w) [linear(2.0,0.0)]  # Conv_0 Mul_0",
        "y = cpu::Eltwise(b, b) [sigmoid mul(1)]  # Sigmoid_0 Mul_1",
    ]
