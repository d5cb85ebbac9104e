"""Pictures from bytes: every format, bounds before memory is taken, damaged files, no GIL."""

import io
import struct
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

import aioinfer
from aioinfer import images
from aioinfer.errors import PropertyError, TensorError
from aioinfer.images import ImageDecoder, decode, resize, size_of
from onnx_text import parse


def smooth(height: int = 48, width: int = 64) -> np.ndarray:
    small = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    return np.array(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def encoded(array: np.ndarray, format: str, mode: str = "", **options: Any) -> bytes:
    image = Image.fromarray(array)
    file = io.BytesIO()
    (image.convert(mode) if mode else image).save(file, format, **options)
    return file.getvalue()


FILES = {
    "jpeg": encoded(smooth(), "JPEG", quality=97, subsampling=0),
    "progressive": encoded(smooth(), "JPEG", quality=97, subsampling=0, progressive=True),
    "cmyk": encoded(smooth(), "JPEG", "CMYK", quality=97),
    "png": encoded(smooth(), "PNG"),
    "rgba": encoded(smooth(), "PNG", "RGBA"),
    "webp": encoded(smooth(), "WEBP", quality=95),
    "lossless": encoded(smooth(), "WEBP", lossless=True),
    "extended": encoded(np.insert(smooth(), 3, 200, axis=2), "WEBP", quality=95, exact=True),
}
ODD = {
    "palette": encoded(smooth(), "PNG", "P"),
    "grey": encoded(smooth(), "JPEG", "L"),
    "bits": encoded(smooth(), "PNG", "1"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_picture_is_decoded_in_each_order_of_colours(name: str) -> None:
    wanted = smooth().astype(int)
    picture = decode(FILES[name])
    assert picture.dtype == np.uint8
    assert picture.flags.writeable
    assert np.abs(picture - wanted).max() <= 12
    assert np.array_equal(decode(FILES[name], colors="BGR")[:, :, ::-1], picture)
    gray = decode(FILES[name], colors="GRAY")
    assert gray.shape == (48, 64, 1)
    assert np.abs(gray[:, :, 0] - wanted @ [0.299, 0.587, 0.114]).max() <= 8


@pytest.mark.parametrize("name", ODD)
def test_other_kinds_of_pixels_become_colours(name: str) -> None:
    assert decode(ODD[name]).shape == (48, 64, 3)
    assert decode(memoryview(ODD[name]), colors="GRAY").shape == (48, 64, 1)


def test_of_sixteen_bits_the_high_ones_are_kept() -> None:
    high = smooth()[:, :, 0]
    picture = decode(encoded(high.astype(np.uint16) << 8, "PNG"))
    assert np.array_equal(picture[:, :, 1], high)


@pytest.mark.parametrize("name", [*FILES, *ODD])
def test_the_size_stands_in_the_beginning(name: str) -> None:
    assert size_of(bytearray({**FILES, **ODD}[name])) == (48, 64)


def test_a_jpeg_is_decoded_as_small_as_is_enough() -> None:
    data = encoded(smooth(480, 640), "JPEG")
    assert decode(data, at_least=(60, 80)).shape == (60, 80, 3)
    assert decode(data, at_least=(61, 80)).shape[0] >= 61
    assert decode(data, at_least=(61, 80)).shape[0] < 480
    assert decode(data, at_least=(1000, 1000)).shape == (480, 640, 3)


def chunk(kind: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check


def png_bomb(side: int) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    rows = zlib.compress(bytes(1 << 20))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def jpeg_bomb() -> bytes:
    data = bytearray(FILES["jpeg"])
    place = data.index(b"\xff\xc0") + 5
    data[place : place + 4] = struct.pack(">HH", 65000, 65000)
    return bytes(data)


def webp_bomb() -> bytes:
    data = bytearray(FILES["extended"])
    data[24:30] = b"\xff\xff\x00" * 2
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (png_bomb(50_000), (50_000, 50_000)),
        (jpeg_bomb(), (65_000, 65_000)),
        (webp_bomb(), (65_536, 65_536)),
    ],
    ids=["png", "jpeg", "webp"],
)
def test_too_many_pixels_are_refused_before_memory_is_taken(
    data: bytes, size: tuple[int, int]
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TensorError, match=r"64000000 are allowed; give a larger max") as caught:
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.shape == size


def test_the_bound_is_the_callers() -> None:
    with pytest.raises(TensorError, match="64 x 48 pixels, and 3071 are allowed"):
        decode(FILES["png"], max_pixels=3071)
    assert decode(FILES["png"], max_pixels=3072).shape == (48, 64, 3)
    with pytest.raises(TensorError, match="pixels"):
        ImageDecoder(8, 8, max_pixels=100)(FILES["jpeg"])


def test_a_webp_that_lies_about_its_size_is_damaged() -> None:
    data = bytearray(FILES["extended"])
    data[24:30] = b"\x07\x00\x00" * 2
    with pytest.raises(TensorError, match=r"WEBP .* is damaged"):
        decode(data)


@pytest.mark.parametrize("name", ["jpeg", "progressive", "png", "webp", "lossless"])
@pytest.mark.parametrize("kept", [14, 21, 35, 200, 0.5])
def test_a_damaged_file_is_an_error_of_ours(name: str, kept: float) -> None:
    data = FILES[name]
    length = int(len(data) * kept) if kept < 1 else int(kept)
    with pytest.raises(TensorError, match=f"of {length} bytes is damaged"):
        decode(data[:length])


@pytest.mark.parametrize("seed", range(30))
def test_no_changed_byte_ends_in_another_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for data in FILES.values():
        changed = bytearray(data)
        for place in rng.integers(0, len(data), 4):
            changed[place] = rng.integers(0, 256)
        try:
            picture = decode(changed, max_pixels=1 << 20)
        except TensorError:
            continue
        assert picture.shape[2] == 3


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JPEG, PNG or WebP: it begins with b''"),
        (b"GIF89a" + bytes(100), "begins with b'GIF89a"),
        (b"<html>", "begins with b'<html>'"),
        ("picture.jpg", "the bytes of its file, not as str"),
        (np.zeros((2, 2, 3))[:, ::2], "not as ndarray"),
    ],
)
def test_what_is_no_picture_is_told_by_its_beginning(data: Any, why: str) -> None:
    with pytest.raises(TensorError, match=why):
        decode(data)


