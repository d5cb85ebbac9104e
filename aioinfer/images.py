"""Pictures from files' bytes, on the host; wants the extra aioinfer[image].

Both libraries decode and resize without the GIL, so that threads do it side by side.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from .errors import PropertyError, TensorError

try:
    import simplejpeg
    from PIL import Image
except ImportError as error:
    raise ImportError(
        "aioinfer.images wants Pillow and simplejpeg; pip install 'aioinfer[image]'"
    ) from error

__all__ = ["MAX_PIXELS", "Colors", "Fit", "ImageDecoder", "decode", "resize", "size_of"]

Picture = npt.NDArray[np.uint8]
Colors = Literal["RGB", "BGR", "GRAY"]
Fit = Literal["stretch", "cover", "contain"]

MAX_PIXELS = 64_000_000
"""What decoding refuses by default, before it takes memory: a megabyte may be a gigapixel."""

_ENOUGH = 2
"""Times the wanted size: a picture that large is as good to resize as the whole one."""


def size_of(data: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Read height and width from the beginning of a JPEG, PNG or WebP; nothing is decoded.

    Raises TensorError for what is none of these, or has no whole beginning.
    """
    view = _bytes_of(data)
    try:
        return _READERS[_format_of(view)](view)
    except (ValueError, struct.error, IndexError) as error:
        raise _damaged(view, error) from error


def decode(
    data: bytes | bytearray | memoryview,
    *,
    colors: Colors = "RGB",
    at_least: tuple[int, int] | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Picture:
    """Decode a JPEG, PNG or WebP: uint8 of shape (height, width, channels), which is the caller's.

    ``at_least``: height and width that are enough; a JPEG is then decoded at an eighth, a quarter
    or half of its size where that is as large. Transparency is dropped, of an animation the first
    picture is taken, and a turn that a camera notes beside the picture is left to the caller.
    Raises TensorError for a damaged or another file, and for more than ``max_pixels`` pixels,
    before memory is taken.
    """
    _check_choice("colors", colors, Colors)
    _check_length("max_pixels", max_pixels)
    _check_enough(at_least)
    view = _bytes_of(data)
    height, width = size_of(view)
    if height * width > max_pixels:
        raise TensorError(
            f"the picture has {width} x {height} pixels, and {max_pixels} are allowed; give a "
            f"larger max_pixels if you trust it",
            shape=(height, width),
        )
    if _format_of(view) == "JPEG":
        try:
            return _decoded_jpeg(view, colors, at_least)
        except ValueError:
            pass  # CMYK, and what else Pillow alone decodes; a damaged one fails again
    return _decoded_by_pillow(view, colors, (width, height))


def resize(picture: Picture, height: int, width: int, fit: Fit = "stretch") -> Picture:
    """Resize a picture of shape (height, width, channels), with antialiasing.

    ``cover`` keeps the aspect ratio and crops what sticks out around the middle; ``contain`` keeps
    it, too, and fills with black around the picture. The result may be the picture itself.
    """
    _check_choice("fit", fit, Fit)
    _check_length("height", height)
    _check_length("width", width)
    if not isinstance(picture, np.ndarray):
        raise TensorError(f"a picture is a numpy array, not {type(picture).__name__}")
    is_picture = picture.ndim == 3 and picture.shape[2] in (1, 3) and picture.size
    if picture.dtype != np.uint8 or not is_picture:
        raise TensorError(
            f"a picture is uint8 of shape (height, width, 1 or 3), not {picture.dtype} of "
            f"{picture.shape}",
            shape=picture.shape,
        )
    high, wide = picture.shape[:2]
    if (high, wide) == (height, width):
        return picture
    inner, box = (height, width), (0.0, 0.0, float(wide), float(high))
    if fit == "cover":
        scale = max(height / high, width / wide)
        left, top = (wide - width / scale) / 2, (high - height / scale) / 2
        left, top = max(left, 0.0), max(top, 0.0)
        box = (left, top, wide - left, high - top)
    elif fit == "contain":
        scale = min(height / high, width / wide)
        inner = (max(1, round(high * scale)), max(1, round(wide * scale)))
    made = np.asarray(
        Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture).resize(
            inner[::-1], Image.Resampling.BILINEAR, box, reducing_gap=2.0
        )
    ).reshape(*inner, picture.shape[2])
    if inner == (height, width):
        return made
    framed = np.zeros((height, width, picture.shape[2]), np.uint8)
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    framed[top : top + inner[0], left : left + inner[1]] = made
    return framed


