"""What is copied of a file, and what is left out."""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer.runtime.onnx_reader.wire.file_structure import LARGE_BYTES, copy_structure
from aioinfer.runtime.onnx_reader.wire.limits import LimitError

ONES = np.ones(5 * LARGE_BYTES, np.uint8)


def tensors() -> dict[str, onnx.TensorProto]:
    plain = numpy_helper.from_array(ONES, "plain")
    small = numpy_helper.from_array(ONES[: LARGE_BYTES // 2], "small")
    numbers = helper.make_tensor("numbers", TensorProto.INT64, [30000], [1] * 30000)
    both = numpy_helper.from_array(ONES, "both")
    both.int64_data.append(1)
    text = numpy_helper.from_array(ONES, "text")
    text.data_type = TensorProto.STRING
    return {item.name: item for item in (plain, small, numbers, both, text)}


def save(folder: Path, *names: str) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"], f"node {i}") for i in range(3000)],
        "g",
        [],
        [],
        [tensors()[name] for name in names],
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph), path)
    return path


def structure(path: Path) -> bytes:
    with FileIO(path) as file, copy_structure(file, path.stat().st_size) as copy:
        return copy[:]


@pytest.mark.parametrize("name", ["small", "numbers", "both", "text"])
def test_all_is_copied_but_large_plain_data(name: str, tmp_path: Path) -> None:
    path = save(tmp_path, name, "small")
    assert structure(path) == path.read_bytes()


def test_large_plain_data_is_left_out(tmp_path: Path) -> None:
    path = save(tmp_path, "plain", "numbers", "plain", "small", "plain")
    content, copy = path.read_bytes(), structure(path)
    assert content.count(ONES.tobytes()) == 3
    parts = content.split(ONES.tobytes())
    place = 0
    for part in parts:
        assert copy[place : place + len(part)] == part
        place += len(part) + ONES.size
    assert copy.count(1) < content.count(1) - 2 * ONES.size


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_is_copied_as_it_is_or_with_less(seed: int, tmp_path: Path) -> None:
    path = save(tmp_path, "plain", "small", "both")
    chance = np.random.default_rng(seed)
    content = bytearray(path.read_bytes())
    for place in chance.integers(0, len(content), 30):
        content[place] = chance.integers(0, 256)
    path.write_bytes(content[: chance.integers(1, len(content))])
    try:
        copy, wanted = structure(path), path.read_bytes()
    except LimitError:
        return
    assert len(copy) == len(wanted)
    differing = np.frombuffer(copy, np.uint8) != np.frombuffer(wanted, np.uint8)
    assert not np.frombuffer(copy, np.uint8)[differing].any()


@pytest.mark.parametrize("size", [1, 1000, 150_000, 250_000])
def test_a_file_that_is_shorter_than_it_was_is_an_error(size: int, tmp_path: Path) -> None:
    path = save(tmp_path, "plain", "both", "plain")
    whole = path.stat().st_size
    assert whole > 250_000
    with FileIO(path) as file:
        os.truncate(path, size)
        with pytest.raises(OSError, match="has become shorter"):
            copy_structure(file, whole)
