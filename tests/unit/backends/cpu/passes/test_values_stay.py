"""The answers before and after the passes, on random inputs: the passes' one invariant."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.cpu.passes import plan_passes, shared_passes
from aioinfer.runtime.graph import Model, TensorType
from aioinfer.runtime.passes import DeadCode, run_passes
from unit.backends.cpu.passes.fused_models import lines, parse_typed, run_fused

TOLERANCE = 1e-5


def weights(**shapes: str) -> str:
    """Declare random constants: a name and its shape, as ONNX's text has it."""
    generator = np.random.default_rng(sum(map(ord, "".join(shapes))))
    declared = []
    for name, shape in shapes.items():
        size = int(np.prod([int(length) for length in shape.split(",")])) if shape else 1
        numbers = generator.uniform(0.3, 1.7, size) * generator.choice([-1, 1], size)
        if name.startswith("variance"):
            numbers = np.abs(numbers)
        content = ", ".join(f"{number:.6f}" for number in numbers)
        declared.append(f"float{f'[{shape}]' if shape else ''} {name} = {{{content}}}")
    return ", ".join(declared)


def graph(nodes: str, constants: str, x: str, y: str, more: str = "") -> str:
    return f"g (float[{x}] x{more}) => (float[{y}] y) <{constants}> {{ {nodes} }}"


NORMALIZE = "BatchNormalization<epsilon=0.01>(u, scale, shift, mean, variance)"
STATISTICS = {"scale": "4", "shift": "4", "mean": "4", "variance": "4"}

FOLDED = {
    "conv, groups, strides": graph(
        f"u = Conv<group=2,strides=[2,1],pads=[1,1,0,1]>(x, w, b) y = {NORMALIZE}",
        weights(w="4,1,3,3", b="4", **STATISTICS),
        "2,2,6,5",
        "2,4,3,5",
    ),
    "conv of one axis": graph(
        f"u = Conv(x, w) v = {NORMALIZE} y = Mul(v, c)",
        weights(w="4,3,3", c="4,1", **STATISTICS),
        "n,3,7",
        "n,4,5",
    ),
    "transposed conv, groups": graph(
        f"u = ConvTranspose<group=2,strides=[2,2]>(x, w, b) v = {NORMALIZE} y = Sub(c, v)",
        weights(w="6,2,2,2", b="4", c="1,4,1,1", **STATISTICS),
        "1,6,3,3",
        "1,4,6,6",
    ),
    "gemm, all attributes": graph(
        f"u = Gemm<transA=1,transB=1,alpha=0.7,beta=1.3>(x, w, b) y = {NORMALIZE}",
        weights(w="4,3", b="4", **STATISTICS),
        "3,5",
        "5,4",
    ),
    "gemm, a number for a bias": graph(
        "u = Gemm<beta=2.0>(x, w, b) v = Add(u, c) y = Div(v, s)",
        weights(w="3,4", b="", c="4", s=""),
        "5,3",
        "5,4",
    ),
    "gemm, a bias for each row": graph(
        "u = Gemm(x, w, b) v = Mul(u, c) y = Sub(v, s)",
        weights(w="3,4", b="5,1", c="1,4", s=""),
        "5,3",
        "5,4",
    ),
    "matmul": graph(
        f"v = MatMul(x, w) u = Mul(v, c) y = {NORMALIZE}",
        weights(w="3,4", c="4", **STATISTICS),
        "n,3",
        "n,4",
    ),
    "matmul of four axes": graph(
        "u = MatMul(x, w) v = Div(u, c) y = Add(v, b)",
        weights(w="3,4", c="1,4", b="4"),
        "2,2,5,3",
        "2,2,5,4",
    ),
    "pad and conv": graph(
        "p = Pad(x, pads) y = Conv<pads=[1,0,0,1]>(p, w)",
        weights(w="4,2,3,3") + ", int64[8] pads = {0, 0, 1, 0, 0, 0, 2, 1}",
        "1,2,5,5",
        "1,4,7,5",
    ),
    "pad and average": graph(
        "p = Pad(x, pads) y = AveragePool<kernel_shape=[3,2],strides=[2,1]>(p)",
        "int64[8] pads = {0, 0, 1, 0, 0, 0, 2, 1}",
        "1,2,6,5",
        "1,2,4,5",
    ),
    "pad and maximum": graph(
        "p = Pad(x, pads, low, last) y = MaxPool<kernel_shape=[3,3]>(p)",
        "int64[4] pads = {1, 0, 2, 1}, int64[2] last = {2, 3}, float low = {-inf}",
        "1,2,6,5",
        "1,2,7,4",
    ),
}


