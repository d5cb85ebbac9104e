"""LSTM, GRU and RNN: small cases counted by hand, sequences of several lengths, other types."""

import ml_dtypes
import numpy as np
import pytest

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import OperatorError, make_operator
from aioinfer.runtime.operators.recurrent.recurrent_activations import activation_sets

NAMES = ("x", "w", "r", "bias", "lengths", "initial_h", "initial_c", "peepholes")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def evaluate(op_type, *, opset=26, output_count=None, attributes=None, **given):
    """Run a node on inputs by name; gives all of its outputs."""
    known = NAMES if op_type == "LSTM" else NAMES[:6]
    names = [Value(name) if name in given else None for name in known]
    count = output_count or (3 if op_type == "LSTM" else 2)
    outputs = [Value(f"y{index}") for index in range(count)]
    node = Node(op_type, names, outputs, attributes or {}, name="n")
    return make_operator(node, {"": opset})(*[given.get(name) for name in known])


def numbers(*items, dtype=np.float32):
    return np.array(items, dtype)


def linear(op_type):
    """Make all gates pass what they get."""
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[op_type]
    return {
        "activations": ["Affine"] * count,
        "activation_alpha": [1.0] * count,
        "activation_beta": [0.0] * count,
    }


def one_unit(op_type, steps, weights, recurrent, **given):
    """Run one sequence of numbers through one hidden unit with linear gates; gives Y as a list."""
    attributes = {**linear(op_type), **given.pop("attributes", {})}
    x = numbers(*steps).reshape(-1, 1, 1)
    w, r = (numbers(*item).reshape(1, -1, 1) for item in (weights, recurrent))
    made = evaluate(op_type, x=x, w=w, r=r, attributes=attributes, **given)
    return [array.ravel().tolist() for array in made]


START = np.full((1, 1, 1), 10, np.float32)


class TestByHand:
    def test_lstm(self) -> None:
        y, h, c = one_unit("LSTM", [1, 2], [1, 2, 3, 4], [0] * 4, initial_c=START)
        # i, o, f, g are 1, 2, 3, 4 and then twice that: c = 30 + 4, and then 6 * 34 + 2 * 8
        assert (y, h, c) == ([2 * 34, 4 * 220], [880], [220])

    def test_lstm_with_peepholes(self) -> None:
        peepholes = numbers(1, 1, 1).reshape(1, 3)
        y, _, c = one_unit("LSTM", [1], [1, 2, 3, 4], [0] * 4, initial_c=START, peepholes=peepholes)
        # i = 1 + 10, f = 3 + 10, c = 13 * 10 + 11 * 4, o = 2 + c
        assert (y, c) == ([176 * 174], [174])

    def test_lstm_whose_gates_are_coupled(self) -> None:
        coupled = {"input_forget": 1}
        _, _, c = one_unit("LSTM", [3], [1, 2, 9, 4], [0] * 4, initial_c=START, attributes=coupled)
        assert c == [(1 - 3) * 10 + 3 * 12]

    def test_both_halves_of_a_bias_are_added(self) -> None:
        bias = numbers(0, 0, 0, 1, 0, 0, 0, 2).reshape(1, 8)
        _, _, c = one_unit("LSTM", [1], [1, 2, 3, 4], [0] * 4, bias=bias)
        assert c == [4 + 1 + 2]

    @pytest.mark.parametrize(
        ("is_late", "new"), [(0, 4 + 3 * 10 * 5 + 1), (1, 4 + 3 * (10 * 5 + 1))]
    )
    def test_gru_resets_before_or_behind_the_recurrent_weights(self, is_late, new) -> None:
        bias = numbers(0, 0, 0, 0, 0, 1).reshape(1, 6)
        y, h = one_unit(
            "GRU", [1], [2, 3, 4], [0, 0, 5], initial_h=START, bias=bias,
            attributes={"linear_before_reset": is_late},
        )  # fmt: skip
        assert y == h == [(1 - 2) * new + 2 * 10]

    @pytest.mark.parametrize(
        ("direction", "wanted"), [("forward", [1, 12, 123]), ("reverse", [321, 32, 3])]
    )
    def test_rnn(self, direction, wanted) -> None:
        y, h = one_unit("RNN", [1, 2, 3], [1], [10], attributes={"direction": direction})
        assert (y, h) == (wanted, [123 if direction == "forward" else 321])

    def test_what_goes_into_a_gate_is_clipped(self) -> None:
        y, _ = one_unit("RNN", [1, 2, -9], [1], [10], attributes={"clip": 5.0})
        assert y == [1, 5, 5]
        _, _, c = one_unit("LSTM", [3], [1, 1, 1, 1], [0] * 4, attributes={"clip": 2.0})
        assert c == [4]
        y, _, _ = one_unit("LSTM", [3], [1, 1, 1, 1], [0] * 4, attributes={"clip": 2.0})
        assert y == [2 * 4]


