"""One node on numpy arrays, whatever implements it."""

import threading

import numpy as np
import pytest

from aioinfer.runtime.graph import DType, Graph, Node, Value
from aioinfer.runtime.operators import OperatorError, as_operator, find_unsupported, make_operator
from aioinfer.runtime.operators.onnx_operators import make_onnx_operator

OPSETS = {"": 26, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1}
X = np.array([[-1.5, 0.0], [0.5, 2.0]], np.float32)


def node_of(op_type, input_count, output_count=1, domain="", **attributes):
    inputs = [Value(f"x{index}") for index in range(input_count)]
    outputs = [Value(f"y{index}") for index in range(output_count)]
    return Node(op_type, inputs, outputs, attributes, name="the_node", domain=domain)


def evaluate(op_type, *inputs, output_count=1, domain="", **attributes):
    node = node_of(op_type, len(inputs), output_count, domain, **attributes)
    return make_operator(node, OPSETS)(*inputs)


def test_an_operator_of_onnx_reference_runs() -> None:
    (made,) = evaluate("Selu", X, alpha=1.0, gamma=2.0)
    expected = 2.0 * np.where(X > 0, X, np.exp(X) - 1)
    np.testing.assert_allclose(made, expected, rtol=1e-6)
    assert made.dtype == np.float32


def test_attributes_reach_the_operator() -> None:
    (made,) = evaluate("Transpose", np.zeros((2, 3, 4)), perm=[1, 2, 0])
    assert made.shape == (3, 4, 2)


def test_several_outputs_come_in_order() -> None:
    values, indices = evaluate("TopK", X, np.array([1]), output_count=2, axis=1)
    assert values.tolist() == [[0.0], [2.0]]
    assert indices.tolist() == [[1], [1]]


def test_a_missing_optional_input_is_none() -> None:
    (made,) = evaluate("Clip", X, None, np.array(1.0, np.float32))
    assert made.tolist() == [[-1.5, 0.0], [0.5, 1.0]]


def test_a_full_reduction_gives_an_array_of_rank_zero_and_the_input_type() -> None:
    (made,) = evaluate("ReduceSum", X, keepdims=0)
    assert type(made) is np.ndarray
    assert (made.shape, made.dtype) == ((), np.float32)


def test_the_type_that_the_schema_ties_to_an_input_is_kept() -> None:
    (made,) = evaluate("Celu", X.astype(np.float16), alpha=2.0)
    assert made.dtype == np.float16


def test_strings_come_out_as_objects() -> None:
    (made,) = evaluate("Cast", np.array([1, 2]), to=DType.STRING.value)
    assert made.dtype == object
    assert made.tolist() == ["1", "2"]


def test_a_sequence_is_a_list() -> None:
    (sequence,) = evaluate("SequenceConstruct", X, X + 1)
    assert isinstance(sequence, list)
    (second,) = evaluate("SequenceAt", sequence, np.array(1))
    np.testing.assert_array_equal(second, X + 1)


def test_an_optional_is_its_element_or_none() -> None:
    (given,) = evaluate("Optional", X)
    np.testing.assert_array_equal(given, X)
    (element,) = evaluate("OptionalGetElement", given)
    np.testing.assert_array_equal(element, X)
    (has_element,) = evaluate("OptionalHasElement", None)
    assert not has_element
    with pytest.raises(ValueError, match="empty"):
        evaluate("OptionalGetElement", None)


@pytest.mark.parametrize(
    ("domain", "op_type", "attributes"),
    [
        ("ai.onnx.ml", "Binarizer", {"threshold": 0.0}),
        ("ai.onnx.ml", "Scaler", {"offset": [0.0], "scale": [2.0]}),
    ],
)
def test_the_machine_learning_domain_runs(domain, op_type, attributes) -> None:
    (made,) = evaluate(op_type, X, domain=domain, **attributes)
    expected = (X > 0).astype(np.float32) if op_type == "Binarizer" else X * 2
    np.testing.assert_array_equal(made, expected)


def test_the_training_domain_runs() -> None:
    rate, step = np.array(0.1, np.float32), np.array(0)
    state, gradient, momentum = (np.full(2, value, np.float32) for value in (1.0, 1.0, 0.0))
    new_state, new_momentum = evaluate(
        "Momentum", rate, step, state, gradient, momentum,
        output_count=2, domain="ai.onnx.preview.training",
        alpha=0.5, beta=1.0, norm_coefficient=0.0, mode="standard",
    )  # fmt: skip
    np.testing.assert_allclose(new_momentum, [1.0, 1.0])
    np.testing.assert_allclose(new_state, [0.9, 0.9], rtol=1e-6)


