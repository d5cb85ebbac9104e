import pytest

from aioinfer.runtime.passes import DeadCode, run_passes
from aioinfer.runtime.passes.folding.batch_normalization_folding import BatchNormalizationFolding
from onnx_text import parse
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed
from unit.runtime.passes.small_models import constants

# scale / sqrt(variance + epsilon) is 2 for the first channel and 3 for the second.
STATISTICS = """
    float[2] scale = {4, 3}, float[2] beta = {1, 10}, float[2] mean = {1, 2},
    float[2] variance = {3, 0}"""
NORMALIZE = "BatchNormalization<epsilon=1.0>({}, scale, beta, mean, variance)"


def test_after_a_conv_it_goes_into_weights_and_bias() -> None:
    model = parse_typed(
        f"""g (float[n,1,h,w] x) => (float[n,2,h,w] y)
        <float[2,1,1,1] k = {{5, 7}}, float[2] b = {{1, 1}}, {STATISTICS}> {{
            c = Conv<strides=[2,2]>(x, k, b)
            y = {NORMALIZE.format("c")}
        }}"""
    )
    run_passes(model, [BatchNormalizationFolding(), DeadCode()])
    assert str(model).splitlines() == [
        "graph g {",
        "  input %x: float32[n,1,h,w]",
        "  constant %k_1: float32[2,1,1,1] = [[[[10.0]]],[[[21.0]]]]",
        "  constant %b_1: float32[2] = [1.0,7.0]",
        "  %y: float32[n,2,h,w] = Conv(%x, %k_1, %b_1) {strides=[2, 2]}"
        "  # Conv_0 from Conv_0, BatchNormalization_0",
        "  return %y",
        "}",
    ]


def test_a_conv_without_bias_gets_one() -> None:
    model = parse_typed(
        f"""g (float[1,1,3,3] x) => (float[1,2,3,3] y)
        <float[2,1,1,1] k = {{5, 7}}, {STATISTICS}> {{
            c = Conv(x, k)
            y = {NORMALIZE.format("c")}
        }}"""
    )
    assert fuse_by(model, BatchNormalizationFolding()) == [
        "y = Conv(x, k_1, Conv_0_bias)  # Conv_0 BatchNormalization_0"
    ]
    assert constants(model)["Conv_0_bias"] == [-1, 4]


def test_a_gemm_keeps_its_attributes_but_beta() -> None:
    model = parse_typed(
        f"""g (float[n,1] x) => (float[n,2] y)
        <float[2,1] k = {{5, 7}}, float[1,2] b = {{1, 1}}, {STATISTICS}> {{
            c = Gemm<transB=1, alpha=0.5, beta=2.0>(x, k, b)
            y = {NORMALIZE.format("c")}
        }}"""
    )
    assert fuse_by(model, BatchNormalizationFolding()) == [
        "y = Gemm(x, k_1, b_1)  # Gemm_0 BatchNormalization_0"
    ]
    assert model.node("Gemm_0").attributes == {"transB": 1, "alpha": 0.5, "beta": 1.0}
    assert constants(model) == {"k_1": [[10], [21]], "b_1": [[3, 10]]}


def test_a_matmul_is_followed_by_its_new_bias() -> None:
    model = parse_typed(
        f"""g (float[n,1] x) => (float[n,2] y) <float[1,2] k = {{5, 7}}, {STATISTICS}> {{
            c = MatMul(x, k)
            y = {NORMALIZE.format("c")}
        }}"""
    )
    assert fuse_by(model, BatchNormalizationFolding()) == [
        "c = MatMul(x, k_1)  # MatMul_0 BatchNormalization_0",
        "y = Add(c, MatMul_0_bias)  # MatMul_0 BatchNormalization_0",
    ]


def test_weights_that_others_use_stay_for_them() -> None:
    model = parse_typed(
        f"""g (float[n,1,h,w] x) => (float[n,2,h,w] y, float[n,2,h,w] z)
        <float[2,1,1,1] k = {{5, 7}}, {STATISTICS}> {{
            c = Conv(x, k)
            y = {NORMALIZE.format("c")}
            z = Conv(x, k)
        }}"""
    )
    run_passes(model, [BatchNormalizationFolding(), DeadCode()])
    assert constants(model)["k"] == [[[[5]]], [[[7]]]]
    assert constants(model)["k_1"] == [[[[10]]], [[[21]]]]


