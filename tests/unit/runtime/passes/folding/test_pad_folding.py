import pytest

from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.folding.pad_folding import PadFolding
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed

MODEL = """g (float[1,1,4,4] x) => (float[1,1,h,w] y)
<float[1,1,3,3] k = {{1, 1, 1, 1, 1, 1, 1, 1, 1}}, int64[8] pads = {{0, 0, 1, 0, 0, 0, 2, 1}},
 int64[4] spatial = {{1, 0, 2, 1}}, int64[2] last = {{-2, -1}},
 int64[8] deep = {{0, 1, 0, 0, 0, 0, 0, 0}},
 int64[8] crop = {{0, 0, -1, 0, 0, 0, 0, 0}}, int64[8] far = {{0, 0, 3, 0, 0, 0, 0, 0}},
 float zero = {{0}}, float one = {{1}}, float lowest = {{-inf}}> {{
    p = {pad}
    y = {node}
}}"""


@pytest.mark.parametrize(
    ("pad", "node", "attributes"),
    [
        ("Pad(x, pads)", "Conv(p, k)", {"pads": [1, 0, 2, 1]}),
        ("Pad(x, pads, zero)", "Conv<pads=[1,1,1,1]>(p, k)", {"pads": [2, 1, 3, 2]}),
        ("Pad(x, spatial, zero, last)", "Conv(p, k)", {"pads": [1, 0, 2, 1]}),
        ("Pad(x, spatial, , last)", 'Conv<auto_pad="VALID">(p, k)', {"pads": [1, 0, 2, 1]}),
        (
            "Pad(x, pads)",
            "AveragePool<kernel_shape=[3,3]>(p)",
            {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1], "count_include_pad": 1},
        ),
        (
            "Pad(x, pads)",
            "AveragePool<kernel_shape=[4,4],pads=[1,1,1,1],count_include_pad=1>(p)",
            {"kernel_shape": [4, 4], "pads": [2, 1, 3, 2], "count_include_pad": 1},
        ),
        (
            "Pad(x, pads, lowest)",
            "MaxPool<kernel_shape=[3,3]>(p)",
            {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1]},
        ),
    ],
)
def test_a_pad_goes_into_what_pads_the_same(pad: str, node: str, attributes: dict) -> None:
    model = parse_typed(MODEL.format(pad=pad, node=node))
    op = node.split("(")[0].split("<")[0]
    inputs = "x, k" if op == "Conv" else "x"
    assert fuse_by(model, PadFolding()) == [f"y = {op}({inputs})  # Pad_0 {op}_0"]
    assert model.node(f"{op}_0").attributes == attributes


@pytest.mark.parametrize(
    ("pad", "node"),
    [
        ("Pad(x, pads, one)", "Conv(p, k)"),
        ('Pad<mode="reflect">(x, pads)', "Conv(p, k)"),
        ("Pad(x, crop)", "Conv(p, k)"),
        ("Pad(x, deep)", "Conv(p, k2)"),
        ("Pad(x, pads)", 'Conv<auto_pad="SAME_UPPER">(p, k)'),
        ("Pad(x, pads)", "MaxPool<kernel_shape=[3,3]>(p)"),
        ("Pad(x, pads, lowest)", "AveragePool<kernel_shape=[3,3]>(p)"),
        ("Pad(x, pads)", "AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(p)"),
        ("Pad(x, pads)", "AveragePool<kernel_shape=[3,3],ceil_mode=1>(p)"),
        ("Pad(x, far)", "AveragePool<kernel_shape=[3,3]>(p)"),
        ("Pad(x, pads)", "Relu(p)"),
        ("Pad(k, pads)", "Conv(x, p)"),
    ],
)
def test_other_pads_stay(pad: str, node: str) -> None:
    text = MODEL.format(pad=pad, node=node)
    text = text.replace("float zero", "float[1,2,1,1] k2 = {1, 1}, float zero")
    if "Pad(k" in pad:
        text = text.replace("(float[1,1,4,4] x)", "(float[1,1,9,9] x, float[1,1,3,3] k)")
        text = text.replace("float[1,1,3,3] k = {1, 1, 1, 1, 1, 1, 1, 1, 1}, ", "")
    assert run_passes(parse_typed(text), [PadFolding()]).patch_count == 0


def test_a_pad_with_two_users_stays() -> None:
    text = MODEL.format(pad="Pad(x, pads)", node="Conv(p, k) z = Relu(p)")
    model = parse_typed(text.replace(" y)", " y, float[1,1,7,5] z)"))
    assert run_passes(model, [PadFolding()]).patch_count == 0


def test_a_pad_whose_lengths_are_not_known_stays() -> None:
    text = MODEL.format(pad="Pad(x, lengths)", node="Conv(p, k)")
    model = parse_typed(text.replace("4,4] x)", "4,4] x, int64[8] lengths)"))
    assert run_passes(model, [PadFolding()]).patch_count == 0


def test_a_max_pool_whose_indices_are_needed_keeps_its_pad() -> None:
    text = MODEL.format(pad="Pad(x, pads, lowest)", node="Relu(q)").replace(
        "y = Relu(q)", "y, i = MaxPool<kernel_shape=[3,3]>(p)"
    )
    model = parse_typed(text.replace(" y)", " y, int64[1,1,h,w] i)"))
    assert run_passes(model, [PadFolding()]).patch_count == 0
