"""Regions of shared memory, and clients that lie about them or take them away."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from aioinfer.errors import PropertyError
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.protocol.refusal import RefusedError
from aioinfer.serving.regions import SharedRegions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine_a").write_bytes(bytes(range(64)))
    (tmp_path / "other").write_bytes(b"secret")
    return tmp_path


@pytest.fixture
def regions(folder: Path) -> SharedRegions:
    return SharedRegions(["/none_", "mine_"], Limits(region_count=3), folder=folder)


def test_what_is_registered_is_told_read_and_written(regions: SharedRegions, folder: Path) -> None:
    regions.register("r", "/mine_a", 8, 32)
    assert [tuple(each) for each in regions.states()] == [("r", "/mine_a", 8, 32)]
    place = regions.place("r", 4, 8, "f")
    assert bytes(place.read()) == bytes(range(12, 20))
    place.write(memoryview(b"abc"))
    assert (folder / "mine_a").read_bytes()[11:16] == b"\x0babc\x0f"
    regions.unregister("r")
    assert regions.states() == []
    assert bytes(place.read())[:3] == b"abc"  # of a request under way


def opened(folder: Path) -> list[str]:
    """Name the files of a folder that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(link))
    return [name for name in found if name.startswith(str(folder))]


@pytest.mark.parametrize("prefix", ["", "/", "a/b", "..", "../mine", "/dev/shm/", "a b", "a\0"])
def test_a_prefix_that_is_no_part_of_a_key_is_refused(prefix: str) -> None:
    with pytest.raises(PropertyError, match="no prefix"):
        SharedRegions(["a", prefix], Limits())


@pytest.mark.parametrize(
    "key",
    [
        *("other", "/other", "", "/", "mine_/../other", "/mine_a/../other", "mine_\0a"),
        *("../mine_a", f"mine_{'x' * 300}", "mine_none", "/etc/passwd", "mine_\ud800", "./mine_a"),
    ],
)
def test_keys_that_are_not_below_the_prefix_are_refused(regions: SharedRegions, key: str) -> None:
    with pytest.raises(RefusedError, match=r"^key: ") as refused:
        regions.register("r", key, 0, 1)
    assert "/tmp" not in str(refused.value)
    assert regions.states() == []


def _link(folder: Path) -> None:
    (folder / "mine_x").symlink_to(folder / "other")


def _hard_link(folder: Path) -> None:
    os.link(folder / "other", folder / "mine_x")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "mine_x")


def _socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # as names of sockets must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("mine_x")
    finally:
        os.chdir(here)


def _folder(folder: Path) -> None:
    (folder / "mine_x").mkdir()


@pytest.mark.parametrize("make", [_link, _hard_link, _pipe, _socket, _folder])
def test_what_is_no_memory_of_its_own_is_refused(
    regions: SharedRegions, folder: Path, make: Callable[[Path], None]
) -> None:
    make(folder)
    with pytest.raises(RefusedError, match=r"^key: "):
        regions.register("r", "mine_x", 0, 1)
    assert opened(folder) == []


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 65), (64, 1), (1, 64), (0, 0), (1 << 62, 1 << 62), (0, 1 << 63)]
)
def test_what_is_not_in_the_memory_is_not_registered(
    regions: SharedRegions, offset: int, size: int
) -> None:
    with pytest.raises(RefusedError, match=r"^byte_size: "):
        regions.register("r", "mine_a", offset, size)
    assert regions.states() == []


@pytest.mark.parametrize(("offset", "size"), [(0, 33), (32, 1), (1 << 62, 1 << 62)])
def test_places_beyond_the_region_are_refused_though_the_memory_is_there(
    regions: SharedRegions, offset: int, size: int
) -> None:
    regions.register("r", "mine_a", 8, 32)
    with pytest.raises(RefusedError, match=r"^field: bytes .* are not all in the region's 32"):
        regions.place("r", offset, size, "field")


def test_names_are_taken_once_and_have_a_bound(regions: SharedRegions) -> None:
    for name in ("", "x" * 257):
        with pytest.raises(RefusedError, match=r"^name: "):
            regions.register(name, "mine_a", 0, 1)
    regions.register("r", "mine_a", 0, 1)
    with pytest.raises(RefusedError, match="registered already"):
        regions.register("r", "mine_a", 0, 2)
    for name in "st":
        regions.register(name, "mine_a", 0, 1)
    with pytest.raises(RefusedError, match="as many as may be") as refused:
        regions.register("u", "mine_a", 0, 1)
    assert refused.value.status == 503
    with pytest.raises(RefusedError, match="no region 'u'"):
        regions.states("u")
    with pytest.raises(RefusedError, match="no region 'u'"):
        regions.place("u", 0, 1, "field")
    regions.unregister("u")  # as Triton: it is gone already


def test_memory_that_shrinks_is_told_and_does_not_end_the_server(
    regions: SharedRegions, folder: Path
) -> None:
    regions.register("r", "mine_a", 0, 64)
    place = regions.place("r", 0, 64, "field")
    os.truncate(folder / "mine_a", 10)
    with pytest.raises(RefusedError, match="not there any more"):
        place.read()
    with pytest.raises(RefusedError, match="not there any more"):
        place.write(memoryview(bytes(64)))
    assert (folder / "mine_a").stat().st_size == 10
    place.write(memoryview(b"ten bytes!"))
    assert (folder / "mine_a").read_bytes() == b"ten bytes!"


def test_memory_that_was_unlinked_is_still_the_clients(
    regions: SharedRegions, folder: Path
) -> None:
    regions.register("r", "mine_a", 0, 64)
    (folder / "mine_a").unlink()
    (folder / "mine_a").write_bytes(b"another")
    assert bytes(regions.place("r", 0, 2, "field").read()) == b"\0\x01"


def test_an_output_longer_than_its_place_is_refused(regions: SharedRegions, folder: Path) -> None:
    regions.register("r", "mine_a", 0, 64)
    with pytest.raises(RefusedError, match="has 9 bytes, and its place 8"):
        regions.place("r", 0, 8, "field").write(memoryview(bytes(9)))
    assert (folder / "mine_a").read_bytes() == bytes(range(64))


def test_files_are_closed_when_nothing_refers_to_them(regions: SharedRegions, folder: Path) -> None:
    for _ in range(3):
        regions.register("r", "mine_a", 0, 64)
        place = regions.place("r", 0, 64, "field")
        regions.unregister()
        assert opened(folder) == [str(folder / "mine_a")]
        del place
        assert opened(folder) == []
