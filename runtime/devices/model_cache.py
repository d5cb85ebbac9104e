"""Compiled networks on disk, so that a model that was loaded before is loaded faster.

An entry is a blob, named by what it was compiled from: the content of the model, the device, its
versions, and the properties that change what is compiled. To find it a file need not be read again:
an index keeps the digest of a file with its size, times and number, which all change with its
content.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import AioInferError, BlobError, NotSupportedError
from ..blobs.cache_folder import CacheFolder
from ..blobs.model_digest import model_digest
from ..blobs.network_record import plain_value, read_network_record
from ..blobs.reader import Blob
from ..blobs.writer import BlobWriter
from ..graph import Model
from ..network.compiled_network import CompiledNetwork
from ..network.executable_network import ExecutableNetwork
from ..network.export import package_version
from ..properties.properties import (
    CACHE_DIR,
    CACHE_LIMIT_BYTES,
    ENABLE_MMAP,
    EXPORTABLE,
    LOG_LEVEL,
    REQUEST_PROPERTIES,
    STATE,
    Configuration,
    Property,
)
from .file_status import FileStatus, file_status
from .importing import import_blob
from .plugin import Plugin

__all__ = ["ModelCache"]

_log = logging.getLogger("aioinfer")

_UNCOMPILED: tuple[Property[Any], ...] = (
    CACHE_DIR,
    CACHE_LIMIT_BYTES,
    ENABLE_MMAP,
    LOG_LEVEL,
    *(declared for declared in REQUEST_PROPERTIES if declared is not STATE),
)
_OF_THIS_PROCESS = frozenset(declared.key for declared in _UNCOMPILED)
"""Properties that change nothing of what is compiled."""

_GROWTH = 8
"""An entry is written again for one new plan to this number that it has."""

_INDEX_BYTES = 16 << 20
_SETTLED_NS = 30_000_000_000
"""A file that was written this long before it was read has another time if it was written again:
also one of another machine, whose clock is not quite this one's, or that counts whole seconds."""


class ModelCache:
    """The cache of loads by one plugin with one configuration. Safe for threads and processes."""

    def __init__(self, folder: Path, plugin: Plugin, config: Configuration) -> None:
        self._plugin, self._config = plugin, config
        limit_bytes = config.value_or_default(CACHE_LIMIT_BYTES)
        self._blobs = CacheFolder(folder / "networks", ".blob", limit_bytes)
        self._index = CacheFolder(folder / "digests", ".json", _INDEX_BYTES)
        facts = {
            "aioinfer": package_version(),
            "numpy": np.__version__,
            "device": config.device,
            "properties": {key: config[key] for key in config if key not in _OF_THIS_PROCESS},
            "given": sorted(config.given - _OF_THIS_PROCESS),
            **plugin.cache_facts(config),
        }
        self._facts = json.dumps(plain_value(facts), sort_keys=True)

    def load_known(self, path: Path, name: str | None) -> ExecutableNetwork | None:
        """Import the network of a file that was loaded before, without reading it; or None."""
        digest = self._digest_of(path)
        if digest is None:
            return None
        return self._imported(digest, Model.name_of(path) if name is None else name)

    def load(
        self, model: Model, states: Mapping[str, str], was: FileStatus | None
    ) -> ExecutableNetwork:
        """Import a model's network, or compile it and keep that; a bad entry is made again.

        ``states``: inputs and the outputs that feed them. ``was``: what the system said of the
        model's file before it was read.
        """
        try:
            digest = model_digest(model)
        except NotSupportedError as error:
            _log.info("model %r cannot be cached: %s", model.name, error)
            return _with_states(self._plugin.load_network(model, self._config), states)
        if was is not None and model.is_one_file and model.path is not None:
            self._keep_digest(model.path, was, digest)
        network = self._imported(digest, model.name)
        if network is not None:
            if model.is_disposable:
                model.dispose()
            return network
        network = _with_states(self._compiled(model), states)
        self._keep(digest, network.write_blob, network.name)
        mark = self._blobs.mark(self._entry(digest))
        network.keep_at_close = partial(self._keep_grown, digest, mark)
        if not self._config.value_or_default(EXPORTABLE):
            network.forget_model()
        return network

    def _entry(self, digest: str) -> str:
        return hashlib.sha256(f"{digest} {self._facts}".encode()).hexdigest()

    def _imported(self, digest: str, name: str) -> ExecutableNetwork | None:
        entry = self._entry(digest)
        path = self._blobs.find(entry)
        if path is None:
            return None
        mark = self._blobs.mark(entry)

        def removed(error: BlobError) -> BlobError:
            self._blobs.forget(entry, error)
            return BlobError(
                f"what CACHE_DIR had of network {name!r} is damaged or was written to, and is "
                f"removed; load the network again ({path})"
            )

        is_mapped = self._config.value_or_default(ENABLE_MMAP)
        try:
            blob = Blob.open(path, is_mapped=is_mapped, damaged=removed)
            record = replace(read_network_record(blob), name=name)
            network = import_blob(self._plugin, blob, record, self._config)
        except BlobError as error:
            if isinstance(error.__cause__, OSError | MemoryError):  # it may be well
                _log.warning("cannot use %s: %s", path, error)
            else:
                self._blobs.forget(entry, error)
            return None
        network.is_from_cache = True
        network.keep_at_close = partial(self._keep_grown, digest, mark)
        return network

    def _compiled(self, model: Model) -> ExecutableNetwork:
        """Compile a model, and keep it until it has been written."""
        config = self._config
        if not config.knows(EXPORTABLE.key) or config[EXPORTABLE]:
            return self._plugin.load_network(model, config)
        network = self._plugin.load_network(model, config.with_defaults({EXPORTABLE: True}))
        network.config = network.config.with_defaults({EXPORTABLE: False})
        return network

    def _keep(self, digest: str, write: Callable[[BlobWriter], None], name: str) -> None:
        blob = BlobWriter()
        try:
            write(blob)
        except NotSupportedError as error:
            _log.info("network %r is not cached: %s", name, error)
        except AioInferError as error:
            _log.warning("network %r cannot be cached: %s", name, error)
        else:
            self._blobs.write(self._entry(digest), blob.chunks())

    def _keep_grown(
        self, digest: str, mark: tuple[int, ...] | None, network: CompiledNetwork
    ) -> None:
        """Put the plans of new shapes into the entry, if they are worth it.

        Nothing is done where the entry is gone, where another process is at it, and where it is not
        what ``mark`` is of any more: it has plans then that the network does not know.
        """
        count, new_count = network.plan_growth()
        if new_count * _GROWTH <= count - new_count:
            return
        with self._blobs.held(self._entry(digest), mark) as is_held:
            if is_held:
                self._keep(digest, network.write_frames, network.name)

    def _digest_of(self, path: Path) -> str | None:
        found = self._index.find(_place_of(path))
        if found is None:
            return None
        try:
            known = json.loads(found.read_bytes())
            now = file_status(path)
            is_same = now is not None and known["file"] == now.mark
            return str(known["digest"]) if is_same else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _keep_digest(self, path: Path, was: FileStatus, digest: str) -> None:
        now = file_status(path)
        if was.unchanged_ns < _SETTLED_NS or now is None or now.mark != was.mark:
            return
        known = {"file": was.mark, "digest": digest}
        self._index.write(_place_of(path), [json.dumps(known).encode()])


def _with_states(network: ExecutableNetwork, states: Mapping[str, str]) -> ExecutableNetwork:
    if states:
        network.keep_states(states)
    return network


def _place_of(path: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
