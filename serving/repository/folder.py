"""What lies in a model directory: ``name/version/model.onnx``. Reads no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ModelFolder", "VersionFolder", "scan"]

MODEL_FILES = ("model.onnx", "model.blob")
SETTINGS_FILE = "model.toml"

Fingerprint = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class VersionFolder:
    """One version's files. ``problem``: why it cannot be served, "" if it may."""

    file: Path | None
    fingerprint: Fingerprint
    problem: str = ""

    @property
    def size_bytes(self) -> int:
        """How long its files are together, which is about what its weights take in memory."""
        return sum(size for _, _, size, _ in self.fingerprint)


@dataclass(frozen=True)
class ModelFolder:
    """One model: its versions, and the text of its settings."""

    versions: Mapping[int, VersionFolder]
    settings: str = ""
    problem: str = ""


def scan(root: Path) -> dict[str, ModelFolder]:
    """Look at every model below a directory; blocks on the file system.

    What leads out of the directory, by a link, is a problem of its model and is not opened. Hidden
    folders, plain files and names that are not UTF-8 are passed over. Raises OSError if the
    directory cannot be read.
    """
    root = root.resolve()
    return {
        folder.name: _scan_model(root, folder)
        for folder in sorted(root.iterdir())
        if folder.is_dir() and not folder.name.startswith(".") and _is_text(folder.name)
    }


def _scan_model(root: Path, folder: Path) -> ModelFolder:
    if not _is_inside(root, folder):
        return ModelFolder({}, problem="it leads out of the model directory")
    try:
        numbered = sorted(
            (int(entry.name), entry)
            for entry in folder.iterdir()
            if _is_version(entry.name) and entry.is_dir()
        )
        settings = folder / SETTINGS_FILE
        text = ""
        if settings.is_file():
            if not _is_inside(root, settings):
                return ModelFolder({}, problem=f"{SETTINGS_FILE} leads out of the model directory")
            text = settings.read_text(encoding="utf-8")
        versions = {number: _scan_version(root, entry, text) for number, entry in numbered}
    except OSError as error:
        return ModelFolder({}, problem=f"its folder cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return ModelFolder({}, problem=f"{SETTINGS_FILE} is not UTF-8")
    except RuntimeError:  # what resolving such links raises
        return ModelFolder({}, problem="links in it lead in a circle")
    return ModelFolder(versions, text, "" if versions else "it has no folder with a version")


def _is_text(name: str) -> bool:
    """Return whether a name can be written as UTF-8, as all that is sent to a client."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and not name.startswith("0") and len(name) <= 18


def _is_inside(root: Path, path: Path) -> bool:
    return path.resolve().is_relative_to(root)


def _scan_version(root: Path, folder: Path, settings: str) -> VersionFolder:
    prints = [(settings, 0, 0, 0)]
    for entry in sorted(folder.rglob("*")):
        if not _is_inside(root, entry):
            return VersionFolder(None, (), f"{entry.name!r} leads out of the model directory")
        if entry.is_file():
            fact = entry.stat()
            name = entry.relative_to(folder).as_posix()
            prints.append((name, fact.st_mtime_ns, fact.st_size, fact.st_ino))
    found = [folder / name for name in MODEL_FILES if (folder / name).is_file()]
    if not _is_inside(root, folder):
        return VersionFolder(None, (), "it leads out of the model directory")
    problem = "" if found else f"it has neither {' nor '.join(MODEL_FILES)}"
    return VersionFolder(found[0] if found else None, tuple(prints), problem)