def test_bodies_of_control_flow_are_folded_in_too() -> None:
    model = parse_typed(
        f"""g (bool c, float[1,1,3,3] x) => (float[1,2,3,3] y)
        <float[2,1,1,1] k = {{5, 7}}, {STATISTICS}> {{
            y = If (c) <
                then_branch = t () => (float[1,2,3,3] p) {{
                    u = Conv(x, k)
                    p = {NORMALIZE.format("u")}
                }},
                else_branch = e () => (float[1,2,3,3] q) {{ q = Conv(x, k) }}
            >
        }}"""
    )
    assert run_passes(model, [BatchNormalizationFolding()]).patch_count == 1
    branch = model.node("If_0").attributes["then_branch"]
    assert [node.op_type for node in branch.nodes] == ["Conv"]
    assert [value.name for value in branch.outputs] == ["p"]


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        # what is in between is needed
        ("c = Conv(x, k) y = {bn} z = Relu(c)", "float[1,2,3,3] y, float[1,2,3,3] z"),
        ("c = Conv(x, k) y = {bn}", "float[1,2,3,3] y, float[1,2,3,3] c"),
        # weights or statistics are not known
        ("e = Exp(x0) c = Conv(x, e) y = {bn}", "float[1,2,3,3] y"),
        ("c = Conv(x, k) y = BatchNormalization(c, scale, beta, m, variance)", "float[1,2,3,3] y"),
        # it follows nothing that it could go into
        ("c = Relu(x2) y = {bn}", "float[1,2,3,3] y"),
        # it trains
        (
            "c = Conv(x, k) y, r, v = BatchNormalization<training_mode=1>"
            "(c, scale, beta, mean, variance)",
            "float[1,2,3,3] y",
        ),
    ],
)
def test_it_stays_where_it_cannot_go(nodes: str, outputs: str) -> None:
    model = parse(
        f"""g (float[1,1,3,3] x, float[1,2,3,3] x2, float[2,1,1,1] x0, float[2] m) => ({outputs})
        <float[2,1,1,1] k = {{5, 7}}, {STATISTICS}> {{
            {nodes.replace("{bn}", NORMALIZE.format("c"))}
        }}"""
    )
    assert run_passes(model, [BatchNormalizationFolding()]).patch_count == 0


def test_channels_of_a_matmul_of_three_axes_are_not_those_of_the_weights() -> None:
    model = parse_typed(
        f"""g (float[1,2,2] x) => (float[1,2,2] y)
        <float[2,2] k = {{1, 2, 3, 4}}, {STATISTICS}> {{
            c = MatMul(x, k)
            y = {NORMALIZE.format("c")}
        }}"""
    )
    assert run_passes(model, [BatchNormalizationFolding()]).patch_count == 0


def test_a_scale_that_is_not_finite_is_left_to_run_time() -> None:
    model = parse_typed(
        """g (float[1,1,3,3] x) => (float[1,1,3,3] y)
        <float[1,1,1,1] k = {5}, float[1] one = {1}, float[1] none = {0}> {
            c = Conv(x, k)
            y = BatchNormalization<epsilon=0.0>(c, one, one, one, none)
        }"""
    )
    assert run_passes(model, [BatchNormalizationFolding()]).patch_count == 0


def test_weights_that_would_overflow_are_left_as_they_are() -> None:
    model = parse_typed(
        """g (float[1,1,3,3] x) => (float[1,1,3,3] y)
        <float[1,1,1,1] k = {3e38}, float[1] four = {4}, float[1] none = {0}, float[1] one = {1}> {
            c = Conv(x, k)
            y = BatchNormalization<epsilon=0.0>(c, four, none, none, one)
        }"""
    )
    assert run_passes(model, [BatchNormalizationFolding()]).patch_count == 0


def test_nodes_for_different_devices_stay_apart() -> None:
    model = parse_typed(
        f"""g (float[1,1,3,3] x) => (float[1,2,3,3] y)
        <float[2,1,1,1] k = {{5, 7}}, {STATISTICS}> {{
            c = Conv(x, k)
            y = {NORMALIZE.format("c")}
        }}"""
    )
    model.node("Conv_0").affinity = "REFERENCE"
    assert run_passes(model, [BatchNormalizationFolding()]).patch_count == 0


INTO_CONV = f"""g (float[n,2,h,w] x) => (float[n,1,h,w] y)
    <float[1,2,1,1] k = {{5, 7}}, float[1] b = {{1}}, {STATISTICS}> {{
        c = {NORMALIZE.format("x")}
        y = Conv{{pads}}(c, k, b)
    }}"""


def test_before_a_conv_that_does_not_pad_it_goes_into_weights_and_bias() -> None:
    model = parse_typed(INTO_CONV.replace("{pads}", "<strides=[2, 2]>"))
    assert fuse_by(model, BatchNormalizationFolding()) == [
        "y = Conv(x, k_1, b_1)  # BatchNormalization_0 Conv_0"
    ]
    found = constants(model)
    assert found["k_1"] == [[[[10]], [[21]]]]
    assert found["b_1"] == [1 + 5 * -1 + 7 * 4]


def test_before_a_conv_that_pads_it_stays() -> None:
    model = parse_typed(INTO_CONV.replace("{pads}", "<pads=[0, 1, 0, 0]>"))
    assert run_passes(model, [BatchNormalizationFolding()]).patch_count == 0


def test_before_a_conv_it_stays_if_something_else_reads_it() -> None:
    text = INTO_CONV.replace("{pads}", "").replace("w] y)", "w] y, float[n,2,h,w] c)")
    assert run_passes(parse_typed(text), [BatchNormalizationFolding()]).patch_count == 0