def test_resizing_equals_pillows() -> None:
    picture = smooth()
    wanted = Image.fromarray(picture).resize((31, 17), Image.Resampling.BILINEAR)
    assert np.abs(resize(picture, 17, 31).astype(int) - np.asarray(wanted)).max() <= 1
    assert resize(picture[:, :, :1], 17, 31).shape == (17, 31, 1)
    assert resize(picture, 48, 64) is picture


def test_cover_crops_around_the_middle() -> None:
    picture = np.zeros((20, 40, 3), np.uint8)
    picture[:, 10:30] = 200
    covered = resize(picture, 10, 10, "cover")
    assert (covered[:, 1:-1] == 200).all()
    assert resize(picture, 33, 7, "cover").shape == (33, 7, 3)


def test_contain_leaves_the_rest_black() -> None:
    contained = resize(np.full((20, 40, 3), 200, np.uint8), 10, 10, "contain")
    assert (contained[2:7] == 200).all()
    assert not contained[:2].any()
    assert not contained[8:].any()


@pytest.mark.parametrize("fit", ["stretch", "cover", "contain"])
@pytest.mark.parametrize("size", [(1, 1), (1, 300), (48, 63), (97, 3)])
def test_every_size_can_be_made(fit: images.Fit, size: tuple[int, int]) -> None:
    assert resize(smooth(), *size, fit).shape == (*size, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"height": 0, "width": 5},
        {"height": 5, "width": 2.5},
        {"height": 5, "width": True},
        {"height": 5, "width": 5, "max_pixels": "all"},
        {"height": 5, "width": 5, "colors": "CMYK"},
        {"height": 5, "width": 5, "fit": "fill"},
    ],
)
def test_bad_arguments_are_refused_when_a_decoder_is_made(arguments: dict[str, Any]) -> None:
    with pytest.raises(PropertyError, match=" is "):
        ImageDecoder(**arguments)


