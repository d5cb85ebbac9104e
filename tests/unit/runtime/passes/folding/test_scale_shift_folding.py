import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from aioinfer.runtime.graph import DType
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.folding import input_folding, weight_folding
from aioinfer.runtime.passes.folding.pad_folding import PadFolding
from aioinfer.runtime.passes.folding.scale_shift_folding import ScaleShiftFolding
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed, run_fused
from unit.runtime.passes.small_models import constants, value_of

CONV = """g (float[n,1,h,w] x) => (float[n,2,h,w] y)
<float[2,1,1,1] k = {{1, 2}}, float[2,1,1] c = {{10, 20}}, float[1,2,1,1] d = {{10, 20}},
 float[1] one = {{4}}, float s = {{4}}> {{
    u = Conv(x, k)
    {nodes}
}}"""


@pytest.mark.parametrize(
    ("nodes", "weights", "bias"),
    [
        ("y = Mul(u, c)", [10, 40], None),
        ("y = Mul(s, u)", [4, 8], None),
        ("y = Div(u, one)", [0.25, 0.5], None),
        ("y = Add(d, u)", [1, 2], [10, 20]),
        ("y = Sub(u, s)", [1, 2], [-4, -4]),
        ("y = Sub(c, u)", [-1, -2], [10, 20]),
        ("v = Mul(u, s) y = Add(v, c)", [4, 8], [10, 20]),
        ("v = Add(u, c) y = Mul(v, s)", [4, 8], [40, 80]),
    ],
)
def test_numbers_for_channels_go_into_a_conv(
    nodes: str, weights: list[float], bias: list[float] | None
) -> None:
    model = parse_typed(CONV.format(nodes=nodes))
    fuse_by(model, ScaleShiftFolding())
    (conv,) = model.graph.nodes
    found = [value.constant for value in conv.inputs[1:]]
    assert found[0].reshape(-1).tolist() == weights
    assert [array.tolist() for array in found[1:]] == ([] if bias is None else [bias])
    assert [value.name for value in model.outputs] == ["y"]


def test_the_node_stands_for_all_that_went_into_it() -> None:
    model = parse_typed(CONV.format(nodes="v = Mul(u, s) y = Add(v, c)"))
    assert fuse_by(model, ScaleShiftFolding()) == [
        "y = Conv(x, k_1, Conv_0_bias)  # Conv_0 Mul_0 Add_0"
    ]


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Mul(u, along)",
        "y = Mul(u, wide)",
        "y = Mul(u, u)",
        "y = Div(s, u)",
        "y = Div(u, none)",
        "y = Mul(u, z)",
    ],
)
def test_other_operands_stay(nodes: str) -> None:
    text = CONV.format(nodes=nodes).replace("float[n,1,h,w] x)", "float[2,1,2,2] x, float z)")
    more = "float[2] along = {1, 2}, float[1,1,2,1,1] wide = {1, 2}, float none = {0}, float s ="
    model = parse_typed(text.replace("float s =", more).replace("float[n,2,h,w] y", "float y"))
    assert run_passes(model, [ScaleShiftFolding()]).patch_count == 0


@pytest.mark.parametrize("nodes", ["y = Mul(u, s) z = Relu(u)", "z = Mul(u, s) y = Mul(u, c)"])
def test_a_result_with_two_users_stays(nodes: str) -> None:
    text = CONV.format(nodes=nodes).replace(" y)", " y, float[n,2,h,w] z)")
    assert run_passes(parse_typed(text), [ScaleShiftFolding()]).patch_count == 0


def test_a_matmul_is_scaled_and_keeps_its_bias_behind_it() -> None:
    model = parse_typed(
        """g (float[a,b,2] x) => (float[a,b,2] y)
        <float[2,2] k = {1, 2, 3, 4}, float[2] c = {10, 20}> {
            u = MatMul(x, k) v = Mul(u, c) y = Add(v, c)
        }"""
    )
    assert fuse_by(model, ScaleShiftFolding()) == [
        "v = MatMul(x, k_1)  # MatMul_0 Mul_0",
        "y = Add(v, c)  # Add_0",
    ]
    assert constants(model)["k_1"] == [[10, 40], [30, 80]]


def test_a_gemm_takes_scale_and_shift() -> None:
    model = parse_typed(
        """g (float[n,2] x) => (float[n,2] y)
        <float[2,2] k = {1, 2, 3, 4}, float[2] c = {10, 20}> {
            u = Gemm<transB=1>(x, k) v = Mul(u, c) y = Add(v, c)
        }"""
    )
    assert fuse_by(model, ScaleShiftFolding()) == [
        "y = Gemm(x, k_1, Gemm_0_bias)  # Gemm_0 Mul_0 Add_0"
    ]
    assert constants(model) == {"k_1": [[10, 20], [60, 80]], "Gemm_0_bias": [10, 20]}


