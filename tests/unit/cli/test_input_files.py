from pathlib import Path

import numpy as np
import pytest

from aioinfer.cli.arguments import OptionError
from aioinfer.cli.input_files import GivenFiles, find_files, load_arrays, load_shaped
from aioinfer.errors import TensorError
from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.tensors.tensor import Port

IMAGE = Port("image", TensorType(DType.FLOAT32, ("batch", 2)))
MASK = Port("mask:0", TensorType(DType.INT64, ("batch",)))
WORDS = Port("words", TensorType(DType.STRING, (None,)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(name: str, *shape: int, dtype: str = "float32") -> np.ndarray:
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    np.save(name, array)
    return array


def test_the_only_input_needs_no_name() -> None:
    saved = save("a.npy", 3, 2)
    files = find_files(["a.npy"], [IMAGE])
    assert files == GivenFiles({"image": (Path("a.npy"),)})
    np.testing.assert_array_equal(load_arrays(files, [IMAGE])["image"][0], saved)


def test_names_choose_inputs_even_with_a_colon_inside() -> None:
    save("a.npy", 3, 2)
    save("b.npy", 3, dtype="int64")
    files = find_files(["mask:0:b.npy", "image:a.npy"], [IMAGE, MASK])
    assert files.by_input == {"mask:0": (Path("b.npy"),), "image": (Path("a.npy"),)}


def test_several_files_keep_their_order() -> None:
    for name in ("c.npy", "a.npy", "b.npy"):
        save(name, 1, 2)
    files = find_files(["image:c.npy,a.npy", "b.npy"], [IMAGE])
    assert [path.name for path in files.by_input["image"]] == ["c.npy", "a.npy", "b.npy"]


def test_a_folder_gives_its_input_files_in_order_of_name(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    for name in ("b.npy", "a.bin", "c.PNG", "notes.txt"):
        (inner / name).touch()
    files = find_files(["image:inner"], [IMAGE])
    assert [path.name for path in files.by_input["image"]] == ["a.bin", "b.npy", "c.PNG"]


def test_a_file_name_may_hold_a_comma() -> None:
    save("a,b.npy", 1, 2)
    assert find_files(["a,b.npy"], [IMAGE]).by_input == {"image": (Path("a,b.npy"),)}


def test_a_bundle_names_its_inputs_and_may_hold_more() -> None:
    image, mask = np.ones((3, 2), np.float32), np.zeros(3, np.int64)
    np.savez("all.npz", **{"image": image, "mask:0": mask, "labels": mask})
    loaded = load_arrays(find_files(["all.npz"], [IMAGE, MASK]), [IMAGE, MASK])
    assert {name: [array.shape for array in arrays] for name, arrays in loaded.items()} == {
        "image": [(3, 2)],
        "mask:0": [(3,)],
    }


def test_a_bundle_of_one_array_is_for_the_only_input() -> None:
    np.savez("one.npz", whatever=np.ones((3, 2), np.float32))
    assert load_arrays(find_files(["one.npz"], [IMAGE]), [IMAGE])["image"][0].shape == (3, 2)


def test_a_bundle_given_to_an_input_is_searched_for_its_name() -> None:
    np.savez("two.npz", image=np.ones((1, 2), np.float32), other=np.ones(1))
    assert load_arrays(find_files(["image:two.npz"], [IMAGE]), [IMAGE])["image"][0].shape == (1, 2)
    np.savez("two.npz", this=np.ones(1), that=np.ones(1))
    with pytest.raises(OptionError, match="holds 2 arrays and none is called 'image'"):
        load_arrays(find_files(["image:two.npz"], [IMAGE]), [IMAGE])
    with pytest.raises(OptionError, match="holds that, this, and the model's inputs are image"):
        load_arrays(find_files(["two.npz"], [IMAGE]), [IMAGE])


def test_raw_bytes_take_the_shape_of_the_benchmark() -> None:
    array = np.arange(6, dtype=np.float32)
    array.tofile("a.bin")
    files = find_files(["a.bin"], [IMAGE])
    assert load_arrays(files, [IMAGE]) == {}
    (loaded,) = load_shaped(files, [IMAGE], {"image": (3, 2)})["image"]
    np.testing.assert_array_equal(loaded, array.reshape(3, 2))


def test_raw_bytes_of_another_size_are_refused() -> None:
    Path("a.bin").write_bytes(bytes(20))
    with pytest.raises(TensorError, match=r"'a.bin' has 20 bytes, .* \[3,2\] .* takes 24"):
        load_shaped(find_files(["a.bin"], [IMAGE]), [IMAGE], {"image": (3, 2)})


def test_raw_bytes_cannot_fill_strings() -> None:
    Path("a.bin").write_bytes(bytes(20))
    with pytest.raises(TensorError, match="cannot fill input words: string"):
        load_shaped(find_files(["a.bin"], [WORDS]), [WORDS], {"words": (1,)})


def test_strings_come_from_numpy_files() -> None:
    np.save("words.npy", np.array(["a", "bc"]))
    loaded = load_arrays(find_files(["words.npy"], [WORDS]), [WORDS])["words"][0]
    assert loaded.tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("nix.npy", "no file or folder 'nix.npy'"),
        ("image:nix.npy", "no file or folder 'nix.npy'"),
        ("a.npy,nix.npy", "no file or folder 'nix.npy'"),
        ("imag:a.npy", "no input 'imag'; did you mean 'image'"),
        ("zzz:a.npy", r"no input 'zzz'; it has image: float32\[batch,2\], mask:0"),
        ("a.npy", "the model has 2 inputs; say which with NAME:a.npy, where NAME is one of image"),
        ("image:a.txt", "cannot tell what 'a.txt' holds"),
        ("image:empty", "folder 'empty' has no file that ends in .npy"),
    ],
)
def test_a_bad_item_is_refused_with_its_text(item: str, message: str, folder: Path) -> None:
    save("a.npy", 1, 2)
    Path("a.txt").touch()
    (folder / "empty").mkdir()
    with pytest.raises(OptionError, match=message) as refused:
        find_files([item], [IMAGE, MASK])
    assert f"-i {item!r}" in str(refused.value)


def test_arrays_that_do_not_fit_are_refused_with_their_file() -> None:
    save("a.npy", 1, 2, dtype="float64")
    with pytest.raises(TensorError, match=r"file 'a\.npy': 'image' is float64, and float32"):
        load_arrays(find_files(["a.npy"], [IMAGE]), [IMAGE])
    save("b.npy", 1, 3)
    with pytest.raises(TensorError, match=r"file 'b.npy': 'image' has shape \[1,3\]"):
        load_arrays(find_files(["b.npy"], [IMAGE]), [IMAGE])


@pytest.mark.parametrize("content", [b"", b"no numpy file", b"\x93NUMPY\x01"])
def test_damaged_numpy_files_are_refused(content: bytes) -> None:
    Path("a.npy").write_bytes(content)
    with pytest.raises(TensorError, match=r"cannot read 'a\.npy' as a numpy file"):
        load_arrays(find_files(["a.npy"], [IMAGE]), [IMAGE])


def test_a_file_of_another_kind_is_said_to_be_one() -> None:
    Path("a.npz").write_text("hello")
    with pytest.raises(TensorError, match=r"begins with b'hello', as no \.npy and no \.npz does"):
        load_arrays(find_files(["a.npz"], [IMAGE]), [IMAGE])


def test_messages_name_the_option_that_was_given() -> None:
    with pytest.raises(OptionError, match=r"--data 'none\.npy': there is no file"):
        find_files(["none.npy"], [IMAGE], "--data")
    np.savez("other.npz", a=np.zeros(1), b=np.zeros(1))
    with pytest.raises(OptionError, match=r"--data 'other\.npz': it holds a, b"):
        load_arrays(find_files(["other.npz"], [IMAGE], "--data"), [IMAGE])


def test_pickled_arrays_are_refused() -> None:
    np.save("a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(TensorError, match=r"cannot read 'a\.npy' as a numpy file"):
        load_arrays(find_files(["a.npy"], [WORDS]), [WORDS])


def test_damaged_bundles_are_refused() -> None:
    Path("a.npz").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(TensorError, match=r"cannot read 'a\.npz' as a numpy file"):
        load_arrays(find_files(["a.npz"], [IMAGE]), [IMAGE])
