import numpy as np
import onnx.defs
import onnx.parser
import onnx.reference
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from aioinfer.runtime.onnx_writer import write_model

NEWEST = onnx.defs.onnx_opset_version()
MAIN = """<ir_version: 10, opset_import: ["" : {opset}, "local" : 1]>
main (float[2] x, bool c) => (float[2] y) {{ {body} }}
"""
FUNCTION = '<domain: "local", opset_import: ["" : {opset}, "local" : 1]> {text}\n'


def read(body: str, *functions: str, opset: int = 17, function_opset: int | None = None) -> Model:
    text = MAIN.format(opset=opset, body=body)
    for function in functions:
        text += FUNCTION.format(opset=function_opset or opset, text=function)
    proto = onnx.parser.parse_model(text)
    for node in proto.graph.node:
        node.metadata_props.add(key="affinity", value=f"device of {node.name}")
    return read_model(proto)


def run(model: Model, x: list[float], c: bool = True) -> list[float]:
    feeds = {"x": np.array(x, np.float32), "c": np.array(c)}
    return onnx.reference.ReferenceEvaluator(write_model(model)).run(None, feeds)[0].tolist()


def test_inlined_nodes_are_called_after_the_call_and_stand_for_it() -> None:
    model = read(
        "[call] t = local.twice (x) [last] y = Neg (t)",
        "twice (a) => (b) { [half] m = Relu (a) b = Neg (m) }",
    )
    assert [(node.name, node.fused_from) for node in model.graph.nodes] == [
        ("call/half", ("call",)),
        ("call/Neg_0", ("call",)),
        ("last", ("last",)),
    ]


def test_inlined_nodes_inherit_the_affinity_of_the_call() -> None:
    model = read("[call] y = local.f (x)", "f (a) => (b) { m = Relu (a) b = Neg (m) }")
    assert [node.affinity for node in model.graph.nodes] == ["device of call"] * 2


def test_functions_inside_functions_and_in_bodies_are_inlined() -> None:
    model = read(
        """[choice] y = If (c) <
          then_branch = yes () => (float[2] p) { [call] p = local.outer (x) },
          else_branch = no () => (float[2] q) { q = Neg (x) }>""",
        "outer (a) => (b) { [inner_call] b = local.inner (a) }",
        "inner (a) => (b) { [act] b = Relu (a) }",
    )
    body = model.node("choice").bodies()[0]
    assert [node.name for node in body.nodes] == ["call/inner_call/act"]
    assert run(model, [-1, 2]) == [0, 2]


def test_attributes_of_the_call_and_defaults_reach_the_nodes() -> None:
    leaky = "leaky <slope: float = 0.5> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }"
    assert run(read("y = local.leaky (x)", leaky), [-2, 2]) == [-1, 2]
    assert run(read("y = local.leaky <slope = 0.25> (x)", leaky), [-2, 2]) == [-0.5, 2]
    outer = "outer (a) => (b) { b = local.leaky <slope = 2.0> (a) }"
    assert run(read("y = local.outer (x)", outer, leaky), [-2, 2]) == [-4, 2]


def test_an_attribute_that_nobody_gives_is_left_to_the_operators_default() -> None:
    leaky = "leaky <slope> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }"
    model = read("y = local.leaky (x)", leaky)
    assert [node.attributes for node in model.graph.nodes] == [{}]


def test_a_function_that_returns_its_input_still_makes_the_value() -> None:
    model = read("[same] y = local.same (x)", "same (a) => (a) { }")
    assert [(node.op_type, node.fused_from) for node in model.graph.nodes] == [
        ("Identity", ("same",))
    ]
    assert run(model, [3, 4]) == [3, 4]


@pytest.mark.parametrize("opsets", [(9, 9), (17, 9), (9, 17), (NEWEST, 9)])
def test_functions_are_converted_whatever_their_opset_and_the_models(
    opsets: tuple[int, int],
) -> None:
    model = read(
        "[call] t = local.outer (x) y = Squeeze (t)",
        "outer (a) => (b) { [deep] b = local.inner (a) }",
        "inner (a) => (b) { [mean] b = ReduceMean <axes = [0]> (a) }",
        opset=opsets[0],
        function_opset=opsets[1],
    )
    assert model.opsets == {"": NEWEST, "local": 1}
    assert [node.name for node in model.graph.nodes] == ["call/deep/mean", "Squeeze_0"]
    assert run(model, [1, 3]) == 2


def test_a_function_that_calls_itself_is_refused() -> None:
    with pytest.raises(ModelError, match="that calls itself"):
        read(
            "y = local.f (x)",
            "f (a) => (b) { b = local.g (a) }",
            "g (a) => (b) { b = local.f (a) c = local.g (b) }",
        )


def test_functions_that_explode_are_refused_at_once() -> None:
    doubling = [
        f"f{i} (a) => (b) {{ m = local.f{i + 1} (a) b = local.f{i + 1} (m) }}" for i in range(30)
    ]
    with pytest.raises(ModelError, match="nodes when its functions are inlined"):
        read("y = local.f0 (x)", *doubling, "f30 (a) => (b) { b = Relu (a) }")


def test_a_call_with_too_many_inputs_is_refused() -> None:
    with pytest.raises(ModelError, match="gives or takes more than its function 'f'"):
        read("y = local.f (x, x)", "f (a) => (b) { b = Relu (a) }")
