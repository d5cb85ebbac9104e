import io
import random
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import Model, check_graph
from aioinfer.runtime.onnx_reader import onnx_models, read_model

TEXT = """
<ir_version: 8, opset_import: ["" : 13], producer_name: "pen", producer_version: "2">
small (float[N, 3] x) => (float[N, 2] y) {
  product = MatMul (x, w)
  y = Relu (product)
}
"""


def small_proto() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(TEXT)
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    proto.metadata_props.add(key="author", value="me")
    return proto


def assert_is_small(model: Model) -> None:
    assert [node.op_type for node in model.graph.nodes] == ["MatMul", "Relu"]
    assert str(model.inputs[0].type) == "float32[N,3]"
    assert str(model.outputs[0].type) == "float32[N,2]"


def test_a_path_as_text_or_as_an_object_is_read(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(small_proto().SerializeToString())
    assert_is_small(read_model(path))
    assert_is_small(read_model(str(path)))
    assert read_model(path).path == path


def test_bytes_and_a_binary_file_are_read() -> None:
    content = small_proto().SerializeToString()
    assert_is_small(read_model(content))
    assert_is_small(read_model(io.BytesIO(content)))
    assert read_model(content).path is None


def test_a_proto_is_read_and_not_changed() -> None:
    proto = small_proto()
    before = proto.SerializeToString(deterministic=True)
    assert_is_small(read_model(proto))
    assert proto.SerializeToString(deterministic=True) == before


def test_an_ordinary_proto_needs_nothing_more_of_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        onnx_models, "read_any_model", lambda *_, **__: pytest.fail("onnx is asked")
    )
    assert_is_small(read_model(small_proto()))


def test_a_contradiction_in_a_proto_names_it() -> None:
    proto = small_proto()
    del proto.graph.input[0].type.tensor_type.shape.dim[:]
    proto.graph.node.add(op_type="Transpose", input=["x"], output=["t"])
    proto.graph.node[-1].attribute.append(onnx.helper.make_attribute("perm", [0, 1, 2]))
    with pytest.raises(ModelError, match=r"^a model given as a ModelProto: "):
        read_model(proto)


def test_what_the_file_says_about_itself_is_kept() -> None:
    model = read_model(small_proto())
    assert model.metadata == {"author": "me"}
    assert model.producer == "pen 2"
    assert model.name == "small"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"This is not a model.\n", "is a text file"),
        (b"\x00" * 64, "not an ONNX"),
        (b"\x08\x07", "has no graph"),
    ],
)
def test_content_that_is_no_model_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read_model(content)


def test_a_missing_path_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere\.onnx.*does not exist"):
        read_model(tmp_path / "nowhere.onnx")


def test_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is a directory; give the \.onnx file"):
        read_model(tmp_path)


def test_a_text_file_and_a_foreign_object_are_refused() -> None:
    with pytest.raises(ModelError, match="binary mode"):
        read_model(io.StringIO("text"))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="int; give a path"):
        read_model(7)  # type: ignore[arg-type]


def test_the_cause_of_a_refusal_is_chained() -> None:
    with pytest.raises(ModelError) as caught:
        read_model(b"This is not a model.\n")
    assert caught.value.__cause__ is not None


def test_a_file_cut_anywhere_is_refused_or_a_valid_model() -> None:
    content = small_proto().SerializeToString()
    for length in range(len(content)):
        assert_refused_or_valid(content[:length])


def test_a_file_with_flipped_bits_is_refused_or_a_valid_model() -> None:
    content = small_proto().SerializeToString()
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << random.Random(position).randrange(8)
        assert_refused_or_valid(bytes(flipped))


def assert_refused_or_valid(content: bytes) -> None:
    try:
        model = read_model(content)
    except ModelError:
        return
    check_graph(model.graph)


@pytest.mark.parametrize("path", ["a\0b.onnx", "a\ud800.onnx"])
def test_a_path_that_no_file_can_have_is_refused(path: str) -> None:
    with pytest.raises(ModelError, match="no file has such a path"):
        read_model(path)
