"""Constants of one element each: short in a file, and bounded in memory."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.errors import BlobError
from aioinfer.runtime.blobs.reader import Blob
from aioinfer.runtime.blobs.tensors_record import MOST_FILLED_BYTES, TensorReader, TensorWriter
from aioinfer.runtime.blobs.writer import BlobWriter


def filled(count: int) -> np.ndarray:
    return np.broadcast_to(np.float32(3), (count,))


def written(arrays: list[np.ndarray], *, is_shown: bool = False) -> Blob:
    writer = BlobWriter()
    tensors = TensorWriter(writer, is_shown=is_shown)
    for array in arrays:
        tensors.add(array)
    tensors.finish()
    return Blob.open(b"".join(writer.chunks()))


def test_constants_of_one_element_take_a_row_up_to_a_bound() -> None:
    half = MOST_FILLED_BYTES // 8
    arrays = [filled(half), filled(half), filled(half)]
    blob = written(arrays)
    rows = blob.json("tensors")
    assert ["filled" in row[2] for row in rows] == [True, True, False]
    reader = TensorReader(blob)
    for number, array in enumerate(arrays):
        assert np.array_equal(reader.get(number), array)


def test_more_than_the_bound_is_refused() -> None:
    row = ["float32", [MOST_FILLED_BYTES // 4 - 8], {"filled": "AABAQA=="}]
    blob = BlobWriter()
    blob.add_json("tensors", [row, row])
    blob.add_bytes("small_tensors", b"")
    reader = TensorReader(Blob.open(b"".join(blob.chunks())))
    assert reader.get(0)[5] == 3
    with pytest.raises(BlobError, match="of one element"):
        reader.get(1)


def test_what_is_looked_at_alone_may_stand_for_any_size() -> None:
    blob = written([filled(MOST_FILLED_BYTES)], is_shown=True)
    with pytest.raises(BlobError, match="of one element"):
        TensorReader(blob).get(0)
    assert TensorReader(blob, is_shown=True).get(0).size == MOST_FILLED_BYTES
