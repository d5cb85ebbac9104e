import onnx
import onnx.parser
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import Model, Node
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from onnx_text import parse_proto


def parse(body: str, opset: int = 13) -> onnx.ModelProto:
    text = f"named (float[2,3] x, float[2] s, bool c) => (float[2,3] y) {{ {body} }}"
    return parse_proto(text, opset, ir_version=7)


def names(model: Model) -> list[str]:
    return [node.name for node in model.graph.nodes]


def origins(model: Model) -> dict[str, tuple[str, ...]]:
    return {node.name: node.fused_from for node in model.graph.nodes}


def test_nodes_without_a_name_are_called_after_their_operator() -> None:
    model = read_model(parse("a = Relu (x) b = Neg (a) y = Relu (b)"))
    assert names(model) == ["Relu_0", "Neg_0", "Relu_1"]


def test_a_made_up_name_is_never_one_of_the_file() -> None:
    model = read_model(parse("a = Relu (x) [Relu_0] b = Neg (a) y = Relu (b)"))
    assert names(model) == ["Relu_1", "Relu_0", "Relu_2"]


def test_of_nodes_with_one_name_the_first_keeps_it() -> None:
    model = read_model(parse("[act] a = Relu (x) [act] b = Neg (a) [act] y = Relu (b)"))
    assert names(model) == ["act", "act_1", "act_2"]


def test_nodes_of_bodies_have_names_of_their_own() -> None:
    model = read_model(
        parse(
            """[act] a = Relu (x)
            [choice] y = If (c) <
              then_branch = yes () => (float[2,3] p) { [act] p = Neg (a) },
              else_branch = no () => (float[2,3] q) { t = Neg (a) [only] q = Neg (t) }>"""
        )
    )
    bodies = model.node("choice").bodies()
    assert [[node.name for node in body.nodes] for body in bodies] == [
        ["choice/then_branch/act"],
        ["choice/else_branch/Neg_0", "only"],
    ]


def test_nodes_that_the_converter_inserts_are_called_after_the_one_they_serve() -> None:
    model = read_model(parse("[soft] t = Softmax <axis = 0> (x) [end] y = Relu (t)", opset=9))
    assert origins(model) == {
        "soft/Shape": ("soft",),
        "soft/Flatten": ("soft",),
        "soft": ("soft",),
        "soft/Reshape": ("soft",),
        "end": ("end",),
    }


def test_a_node_that_the_converter_replaces_keeps_its_name() -> None:
    model = read_model(parse('[up] y = Upsample <mode = "nearest"> (x, s)', opset=9))
    assert [(node.name, node.op_type) for node in model.graph.nodes] == [("up", "Resize")]
    assert origins(model) == {"up": ("up",)}


@pytest.mark.parametrize("opset", [9, 13, onnx.defs.onnx_opset_version()])
def test_metadata_of_nodes_survives_the_conversion(opset: int) -> None:
    proto = parse("[soft] t = Softmax (x) [end] y = Relu (t)", opset)
    proto.graph.node[0].metadata_props.add(key="affinity", value="CUDA")
    proto.graph.node[1].metadata_props.add(key="stage", value="2")
    model = read_model(proto)
    for node in model.graph.nodes:
        is_soft = node.fused_from == ("soft",)
        assert node.affinity == ("CUDA" if is_soft else None)
    assert model.node("end").metadata == {"stage": "2"}


def test_metadata_of_nodes_in_bodies_survives_the_conversion() -> None:
    proto = parse(
        """[choice] y = If (c) <
          then_branch = yes () => (float[2,3] p) { [soft] p = Softmax <axis = 0> (x) },
          else_branch = no () => (float[2,3] q) { q = Neg (x) }>""",
        opset=9,
    )
    body = proto.graph.node[0].attribute[0].g
    body.node[0].metadata_props.add(key="note", value="warm")
    nodes: list[Node] = list(read_model(proto).node("choice").bodies()[0].nodes)
    assert [node.name for node in nodes] == ["soft/Shape", "soft/Flatten", "soft", "soft/Reshape"]
    assert {node.metadata["note"] for node in nodes} == {"warm"}


def test_the_origins_that_a_file_says_are_read() -> None:
    proto = parse("[fused] y = Relu (x)")
    proto.graph.node[0].metadata_props.add(key="aioinfer.fused_from", value='["conv", "act"]')
    model = read_model(proto)
    assert origins(model) == {"fused": ("conv", "act")}
    assert model.node("fused").metadata == {}


def test_damaged_origins_are_refused() -> None:
    proto = parse("[fused] y = Relu (x)")
    proto.graph.node[0].metadata_props.add(key="aioinfer.fused_from", value="[1")
    with pytest.raises(ModelError, match="'fused' has metadata "):
        read_model(proto)
