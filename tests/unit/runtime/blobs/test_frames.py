"""Frames: written and read back; every damage of bytes is found and named."""

from __future__ import annotations

import errno
import io
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioinfer.errors import BlobError
from aioinfer.runtime.blobs.checksums import checksum
from aioinfer.runtime.blobs.layout import (
    ALIGN_BYTES,
    HEADER_BYTES,
    VERSION,
    Frame,
    Header,
    directory_text,
    header_bytes,
)
from aioinfer.runtime.blobs.reader import Blob
from aioinfer.runtime.blobs.writer import BlobWriter, write_file
from aioinfer.runtime.network.export import export_to
from unit.runtime.blobs.made_blobs import blob_of

LARGE = np.arange(100_000, dtype=np.float32)


BLOB = blob_of({"a": b"payload", "none": b"", "b": bytes(range(256))})


def test_frames_come_back_by_name_at_aligned_places() -> None:
    blob = Blob.open(BLOB)
    assert blob.memory("a").tobytes() == b"payload"
    assert blob.memory("none").tobytes() == b""
    assert blob.memory("b").tobytes() == bytes(range(256))
    assert blob.memory("b").ctypes.data % ALIGN_BYTES == 0
    assert not blob.memory("b").flags.writeable
    assert "a" in blob
    assert "c" not in blob
    blob.check_frames()


def test_frames_under_a_name_are_apart() -> None:
    writer = BlobWriter()
    writer.add_json("x", [1])
    writer.under("part0").add_json("x", [2])
    writer.under("part0").under("part1").add_json("x", {"three": 3})
    blob = Blob.open(b"".join(writer.chunks()))
    assert blob.json("x") == [1]
    assert blob.under("part0").json("x") == [2]
    assert blob.under("part0").under("part1").json("x") == {"three": 3}
    assert "x" not in blob.under("part1")
    with pytest.raises(BlobError, match="two frames called 'x'"):
        writer.add_json("x", [])


def test_a_blob_may_be_a_path_bytes_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "net.blob"
    path.write_bytes(BLOB)
    sources: list[Any] = [path, str(path), BLOB, bytearray(BLOB), memoryview(BLOB)]
    for is_mapped in (True, False):
        for source in [*sources, io.BytesIO(BLOB)]:
            blob = Blob.open(source, is_mapped=is_mapped)
            assert blob.memory("a").tobytes() == b"payload"
            blob.check_frames()


class Broken:
    def read(self) -> bytes:
        raise RuntimeError("the disk is gone")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.blob", "cannot read the blob 'missing.blob'"),
        ("zero\0byte", "cannot read the blob"),
        (Broken(), "the disk is gone"),
        (io.StringIO("text"), "open the file in binary mode"),
        (b"", "no network exported by aioinfer"),
        (b"onnx" * 50, "no network exported by aioinfer"),
        (BLOB[:10], "cut off in its header"),
        (BLOB[:HEADER_BYTES], "cut off: 64 of"),
        (BLOB[:-1], f"cut off: {len(BLOB) - 1} of {len(BLOB)} bytes"),
        (BLOB + b"x", "1 bytes follow behind its end"),
    ],
)
def test_what_cannot_be_read_says_why(source: Any, message: str) -> None:
    with pytest.raises(BlobError, match=message):
        Blob.open(source)


def test_another_version_is_named() -> None:
    other = BLOB[:8] + struct.pack("<I", VERSION + 1) + BLOB[12:]
    with pytest.raises(BlobError, match=f"format version {VERSION + 1}") as caught:
        Blob.open(other)
    assert (caught.value.version, caught.value.wanted_version) == (VERSION + 1, VERSION)


def test_each_flipped_bit_of_what_is_checked_is_found() -> None:
    padding = {*range(71, 128)}
    for place in range(len(BLOB)):
        if place in padding:
            continue
        damaged = bytearray(BLOB)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(BlobError):
            Blob.open(bytes(damaged)).check_frames()


def crafted(rows: Any, **changes: int) -> bytes:
    """A blob of one zeroed block, with a directory as given and checksums that are right."""
    text = directory_text(rows) if isinstance(rows, list) else rows
    start = HEADER_BYTES + 128
    fields = {
        "file_bytes": start + len(text),
        "directory_offset": start,
        "directory_bytes": len(text),
        "directory_checksum": checksum(text),
    }
    return header_bytes(Header(**{**fields, **changes})) + bytes(128) + text