def test_groups_of_a_transposed_conv_have_channels_of_their_own() -> None:
    model = parse_typed(
        """g (float[1,2,2,2] x) => (float[1,4,2,2] y)
        <float[2,2,1,1] k = {1, 2, 3, 4}, float[4,1,1] c = {10, 20, 30, 40}> {
            u = ConvTranspose<group=2>(x, k) y = Mul(u, c)
        }"""
    )
    fuse_by(model, ScaleShiftFolding())
    assert value_of(model, "k_1").constant.reshape(-1).tolist() == [10, 40, 90, 160]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_products_are_rounded_once_to_the_type_of_the_weights(dtype: type) -> None:
    to = DType.of(np.dtype(dtype)).value
    names = {"float16": "float16", "float32": "float", "float64": "double"}
    name = names.get(np.dtype(dtype).name, "bfloat16")
    model = parse_typed(
        f"""g ({name}[1,1,2,2] x) => ({name}[1,1,2,2] y)
        <double[1,1,1,1] weights = {{0.1}}, double scale = {{0.3}}> {{
            k = Cast<to={to}>(weights) s = Cast<to={to}>(scale)
            u = Conv(x, k) y = Mul(u, s)
        }}"""
    )
    weights, scale = (value_of(model, key).constant.astype(np.float64) for key in "ks")
    fuse_by(model, ScaleShiftFolding())
    found = value_of(model, "k_1").constant
    assert found.dtype == dtype
    assert not found.flags.writeable
    assert found.tolist() == (weights * scale).astype(dtype).tolist()


def test_integers_stay() -> None:
    model = parse_typed(
        """g (int32[1,2] x) => (int32[1,2] y) <int32[2,2] k = {1, 2, 3, 4}, int32 s = {3}> {
            u = Gemm(x, k) y = Mul(u, s)
        }"""
    )
    assert run_passes(model, [ScaleShiftFolding()]).patch_count == 0


def test_large_weights_that_are_shared_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CONV.format(nodes="y = Mul(u, s) z = Conv(x, k)")
    text = text.replace(" y)", " y, float[n,2,h,w] z)")
    assert run_passes(parse_typed(text), [ScaleShiftFolding()]).patch_count == 1
    monkeypatch.setattr(weight_folding, "SHARED_LIMIT_BYTES", 4)
    assert run_passes(parse_typed(text), [ScaleShiftFolding()]).patch_count == 0


def test_weights_that_are_only_shifted_stay_the_same_constant() -> None:
    model = parse_typed(CONV.format(nodes="y = Add(u, c)"))
    weights = value_of(model, "k")
    assert fuse_by(model, ScaleShiftFolding()) == ["y = Conv(x, k, Conv_0_bias)  # Conv_0 Add_0"]
    assert value_of(model, "k") is weights


BEFORE = """g (float[n,2,h,w] x) => (float[n,2,h,w] y)
<float[2,2,1,1] k = {{1, 2, 3, 4}}, float[2] b = {{1, 1}}, float[2,1,1] c = {{10, 20}},
 float[1,2,1,1] d = {{1, 2}}, float s = {{4}}> {{
    {nodes}
}}"""


@pytest.mark.parametrize(
    ("nodes", "weights", "bias"),
    [
        ("v = Mul(x, c) y = Conv(v, k)", [10, 40, 30, 80], None),
        ("v = Mul(s, x) y = Conv(v, k)", [4, 8, 12, 16], None),
        ("v = Div(x, d) y = Conv(v, k)", [1, 1, 3, 2], None),
        ("v = Mul(x, s) y = Conv<pads=[1, 1, 0, 0]>(v, k, b)", [4, 8, 12, 16], [1, 1]),
        ('v = Mul(x, s) y = Conv<auto_pad="SAME_UPPER">(v, k)', [4, 8, 12, 16], None),
        ("v = Add(c, x) y = Conv(v, k)", [1, 2, 3, 4], [50, 110]),
        ("v = Sub(x, d) y = Conv(v, k, b)", [1, 2, 3, 4], [-4, -10]),
        ('v = Sub(d, x) y = Conv<auto_pad="VALID">(v, k)', [-1, -2, -3, -4], [5, 11]),
        ("u = Sub(x, d) v = Mul(u, c) y = Conv(v, k)", [10, 40, 30, 80], [-90, -190]),
        ("u = Mul(x, s) v = Sub(u, d) y = Conv(v, k, b)", [4, 8, 12, 16], [-4, -10]),
    ],
)
def test_what_prepares_an_input_goes_into_the_conv_that_reads_it(
    nodes: str, weights: list[float], bias: list[float] | None
) -> None:
    model = parse_typed(BEFORE.format(nodes=nodes))
    fuse_by(model, ScaleShiftFolding())
    (conv,) = model.graph.nodes
    assert conv.inputs[0] is model.inputs[0]
    found = [value.constant for value in conv.inputs[1:]]
    assert found[0].reshape(-1).tolist() == weights
    assert [array.tolist() for array in found[1:]] == ([] if bias is None else [bias])


