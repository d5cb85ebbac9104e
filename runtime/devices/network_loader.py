"""What becomes of a model or a blob, and a device string, until a network of the Core is open."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Union

from ...errors import NotSupportedError, PropertyError, placed
from ...executors import allowance_kept, full_collections_paused, note_count, note_owner
from ...executors.late_imports import late_imports
from ..graph import Model
from ..graph.mapped_file import constants_held, read_constants
from ..network.compiled_network import ExecutorOwner
from ..network.states.state_pairs import find_pairs
from ..properties.properties import CACHE_DIR, ENABLE_MMAP, INPUT_SHAPES, Configuration
from ..type_inference import has_static_types
from .device_lookup import DeviceLookup
from .file_status import FileStatus, file_status
from .loading import loading, loading_failures_named
from .open_networks import OpenNetworks
from .plugin import Plugin

if TYPE_CHECKING:
    import onnx

    from ..blobs.network_record import NetworkRecord
    from ..blobs.reader import Blob, BlobSource
    from ..network.executable_network import ExecutableNetwork
    from ..network.user_functions import Postprocess, Preprocess
    from .model_cache import ModelCache

__all__ = ["ModelSource", "NetworkLoader", "read_source"]

ModelSource = Union[str, os.PathLike[str], bytes, BinaryIO, "onnx.ModelProto", Model]
"""What a model may be read from."""

_Config = Mapping[Any, Any] | None
_Functions = tuple["Preprocess | None", "Postprocess | None"]

_log = logging.getLogger("aioinfer")


def read_source(source: ModelSource, *, is_mapped: bool) -> Model:
    """Read a model, unless it is one. Mapped, large constants stay in their file."""
    if isinstance(source, Model):
        return source
    with late_imports:
        from ..onnx_reader import read_model

    return read_model(source, is_mapped=is_mapped)


class NetworkLoader:
    """Loads and imports the networks of one Core. Thread-safe.

    Its methods are called inside of ``loading``, which gives back what a failing one has taken.
    """

    def __init__(self, core: ExecutorOwner, devices: DeviceLookup, networks: OpenNetworks) -> None:
        self._core = weakref.ref(core)  # a closed Core is gone with its last user
        self._devices = devices
        self._networks = networks

    def load(
        self, model: ModelSource, device: str, config: _Config, name: str | None, around: _Functions
    ) -> ExecutableNetwork:
        """Read and compile a model, or take what a cache has of it; as ``Core.load_network``."""
        _check_network_name(name, device)
        plugin, config_of = self._devices.loadable(device)
        configuration = config_of(config)
        cache, file = _cache_of(plugin, configuration), _path_of(model)
        with full_collections_paused(), allowance_kept():
            is_alone = self._devices.batched(device, plugin, configuration)[0] is plugin
            network = cache.load_known(file, name) if cache and file and is_alone else None
            if network is None:
                network = self._read_and_compiled(device, plugin, model, configuration, name)
        network = self._with_functions(network, around)
        self._open(network)
        _warm_up_if_asked(network, configuration)
        return network

    def loading_on(self, device: str, config: _Config) -> Callable[[Model], ExecutableNetwork]:
        """Return what loads models on a device that has been looked up."""
        plugin, config_of = self._devices.loadable(device)
        configuration = config_of(config)
        known: dict[Hashable, ExecutableNetwork] = {}

        def load(model: Model) -> ExecutableNetwork:
            since = note_count()
            with loading_failures_named(device):
                network = self._compiled(device, plugin, model, configuration, None, known)
            self._open(network, since)
            _warm_up_if_asked(network, configuration)
            return network

        return load

    def _open(self, network: ExecutableNetwork, since: int = 0) -> None:
        """Let the Core close a network; what its load has noted is the network's to give back."""
        note_owner(network, network.close, since)
        self._networks.keep(network)

    def _read_and_compiled(
        self,
        device: str,
        plugin: Plugin,
        model: ModelSource,
        configuration: Configuration,
        name: str | None,
    ) -> ExecutableNetwork:
        was = file_status(_path_of(model))
        wanted = read_source(model, is_mapped=_may_map(plugin, configuration))
        if wanted is not model:
            wanted.is_disposable = True
            if was is not None and wanted.is_one_file and wanted.path is not None:
                read = partial(read_source, is_mapped=False)
                wanted.read_again = _reading_again(read, wanted.path, was)
        if name is not None:
            if isinstance(model, Model):  # the caller's keeps its own name
                wanted = model.with_graph(model.graph)
            wanted.name = name
        return self._compiled(device, plugin, wanted, configuration, was)

    def _compiled(
        self,
        device: str,
        plugin: Plugin,
        wanted: Model,
        configuration: Configuration,
        was: FileStatus | None = None,
        alike: dict[Hashable, ExecutableNetwork] | None = None,
    ) -> ExecutableNetwork:
        """Have the plugin compile a model, or import it where its content is known.

        ``alike`` are networks with these properties by what models that are alike have in common.
        """
        if wanted.is_mapped and (
            has_static_types(wanted.inputs) or not _may_map(plugin, configuration)
        ):
            wanted = _in_memory(wanted)  # once is enough
        pairs = find_pairs(wanted, configuration)
        if not pairs:
            plugin, configuration = self._devices.batched(device, plugin, configuration)
        cache = _cache_of(plugin, configuration)
        held = constants_held(wanted.graph) if wanted.is_mapped else nullcontext()
        with held, placed(network=wanted.name):
            if cache is not None:
                return cache.load(wanted, pairs, was)
            if alike is None or pairs:
                network = plugin.load_network(wanted, configuration)
            else:
                network = _load_alike(plugin, wanted, configuration, alike)
        if pairs and network.states is None:  # AUTO returns what it had this Core load
            network.keep_states(pairs)
        return network

    def load_blob(
        self,
        source: BlobSource,
        device: str | None,
        config: _Config,
        name: str | None,
        around: _Functions,
    ) -> ExecutableNetwork:
        """Load what an export wrote; as ``Core.import_network``."""
        with late_imports:
            from ..blobs.reader import Blob
            from .importing import blob_at_fault, chosen_by_caller

        self._devices.refuse_if_closed()
        _check_network_name(name, device or "")
        blob = Blob.open(source)
        plugin, record, configuration = self._import_of(blob, device, config)
        if blob.is_mapped and not configuration.value_or_default(ENABLE_MMAP):
            blob = Blob.open(source, is_mapped=False)
            plugin, record, configuration = self._import_of(blob, device, config)
        chosen = chosen_by_caller(record, configuration, device, config)
        network = _imported(plugin, blob, record, configuration, chosen, name)
        network = self._with_functions(network, around)
        self._open(network)
        with blob_at_fault(record, configuration.device, chosen):
            _warm_up_if_asked(network, configuration)
        return network

    def import_part(
        self, blob: Blob, device: str | None, config: _Config, name: str | None
    ) -> ExecutableNetwork:
        """Load a network from the frames of a blob, which another network keeps open."""
        with late_imports:
            from .importing import chosen_by_caller

        plugin, record, configuration = self._import_of(blob, device, config)
        chosen = chosen_by_caller(record, configuration, device, config)
        return _imported(plugin, blob, record, configuration, chosen, name)

    def _import_of(
        self, blob: Blob, device: str | None, config: _Config
    ) -> tuple[Plugin, NetworkRecord, Configuration]:
        """Return the device that a blob is imported on, its facts, and its properties there."""
        with late_imports:
            from ..blobs.network_record import read_network_record
            from .importing import configuration_of, device_of, refuse_other_device, without_local

        record = read_network_record(blob)
        refuse_other_device(None if device is None else str(self._devices.parsed(device)), record)
        plugin, config_of = self._devices.loadable(device or device_of(record, self._devices.names))
        record = without_local(record, self._devices.started)
        return plugin, record, configuration_of(config_of, record, device, config)

    def _with_functions(self, network: ExecutableNetwork, around: _Functions) -> ExecutableNetwork:
        if around[0] is None and around[1] is None:
            return network
        with late_imports:
            from ..network.staged_network import with_functions
            from ..network.user_functions import UserFunctions

        functions = UserFunctions(network.inputs, network.name, network.device, *around)
        core = self._core()
        assert core is not None, "a call of it is under way"
        return with_functions(network, replace(functions, adopt=network.adopt_array), core)