ZERO = checksum(bytes(128))


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (crafted([Frame("a", 128, 64, 0)]), "begins at byte 128, not at 64"),
        (crafted([Frame("a", 64, 100, 0), Frame("b", 128, 64, 0)]), "begins at byte 128, not at"),
        (crafted([Frame("a", 64, 1 << 62, 0)]), "ends behind the beginning of the directory"),
        (crafted([Frame("a", 64, -64, 0)]), "no number of bytes"),
        (crafted([Frame("a", 64, 3, 0)]), "belong to no frame"),
        (crafted([Frame("a", 64, 64, 0), Frame("a", 128, 64, 0)]), "two frames are called 'a'"),
        (crafted(b'{"frames":[[1,2,3,4]]}'), "a row that is no frame"),
        (crafted(b'{"frames":[["a",64.0,128,0]]}'), "no number of bytes"),
        (crafted(b'{"frames":[["a",true,128,0]]}'), "no number of bytes"),
        (crafted(b'{"frames":{}}'), "lists no frames"),
        (crafted(b"[" * 100_000), "is no JSON"),
        (crafted(b"\xff\xfe"), "is no JSON"),
        (crafted(b'{"frames":NaN}'), "is no JSON"),
        (crafted([], directory_offset=0), "does not end where the file does"),
        (crafted([], directory_bytes=1 << 40), "does not end where the file does"),
        (crafted([], directory_checksum=1), "directory does not match its checksum"),
        (crafted([Frame("a", 64, 128, ZERO + 1)]), "frame 'a' does not match its checksum"),
    ],
)
def test_a_directory_that_lies_is_refused(blob: bytes, message: str) -> None:
    with pytest.raises(BlobError, match=message):
        Blob.open(blob).check_frames()


def test_a_crafted_directory_that_tells_the_truth_is_read() -> None:
    Blob.open(crafted([Frame("a", 64, 128, ZERO)])).check_frames()


@pytest.mark.parametrize("name", ["missing", "a/b"])
def test_a_frame_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(BlobError, match=f"no frame '{name}'"):
        Blob.open(BLOB).memory(name)


def test_a_frame_of_json_is_checked_when_it_is_read() -> None:
    writer = BlobWriter()
    writer.add_json("x", {"y": 1})
    content = b"".join(writer.chunks()).replace(b'"y":1', b'"y":2')
    with pytest.raises(BlobError, match="frame 'x' does not match its checksum"):
        Blob.open(content).json("x")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "net.blob"
    path.write_bytes(b"before")

    def fails() -> Any:
        yield b"half"
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        write_file(path, fails())
    assert path.read_bytes() == b"before"
    assert [found.name for found in tmp_path.iterdir()] == ["net.blob"]
    with pytest.raises(BlobError, match="cannot write the blob"):
        write_file(tmp_path / "no" / "net.blob", iter([b"x"]))


def test_a_full_disk_is_an_error_of_ours_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BlobError, match="No space left"):
        write_file(tmp_path / "net.blob", iter([BLOB]))
    assert not list(tmp_path.iterdir())


def exported(path: Path) -> None:
    export_to(path, lambda blob: blob.add_bytes("large", LARGE))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(path.read_bytes)
        exported(path)
        assert Blob.open(read.result(30)).memory("large").nbytes == LARGE.nbytes
    assert path.is_fifo()


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, place = tmp_path / "link.blob", tmp_path / "there" / "net.blob"
    link.symlink_to(place)
    for _ in range(2):
        exported(link)
        assert link.is_symlink()
        assert "large" in Blob.open(place)


@pytest.mark.skipif(os.name != "posix", reason="files have no such modes here")
def test_others_may_read_an_export_where_they_may_read_other_files(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    exported(tmp_path / "net.blob")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
    write_file(tmp_path / "own", iter([b"x"]))
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600


def test_a_name_may_be_as_long_as_the_system_takes(tmp_path: Path) -> None:
    path = tmp_path / f"{'n' * 250}.blob"
    exported(path)
    assert "large" in Blob.open(path)


@pytest.mark.parametrize("path", ["nul\0nul", "."], ids=["NUL", "folder"])
def test_a_path_that_cannot_be_a_file_is_named(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BlobError, match="cannot write the blob"):
        exported(Path(path))


def mapped(tmp_path: Path, change: Callable[[Path], None]) -> Blob:
    writer = BlobWriter()
    writer.add_bytes("large", LARGE)
    path = tmp_path / "net.blob"
    write_file(path, writer.chunks())
    blob = Blob.open(path)
    change(path)
    return blob


def test_a_file_that_is_replaced_lives_on_for_those_who_have_it(tmp_path: Path) -> None:
    blob = mapped(tmp_path, lambda path: write_file(path, iter([b"another"])))
    blob.check_frames()
    assert np.array_equal(blob.memory("large").view(np.float32), LARGE)


def truncate(path: Path) -> None:
    os.truncate(path, 100)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"x" * 200)


@pytest.mark.parametrize("change", [truncate, overwrite])
def test_a_file_that_is_written_to_is_refused(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    blob = mapped(tmp_path, change)
    with pytest.raises(BlobError, match="written to while it is in use"):
        blob.check_frames()
