"""LSTM, GRU and RNN equal ONNX's formulas, computed step by step in float64."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.native.step_runner import double_bits
from aioinfer.errors import AioInferError, UnsupportedOpError
from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, assert_same_as_reference, model_of, run
from unit.backends.cpu.native_calls import run_native

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
EXAMPLES = settings(max_examples=drawn(30), derandomize=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {"Tanh": np.tanh, "Sigmoid": sigmoid, "Relu": lambda x: np.maximum(x, 0)}


def lstm_step(x, h, c, w, r, b, _attributes):
    wb, rb = np.split(b, 2)
    i, o, f, g = np.split(x @ w.T + h @ r.T + wb + rb, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(x, h, c, w, r, b, attributes):
    wz, wr, wh = np.split(w, 3)
    rz, rr, rh = np.split(r, 3)
    wbz, wbr, wbh, rbz, rbr, rbh = np.split(b, 6)
    z = sigmoid(x @ wz.T + h @ rz.T + wbz + rbz)
    r = sigmoid(x @ wr.T + h @ rr.T + wbr + rbr)
    if attributes.get("linear_before_reset"):
        new = np.tanh(x @ wh.T + r * (h @ rh.T + rbh) + wbh)
    else:
        new = np.tanh(x @ wh.T + (r * h) @ rh.T + rbh + wbh)
    return (1 - z) * new + z * h, c


def rnn_step(x, h, c, w, r, b, attributes):
    wb, rb = np.split(b, 2)
    activation = ACTIVATIONS[attributes.get("activations", ["Tanh"])[0]]
    return activation(x @ w.T + h @ r.T + wb + rb), c


STEPS = {"LSTM": lstm_step, "GRU": gru_step, "RNN": rnn_step}


def layer(op, x, w, r, b, h0, c0, attributes):
    """Give Y, Y_h and Y_c for layout 0."""
    direction = attributes.get("direction", "forward")
    time, batch = x.shape[:2]
    y = np.zeros((time, len(w), batch, r.shape[2]))
    ends = []
    for index in range(len(w)):
        h, c = h0[index], c0[index]
        backwards = direction == "reverse" or index == 1
        for t in range(time)[:: -1 if backwards else 1]:
            h, c = STEPS[op](x[t], h, c, w[index], r[index], b[index], attributes)
            y[t, index] = h
        ends.append((h, c))
    return y, np.stack([h for h, _ in ends]), np.stack([c for _, c in ends])


def check(
    core: Core,
    op: str,
    *,
    time: int = 5,
    batch: int = 2,
    channels: int = 6,
    hidden: int = 8,
    attributes: Mapping[str, object] | None = None,
    has_bias: bool = True,
    starts: str = "",
    outputs: tuple[str, ...] = ("y", "y_h", "y_c"),
    bound: float = 1e-5,
    dynamic: bool = False,
    weights_are_inputs: bool = False,
    **config: object,
) -> None:
    """Compare a layer with the formulas; ``starts`` holds h, c or both."""
    attributes = dict(attributes or {})
    rng = np.random.default_rng(0)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = GATES[op]

    def draw(*shape):
        return (rng.standard_normal(shape) * 0.4).astype(np.float32)

    x = draw(time, batch, channels)
    constants = {
        "w": draw(directions, gates * hidden, channels),
        "r": draw(directions, gates * hidden, hidden),
    }
    bias = draw(directions, 2 * gates * hidden)
    if has_bias:
        constants["b"] = bias
    else:
        bias = np.zeros_like(bias)
    h0, c0 = draw(directions, batch, hidden), draw(directions, batch, hidden)
    inputs = {"x": x}
    if "h" in starts:
        inputs["h0"] = h0
    if "c" in starts:
        inputs["c0"] = c0
    state = np.zeros_like(h0)
    wanted = layer(
        op,
        x,
        constants["w"],
        constants["r"],
        bias,
        h0 if "h" in starts else state,
        c0 if "c" in starts else state,
        attributes,
    )
    if attributes.get("layout"):
        inputs = {name: array.swapaxes(0, 1).copy() for name, array in inputs.items()}
        wanted = (wanted[0].transpose(2, 0, 1, 3), *[w.swapaxes(0, 1) for w in wanted[1:]])
    if weights_are_inputs:
        inputs, constants = {**inputs, **constants}, {}
    names = ["x", "w", "r", "b" if has_bias else "", "", "h0" if "h" in starts else ""]
    if "c" in starts:
        names.append("c0")
    node = helper.make_node(op, names, list(outputs), hidden_size=hidden, **attributes)
    model = model_of([node], inputs, [name for name in outputs if name], constants, dynamic=dynamic)
    got = run(core, model, "CPU", inputs, **config)
    for name, expected in zip(("y", "y_h", "y_c"), wanted, strict=True):
        if name not in got:
            continue
        assert got[name].dtype == np.float32
        assert got[name].shape == expected.shape
        if expected.size:
            scale = max(float(np.abs(expected).max()), 1e-30)
            error = float(np.abs(got[name] - expected).max()) / scale
            assert error <= bound, f"{name}: {error:.3g}"


def outputs_of(op: str) -> tuple[str, ...]:
    return ("y", "y_h", "y_c") if op == "LSTM" else ("y", "y_h")


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("starts", ["", "h"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_directions_and_states(core: Core, op: str, direction: str, starts: str) -> None:
    check(core, op, attributes={"direction": direction}, starts=starts, outputs=outputs_of(op))


@pytest.mark.parametrize("starts", ["c", "hc"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_the_memory_of_an_lstm_may_be_given(core: Core, direction: str, starts: str) -> None:
    check(core, "LSTM", attributes={"direction": direction}, starts=starts)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_gru_whose_reset_gate_comes_late(core: Core, direction: str, has_bias: bool) -> None:
    check(
        core,
        "GRU",
        attributes={"direction": direction, "linear_before_reset": 1},
        has_bias=has_bias,
        outputs=("y", "y_h"),
    )


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_without_bias(core: Core, op: str) -> None:
    check(core, op, has_bias=False, outputs=outputs_of(op))


@pytest.mark.parametrize("outputs", [("y",), ("", "y_h"), ("", "", "y_c"), ("y", "", "y_c")])
def test_results_may_be_left_out(core: Core, outputs: tuple[str, ...]) -> None:
    check(core, "LSTM", outputs=outputs)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_batch_first(core: Core, op: str, direction: str) -> None:
    check(
        core,
        op,
        attributes={"direction": direction, "layout": 1},
        starts="hc" if op == "LSTM" else "h",
        outputs=outputs_of(op),
    )


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_weights_may_be_inputs(core: Core, op: str, direction: str, precision: str) -> None:
    check(
        core,
        op,
        attributes={"direction": direction},
        starts="h",
        outputs=outputs_of(op),
        weights_are_inputs=True,
        dynamic=True,
        bound=BF16_BOUND if precision == "bf16" else 1e-5,
        INFERENCE_PRECISION_HINT=precision,
    )


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Tanh"])
def test_activations_of_rnn(core: Core, activation: str) -> None:
    check(core, "RNN", attributes={"activations": [activation]}, outputs=("y", "y_h"))


@pytest.mark.parametrize(("time", "batch"), [(0, 2), (3, 0)])
@pytest.mark.parametrize("starts", ["", "hc"])
def test_no_steps_or_no_sequences(core: Core, time: int, batch: int, starts: str) -> None:
    check(core, "LSTM", time=time, batch=batch, starts=starts)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("weights_are_inputs", [False, True])
def test_a_layer_without_input_channels_still_recurs(
    core: Core, op: str, precision: str, weights_are_inputs: bool
) -> None:
    for layout in (0, 1):
        check(
            core,
            op,
            channels=0,
            attributes={"direction": "bidirectional", "layout": layout},
            starts="hc" if op == "LSTM" else "h",
            outputs=outputs_of(op),
            weights_are_inputs=weights_are_inputs and not layout,
            bound=BF16_BOUND if precision == "bf16" else 1e-5,
            INFERENCE_PRECISION_HINT=precision,
        )


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_and_dynamic_shapes(core: Core, op: str, threads: int) -> None:
    check(
        core,
        op,
        hidden=32,
        batch=3,
        outputs=outputs_of(op),
        dynamic=True,
        INFERENCE_NUM_THREADS=threads,
    )


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_bf16(core: Core, op: str, direction: str) -> None:
    check(
        core,
        op,
        attributes={"direction": direction},
        starts="hc" if op == "LSTM" else "h",
        outputs=outputs_of(op),
        bound=BF16_BOUND,
        INFERENCE_PRECISION_HINT="bf16",
    )


@given(data=st.data())
@EXAMPLES
def test_random_layers(core: Core, data: st.DataObject) -> None:
    op = data.draw(st.sampled_from(sorted(GATES)))
    attributes = {
        "direction": data.draw(st.sampled_from(["forward", "reverse", "bidirectional"])),
        "layout": data.draw(st.integers(0, 1)),
    }
    if op == "GRU":
        attributes["linear_before_reset"] = data.draw(st.integers(0, 1))
    check(
        core,
        op,
        time=data.draw(st.integers(1, 4)),
        batch=data.draw(st.integers(1, 3)),
        channels=data.draw(st.integers(1, 20)),
        hidden=data.draw(st.integers(1, 20)),
        attributes=attributes,
        has_bias=data.draw(st.booleans()),
        starts=data.draw(st.sampled_from(["", "h", "c", "hc"] if op == "LSTM" else ["", "h"])),
        outputs=outputs_of(op),
    )


ARRAYS = {
    "x": np.zeros((3, 2, 4), np.float32),
    "w": np.zeros((1, 20, 4), np.float32),
    "r": np.zeros((1, 20, 5), np.float32),
}


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"activations": ["Sigmoid", "Relu", "Swirl"]}, "there is no activation 'Swirl'"),
        ({"activations": ["Sigmoid", "Relu"]}, "there are 2 activations"),
        ({"activations": ["Sigmoid", "Relu", "Affine"]}, "Affine needs a number"),
    ],
)
def test_refused_activations(core: Core, attributes: dict, reason: str) -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5, **attributes)
    model = model_of([node], {"x": ARRAYS["x"]}, ["y"], {k: ARRAYS[k] for k in "wr"})
    with pytest.raises(UnsupportedOpError, match=reason):
        core.load_network(model, "CPU")


def implementations(core: Core, attributes: dict, **constants: np.ndarray) -> set[str]:
    """Say what computes a layer of these constants; each of them is the input of its name."""
    names = ["x", "w", "r", "", "n", "", "", "p"]
    given = {**{key: ARRAYS[key] for key in "wr"}, **constants}
    inputs = [name if name == "x" or name in given else "" for name in names]
    node = helper.make_node("LSTM", inputs, ["y"], "layer", hidden_size=5, **attributes)
    model = model_of([node], {"x": ARRAYS["x"]}, ["y"], given)
    with core.load_network(model, "CPU") as network:
        (found,) = (node.metadata["implementation"] for node in network.runtime_graph().nodes)
    return set(found.split("+"))


def test_activations_of_other_cells_are_computed_by_numpy(core: Core) -> None:
    full, short = (np.array(lengths, np.int32) for lengths in ([3, 3], [3, 2]))
    peepholes = np.zeros((1, 15), np.float32)
    others = {"activations": ["Sigmoid", "Relu", "Tanh"]}
    assert implementations(core, others) == {"numpy"}
    named = {"activations": ["sigmoid", "tanh", "TANH"]}
    for attributes, constants in [
        ({}, {}),
        ({}, {"n": full}),
        ({}, {"n": short}),
        ({}, {"p": peepholes}),
        ({"clip": 1.0}, {}),
        ({"input_forget": 1}, {}),
        (named, {}),
    ]:
        assert "native:recurrent" in implementations(core, attributes, **constants)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lengths_clips_and_groups_of_sequences(
    core: Core, op: str, direction: str, threads: int
) -> None:
    rng = np.random.default_rng(7)
    time, batch, channels, hidden = 6, 8, 5, 150
    directions, gates = 1 + (direction == "bidirectional"), GATES[op]
    weights = {
        "w": rng.standard_normal((directions, gates * hidden, channels)),
        "r": rng.standard_normal((directions, gates * hidden, hidden)) * 0.1,
        "b": rng.standard_normal((directions, 2 * gates * hidden)),
    }
    inputs = {
        "x": rng.standard_normal((time, batch, channels)).astype(np.float32),
        "n": np.array([6, 0, 3, 1, 6, 5, 2, 6], np.int32),
        "h": rng.standard_normal((directions, batch, hidden)).astype(np.float32),
    }
    names, outputs = ["x", "w", "r", "b", "n", "h"], [*outputs_of(op)]
    attributes: dict[str, object] = {"clip": 1.5, "direction": direction}
    if op == "LSTM":
        weights["p"] = rng.standard_normal((directions, 3 * hidden))
        names += ["", "p"]
        attributes["input_forget"] = int(direction == "reverse")
    node = helper.make_node(op, names, outputs, hidden_size=hidden, **attributes)
    constants = {name: array.astype(np.float32) for name, array in weights.items()}
    model = model_of([node], inputs, outputs, constants)
    with core.load_network(model, "CPU", {"INFERENCE_NUM_THREADS": threads}) as network:
        (made,) = network.runtime_graph().nodes
        assert "native:recurrent" in made.metadata["implementation"]
    assert_same_as_reference(core, model, inputs, bound=1e-5, INFERENCE_NUM_THREADS=threads)


@pytest.mark.parametrize("kind", range(6))
@pytest.mark.parametrize("directions", [1, 2])
def test_walks_and_shared_steps_give_the_bits_of_one_thread(kind: int, directions: int) -> None:
    """Threads that divide a layer by blocks or by sequences sum in the order of one alone."""
    rng = np.random.default_rng(kind)
    time, batch, hidden, gates = 7, 8, 40, (4, 3, 3, 1, 1, 1)[kind]
    columns, width = directions * gates * 48, directions * hidden

    def draw(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    given = [draw(time, batch, columns), draw(directions, 3, hidden, gates, 16)]
    if kind == 2:
        given.append(draw(directions, 48))
    start = draw(4, directions, batch, 48)

    def ends_of(parts: int, rows: int) -> list[np.ndarray]:
        states, result = start.copy(), np.full((time, batch, width), np.nan, np.float32)
        words = [kind, time, batch, hidden, directions, directions, batch * columns, columns]
        words += [batch * width, hidden, width, 1, 1, 0, 0, 0, double_bits(np.inf), parts, rows]
        run_native("recurrent", [*given, states, result], words, threads=parts)
        return [result, states[0], states[2] if kind == 0 else states[0]]

    alone = ends_of(1, batch)
    assert np.isfinite(alone[0]).all()
    for parts, rows in [(1, 3), (2, 8), (2, 6), (3, 3), (3, 8), (4, 8), (6, 3), (16, 8)]:
        for got, wanted in zip(ends_of(parts, rows), alone, strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_many_sequences_of_few_units_are_divided(core: Core, op: str) -> None:
    check(core, op, time=12, batch=500, hidden=16, outputs=outputs_of(op), INFERENCE_NUM_THREADS=2)


def test_lengths_beyond_the_input_fail_with_the_node(core: Core) -> None:
    node = helper.make_node("LSTM", ["x", "w", "r", "", "n"], ["y"], "layer", hidden_size=5)
    inputs = {"x": ARRAYS["x"], "n": np.array([3, 4], np.int32)}
    model = model_of([node], inputs, ["y"], {key: ARRAYS[key] for key in "wr"})
    with pytest.raises(AioInferError, match=r"LSTM \(node 'layer'\): an index"):
        run(core, model, "CPU", inputs)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_sequences_of_several_lengths(core: Core, precision: str) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node(
            "GRU", ["square", "w", "r", "", "n"], ["y", "h"], hidden_size=4,
            direction="bidirectional",
        ),
        helper.make_node("Neg", ["h"], ["z"]),
    ]  # fmt: skip
    inputs = {
        "x": rng.standard_normal((5, 3, 2)).astype(np.float32),
        "n": np.array([5, 2, 1], np.int32),
    }
    shapes = {"w": (2, 12, 2), "r": (2, 12, 4)}
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    model = model_of(nodes, inputs, ["y", "z"], weights, dynamic=True)
    bound = BF16_BOUND if precision == "bf16" else 1e-5
    config = {"INFERENCE_PRECISION_HINT": precision}
    got = assert_same_as_reference(core, model, inputs, bound=bound, **config)
    assert not got["y"][2:, :, 1].any()