def random_inputs(model: Model, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    found = {}
    for value in model.inputs:
        assert isinstance(value.type, TensorType)
        shape = [dim if isinstance(dim, int) else 3 for dim in value.type.shape or ()]
        found[value.name] = generator.normal(size=shape).astype(np.float32)
    return found


def on_reference(model: Model, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    with aioinfer.Core() as core, core.load_network(model.copy(), "REFERENCE") as network:
        request = network.create_infer_request()
        found = request.infer_sync(dict(inputs))
    return [found[value.name] for value in model.outputs]


def assert_near(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert np.abs(one - other).max() <= TOLERANCE * max(np.abs(other).max(), 1.0)


@pytest.mark.parametrize("name", FOLDED)
def test_folding_keeps_the_answers(name: str) -> None:
    model = parse_typed(FOLDED[name])
    folded = model.copy()
    report = run_passes(folded, [*shared_passes(), DeadCode()])
    assert report.patch_count
    assert len(folded.graph) < len(model.graph)
    for seed in range(3):
        inputs = random_inputs(model, seed)
        assert_near(on_reference(folded, inputs), on_reference(model, inputs))


BASES = {
    "Conv": ("Conv<pads=[1,1,1,1]>(x, w)", "4,2,3,3", "2,2,5,5", "2,4,5,5", "4,1,1"),
    "ConvTranspose": ("ConvTranspose(x, w)", "2,4,1,1", "2,2,5,5", "2,4,5,5", "4,1,1"),
    "Gemm": ("Gemm<alpha=0.5>(x, w)", "3,4", "5,3", "5,4", "4"),
    "MatMul": ("MatMul(x, w)", "3,4", "2,5,3", "2,5,4", "4"),
    "Relu": ("Relu(x)", "1", "2,3,4", "2,3,4", "4"),
}
STEPS = (
    "Relu({})",
    "LeakyRelu<alpha=0.2>({})",
    "Elu<alpha=0.7>({})",
    "Tanh({})",
    "Sigmoid({})",
    "HardSigmoid({})",
    "HardSwish({})",
    "Mish({})",
    "Softplus({})",
    "Gelu({})",
    'Gelu<approximate="tanh">({})',
    "Clip({}, low, high)",
    "Clip({}, low)",
    "Clip({}, , high)",
    "PRelu({}, high)",
    "Abs({})",
    "Neg({})",
    "Round({})",
    "Add({}, channels)",
    "Add(other, {})",
    "Sub({}, other)",
    "Sub(channels, {})",
    "Mul({}, channels)",
    "Mul(low, {})",
    "Div({}, high)",
    "Max({}, other)",
    "Max({}, low)",
    "Min({}, channels)",
    "Min(high, {})",
    "Sum({}, other)",
    "Pow({}, two)",
    "Sub(high, {})",
    "Mul({}, near)",
    "Erf({})",
)


def random_row(base: str, seed: int) -> str:
    """Write a model: the operator, up to ten steps behind it, and a swish minus an earlier one."""
    generator = np.random.default_rng(seed)
    first, w, x, y, channels = BASES[base]
    nodes = ["near = Sin(other)", f"v0 = {first}"]
    count = int(generator.integers(1, 11))
    for index in range(count):
        step = STEPS[generator.integers(len(STEPS))].format(f"v{index}")
        nodes.append(f"v{index + 1} = {step}")
    earlier = int(generator.integers(count + 1))
    nodes += [f"gate = Sigmoid(v{count})", f"swished = Mul(gate, v{count})"]
    nodes.append(f"y = Sub(swished, {'other' if earlier == count else f'v{earlier}'})")
    constants = weights(w=w, channels=channels)
    constants += ", float low = {-0.4}, float high = {0.9}, float two = {2}"
    return graph("\n".join(nodes), constants, x, y, f", float[{y}] other")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("seed", range(25))
def test_fusing_keeps_the_answers(base: str, seed: int) -> None:
    model = parse_typed(random_row(base, seed))
    run_passes(model, [DeadCode()])
    fused = model.copy()
    run_passes(fused, [*plan_passes(), DeadCode()])
    assert len(fused.graph) < len(model.graph), lines(fused)
    names = {name for node in fused.graph.nodes for name in node.fused_from}
    assert names == {node.name for node in model.graph.nodes}
    inputs = random_inputs(model, seed)
    assert_near(run_fused(fused, inputs), on_reference(model, inputs))


SPELLED = """g (float[2,3] x) => (float[2,3] y)
<float half = {0.5}, float one = {1}, float three = {3}, float six = {6}, float zero = {0},
 float root = {1.4142135}, float slope = {0.7978846}, float bend = {0.044715}> {
    d = Div(x, root) e = Erf(d) f = Add(e, one) h = Mul(x, half) a = Mul(h, f)
    p = Pow(a, three) q = Mul(p, bend) r = Add(a, q) s = Mul(r, slope) t = Tanh(s)
    t1 = Add(t, one) th = Mul(t1, half) b = Mul(th, a)
    b3 = Add(b, three) bc = Clip(b3, zero, six) bm = Mul(b, bc) c = Div(bm, six)
    cs = Softplus(c) ct = Tanh(cs) g = Mul(c, ct)
    gs = Sigmoid(g) y = Mul(gs, g)
}"""


@pytest.mark.parametrize("seed", range(3))
def test_activations_that_are_spelled_out_keep_their_answers(seed: int) -> None:
    model = parse_typed(SPELLED)
    fused = model.copy()
    run_passes(fused, [*plan_passes(), DeadCode()])
    (node,) = fused.graph.nodes
    assert node.attributes["post_ops"] == ["gelu_erf", "gelu_tanh", "hardswish", "mish", "swish"]
    inputs = random_inputs(model, seed)
    assert_near(run_fused(fused, inputs), on_reference(model, inputs))
