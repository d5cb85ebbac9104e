"""How fast models ran on which devices, remembered in a file between processes."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path

from ...errors import BlobError
from ...runtime.blobs.own_folder import why_not_own_folder
from ...runtime.blobs.writer import write_file
from ...runtime.graph import Model

__all__ = ["SpeedMemory", "model_key"]

_log = logging.getLogger("aioinfer.AUTO")

FORMAT = 1
MOST_MODELS = 1000
"""Older ones are forgotten; the file stays below a megabyte."""
MOST_BYTES = 4 << 20


class SpeedMemory:
    """Times by model and device, in a file of a folder that is this user's alone.

    No method raises: what cannot be read or written is said in the log, and a damaged file counts
    as empty and is written anew. Two processes that write at once lose one of their times.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) / "aioinfer-auto"
        self._path = self._folder / "speeds.json"

    def times_s(self, model: str) -> dict[str, float]:
        """Return the seconds of a run of this model, by device; empty for one that is new."""
        return dict(self._read().get(model, {}))

    def note(self, model: str, times_s: Mapping[str, float]) -> None:
        """Remember times beside those that are known of the model."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_own():
                return
            known = self._read()
            known[model] = {**known.pop(model, {}), **times_s}
            latest = dict(list(known.items())[-MOST_MODELS:])
            text = json.dumps({"format": FORMAT, "times_s": latest}, indent=1)
            write_file(self._path, iter([text.encode()]))
        except (OSError, BlobError) as error:
            _log.warning("cannot remember how fast models are in %s: %s", self._path, error)

    def _read(self) -> dict[str, dict[str, float]]:
        if not self._is_own():
            return {}
        try:
            if self._path.stat().st_size > MOST_BYTES:
                raise ValueError("it is too long")
            return _parsed(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            _log.warning("ignoring %s, which will be written anew: %s", self._path, error)
            return {}

    def _is_own(self) -> bool:
        """True if the folder is there, and no other user can get at what is in it."""
        try:
            reason = why_not_own_folder(self._folder)
        except OSError:
            return False
        if reason is not None:
            _log.warning("%s is not used: %s; give another CACHE_DIR", self._folder, reason)
        return reason is None


def _parsed(content: object) -> dict[str, dict[str, float]]:
    """Check what was read; raises ValueError for anything but times by model and device."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError("it is of another version")
    models = content.get("times_s")
    if not isinstance(models, dict):
        raise ValueError("it has no times")
    parsed: dict[str, dict[str, float]] = {}
    for model, devices in models.items():
        if not isinstance(devices, dict):
            raise ValueError(f"{model!r} has no times")
        for name, seconds in devices.items():
            is_time = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if not is_time or not 0 < seconds < math.inf:
                raise ValueError(f"{seconds!r} of {name!r} is no time")
        parsed[model] = {name: float(seconds) for name, seconds in devices.items()}
    return parsed


def model_key(model: Model, how: Mapping[str, object]) -> str:
    """Name a model by its nodes and types, and by what is asked of the devices; not by weights."""
    digest = hashlib.sha256(repr(sorted(how.items())).encode())
    for value in model.graph.inputs:
        digest.update(f"{value.name}{value.type}".encode())
    for node in model.graph.nodes:
        digest.update(f"{node.domain}{node.op_type}".encode())
        for used in node.inputs:
            shape = getattr(used.constant, "shape", None) if used is not None else None
            digest.update(f"{used.name if used is not None else ''}{shape}".encode())
    return digest.hexdigest()[:32]
