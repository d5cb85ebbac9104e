import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aioinfer.cli.image_files import read_images
from aioinfer.errors import NotSupportedError, TensorError

UINT8 = np.dtype(np.uint8)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Three pictures of 4 x 6 pixels, each of one colour."""
    paths = []
    for number, colour in enumerate([(10, 20, 30), (40, 50, 60), (70, 80, 90)]):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (6, 4), colour).save(path)
        paths.append(path)
    return paths


def test_planes_or_pixels_follow_the_shape(pictures: list[Path]) -> None:
    planar = read_images(pictures[:1], UINT8, "x", (1, 3, 4, 6))[0]
    assert planar.shape == (1, 3, 4, 6)
    assert planar[0, :, 2, 5].tolist() == [10, 20, 30]
    packed = read_images(pictures[:1], UINT8, "x", (1, 4, 6, 3))[0]
    assert packed.shape == (1, 4, 6, 3)
    assert packed[0, 2, 5].tolist() == [10, 20, 30]


def test_pictures_are_resized_and_grey_if_the_input_has_one_colour(pictures: list[Path]) -> None:
    grey = read_images(pictures[:1], np.dtype(np.float32), "x", (1, 1, 8, 8))[0]
    assert grey.shape == (1, 1, 8, 8)
    assert grey.dtype == np.float32
    assert 10 < grey[0, 0, 0, 0] < 30


def test_a_batch_takes_pictures_that_follow_each_other(pictures: list[Path]) -> None:
    arrays = read_images(pictures, UINT8, "x", (2, 3, 4, 6))
    assert [array[:, 0, 0, 0].tolist() for array in arrays] == [[10, 40], [70, 10]]


def test_an_empty_batch_takes_no_picture(pictures: list[Path]) -> None:
    assert [array.shape for array in read_images(pictures, UINT8, "x", (0, 3, 4, 6))] == [
        (0, 3, 4, 6)
    ]


@pytest.mark.parametrize("shape", [(1, 3, 4), (1, 2, 4, 6), (3,), ()])
def test_an_input_that_is_no_picture_is_refused(pictures: list[Path], shape: tuple[int]) -> None:
    with pytest.raises(TensorError, match=r"'0.png' is an image, and input 'x' is \["):
        read_images(pictures, UINT8, "x", shape)


def test_a_damaged_picture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG and no more")
    with pytest.raises(TensorError, match=r"a\.png' as an image"):
        read_images([path], UINT8, "x", (1, 3, 4, 6))


def test_without_pillow_the_error_says_what_to_install(
    pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(NotSupportedError, match="pip install Pillow"):
        read_images(pictures, UINT8, "x", (1, 3, 4, 6))
