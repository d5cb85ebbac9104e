"""Inputs from files: .npy, .npz, raw .bin and images, alone, in lists and in folders.

An item of -i, or of quantize's --data, is ``[NAME:]PATH``. PATH is a file, a folder, or several of
them with commas between. Arrays keep the shape of their file; raw bytes and images take the shape
of the benchmark.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import TensorError, nearest
from ..runtime.graph import DType, TensorType, shape_text
from ..runtime.tensors.tensor import Port, check_value
from .arguments import OptionError
from .image_files import IMAGE_SUFFIXES, read_images

__all__ = ["GivenFiles", "find_files", "load_arrays", "load_shaped", "read_arrays"]

ARRAY_SUFFIXES = (".npy", ".npz")
RAW_SUFFIX = ".bin"
SUFFIXES = (*ARRAY_SUFFIXES, RAW_SUFFIX, *IMAGE_SUFFIXES)

_NPY = b"\x93NUMPY"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
"""How a .npz begins, with arrays and without."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GivenFiles:
    """The files of each input, in order; ``bundles`` are .npz files that name their inputs.

    ``option`` is the one that named them, for messages.
    """

    by_input: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    bundles: tuple[Path, ...] = ()
    option: str = "-i"


def find_files(items: Iterable[str], ports: Sequence[Port], option: str = "-i") -> GivenFiles:
    """Find the files that the items of an option name.

    Raises OptionError for an unknown input, a missing file, a folder without inputs, and a path
    without a name where the model has several inputs.
    """
    by_input: dict[str, list[Path]] = {}
    bundles: list[Path] = []
    for item in items:
        name, paths = _split(item, ports, option)
        for path in paths:
            if name is None and path.suffix.lower() == ".npz":
                bundles.append(path)
                continue
            if name is None:
                name = _only_input(item, ports, option)
            by_input.setdefault(name, []).append(path)
    found = {name: tuple(paths) for name, paths in by_input.items()}
    return GivenFiles(found, tuple(bundles), option)


def load_arrays(files: GivenFiles, ports: Sequence[Port]) -> dict[str, list[Array]]:
    """Read the files that say their own shape, .npy and .npz, checked against the ports.

    Raises TensorError for a file that cannot be read or does not fit its input.
    """
    by_name = {port.name: port for port in ports}
    return {
        name: [_fitting(array, by_name[name], path) for path, array in found]
        for name, found in read_arrays(files, ports).items()
    }


def read_arrays(files: GivenFiles, ports: Sequence[Port]) -> dict[str, list[tuple[Path, Array]]]:
    """Read the arrays of .npy and .npz files as they are, each with its file.

    Raises TensorError for a file that cannot be read, and OptionError for one of other names.
    """
    read: dict[str, list[tuple[Path, Array]]] = {}
    for path in files.bundles:
        for name, array in _read_bundle(path, ports, files.option).items():
            read.setdefault(name, []).append((path, array))
    for name, paths in files.by_input.items():
        for path in paths:
            if path.suffix.lower() in ARRAY_SUFFIXES:
                read.setdefault(name, []).append((path, _read_array(path, name, files.option)))
    return read


def load_shaped(
    files: GivenFiles, ports: Sequence[Port], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, list[Array]]:
    """Read raw files and images into the shapes of the benchmark.

    A batch is filled with as many images, which follow each other in rotation. Pixels are 0 to 255
    whatever the type.
    """
    by_name = {port.name: port for port in ports}
    loaded: dict[str, list[Array]] = {}
    for name, paths in files.by_input.items():
        port = by_name[name]
        raw = [path for path in paths if path.suffix.lower() == RAW_SUFFIX]
        images = [path for path in paths if path.suffix.lower() in IMAGE_SUFFIXES]
        shape = shapes.get(name, ())
        arrays = [_read_raw(path, _dtype(port, path), name, shape) for path in raw]
        if images:
            arrays += read_images(images, _dtype(port, images[0]), name, shape)
        if arrays:
            loaded[name] = arrays
    return loaded


