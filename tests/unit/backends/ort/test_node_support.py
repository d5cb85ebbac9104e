from collections.abc import Callable

import pytest

from aioinfer.backends.ort.node_support import NodeSupport, model_of_node, onnxruntime_text
from aioinfer.backends.ort.properties import SessionSettings
from aioinfer.backends.ort.session import CPU_PROVIDER, Session
from aioinfer.runtime.graph import Model
from onnx_text import parse

SETTINGS = SessionSettings(CPU_PROVIDER)
TWO_RELUS = """g (float[n, 3] x, float[n, 3] z) => (float[n, 3] y, float[n, 3] w) {
    [first] y = Relu (x) [second] w = Relu (z) }"""


def reasons(support: NodeSupport, model: Model) -> dict[str, str | None]:
    return {node.name: support.find_reason(model, node, SETTINGS) for node in model.graph.nodes}


def recording(asked: list[Model], refuse: str = "") -> Callable[[Model, SessionSettings], None]:
    def try_session(model: Model, _settings: SessionSettings) -> None:
        asked.append(model)
        if refuse:
            raise RuntimeError(refuse)

    return try_session


def test_equal_nodes_share_an_answer_that_names_each() -> None:
    asked: list[Model] = []
    support = NodeSupport(recording(asked, "no kernel for node 'aioinfer.node'"))
    assert reasons(support, parse(TWO_RELUS)) == {
        "first": "no kernel for node 'first'",
        "second": "no kernel for node 'second'",
    }
    assert len(asked) == len(support) == 1


@pytest.mark.parametrize(
    "other",
    [
        "g (float[n, 3] x) => (float[n, 3] y) { y = Sigmoid (x) }",
        "g (double[n, 3] x) => (double[n, 3] y) { y = Relu (x) }",
        "g (float[n, 4] x) => (float[n, 4] y) { y = Relu (x) }",
    ],
)
def test_another_operator_type_or_shape_is_another_question(other: str) -> None:
    asked: list[Model] = []
    support = NodeSupport(recording(asked))
    reasons(support, parse(TWO_RELUS))
    reasons(support, parse(other))
    assert len(asked) == 2


def test_other_settings_are_another_question() -> None:
    asked: list[Model] = []
    support = NodeSupport(recording(asked))
    model = parse(TWO_RELUS)
    node = next(model.graph.nodes)
    support.find_reason(model, node, SETTINGS)
    support.find_reason(model, node, SessionSettings("OtherExecutionProvider"))
    assert len(asked) == 2


def test_small_constants_belong_to_the_question() -> None:
    text = """g (float[4] x) => (float[2, 2] y) {{
        s = Constant <value_ints = [{}]> () y = Reshape (x, s) }}"""
    asked: list[Model] = []
    support = NodeSupport(recording(asked))
    reasons(support, parse(text.format("2, 2")))
    reasons(support, parse(text.format("-1, 2")))
    assert len(asked) == 2


def test_onnxruntime_is_asked_and_answers_in_its_words() -> None:
    text = """g (float[2] x, float16[1, 1, 4, 4] im, bfloat16[2] b) => (float[2] y, bfloat16[2] c) {
        [good] y = Relu (x) [bad] c = Relu (b) }"""
    found = reasons(NodeSupport(Session), parse(text))
    assert found["good"] is None
    assert found["bad"] == "Could not find an implementation for Relu(14) node with name 'bad'"


def test_a_node_with_a_body_is_asked_with_what_the_body_captures() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        w = Constant <value_floats = [1.0, 2.0]> ()
        [choice] y = If (c) <then_branch = t () => (float[2] a) { a = Add (x, w) },
                    else_branch = e () => (float[2] b) { b = Neg (x) }> }"""
    model = parse(text)
    node = model.node("choice")
    alone = model_of_node(model, node)
    assert [value.name for value in alone.inputs] == ["c", "x"]
    assert list(alone.graph.initializers) == ["w"]
    assert NodeSupport(Session).find_reason(model, node, SETTINGS) is None


def test_asking_leaves_the_model_as_it_is() -> None:
    model = parse(TWO_RELUS)
    before = str(model)
    uses = [list(value.uses) for value in model.inputs]
    reasons(NodeSupport(Session), model)
    assert str(model) == before
    assert [list(value.uses) for value in model.inputs] == uses


def test_a_value_that_cannot_be_exchanged_is_refused_by_name() -> None:
    text = """g (bfloat16[2] x) => (seq(bfloat16[2]) y) { [pack] y = SequenceConstruct (x) }"""
    reason = reasons(NodeSupport(Session), parse(text))["pack"]
    assert reason is not None
    assert reason.startswith("value 'y': onnxruntime exchanges no seq(bfloat16[?])")


def test_the_text_loses_code_and_source_file() -> None:
    error = RuntimeError(
        "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : /onnxruntime_src/onnxruntime/core/a.cc:461 No\n"
        " kernel."
    )
    assert onnxruntime_text(error) == "No kernel"
    assert onnxruntime_text(RuntimeError("")) == "RuntimeError"