@pytest.mark.parametrize("fit", ["stretch", "cover", "contain"])
def test_a_picture_without_pixels_is_none(fit: Any) -> None:
    with pytest.raises(TensorError, match=r"not uint8 of \(0, 5, 3\)"):
        resize(np.zeros((0, 5, 3), np.uint8), 4, 4, fit)


def test_only_pictures_are_resized() -> None:
    with pytest.raises(TensorError, match="not list"):
        resize([[1]], 4, 4)  # type: ignore[arg-type]
    with pytest.raises(TensorError, match=r"not float64 of \(2, 2, 3\)"):
        resize(np.zeros((2, 2, 3)), 4, 4)  # type: ignore[arg-type]


def test_a_network_takes_the_bytes_of_a_file() -> None:
    model = parse("g (float[n, 3, 8, 8] x) => (float[n, 3, 8, 8] y) { y = Relu(x) }")
    ppp = aioinfer.PrePostProcessor(model)
    ppp.input().tensor().set_element_type("u8").set_layout("NHWC")
    ppp.input().model().set_layout("NCHW")
    decoder = ImageDecoder(8, 8)
    with aioinfer.Core() as core:
        network = core.load_network(ppp.build(), "REFERENCE", preprocess={"x": decoder})
        with network:
            outputs = network.create_infer_request().infer_sync({"x": FILES["jpeg"]})
    assert np.array_equal(outputs["y"], decoder(FILES["jpeg"]).transpose(0, 3, 1, 2))


def test_a_small_picture_of_a_large_jpeg_is_nearly_that_of_the_whole() -> None:
    data = encoded(smooth(480, 640), "JPEG", quality=95)
    whole = resize(decode(data), 48, 64)
    assert np.abs(ImageDecoder(48, 64)(data)[0].astype(int) - whole).max() <= 3


LARGE = smooth(480, 640)
LARGE_FILES = {format: encoded(LARGE, format) for format in ("JPEG", "PNG", "WEBP")}


@pytest.mark.parametrize(
    "work",
    [
        lambda: decode(LARGE_FILES["JPEG"]),
        lambda: decode(LARGE_FILES["PNG"]),
        lambda: decode(LARGE_FILES["WEBP"]),
        lambda: resize(LARGE, 333, 222),
    ],
    ids=["jpeg", "png", "webp", "resize"],
)
def test_another_thread_runs_meanwhile(work: Callable[[], Any]) -> None:
    """No thread is made to give the GIL up here, so the other runs only if the work does."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        for _ in range(200):
            started, ended = threading.Event(), threading.Event()

            def run(started: threading.Event = started, ended: threading.Event = ended) -> None:
                started.set()
                work()
                ended.set()

            thread = threading.Thread(target=run)
            thread.start()
            started.wait()
            is_meanwhile = not ended.is_set()
            thread.join()
            if is_meanwhile:
                return
    finally:
        sys.setswitchinterval(interval)
    pytest.fail("the GIL was held from the beginning to the end, 200 times")


@pytest.mark.parametrize(
    "arguments",
    [{"max_pixels": 0}, {"max_pixels": None}, {"at_least": 5}, {"at_least": (8, -1)}],
)
@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_bad_arguments_of_decoding_are_refused(format: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(PropertyError, match=next(iter(arguments))):
        decode(encoded(smooth(), format), **arguments)


@pytest.mark.filterwarnings("error")
def test_what_pillow_warns_of_is_a_damaged_picture() -> None:
    content = encoded(smooth(), "PNG")
    header = 8 + 12 + 13
    animated = chunk(b"acTL", struct.pack(">II", 0, 0))
    with pytest.raises(TensorError, match="damaged"):
        decode(content[:header] + animated + content[header:])