@dataclass(frozen=True)
class ImageDecoder:
    """A function from a file's bytes to a network's input: uint8 of shape (1, height, width, C).

    It is made to be a network's ``preprocess``, whose threads run several at once; the network
    takes bytes in this layout after a ``PrePostProcessor`` has said so.

    ```python
    from aioinfer.images import ImageDecoder

    with aioinfer.Core() as core:
        ppp = aioinfer.PrePostProcessor(core.read_model("model.onnx"))
        ppp.input().tensor().set_element_type("u8").set_layout("NHWC")
        ppp.input().model().set_layout("NCHW")
        decoder = ImageDecoder(8, 8, colors="GRAY", fit="cover")
        network = core.load_network(ppp.build(), "REFERENCE", preprocess={"image": decoder})
        print(network.inputs)
    ```
    """

    height: int
    width: int
    colors: Colors = "RGB"
    fit: Fit = "stretch"
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        for name in ("height", "width", "max_pixels"):
            _check_length(name, getattr(self, name))
        _check_choice("colors", self.colors, Colors)
        _check_choice("fit", self.fit, Fit)

    def __call__(self, data: bytes | bytearray | memoryview) -> Picture:
        """Decode and resize; raises TensorError as ``decode`` does."""
        enough = (self.height * _ENOUGH, self.width * _ENOUGH)
        picture = decode(data, colors=self.colors, at_least=enough, max_pixels=self.max_pixels)
        return resize(picture, self.height, self.width, self.fit)[np.newaxis]


def _decoded_jpeg(view: memoryview, colors: Colors, at_least: tuple[int, int] | None) -> Picture:
    height, width = at_least or (0, 0)
    picture: Picture = simplejpeg.decode_jpeg(
        view, colors, min_height=height, min_width=width, min_factor=1
    )
    return picture


def _decoded_by_pillow(view: memoryview, colors: Colors, size: tuple[int, int]) -> Picture:
    mode = "L" if colors == "GRAY" else "RGB"
    try:
        with Image.open(io.BytesIO(view), formats=tuple(_READERS)) as image:
            if image.size != size:
                raise ValueError(f"it is {size} in its beginning, and {image.size} behind it")
            if image.mode.startswith("I;16"):  # of which Pillow would keep 255 at most
                high = np.asarray(image) >> 8
                converted = Image.fromarray(high.astype(np.uint8)).convert(mode)
            elif image.mode == mode:  # which convert would copy
                image.load()
                converted = image
            else:
                converted = image.convert(mode)
            made = np.array(converted).reshape(converted.height, converted.width, -1)
    except Image.DecompressionBombError as error:
        raise TensorError(f"{error}; PIL.Image.MAX_IMAGE_PIXELS is Pillow's own limit") from error
    except (OSError, ValueError, SyntaxError, struct.error, EOFError, Warning) as error:
        raise _damaged(view, error) from error
    return np.ascontiguousarray(made[:, :, ::-1]) if colors == "BGR" else made


def _bytes_of(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        return memoryview(data).cast("B")
    except TypeError as error:
        raise TensorError(
            f"a picture is given as the bytes of its file, not as {type(data).__name__}"
        ) from error


def _format_of(view: memoryview) -> str:
    start = bytes(view[:12])
    if start[:3] == b"\xff\xd8\xff":
        return "JPEG"
    if start[:8] == b"\x89PNG\r\n\x1a\n":
        return "PNG"
    if start[:4] == b"RIFF" and start[8:] == b"WEBP":
        return "WEBP"
    raise TensorError(f"the picture is no JPEG, PNG or WebP: it begins with {start!r}")


def _jpeg_size(view: memoryview) -> tuple[int, int]:
    height, width = simplejpeg.decode_jpeg_header(view)[:2]
    return int(height), int(width)


def _png_size(view: memoryview) -> tuple[int, int]:
    width, height = struct.unpack_from(">4xII", view, 12)
    return height, width


def _webp_size(view: memoryview) -> tuple[int, int]:
    kind = bytes(view[12:16])
    if kind == b"VP8X":
        width, height = (int.from_bytes(view[at : at + 3], "little") + 1 for at in (24, 27))
        return height, width
    if kind == b"VP8L":
        bits = int.from_bytes(view[21:25], "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", view, 26)
        return height & 0x3FFF, width & 0x3FFF
    raise ValueError(f"chunk {kind!r} begins no WebP")


_READERS = {"JPEG": _jpeg_size, "PNG": _png_size, "WEBP": _webp_size}


def _damaged(view: memoryview, error: Exception) -> TensorError:
    return TensorError(f"the {_format_of(view)} of {len(view)} bytes is damaged: {error}")


def _check_choice(name: str, given: object, choices: object) -> None:
    known = get_args(choices)
    if given not in known:
        raise PropertyError(f"{name} is one of {list(known)}, not {given!r}", name, value=given)


def _check_enough(given: object) -> None:
    if given is None:
        return
    if not isinstance(given, tuple) or len(given) != 2:
        raise PropertyError(f"at_least is (height, width), not {given!r}", "at_least", value=given)
    for length in given:
        _check_length("at_least", length)


def _check_length(name: str, given: object) -> None:
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 1:
        raise PropertyError(f"{name} is an integer of at least 1, not {given!r}", name, value=given)
