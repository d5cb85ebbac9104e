"""Compiled networks on disk, so that a model that was loaded before is loaded faster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import AioInferError, BlobError, NotSupportedError
from ..blobs.cache_folder import CacheFolder
from ..blobs.model_digest import model_digest
from ..blobs.network_record import read_network_record
from ..blobs.reader import Blob
from ..blobs.writer import BlobWriter
from ..graph import Model
from ..network.executable_network import ExecutableNetwork
from ..network.export import package_version
from ..properties.properties import (
    CACHE_DIR,
    CACHE_LIMIT_BYTES,
    ENABLE_MMAP,
    EXPORTABLE,
    LOG_LEVEL,
    REQUEST_PROPERTIES,
    Configuration,
    Property,
)
from .plugin import Plugin

__all__ = ["ModelCache", "load_cached"]

_log = logging.getLogger("aioinfer")

_UNCOMPILED: tuple[Property[Any], ...] = (
    CACHE_DIR,
    CACHE_LIMIT_BYTES,
    ENABLE_MMAP,
    EXPORTABLE,
    LOG_LEVEL,
    *REQUEST_PROPERTIES,
)
_OF_THIS_PROCESS = frozenset(declared.key for declared in _UNCOMPILED)
"""Properties that change nothing of what is compiled."""


def load_cached(plugin: Plugin, model: Model, config: Configuration) -> ExecutableNetwork:
    """Have a plugin load a model, or import what it has loaded before.

    A device made of devices has those keep their parts, and functions of users are in no blob.
    """
    cache = None
    if plugin.is_cached and not plugin.extensions:
        cache = ModelCache.of(config, plugin.cache_facts(config))
    if cache is None:
        return plugin.load_network(model, config)
    is_exportable = config.value_or_default(EXPORTABLE)

    def compile_model() -> ExecutableNetwork:
        if is_exportable:
            return plugin.load_network(model, config)
        network = plugin.load_network(model, config.with_defaults({EXPORTABLE: True}))
        network.config = network.config.with_defaults({EXPORTABLE: False})
        return network

    def import_blob(blob: Blob) -> ExecutableNetwork:
        record = replace(read_network_record(blob), name=model.name)
        return plugin.import_network(blob, record, config)

    network = cache.load(model, import_blob, compile_model)
    if model.is_disposable and network.is_from_cache:
        model.dispose()
    if not is_exportable:
        network.forget_model()
    return network


class ModelCache:
    """The cache of one load: ``folder`` has one blob for each model, device and configuration."""

    def __init__(self, folder: CacheFolder, facts: Mapping[str, Any]) -> None:
        self._folder, self._facts = folder, facts

    @classmethod
    def of(cls, config: Configuration, device_facts: Mapping[str, Any]) -> ModelCache | None:
        """Return the cache that a configuration names, or AIOINFER_CACHE_DIR; None without one.

        ``device_facts``: what a compiled network depends on beside model and properties.
        """
        named = config.value_or_default(CACHE_DIR) or os.environ.get("AIOINFER_CACHE_DIR", "")
        if not named:
            return None
        limit_bytes = config.value_or_default(CACHE_LIMIT_BYTES)
        folder = CacheFolder(Path(named).expanduser() / "networks", ".blob", limit_bytes)
        facts = {
            "aioinfer": package_version(),
            "numpy": np.__version__,
            "device": config.device,
            "properties": {key: config[key] for key in config if key not in _OF_THIS_PROCESS},
            **device_facts,
        }
        return cls(folder, facts)

    def load(
        self,
        model: Model,
        import_blob: Callable[[Blob], ExecutableNetwork],
        compile_model: Callable[[], ExecutableNetwork],
    ) -> ExecutableNetwork:
        """Import the model's entry, or compile it and keep that; a bad entry is made again."""
        try:
            name = model_digest(model, self._facts)
        except NotSupportedError as error:
            _log.info("model %r cannot be cached: %s", model.name, error)
            return compile_model()
        path = self._folder.find(name)
        if path is not None:
            try:
                network = import_blob(Blob.open(path))
            except BlobError as error:
                self._folder.forget(name, error)
            else:
                network.is_from_cache = True
                return network
        network = compile_model()
        self._keep(name, network)
        return network

    def _keep(self, name: str, network: ExecutableNetwork) -> None:
        blob = BlobWriter()
        try:
            network.write_blob(blob)
        except NotSupportedError as error:
            _log.info("network %r is not cached: %s", network.name, error)
            return
        except AioInferError as error:
            _log.warning("network %r cannot be cached: %s", network.name, error)
            return
        self._folder.write(name, blob.chunks())
