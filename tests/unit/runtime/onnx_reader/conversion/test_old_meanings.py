"""Operators that have changed compute what they did in the model's opset, as onnxruntime says."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import aioinfer
from onnx_text import parse_proto

X = np.random.default_rng(3).normal(size=(2, 3, 6, 6)).astype(np.float32)
DEVICES = ("REFERENCE", "ONNXRUNTIME", "HETERO:CPU,ONNXRUNTIME")
FORGOTTEN = {
    "Affine <alpha = 2.0, beta = 0.5> (x)": 9,
    "Affine (x)": 1,
    "Crop <border = [1, 2, 0, 1]> (x)": 1,
    "Crop <border = [1, 2, 0, 0], scale = [3, 2]> (x)": 7,
    "ImageScaler <scale = 2.0, bias = [1.0, 2.0, 3.0]> (x)": 8,
    "MeanVarianceNormalization (x)": 8,
    "MeanVarianceNormalization <across_channels = 1> (x)": 1,
    "MeanVarianceNormalization <across_channels = 1, normalize_variance = 0> (x)": 7,
    "ParametricSoftplus <alpha = 2.0, beta = 0.5> (x)": 1,
    "Scale <scale = 2.5> (x)": 9,
    "ScaledTanh <alpha = 2.0, beta = 0.5> (x)": 7,
    "ThresholdedRelu <alpha = 0.5> (x)": 9,
    "ThresholdedRelu (x)": 1,
}


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made


def model_of(body: str, opset: int, inputs: str = "float[2,3,6,6] x") -> onnx.ModelProto:
    return parse_proto(f"g ({inputs}) => (float[a,b,c,d] y) {{ {body} }}", opset, ir_version=8)


def check(core: aioinfer.Core, proto: onnx.ModelProto, **inputs: np.ndarray) -> None:
    inputs = inputs or {"x": X}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    wanted: dict[str, Any] = dict(zip(names, session.run(names, inputs), strict=True))
    for device in DEVICES:
        with core.load_network(proto, device) as network:
            found = network.create_infer_request().infer_sync(inputs)
        for name, expected in wanted.items():
            assert found[name].dtype == expected.dtype, device
            np.testing.assert_allclose(found[name], expected, 1e-4, 1e-5, err_msg=device)


def scales_text(scales: list[float]) -> str:
    return ", ".join(map(str, scales))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 2], [1, 1, 2.3, 1.9], [1, 1, 3, 1]])
def test_images_grow_from_their_first_pixel_on(
    core: aioinfer.Core, scales: list[float], mode: str
) -> None:
    text = scales_text([float(scale) for scale in scales])
    given = f"s = Constant <value = float[4] {{ {text} }}> ()"
    check(core, model_of(f'y = Upsample <mode = "{mode}", scales = [{text}]> (x)', 7))
    check(core, model_of(f'{given} y = Upsample <mode = "{mode}"> (x, s)', 9))
    check(core, model_of(f'{given} y = Resize <mode = "{mode}"> (x, s)', 10))


@pytest.mark.parametrize(
    ("mode", "scales"),
    [
        ("nearest", [1, 1, 0.5, 0.5]),
        ("nearest", [1, 1, 1.5, 0.7]),
        ("nearest", [1, 1, 1 / 3, 0.6]),
        ("nearest", [0.5, 1, 1, 2.7]),
        ("linear", [1, 1, 0.5, 0.5]),
        ("linear", [1, 1, 1.5, 0.7]),
        ("linear", [1, 1, 1 / 3, 0.6]),
    ],
)
@pytest.mark.parametrize("is_constant", [True, False])
def test_images_shrink_as_onnxruntime_rounds(
    core: aioinfer.Core, scales: list[float], mode: str, is_constant: bool
) -> None:
    resize = f'y = Resize <mode = "{mode}"> (x, s)'
    if is_constant:
        text = scales_text([float(scale) for scale in scales])
        check(core, model_of(f"s = Constant <value = float[4] {{ {text} }}> () {resize}", 10))
    else:
        proto = model_of(resize, 10, "float[2,3,6,6] x, float[4] s")
        check(core, proto, x=X, s=np.array(scales, np.float32))


@pytest.mark.parametrize("opset", [1, 10, 11, 12])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
def test_an_activation_goes_over_all_axes_from_one_on(
    core: aioinfer.Core, op_type: str, opset: int
) -> None:
    check(core, model_of(f"y = {op_type} (x)", opset))
    for axis in (0, 1, 2, 3, *((-1, -2, -4) if opset > 10 else ())):
        check(core, model_of(f"y = {op_type} <axis = {axis}> (x)", opset))


@pytest.mark.parametrize("shape", [(2, 3, 0, 6), (0, 3, 6, 6), (2, 0, 6, 6)])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
def test_an_old_activation_of_nothing_is_nothing(
    core: aioinfer.Core, op_type: str, shape: tuple[int, ...]
) -> None:
    inputs = f"float[{','.join(map(str, shape))}] x"
    proto = model_of(f"y = {op_type} <axis = 2> (x)", 11, inputs)
    check(core, proto, x=np.zeros(shape, np.float32))


def test_a_reshape_of_the_file_behind_an_old_softmax_keeps_its_zeros(core: aioinfer.Core) -> None:
    body = """s = Constant <value = int64[4] {0, 0, 9, 4}> ()
        t = Softmax <axis = 1> (x) u = Softmax <axis = 3> (t) y = Reshape (u, s)"""
    check(core, model_of(body, 11))


@pytest.mark.parametrize(
    "node",
    [
        "Hardmax <axis = 1> (x)",
        'Resize <mode = "linear"> (x, s)',
        'Resize <mode = "nearest"> (x, s)',
        "Affine <alpha = 2.0> (x)",
    ],
)
def test_nodes_in_bodies_keep_their_meaning(core: aioinfer.Core, node: str) -> None:
    opset = 9 if "Affine" in node else 10
    other = node.replace("(x", "(w")
    proto = parse_proto(
        f"""g (float[2,3,6,6] x, bool flag) => (float[a,b,c,d] y)
        <float[4] s = {{1.0, 1.0, 1.5, 0.7}}> {{
          y = If (flag) <
            then_branch = t () => (float[a,b,c,d] z) {{ [n] z = {node} }},
            else_branch = e () => (float[a,b,c,d] z) {{ w = Neg (x) [n] z = {other} }}> }}""",
        opset,
        ir_version=8,
    )
    for flag in (True, False):
        check(core, proto, x=X, flag=np.array(flag))


def test_nodes_in_functions_keep_the_meaning_of_the_functions_opset(core: aioinfer.Core) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 10, "own" : 1]>
        g (float[2,3,6,6] x) => (float[a,b,c,d] y) { t = own.grow (x) y = own.grow (t) }
        <domain: "own", opset_import: ["" : 10]>
        grow (given) => (made) {
          s = Constant <value = float[4] {1.0, 1.0, 2.0, 1.5}> ()
          bigger = Resize <mode = "linear"> (given, s)
          made = Hardmax <axis = 2> (bigger)
        }"""
    )
    check(core, proto)
    newer = onnx.ModelProto()
    newer.CopyFrom(proto)
    newer.opset_import[0].version = 13
    with core.load_network(proto, "REFERENCE") as network:
        expected = network.create_infer_request().infer_sync({"x": X})["y"]
    with core.load_network(newer, "REFERENCE") as network:
        found = network.create_infer_request().infer_sync({"x": X})["y"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("opset", [7, 9, 10, 11])
def test_the_mask_of_an_old_dropout_is_empty(core: aioinfer.Core, opset: int) -> None:
    dtype = "float" if opset < 10 else "bool"
    text = f"g (float[2,3] x) => (float[2,3] y, {dtype}[2,3] m) {{ y, m = Dropout (x) }}"
    check(core, parse_proto(text, opset, ir_version=8), x=X[0, 0, :2, :3])


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("first", ["2", "n"])
def test_an_old_group_normalization_scales_groups(
    core: aioinfer.Core, opset: int, first: str
) -> None:
    proto = parse_proto(
        f"""g (float[{first},6,4,3] x) => (float[{first},6,4,3] y)
        <float[3] scale = {{1.0, 2.0, 3.0}}, float[3] bias = {{0.5, 0.0, -1.0}}> {{
          y = GroupNormalization <num_groups = 3> (x, scale, bias) }}""",
        opset,
    )
    check(core, proto, x=X.reshape(-1)[:144].reshape(2, 6, 4, 3))


@pytest.mark.parametrize("node", FORGOTTEN)
def test_operators_of_the_first_opset_run_as_long_as_onnxruntime_runs_them(
    core: aioinfer.Core, node: str
) -> None:
    for opset in {1, FORGOTTEN[node]}:
        check(core, model_of(f"y = {node}", opset))
        # Beside what only the converter brings to the newest opset:
        check(core, model_of(f"z = {node} y = Softmax <axis = 1> (z)", opset))


def test_a_dynamic_slice_is_a_slice(core: aioinfer.Core) -> None:
    inputs = "float[2,3,6,6] x, int64[2] first, int64[2] last"
    places = {"first": np.array([0, -4]), "last": np.array([2, 100])}
    check(core, model_of("y = DynamicSlice (x, first, last)", 1, inputs), x=X, **places)
    body = "a = Constant <value = int64[2] {3, 1}> () y = DynamicSlice (x, first, last, a)"
    check(core, model_of(body, 9, inputs), x=X, **places)


@pytest.mark.parametrize("opset", [7, 8])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_a_batch_normalization_may_have_numbers_for_each_element(
    core: aioinfer.Core, opset: int, dtype: str
) -> None:
    x = X.astype("f" if dtype == "float" else "d")
    given = {name: np.abs(x[0]) * part for name, part in zip("sbmv", (1, 2, 3, 4), strict=True)}
    inputs = ", ".join(f"{dtype}[3,6,6] {name}" for name in given)
    proto = parse_proto(
        f"""g ({dtype}[2,3,6,6] x, {inputs}) => ({dtype}[2,3,6,6] y) {{
        y = BatchNormalization <spatial = 0, epsilon = 0.5> (x, s, b, m, v) }}""",
        opset,
        ir_version=8,
    )
    check(core, proto, x=x, **given)


def test_what_is_added_stands_for_the_node_of_the_file(core: aioinfer.Core) -> None:
    proto = model_of("[top] t = Hardmax <axis = 1> (x) [next] y = ScaledTanh (t)", 9)
    answers = core.query_network(proto, "REFERENCE")
    assert answers.keys() == {"top", "next"}


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_a_pad_with_a_number_that_it_may_not_need(core: aioinfer.Core, mode: str) -> None:
    body = f"y = Pad <mode = '{mode}', pads = [0, 0, 1, 2, 0, 0, 0, 1], value = 2.5> (x)"
    check(core, model_of(body.replace("'", '"'), 10))
