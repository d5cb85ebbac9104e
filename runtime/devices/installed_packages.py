"""The metadata of installed packages, as the folders that installers leave.

importlib.metadata, with what it imports, takes longer to import than all of them to read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ...errors import DeviceError
from ...executors import is_shortage
from ...executors.late_imports import late_imports

__all__ = ["find_installed_file", "importlib_failures_named", "metadata_folders", "metadata_text"]

_SUFFIXES = (".dist-info", ".egg-info")


def metadata_folders() -> dict[str, str] | None:
    """Return each package's folder by its name, ``a_name`` in lower case, as ``sys.path`` has them.

    The first package of a name counts. None where not all can be told so: archives on the path and
    finders of others may bring some. An entry that is no text, or no folder that can be looked at,
    is passed over, as an import does; raises OSError where that is for want of files or memory.
    """
    if any(hasattr(item, "find_distributions") for item in sys.meta_path if item is not PathFinder):
        return None
    found: dict[str, str] = {}
    path: Any
    for path in sys.path:
        if not isinstance(path, str):
            continue
        try:
            names = os.listdir(path or os.curdir)
        except NotADirectoryError:
            return None
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            if is_shortage(error):
                raise
            continue
        if path.endswith(".egg"):
            return None
        for name in names:
            if name.endswith(_SUFFIXES):
                found.setdefault(_package_of(name), os.path.join(path, name))
    return found


def metadata_text(folder: str, name: str) -> str:
    """Return a file of a package's metadata; empty where there is none that can be read.

    Raises OSError for want of files or memory.
    """
    try:
        return Path(folder, name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: other bytes than UTF-8
        if is_shortage(error):
            raise
        return ""


@contextmanager
def importlib_failures_named() -> Iterator[None]:
    """Raise DeviceError for what importlib.metadata and finders of others raise inside."""
    try:
        yield
    except Exception as error:
        if is_shortage(error):
            raise
        raise DeviceError(
            f"the installed packages cannot be looked through: importlib.metadata, which is asked "
            f"where archives or finders of others are on sys.path or sys.meta_path, fails with "
            f"{error!r}; remove from these what it fails on"
        ) from error


def find_installed_file(package: str, name: str) -> Path | None:
    """Return the first file of this name that a package has installed, wherever it lies."""
    folders = metadata_folders()
    if folders is None:
        with late_imports:
            import importlib.metadata

        with importlib_failures_named():
            try:
                files = importlib.metadata.files(package) or []
            except importlib.metadata.PackageNotFoundError:
                return None
            return next((Path(str(file.locate())) for file in files if file.name == name), None)
    folder = folders.get(_package_of(f"{package.replace('-', '_')}-."))
    if folder is None:
        return None
    for line in metadata_text(folder, "RECORD").splitlines():
        file = line.partition(",")[0].strip('"')
        if file.rpartition("/")[2] == name:
            return Path(folder).parent / file
    return None


def _package_of(name: str) -> str:
    return name.rpartition(".")[0].partition("-")[0].replace(".", "_").lower()