def test_a_shift_stays_before_a_conv_that_pads_and_the_scale_behind_it_goes() -> None:
    model = parse_typed(
        BEFORE.format(nodes="u = Sub(x, d) v = Mul(u, s) y = Conv<pads=[1, 1, 0, 0]>(v, k)")
    )
    assert fuse_by(model, ScaleShiftFolding()) == [
        "u = Sub(x, d)  # Sub_0",
        "y = Conv(u, k_1)  # Mul_0 Conv_0",
    ]


def test_groups_read_channels_of_their_own() -> None:
    model = parse_typed(
        """g (float[1,4,2,2] x) => (float[1,2,2,2] y)
        <float[2,2,1,1] k = {1, 2, 3, 4}, float[4,1,1] c = {1, 10, 100, 200}> {
            u = Add(x, c) v = Mul(u, c) y = Conv<group=2>(v, k)
        }"""
    )
    fuse_by(model, ScaleShiftFolding())
    (conv,) = model.graph.nodes
    weights, bias = (value.constant for value in conv.inputs[1:])
    assert weights.reshape(-1).tolist() == [1, 20, 300, 800]
    assert bias.tolist() == [201, 190000]


@pytest.mark.parametrize(
    "nodes",
    [
        "v = Mul(x, s) z = Relu(v) y = Conv(v, k)",  # another user
        "v = Mul(x, s) y = Conv(v, k) z = Conv(v, k)",
        "v = Add(x, c) y = Conv<pads=[1, 1, 0, 0]>(v, k) z = Relu(x)",  # zeros are not shifted
        'v = Add(x, c) y = Conv<auto_pad="SAME_LOWER">(v, k) z = Relu(x)',
        "v = Mul(x, along) y = Conv(v, k) z = Relu(x)",
        "v = Div(s, x) y = Conv(v, k) z = Relu(x)",
        "v = Div(x, none) y = Conv(v, k) z = Relu(x)",
        "u = Relu(x) v = Div(u, s) y = Conv(v, k) z = Relu(x)",  # may end an activation
        "u = Mul(x, x) v = Mul(u, s) y = Conv(v, k) z = Relu(x)",
        "v = Mul(one, c) y = Conv(v, k) z = Relu(x)",  # a channel becomes two
        "v = Mul(x, s) y = Conv(v, given) z = Relu(x)",
    ],
)
def test_what_stays_before_a_conv(nodes: str) -> None:
    text = BEFORE.format(nodes=nodes).replace("w] y)", "w] y, float z)")
    text = text.replace("w] x)", "w] x, float[2,2,1,1] given, float[n,1,h,w] one)")
    more = "float[1,1,2,1] along = {1, 2}, float none = {0}, float s ="
    model = parse_typed(text.replace("float s =", more))
    assert run_passes(model, [ScaleShiftFolding()]).patch_count == 0


@pytest.mark.parametrize("pads", ["", "<pads=[1, 1, 0, 0]>"])
def test_numbers_stay_what_they_are(pads: str) -> None:
    nodes = f"u = Sub(x, d) v = Mul(u, c) w = Pad(v, ends) y = Conv{pads}(w, k, b)"
    text = BEFORE.format(nodes=nodes).replace(
        "float s =", "int64[8] ends = {0, 0, 0, 0, 0, 0, 0, 0}, float s ="
    )
    x = np.random.default_rng(0).standard_normal((2, 2, 3, 4)).astype(np.float32)
    model = parse_typed(text)
    (before,) = run_fused(model, {"x": x})
    fuse_by(model, PadFolding(), ScaleShiftFolding())
    assert len(list(model.graph.nodes)) == (1 if not pads else 2)
    (found,) = run_fused(model, {"x": x})
    np.testing.assert_allclose(found, before, rtol=1e-5, atol=1e-3)


def test_large_weights_that_others_use_are_not_copied_for_what_they_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = BEFORE.format(nodes="v = Mul(x, s) y = Conv(v, k) z = Conv(x, k)")
    text = text.replace("w] y)", "w] y, float[n,2,h,w] z)")
    assert run_passes(parse_typed(text), [ScaleShiftFolding()]).patch_count == 1
    monkeypatch.setattr(input_folding, "SHARED_LIMIT_BYTES", 4)
    assert run_passes(parse_typed(text), [ScaleShiftFolding()]).patch_count == 0


def test_the_look_at_large_weights_takes_no_memory() -> None:
    weights = np.ones(1 << 20, np.float32)
    tracemalloc.start()
    try:
        assert not weight_folding.is_too_small(weights, weights)
        assert weight_folding.is_too_small(weights * np.float32(1e-38), weights)
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        weight_folding.is_too_small(weights, weights)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < weights.nbytes / 16