class TestLengths:
    LENGTHS = np.array([3, 1, 0], np.int32)
    X = np.array([[1, 4, 7], [2, 5, np.nan], [3, 6, 9]], np.float32)[:, :, None]

    def run(self, direction):
        count = 2 if direction == "bidirectional" else 1
        w, r = (np.full((count, 1, 1), number, np.float32) for number in (1, 10))
        start = np.full((count, 3, 1), -1, np.float32)
        attributes = {**linear("RNN"), "direction": direction}
        made = evaluate(
            "RNN", x=self.X, w=w, r=r, lengths=self.LENGTHS, initial_h=start, attributes=attributes
        )
        return [array[..., 0].tolist() for array in made]

    def test_behind_its_end_a_sequence_gives_zeros_and_keeps_its_state(self) -> None:
        y, h = self.run("forward")
        assert y == [[[-9, -6, 0]], [[-88, 0, 0]], [[-877, 0, 0]]]
        assert h == [[-877, -6, -1]]

    def test_backwards_a_sequence_starts_at_its_own_end(self) -> None:
        y, h = self.run("reverse")
        assert y == [[[-679, -6, 0]], [[-68, 0, 0]], [[-7, 0, 0]]]
        assert h == [[-679, -6, -1]]

    def test_both_directions(self) -> None:
        (forward, h), (reverse, h_reverse) = self.run("forward"), self.run("reverse")
        y, both = self.run("bidirectional")
        assert y == [[a[0], b[0]] for a, b in zip(forward, reverse, strict=True)]
        assert both == [h[0], h_reverse[0]]