def _load_alike(
    plugin: Plugin,
    model: Model,
    configuration: Configuration,
    alike: dict[Hashable, ExecutableNetwork],
) -> ExecutableNetwork:
    """Have the plugin compile a model, or take what it can of a network whose model is alike."""
    with late_imports:
        from ..graph.likeness import structure_of

    structure = structure_of(model)
    known = None if structure is None else alike.get(structure)
    if known is not None:
        network = plugin.load_alike(model, configuration, known)
        if network is not None:
            network.remarks = known.remarks
            text = "model %r is compiled for %s as that of %r"
            logging.getLogger(f"aioinfer.{configuration.device}").info(
                text, network.name, network.device, known.name
            )
            return network
    network = plugin.load_network(model, configuration)
    if structure is not None and network.is_as_given:
        alike[structure] = network
    return network


def _may_map(plugin: Plugin, configuration: Configuration) -> bool:
    return plugin.takes_mapped_constants and configuration.value_or_default(ENABLE_MMAP)


def _imported(
    plugin: Plugin,
    blob: Blob,
    record: NetworkRecord,
    config: Configuration,
    chosen: Collection[str],
    name: str | None,
) -> ExecutableNetwork:
    """Have a plugin load a blob, and its requests keep what they kept."""
    with late_imports:
        from .importing import import_blob

    if name is not None:
        record = replace(record, name=name)
    with (
        full_collections_paused(),
        loading(config.device),
        placed(device=config.device),
    ):
        return import_blob(plugin, blob, record, config, chosen)