class TestFunctionBodies:
    def test_a_plain_function_body_is_evaluated(self) -> None:
        (made,) = evaluate("HardSwish", X)
        np.testing.assert_allclose(made, X * np.clip(X / 6 + 0.5, 0, 1), rtol=1e-6)

    def test_attributes_of_the_caller_replace_references_in_the_body(self) -> None:
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)
        node = node_of("MeanVarianceNormalization", 1, axes=[0, 2, 3])
        (made,) = make_onnx_operator(node, OPSETS)(x)
        mean = x.mean((0, 2, 3), keepdims=True)
        spread = x.std((0, 2, 3), keepdims=True)
        np.testing.assert_allclose(made, (x - mean) / spread, rtol=1e-5)

    def test_the_default_of_an_attribute_of_the_caller_is_used(self) -> None:
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)
        op_type = "MeanVarianceNormalization"
        default, given = (
            make_onnx_operator(node, OPSETS)(x)
            for node in (node_of(op_type, 1), node_of(op_type, 1, axes=[0, 2, 3]))
        )
        np.testing.assert_array_equal(default[0], given[0])

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
    def test_a_body_that_depends_on_types_is_built_for_each(self, dtype) -> None:
        gelu = make_operator(node_of("Gelu", 1, approximate="tanh"), OPSETS)
        x = X.astype(dtype)
        inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)
        for _ in range(2):
            (made,) = gelu(x)
            assert made.dtype == dtype
            np.testing.assert_allclose(made, 0.5 * x * (1 + np.tanh(inner)), rtol=5e-3)

    def test_a_body_that_depends_on_attributes_gets_them(self) -> None:
        x = np.random.default_rng(0).random((2, 4, 3), np.float32)
        scale, bias = np.ones(4, np.float32), np.zeros(4, np.float32)
        (made,) = evaluate("GroupNormalization", x, scale, bias, num_groups=2, epsilon=0.0)
        groups = x.reshape(2, 2, -1)
        expected = (groups - groups.mean(2, keepdims=True)) / groups.std(2, keepdims=True)
        np.testing.assert_allclose(made, expected.reshape(x.shape), rtol=1e-4, atol=1e-5)


class TestRefusals:
    @pytest.mark.parametrize(
        ("domain", "op_type", "reason"),
        [
            ("", "Swirl", "no such operator"),
            ("com.acme", "Relu", "'com.acme' is not one of ONNX's"),
            ("ai.onnx.preview.training", "Gradient", "differentiates"),
        ],
    )
    def test_what_cannot_run_says_why_without_inputs(self, domain, op_type, reason) -> None:
        assert reason in (find_unsupported(node_of(op_type, 1, domain=domain), OPSETS) or "")

    def test_what_onnx_computes_wrongly_is_not_left_to_it(self) -> None:
        assert find_unsupported(node_of("Conv", 1), OPSETS) is None
        assert "own kernel" in (find_unsupported(node_of("Conv", 1, depth=2), OPSETS) or "")

    def test_a_node_with_a_body_is_left_to_the_device(self) -> None:
        node = node_of("If", 1, then_branch=Graph("then"), else_branch=Graph("else"))
        assert "bodies" in (find_unsupported(node, OPSETS) or "")

    def test_what_can_run_has_no_reason(self) -> None:
        for op_type in ("Add", "Gelu", "Mish", "Multinomial", "Attention"):
            assert find_unsupported(node_of(op_type, 1), OPSETS) is None

    def test_making_it_all_the_same_names_node_operator_and_reason(self) -> None:
        with pytest.raises(OperatorError, match=r"Swirl \(node 'the_node'\).*no such operator"):
            make_operator(node_of("Swirl", 1), OPSETS)

    @pytest.mark.parametrize("op_type", ["ConcatFromSequence", "MaxRoiPool"])
    def test_a_missing_attribute_is_named(self, op_type) -> None:
        assert "missing" in (find_unsupported(node_of(op_type, 1), OPSETS) or "")

    @pytest.mark.parametrize("op_type", ["Selu", "Gather"])
    def test_an_attribute_that_the_operator_does_not_have_is_named(self, op_type) -> None:
        reason = find_unsupported(node_of(op_type, 1, volume=11), OPSETS)
        assert "'volume'" in (reason or "")

    def test_a_bad_value_of_an_attribute_is_refused_when_it_is_made(self) -> None:
        node = node_of("BitShift", 2, direction="SIDEWAYS")
        with pytest.raises(OperatorError, match="refused"):
            make_operator(node, OPSETS)

    def test_images_need_pillow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from aioinfer.runtime.operators import onnx_operators

        monkeypatch.setattr(onnx_operators.importlib.util, "find_spec", lambda name: None)
        onnx_operators._find_missing.cache_clear()
        try:
            reason = find_unsupported(node_of("ImageDecoder", 1), OPSETS)
        finally:
            onnx_operators._find_missing.cache_clear()
        assert "Pillow" in (reason or "")


class TestAsOperator:
    def test_scalars_become_arrays_of_rank_zero(self) -> None:
        outputs = as_operator(lambda: (1.5, np.float32(2), True), {})()
        assert [type(item) for item in outputs] == [np.ndarray] * 3
        assert [item.dtype for item in outputs] == [np.float64, np.float32, np.bool_]

    def test_attributes_are_bound_as_keywords(self) -> None:
        (made,) = as_operator(lambda x, *, by: x * by, {"by": 3})(np.array([2]))
        assert made.tolist() == [6]

    def test_none_and_lists_stay_what_they_are(self) -> None:
        nothing, sequence = as_operator(lambda: (None, [np.float32(1), None]), {})()
        assert nothing is None
        assert isinstance(sequence[0], np.ndarray)
        assert sequence[1] is None

    def test_maps_stay_what_they_are(self) -> None:
        (found,) = as_operator(lambda: [{3: 0.5}], {})()
        assert found == [{3: 0.5}]

    def test_what_is_no_value_is_refused(self) -> None:
        with pytest.raises(TypeError, match="set"):
            as_operator(lambda: {1}, {})()


def test_threads_may_share_an_operator() -> None:
    lstm = make_operator(node_of("RNN", 3, 2, hidden_size=2), OPSETS)
    random = np.random.default_rng(1)
    weights = random.random((1, 2, 3), np.float32), random.random((1, 2, 2), np.float32)
    batches = [random.random((4, size, 3), np.float32) for size in (1, 2, 3, 4)]
    expected = [lstm(batch, *weights)[0] for batch in batches]
    wrong = []

    def work(index: int) -> None:
        for _ in range(20):
            made = lstm(batches[index], *weights)[0]
            if not np.array_equal(made, expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