def _split(item: str, ports: Sequence[Port], option: str) -> tuple[str | None, list[Path]]:
    names = [port.name for port in ports if item.startswith(f"{port.name}:")]
    name = max(names, key=len, default=None)
    text = item if name is None else item[len(name) + 1 :]
    if Path(text).exists():
        return name, _expand(Path(text), item, option)
    parts = text.split(",")
    missing = next((part for part in parts if not Path(part).exists()), None)
    if missing is None:
        return name, [path for part in parts for path in _expand(Path(part), item, option)]
    before, colon, after = missing.partition(":")
    if name is None and colon and Path(after).exists():
        known = [port.name for port in ports]
        raise OptionError(
            f"{option} {item!r}: the model has no input {before!r}"
            + (nearest(before, known) or f"; it has {', '.join(map(str, ports)) or 'none'}")
        )
    raise OptionError(f"{option} {item!r}: there is no file or folder {missing!r}")


def _expand(path: Path, item: str, option: str) -> list[Path]:
    if path.is_dir():
        found = sorted(inner for inner in path.iterdir() if inner.suffix.lower() in SUFFIXES)
        if not found:
            raise OptionError(
                f"{option} {item!r}: folder {str(path)!r} has no file that ends in "
                f"{', '.join(SUFFIXES)}"
            )
        return found
    if path.suffix.lower() not in SUFFIXES:
        raise OptionError(
            f"{option} {item!r}: cannot tell what {path.name!r} holds; it should end in one of "
            f"{', '.join(SUFFIXES)}"
        )
    return [path]


def _only_input(item: str, ports: Sequence[Port], option: str) -> str:
    if len(ports) != 1:
        raise OptionError(
            f"{option} {item!r}: the model has {len(ports)} inputs; say which with NAME:{item}, "
            f"where NAME is one of {', '.join(port.name for port in ports)}"
        )
    return ports[0].name


def _read_bundle(path: Path, ports: Sequence[Port], option: str) -> dict[str, Array]:
    arrays = _load(path, "")
    names = {port.name for port in ports}
    named = {name: array for name, array in arrays.items() if name in names}
    if not named and len(ports) == 1 and len(arrays) == 1:
        return {ports[0].name: next(iter(arrays.values()))}
    if not named:
        raise OptionError(
            f"{option} {str(path)!r}: it holds {', '.join(sorted(arrays)) or 'nothing'}, and the "
            f"model's inputs are {', '.join(map(str, ports)) or 'none'}"
        )
    return named


def _read_array(path: Path, name: str, option: str) -> Array:
    arrays = _load(path, name)
    if name in arrays:
        return arrays[name]
    if len(arrays) != 1:
        raise OptionError(
            f"{option} '{name}:{path}': it holds {len(arrays)} arrays and none is called {name!r}"
        )
    return next(iter(arrays.values()))


def _load(path: Path, name: str) -> dict[str, Array]:
    try:
        with path.open("rb") as file:
            begin = file.read(len(_NPY))
            if not begin.startswith((_NPY, *_ZIPS)):
                raise ValueError(f"it begins with {begin!r}, as no .npy and no .npz does")
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {name: loaded}
            with loaded:
                return {key: loaded[key] for key in loaded.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise TensorError(f"cannot read {str(path)!r} as a numpy file: {error}") from error


def _fitting(array: Array, port: Port, path: Path) -> Array:
    checked: Array = check_value(array, port, f"file {path.name!r}")
    return checked


def _dtype(port: Port, path: Path) -> np.dtype[Any]:
    if not isinstance(port.type, TensorType) or port.type.dtype is DType.STRING:
        raise TensorError(
            f"file {path.name!r} cannot fill input {port}; give a .npy file", tensor=port.name
        )
    return port.type.dtype.numpy


def _read_raw(path: Path, dtype: np.dtype[Any], name: str, shape: tuple[int, ...]) -> Array:
    wanted = math.prod(shape) * dtype.itemsize
    content = path.read_bytes()
    if len(content) != wanted:
        raise TensorError(
            f"file {path.name!r} has {len(content)} bytes, and input {name!r} with shape "
            f"{shape_text(shape)} of {dtype} takes {wanted}",
            tensor=name,
        )
    return np.frombuffer(content, dtype).reshape(shape)
