"""What is installed is read as files, and means what importlib.metadata says of it."""

from __future__ import annotations

import errno
import importlib.abc
import importlib.metadata
import os
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

import aioinfer
from aioinfer.errors import DeviceError
from aioinfer.runtime.devices.installed_devices import (
    ENTRY_POINT_GROUP,
    InstalledDevice,
    installed_devices,
)
from aioinfer.runtime.devices.installed_packages import find_installed_file, metadata_folders

POINTS = f"""
[console_scripts]
FAST = acme:main

[{ENTRY_POINT_GROUP}]
# of tests
FAST = acme.fast : Maker.make [extra]
SLOW=acme:Slow
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of ``sys.path`` beside the standard library."""
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    library = [
        path
        for path in sys.path
        if path.startswith(tuple(places)) and not path.endswith("-packages")
    ]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *library])
    return tmp_path


def install(folder: Path, name: str, **files: str) -> Path:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, text in files.items():
        (info / file.replace("__", ".")).write_text(text)
    return info


def test_devices_are_those_that_importlib_finds() -> None:
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    wanted = {(point.name, point.value) for point in points}
    assert {tuple(found) for found in installed_devices()} == wanted


def test_an_entry_point_is_read_with_its_spaces_and_extras(site: Path) -> None:
    install(site, "acme", entry_points__txt=POINTS)
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    assert {point.name for point in points} == {"FAST", "SLOW"}
    found = installed_devices()
    assert [device.name for device in found] == ["FAST", "SLOW"]
    assert found[1] == InstalledDevice("SLOW", "acme:Slow")
    (site / "acme").mkdir()
    (site / "acme" / "__init__.py").write_text("class Slow: pass\n")
    (site / "acme" / "fast.py").write_text("class Maker:\n    make = 5\n")
    try:
        assert found[0].load() == 5
        assert found[1].load().__name__ == "Slow"
    finally:
        for name in ("acme", "acme.fast"):
            sys.modules.pop(name, None)


def test_the_first_package_of_a_name_counts(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = install(site / "first", "My.Package")
    install(site / "second", "my_package")
    monkeypatch.setattr(sys, "path", [str(site / "first"), str(site / "second"), "no such folder"])
    assert metadata_folders() == {"my_package": str(first)}


def test_a_packages_file_is_found_by_its_record(site: Path) -> None:
    install(site, "some_wheel", RECORD="../../lib/libx.so.3,sha256=a,1\nother/libx.so,,\n")
    assert find_installed_file("some-wheel", "libx.so.3") == site / "../../lib/libx.so.3"
    assert find_installed_file("some-wheel", "x.so") is None
    assert find_installed_file("another", "libx.so.3") is None


def test_archives_and_finders_of_others_are_left_to_importlib(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = site / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("acme-1.0.dist-info/METADATA", "Name: acme\nVersion: 1.0\n")
        file.writestr("acme-1.0.dist-info/entry_points.txt", POINTS)
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    assert metadata_folders() is None
    assert [device.name for device in installed_devices()] == ["FAST", "SLOW"]
    assert find_installed_file("acme", "libx.so.3") is None
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert metadata_folders() == {}

    class Finder(importlib.abc.MetaPathFinder):
        def find_distributions(self, *_context: Any) -> list[Any]:
            return []

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert metadata_folders() is None


@pytest.mark.parametrize(
    "entry",
    [
        None,
        3,
        Path("a path"),
        b"bytes",
        "no\0name",
        "surrogate\ud800",
        "long" * 2000,
        "loop",
        "no such folder",
    ],
)
def test_an_entry_that_no_import_looks_at_is_passed_over(
    site: Path, monkeypatch: pytest.MonkeyPatch, entry: Any
) -> None:
    first = install(site / "first", "acme", entry_points__txt=POINTS)
    second = install(site / "second", "acme", entry_points__txt=POINTS)
    install(Path(site, "a path"), "shadowed")
    os.symlink("loop", site / "loop")
    monkeypatch.chdir(site)
    monkeypatch.setattr(sys, "path", [str(first.parent), entry, str(second.parent)])
    assert metadata_folders() == {"acme": str(first)}
    assert [device.name for device in installed_devices()] == ["FAST", "SLOW"]


@pytest.mark.parametrize("kind", ["a folder", "a loop", "other bytes"])
def test_metadata_that_is_no_text_is_passed_over(site: Path, kind: str) -> None:
    install(site, "acme", entry_points__txt=POINTS)
    odd = install(site, "odd") / "entry_points.txt"
    if kind == "a folder":
        odd.mkdir()
    elif kind == "a loop":
        odd.symlink_to(odd)
    else:
        odd.write_bytes(b"\xff\xfe")
    assert [device.name for device in installed_devices()] == ["FAST", "SLOW"]
    assert find_installed_file("odd", "libx.so.3") is None


@pytest.mark.parametrize("lacking", [errno.EMFILE, errno.ENOMEM])
def test_want_of_files_is_no_empty_folder(
    site: Path, monkeypatch: pytest.MonkeyPatch, lacking: int
) -> None:
    def listdir(path: str) -> list[str]:
        raise OSError(lacking, os.strerror(lacking), path)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(OSError, match=os.strerror(lacking)):
        metadata_folders()


def test_what_finders_of_others_raise_is_an_error_of_ours(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Finder(importlib.abc.MetaPathFinder):
        def find_distributions(self, *_context: Any) -> list[Any]:
            raise IsADirectoryError(errno.EISDIR, "a directory", str(site))

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(DeviceError, match=r"importlib\.metadata, .* fails with IsADirectoryError"):
        aioinfer.Core()
    with pytest.raises(DeviceError, match="fails with IsADirectoryError"):
        find_installed_file("acme", "libx.so.3")