def _in_memory(model: Model) -> Model:
    """Bring mapped constants into memory, in the model itself where no caller holds it."""
    made = model if model.is_disposable else model.copy()
    made.read_again = model.read_again
    read_constants(made.graph)
    made.is_mapped, made.is_disposable = False, True
    return made


def _reading_again(
    read: Callable[[Path], Model], path: Path, was: FileStatus
) -> Callable[[], Model]:
    """Return what reads a model once more from a file that has not changed since.

    It raises NotSupportedError where the file has, and ModelError.
    """
    place = Path(os.path.abspath(path))

    def read_again() -> Model:
        now = file_status(place)
        if now is None or now.mark != was.mark:
            raise NotSupportedError(
                f"the weights of a network are in its model's file alone, and {str(place)!r} is "
                f"not what it was when it was loaded; load the network with EXPORTABLE=True, which "
                f"keeps them"
            )
        return read(place)

    return read_again


def _warm_up_if_asked(network: ExecutableNetwork, config: Configuration) -> None:
    """Run a network once of each shape that was asked for."""
    if config.value_or_default(INPUT_SHAPES):
        network.warm_up()


def _cache_of(plugin: Plugin, config: Configuration) -> ModelCache | None:
    """Return the cache that a configuration names, or AIOINFER_CACHE_DIR; None without one.

    A device made of devices has those keep their parts, and functions of users are in no blob.
    """
    named = config.value_or_default(CACHE_DIR) or os.environ.get("AIOINFER_CACHE_DIR", "")
    if not named or not plugin.is_cached or plugin.extensions:
        return None
    with late_imports:
        from .model_cache import ModelCache

    try:
        folder = Path(named).expanduser()
    except RuntimeError as error:  # there is no such user
        _log.warning("CACHE_DIR %r is not used: %s", named, error)
        return None
    return ModelCache(folder, plugin, config)


def _path_of(source: Any) -> Path | None:
    """Return the file that a model comes from; None for bytes, open files and models."""
    return Path(os.fsdecode(source)) if isinstance(source, str | os.PathLike) else None


def _check_network_name(name: Any, device: str) -> None:
    """Raise PropertyError unless a name is None or a printable text of one line."""
    if name is None:
        return
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise PropertyError(
            f"a network cannot be called {name!r}; give a text of one line that can be printed, "
            f"or None for its file's name",
            "name",
            device,
            value=name,
        )