def random_layer(op_type, dtype=np.float32, directions=2):
    random = np.random.default_rng(0)
    width = GATES[op_type] * 4
    shapes = {
        "x": (5, 3, 2),
        "w": (directions, width, 2),
        "r": (directions, width, 4),
        "bias": (directions, 2 * width),
        "initial_h": (directions, 3, 4),
    }
    if op_type == "LSTM":
        shapes |= {"initial_c": (directions, 3, 4), "peepholes": (directions, 12)}
    made = {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return {**made, "lengths": np.array([5, 1, 3], np.int32)}


BOTH = {"direction": "bidirectional"}


@pytest.mark.parametrize("op_type", GATES)
class TestLayers:
    @pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
    def test_small_floats_are_computed_in_float32(self, op_type, dtype) -> None:
        layer = random_layer(op_type, dtype)
        wide = {
            name: array if name == "lengths" else array.astype(np.float32)
            for name, array in layer.items()
        }
        made, wanted = (evaluate(op_type, **item, attributes=BOTH) for item in (layer, wide))
        for array, expected in zip(made, wanted, strict=True):
            assert array.dtype == dtype
            np.testing.assert_array_equal(array, expected.astype(dtype))

    def test_float64_is_exact(self, op_type) -> None:
        # A layer whose two directions are the same gives on a palindrome the same from both ends.
        layer = random_layer(op_type, np.float64)
        for name in ("w", "r", "bias", "initial_h", "initial_c", "peepholes"):
            if name in layer:
                layer[name][1] = layer[name][0]
        layer["x"] = np.concatenate([layer["x"], layer["x"][::-1]])
        del layer["lengths"]
        y, *_ = evaluate(op_type, **layer, attributes=BOTH)
        assert y.dtype == np.float64
        np.testing.assert_allclose(y[:, 0], y[::-1, 1], rtol=1e-14)
        narrow = {name: array.astype(np.float32) for name, array in layer.items()}
        error = np.abs(evaluate(op_type, **narrow, attributes=BOTH)[0] - y).max()
        assert 1e-12 < error < 1e-5

    def test_batch_first(self, op_type) -> None:
        layer = random_layer(op_type)
        y, *states = evaluate(op_type, **layer, attributes=BOTH)
        swapped = {
            name: array.swapaxes(0, 1) if name in ("x", "initial_h", "initial_c") else array
            for name, array in layer.items()
        }
        made, *ends = evaluate(op_type, **swapped, attributes={**BOTH, "layout": 1})
        np.testing.assert_array_equal(made, y.transpose(2, 0, 1, 3))
        for end, state in zip(ends, states, strict=True):
            np.testing.assert_array_equal(end, state.swapaxes(0, 1))

    def test_inputs_are_only_read(self, op_type) -> None:
        layer = random_layer(op_type)
        before = {name: array.copy() for name, array in layer.items()}
        evaluate(op_type, **layer, attributes=BOTH)
        for name, array in layer.items():
            np.testing.assert_array_equal(array, before[name])

    def test_a_node_with_one_output_gets_one(self, op_type) -> None:
        assert len(evaluate(op_type, **random_layer(op_type), attributes=BOTH, output_count=1)) == 1

    @pytest.mark.parametrize(("time", "batch"), [(0, 3), (5, 0)])
    def test_no_steps_or_no_sequences(self, op_type, time, batch) -> None:
        layer = random_layer(op_type)
        del layer["lengths"]
        layer["x"] = layer["x"][:time, :batch]
        for name in ("initial_h", "initial_c"):
            if name in layer:
                layer[name] = layer[name][:, :batch]
        y, h, *_ = evaluate(op_type, **layer, attributes=BOTH)
        assert y.shape == (time, 2, batch, 4)
        np.testing.assert_array_equal(h, layer["initial_h"])

    @pytest.mark.parametrize(
        ("name", "shape", "message"),
        [
            ("x", (5, 3), "X has shape"),
            ("w", (1, 4, 2), "W has shape"),
            ("r", (2, 4, 5), "R has shape|W has shape"),
            ("bias", (2, 3), "B has shape"),
            ("lengths", (2,), "sequence_lens has shape"),
            ("initial_h", (2, 3, 5), "initial_h has shape"),
        ],
    )
    def test_shapes_that_do_not_fit_are_refused(self, op_type, name, shape, message) -> None:
        layer = random_layer(op_type)
        layer[name] = np.zeros(shape, layer[name].dtype)
        with pytest.raises(ValueError, match=message):
            evaluate(op_type, **layer, attributes=BOTH)

    @pytest.mark.parametrize(
        ("attributes", "message"),
        [
            ({"direction": "sideways"}, "direction is 'sideways'"),
            ({"layout": 2}, "layout 2"),
            ({"hidden_size": 5}, "hidden_size is 5"),
            ({"clip": 0.0}, "clip is 0.0"),
            ({"activations": ["Swirl"] * 6}, "there are 6 activations|no activation 'Swirl'"),
        ],
    )
    def test_attributes_that_do_not_fit_are_refused(self, op_type, attributes, message) -> None:
        with pytest.raises(ValueError, match=message):
            evaluate(op_type, **random_layer(op_type), attributes={**BOTH, **attributes})

    @pytest.mark.parametrize("lengths", [[6, 1, 1], [-1, 1, 1]])
    def test_lengths_beyond_the_input_are_refused(self, op_type, lengths) -> None:
        layer = {**random_layer(op_type), "lengths": np.array(lengths, np.int32)}
        with pytest.raises(ValueError, match="from 0 to 5"):
            evaluate(op_type, **layer, attributes=BOTH)

    def test_an_older_opset_has_no_layout(self, op_type) -> None:
        layer = random_layer(op_type)
        y, *_ = evaluate(op_type, **layer, attributes=BOTH, opset=7)
        np.testing.assert_array_equal(y, evaluate(op_type, **layer, attributes=BOTH)[0])
        with pytest.raises(OperatorError, match="has no attribute 'layout'"):
            evaluate(op_type, **layer, attributes={**BOTH, "layout": 1}, opset=13)


class TestActivations:
    def one(self, name, alphas=(), betas=()):
        ((function,),) = activation_sets([name], alphas, betas, ("Tanh",))
        return function(numbers(-2.0, 0.5, 3.0)).tolist()

    @pytest.mark.parametrize(
        ("name", "alphas", "betas", "wanted"),
        [
            ("Affine", [2], [1], [-3, 2, 7]),
            ("HardSigmoid", [], [], [0.1, 0.6, 1.0]),
            ("LeakyRelu", [], [], [-0.02, 0.5, 3]),
            ("LEAKYRELU", [0.5], [], [-1, 0.5, 3]),
            ("Relu", [9], [9], [0, 0.5, 3]),
            ("Softsign", [], [], [-2 / 3, 1 / 3, 0.75]),
            ("ThresholdedRelu", [], [], [0, 0, 3]),
            ("ThresholdedRelu", [0.5], [], [0, 0.5, 3]),
            ("ScaledTanh", [2], [0], [0, 0, 0]),
            ("Elu", [0], [], [0, 0.5, 3]),
        ],
    )
    def test_functions(self, name, alphas, betas, wanted) -> None:
        np.testing.assert_allclose(self.one(name, alphas, betas), wanted, rtol=1e-6, atol=1e-7)

    def test_numbers_go_to_the_functions_that_take_them(self) -> None:
        names = ["Relu", "LeakyRelu", "Tanh", "HardSigmoid", "Relu", "Elu"]
        first, second = activation_sets(names, [0.5, 0.25], [0.75], ("Sigmoid", "Tanh", "Tanh"))
        x = numbers(-2)
        assert first[1](x).tolist() == [-1]
        assert second[0](x).tolist() == [-2 * 0.25 + 0.75]
        np.testing.assert_allclose(second[2](x), np.expm1(-2), rtol=1e-6)

    def test_one_set_serves_both_directions(self) -> None:
        layer = random_layer("RNN")
        once, twice = (
            evaluate("RNN", **layer, attributes={**BOTH, "activations": ["Relu"] * count})[0]
            for count in (1, 2)
        )
        np.testing.assert_array_equal(once, twice)

    def test_a_function_that_has_no_defaults_needs_its_numbers(self) -> None:
        with pytest.raises(ValueError, match="ScaledTanh needs a number in activation_alpha"):
            self.one("ScaledTanh", [1.0])
