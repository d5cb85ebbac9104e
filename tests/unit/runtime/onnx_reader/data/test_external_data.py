import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.parser
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.graph.mapped_file import is_mapped
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.onnx_reader.wire.file_structure import LARGE_BYTES
from unit.runtime.onnx_native.same_models import same_arrays

WEIGHT = np.arange(1000, dtype=np.float32)


def save(
    folder: Path, shape: tuple[int, ...] = (1000,), data_type: int = 1, **entries: str
) -> Path:
    """Write a model whose only weight has the given external data."""
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 13]> g (float[N] x) => (y) { y = Relu (x) }'
    )
    weight = proto.graph.initializer.add(name="w", data_type=data_type, dims=shape)
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def read_weight(path: Path) -> np.ndarray:
    array = read_model(path).graph.initializers["w"].constant
    assert array is not None
    return array


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "w.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
    return tmp_path / "inside"


def test_external_data_is_read_and_is_read_only(folder: Path) -> None:
    weight = read_weight(save(folder, location="w.bin"))
    (folder / "w.bin").write_bytes(b"")
    assert same_arrays(weight, WEIGHT)
    assert not is_mapped(weight)
    assert weight.flags.aligned
    assert not weight.flags.writeable


@pytest.mark.parametrize("length", [LARGE_BYTES // 4, 1000])
def test_large_external_data_may_stay_in_its_file(folder: Path, length: int) -> None:
    wanted = np.arange(length, dtype=np.float32)
    (folder / "w.bin").write_bytes(wanted.tobytes())
    model = read_model(save(folder, (length,), location="w.bin"), is_mapped=True)
    weight = model.graph.initializers["w"].constant
    assert weight is not None
    assert same_arrays(weight, wanted)
    assert model.is_mapped == is_mapped(weight) == (length > 1000 and sys.platform == "linux")
    assert not weight.flags.writeable


def test_offset_and_length_name_a_part_of_the_file(folder: Path) -> None:
    path = save(folder, (400,), location="w.bin", offset="400", length="1600")
    assert same_arrays(read_weight(path), WEIGHT[100:500])


def test_an_offset_that_is_not_aligned_is_read(folder: Path) -> None:
    (folder / "w.bin").write_bytes(b"!" + WEIGHT.tobytes())
    assert same_arrays(read_weight(save(folder, location="w.bin", offset="1")), WEIGHT)


def test_small_packed_and_empty_external_tensors_are_read(folder: Path) -> None:
    assert same_arrays(read_weight(save(folder, (2,), location="w.bin")), WEIGHT[:2])
    packed = read_weight(save(folder, (7000,), data_type=22, location="w.bin"))
    assert (packed.shape, packed.dtype.name) == ((7000,), "int4")
    (folder / "empty.bin").write_bytes(b"")
    assert read_weight(save(folder, (0,), location="empty.bin")).shape == (0,)


def test_small_external_shapes_are_seen_by_the_inference(folder: Path) -> None:
    (folder / "shape.bin").write_bytes(np.array([2, 3], np.int64).tobytes())
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 13]> g (float[6] x) => (y) { y = Reshape (x, w) }'
    )
    shape = proto.graph.initializer.add(name="w", data_type=7, dims=[2])
    shape.data_location = onnx.TensorProto.EXTERNAL
    shape.external_data.add(key="location", value="shape.bin")
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    assert str(read_model(folder / "model.onnx").outputs[0].type) == "float32[2,3]"


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "a/../../secret.bin", "..\\secret.bin", "", "w.bin\0", "C:\\w.bin"],
)
def test_a_location_that_is_not_inside_the_folder_is_refused(folder: Path, location: str) -> None:
    with pytest.raises(ModelError, match=r"tensor 'w'.*not inside the model's folder"):
        read_model(save(folder, location=location))


def test_an_absolute_location_is_refused_even_inside_the_folder(folder: Path) -> None:
    with pytest.raises(ModelError, match="not inside the model's folder"):
        read_model(save(folder, location=str(folder / "w.bin")))


def test_a_link_that_leads_out_is_refused_and_one_that_stays_is_followed(folder: Path) -> None:
    (folder / "out.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "up").symlink_to(folder.parent)
    (folder / "in.bin").symlink_to(folder / "w.bin")
    for location in ("out.bin", "up/secret.bin"):
        with pytest.raises(ModelError, match="leads out of the model's folder"):
            read_model(save(folder, location=location))
    assert same_arrays(read_weight(save(folder, location="in.bin")), WEIGHT)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"length": "3996"}, "needs 4000 bytes, but its external data says length 3996"),
        ({"length": "8000"}, "says length 8000"),
        ({"offset": "4"}, "which has 4000 bytes"),
        ({"offset": "9" * 30}, "which has 4000 bytes"),
        ({"offset": "-4"}, "offset '-4', which is not a number"),
        ({"length": "many"}, "length 'many', which is not a number"),
    ],
)
def test_an_offset_or_length_that_lies_is_refused(
    folder: Path, entries: dict[str, str], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        read_model(save(folder, location="w.bin", **entries))


def test_a_data_file_that_is_missing_or_no_file_is_refused(folder: Path) -> None:
    (folder / "directory").mkdir()
    for location in ("gone.bin", "directory"):
        with pytest.raises(ModelError, match=f"{location!r}, which is not there or no file"):
            read_model(save(folder, location=location))


def test_strings_in_external_data_are_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match="holds strings"):
        read_model(save(folder, data_type=8, location="w.bin"))


def test_a_model_without_a_folder_is_refused_and_the_way_out_is_named(folder: Path) -> None:
    content = save(folder, location="w.bin").read_bytes()
    with pytest.raises(ModelError, match="give the path of the file"):
        read_model(content)
    with pytest.raises(ModelError, match=r"onnx\.load"):
        read_model(onnx.load_from_string(content))


def save_many(folder: Path, offsets: list[int]) -> Path:
    """Write a model of weights that each have 2000 bytes of the file, from these offsets on."""
    path = save(folder, (500,), location="w.bin", length="2000")
    proto = onnx.load(path, load_external_data=False)
    (first,) = proto.graph.initializer
    for index, offset in enumerate(offsets):
        weight = proto.graph.initializer.add()
        weight.CopyFrom(first)
        weight.name = f"w{index}"
        weight.external_data.add(key="offset", value=str(offset))
    path.write_bytes(proto.SerializeToString())
    return path


def test_tensors_of_one_place_share_what_is_read(folder: Path) -> None:
    constants = read_model(save_many(folder, [500] * 100)).graph.initializers
    first, last = constants["w0"].constant, constants["w99"].constant
    assert first is not None
    assert last is not None
    assert np.shares_memory(first, last)
    assert same_arrays(last, WEIGHT[125:625])


def test_overlapping_tensors_are_bounded_by_what_the_file_holds(folder: Path) -> None:
    read_model(save_many(folder, [4 * number for number in range(8)]))
    with pytest.raises(ModelError, match=r"18000 bytes of 'w\.bin', which has 4000"):
        read_model(save_many(folder, [4 * number for number in range(9)]))
