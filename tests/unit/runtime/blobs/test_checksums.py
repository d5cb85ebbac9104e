"""Checksums are zlib's, with zlib-ng and without."""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioinfer.runtime.blobs import checksums

SIZES = (*range(70), 127, 128, 129, 191, 1000, 65_537, (1 << 20) + 3)


@pytest.fixture(params=["zlib_ng", "zlib"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name: str = request.param
    if name == "zlib":
        monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    checksums._crc32.cache_clear()
    assert (checksums._crc32() is zlib.crc32) == (name == "zlib")
    yield name
    checksums._crc32.cache_clear()


@pytest.mark.parametrize("size_bytes", SIZES)
def test_a_checksum_of_memory_is_zlibs(way: str, size_bytes: int) -> None:
    content = random.Random(size_bytes).randbytes(size_bytes)
    assert checksums.checksum(content) == zlib.crc32(content)
    before = zlib.crc32(b"before")
    assert checksums.checksum(memoryview(content), before) == zlib.crc32(content, before)


def test_a_checksum_of_a_part_of_a_file_is_zlibs(way: str, tmp_path: Path) -> None:
    content = random.Random(0).randbytes((3 << 20) + 5)
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        for start, size in ((0, 0), (0, 1), (7, 300_000), (64, (3 << 20) - 64), (0, len(content))):
            found = checksums.file_checksum(file.fileno(), start, size)
            assert found == zlib.crc32(content[start : start + size])


def test_a_file_that_ends_before_that_has_none(way: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    with path.open("rb") as file:
        assert checksums.file_checksum(file.fileno(), 500, 501) is None
        assert checksums.file_checksum(file.fileno(), 2000, 1) is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        checksums.file_checksum(-1, 0, 1)
