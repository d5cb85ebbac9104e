"""Core: the entry object. Reads models, knows the devices, loads networks."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Union
from weakref import WeakValueDictionary

from ...errors import (
    AioInferError,
    ClosedError,
    DeviceError,
    GraphError,
    ModelError,
    NotSupportedError,
    PropertyError,
    nearest,
    placed,
)
from ...executors import ExecutorManager, shortage_as_error
from ...executors.base import refuse_own_thread
from ...executors.fork import ProcessMark
from ..blobs.network_record import NetworkRecord, read_network_record
from ..blobs.reader import Blob, BlobSource
from ..graph import Model
from ..graph.mapped_file import constants_held, read_constants
from ..loops.closing import Closing
from ..network.deadlines import check_timeout
from ..network.states.state_pairs import find_pairs
from ..network.user_functions import Postprocess, Preprocess, UserFunctions
from ..passes import SupportMap
from ..properties.properties import (
    CACHE_DIR,
    DEVICE_ID,
    ENABLE_MMAP,
    INPUT_SHAPES,
    STANDARD_PROPERTIES,
    Configuration,
    property_keys,
)
from ..tracing.statistics import CoreStatistics
from ..type_inference import has_static_types
from .collection_pause import full_collections_paused
from .device_aliases import understood
from .device_name import DeviceName, parse_device
from .extension import Extension
from .implicit_batching import BATCH, implicit_batch
from .importing import (
    configuration_of,
    device_of,
    file_status,
    import_blob,
    refuse_other_device,
)
from .plugin import Division, Plugin
from .plugin_registry import MakePlugin, PluginRegistry, closed_core

if TYPE_CHECKING:
    import onnx

    from ..network.executable_network import ExecutableNetwork
    from ..tracing.timeline import Trace
    from .model_cache import ModelCache

__all__ = ["Core", "ModelSource"]

ModelSource = Union[str, os.PathLike[str], bytes, BinaryIO, "onnx.ModelProto", Model]
"""What a model may be read from."""

_log = logging.getLogger("aioinfer")

_COMMON_PROPERTIES = tuple(
    declared
    for declared in STANDARD_PROPERTIES
    if declared is not DEVICE_ID and not declared.only_at_load
)

_Label = tuple[str, str, int]
"""The name, the device and the copy of a network."""

DEVICE_PRIORITIES = "MULTI_DEVICE_PRIORITIES"
"""The property that a virtual device's list is given in."""


class Core(Closing):
    """Finds devices, reads models and loads networks. Thread-safe; several may live side by side.

    Close it, or use it in a ``with`` or ``async with`` block; that closes its networks, too.

    ```python
    async with aioinfer.Core() as core:
        network = await core.load_network_async("model.onnx", "HETERO:CPU,REFERENCE")
        outputs = await network.infer({"image": np.zeros((1, 1, 8, 8), np.float32)})
        print(core.available_devices, outputs["logits"].argmax())
    ```
    """

    def __init__(self) -> None:
        self._process = ProcessMark()
        self._lock = threading.Lock()
        self._executors = ExecutorManager()
        self._registry = PluginRegistry(self)
        self._networks: WeakValueDictionary[int, ExecutableNetwork] = WeakValueDictionary()
        self._network_numbers = itertools.count()
        self._labelled: WeakValueDictionary[_Label, ExecutableNetwork] = WeakValueDictionary()
        self._settings: dict[str, Any] = {}
        self._is_closed = False

    @property
    def executors(self) -> ExecutorManager:
        """The executors that all networks of this Core share; for plugins."""
        return self._executors

    def read_model(self, source: ModelSource) -> Model:
        """Read an ONNX model from a path, bytes, a binary file object or a ModelProto.

        Models of older operator sets are converted. Raises ModelError that says what is wrong.
        """
        self._refuse_if_closed()
        return self._read(source, is_mapped=False)

    @staticmethod
    def _read(source: ModelSource, *, is_mapped: bool) -> Model:
        if isinstance(source, Model):
            return source
        from ..onnx_reader import read_model

        return read_model(source, is_mapped=is_mapped)

    def load_network(
        self,
        model: ModelSource,
        device: str = "AUTO",
        config: Mapping[Any, Any] | None = None,
        *,
        name: str | None = None,
        preprocess: Preprocess | None = None,
        postprocess: Postprocess | None = None,
    ) -> ExecutableNetwork:
        """Compile a model for a device, such as ``CPU``, ``REFERENCE.1`` or ``HETERO:CUDA,CPU``.

        Works on a copy of the model. ``name`` is what errors, logs, metrics and traces call the
        network; None: the model's (``Model.name``). ``preprocess``: a function of all that callers
        give, by name, which returns the inputs by name; or a mapping input name -> function of
        what they give for it. ``postprocess``: a function of the outputs by name, whose result
        they get. Both are stages of each run, on threads of their own (PREPROCESS_STREAMS,
        POSTPROCESS_STREAMS), so they may block, and run several times at once. Blocks; on an event
        loop use ``load_network_async``. Raises ModelError, DeviceError (for want of memory, threads
        or files, too), PropertyError, UnsupportedOpError.
        """
        _check_name(name, device)
        plugin, config_of = self._plugin(device)
        configuration = config_of(config)
        cache, file = _cache_of(plugin, configuration), _path_of(model)
        with full_collections_paused(), _failures_named(device):
            is_alone = self._batched(device, plugin, configuration)[0] is plugin
            network = cache.load_known(file, name) if cache and file and is_alone else None
            if network is None:
                network = self._compiled(device, plugin, model, configuration, name)
        if preprocess is not None or postprocess is not None:
            network = self._staged(network, preprocess, postprocess)
        self._keep(network)
        return _warmed(network, configuration)

    def _compiled(
        self,
        device: str,
        plugin: Plugin,
        model: ModelSource,
        configuration: Configuration,
        name: str | None,
    ) -> ExecutableNetwork:
        """Read a model and have the plugin compile it, or import it where its content is known."""
        may_map = plugin.takes_mapped_constants and configuration.value_or_default(ENABLE_MMAP)
        was = file_status(_path_of(model))
        wanted = self._read(model, is_mapped=may_map)
        if wanted is not model:
            wanted.is_disposable = True
        if name is not None:
            if isinstance(model, Model):  # the caller's keeps its own name
                wanted = model.with_graph(model.graph)
            wanted.name = name
        if wanted.is_mapped and (has_static_types(wanted.inputs) or not may_map):
            wanted = _in_memory(wanted)  # once is enough
        pairs = find_pairs(wanted, configuration)
        if not pairs:
            plugin, configuration = self._batched(device, plugin, configuration)
        cache = _cache_of(plugin, configuration)
        with constants_held(wanted.graph), placed(network=wanted.name):
            if cache is not None:
                return cache.load(wanted, pairs, was)
            network = plugin.load_network(wanted, configuration)
        if pairs and network.states is None:  # AUTO returns what it had this Core load
            network.keep_states(pairs)
        return network

    async def load_network_async(
        self,
        model: ModelSource,
        device: str = "AUTO",
        config: Mapping[Any, Any] | None = None,
        *,
        name: str | None = None,
        preprocess: Preprocess | None = None,
        postprocess: Postprocess | None = None,
    ) -> ExecutableNetwork:
        """Load a network on a thread, so that the event loop goes on; as ``load_network``.

        If the task is cancelled, the network is closed as soon as the compiler is done with it.
        """
        return await _made_on_thread(
            partial(
                self.load_network,
                model,
                device,
                config,
                name=name,
                preprocess=preprocess,
                postprocess=postprocess,
            )
        )

    def query_network(
        self, model: ModelSource, device: str, config: Mapping[Any, Any] | None = None
    ) -> SupportMap:
        """Ask which nodes of a model a device can run: node name -> Support, with the reason."""
        plugin, config_of = self._plugin(device)
        with _failures_named(device):
            return plugin.query_network(self._read(model, is_mapped=True), config_of(config))

    def divide_network(
        self, model: ModelSource, device: str, config: Mapping[Any, Any] | None = None
    ) -> Division:
        """Cut a model as a device such as ``HETERO:CUDA,CPU`` would load it; compile nothing.

        So a partition can be planned where its devices are not, if they answer queries. Raises
        UnsupportedOpError for a node that none takes, NotSupportedError for a device that runs a
        model whole.
        """
        plugin, config_of = self._plugin(device)
        with full_collections_paused(), _failures_named(device):
            return plugin.divide_network(self._read(model, is_mapped=True), config_of(config))

    def import_network(
        self,
        source: BlobSource,
        device: str | None = None,
        config: Mapping[Any, Any] | None = None,
        *,
        name: str | None = None,
        preprocess: Preprocess | None = None,
        postprocess: Postprocess | None = None,
    ) -> ExecutableNetwork:
        """Load what ``network.export`` wrote, a path, bytes or an open binary file.

        The blob names its device and properties; those given here go before. ``name``,
        ``preprocess`` and ``postprocess`` are as for ``load_network``. Blocks; on an event loop use
        ``import_network_async``. Raises BlobError for damaged or foreign bytes, and where this
        machine lacks what the network was compiled for; PropertyError for a value that it was not
        compiled with.
        """
        self._refuse_if_closed()
        _check_name(name, device or "")
        with placed(device=device or ""):
            blob = Blob.open(source)
        plugin, record, configuration = self._import_of(blob, device, config)
        if blob.is_mapped and not configuration.value_or_default(ENABLE_MMAP):
            with placed(device=device or ""):
                blob = Blob.open(source, is_mapped=False)
            plugin, record, configuration = self._import_of(blob, device, config)
        network = _imported(plugin, blob, record, configuration, name)
        if preprocess is not None or postprocess is not None:
            network = self._staged(network, preprocess, postprocess)
        self._keep(network)
        return _warmed(network, configuration)

    async def import_network_async(
        self,
        source: BlobSource,
        device: str | None = None,
        config: Mapping[Any, Any] | None = None,
        *,
        name: str | None = None,
        preprocess: Preprocess | None = None,
        postprocess: Postprocess | None = None,
    ) -> ExecutableNetwork:
        """Import a network on a thread, so that the event loop goes on; as ``import_network``.

        If the task is cancelled, the network is closed as soon as it is there.
        """
        return await _made_on_thread(
            partial(
                self.import_network,
                source,
                device,
                config,
                name=name,
                preprocess=preprocess,
                postprocess=postprocess,
            )
        )

    def import_part(
        self,
        blob: Blob,
        device: str | None = None,
        config: Mapping[Any, Any] | None = None,
        *,
        name: str | None = None,
    ) -> ExecutableNetwork:
        """Load a network from the frames of a blob, as a part of another one; for plugins."""
        plugin, record, configuration = self._import_of(blob, device, config)
        return _imported(plugin, blob, record, configuration, name)

    def _import_of(
        self, blob: Blob, device: str | None, config: Mapping[Any, Any] | None
    ) -> tuple[Plugin, NetworkRecord, Configuration]:
        """Return the device that a blob is imported on, its facts, and its properties there."""
        record = read_network_record(blob)
        refuse_other_device(None if device is None else str(self._parsed(device)), record)
        plugin, config_of = self._plugin(device or device_of(record))
        return plugin, record, configuration_of(config_of, record, device, config)

    def set_config(self, device: str | None, values: Mapping[Any, Any]) -> None:
        """Set properties of a device, or with None of all devices that know the key.

        For networks that are loaded from now on. Unknown keys and bad values are refused at once,
        and then nothing is set. With None, a device that cannot honour a value keeps its own;
        ``get_config`` tells.
        """
        if device is None:
            self._set_for_all(property_keys(values, "Core"))
            return
        name = self._physical_or_bare(device)
        self._registry.get(name.name).set_config(values, name.id)

    def get_config(self, device: str, key: str) -> Any:
        """Return the value that a network loaded on the device now would get."""
        name = self._physical_or_bare(device)
        return self._started(name.name).get_config(_key(key), name.id)

    def get_metric(self, device: str, key: str, **options: Any) -> Any:
        """Return a fact about a device, such as FULL_DEVICE_NAME; DEVICE_ID="1" is an option."""
        name = self._physical_or_bare(device)
        if "DEVICE_ID" in options:
            options["DEVICE_ID"] = str(options["DEVICE_ID"])
        if name.id is not None and options.setdefault("DEVICE_ID", name.id) != name.id:
            raise PropertyError(
                f"device {device!r} and DEVICE_ID={options['DEVICE_ID']!r} disagree; give one",
                "DEVICE_ID",
                device,
                value=options["DEVICE_ID"],
            )
        return self._started(name.name).get_metric(_key(key), options)

    def add_extension(self, extension: Extension, device: str = "REFERENCE") -> None:
        """Add a user's kernel to the devices of a kind; networks loaded from now on use it.

        REFERENCE and CPU take numpy functions.

        Raises NotSupportedError if the device takes none, GraphError if it is no Extension.
        """
        if not isinstance(extension, Extension):
            raise GraphError(
                f"add_extension wants an aioinfer.Extension, not {type(extension).__name__}"
            )
        self._started(self._physical_or_bare(device).name).add_extension(extension)

    def register_plugin(self, name: str, make: MakePlugin) -> None:
        """Add a device under a name: a Plugin class, or ``make(core_handle, name) -> Plugin``."""
        self._refuse_if_closed()
        self._registry.register(name, make)

    def unregister_plugin(self, name: str) -> None:
        """Forget a plugin; its networks go on, and it is closed when the Core is."""
        self._refuse_if_closed()
        self._registry.unregister(name)

    @property
    def plugin_names(self) -> list[str]:
        """The registered plugins, also those that cannot start."""
        return self._registry.names

    def why_missing(self, name: str) -> str | None:
        """Return why a plugin, or its search for devices, fails; None if it does not."""
        try:
            plugin = self._started(name)
            self._ids_of(plugin)
        except DeviceError as error:
            return str(error)
        return plugin.why_no_device()

    def plugin_of(self, device: str) -> Plugin:
        """Return the plugin of a device, for listings; raises DeviceError if it cannot start."""
        return self._started(self._physical_or_bare(device).name)

    @property
    def available_devices(self) -> list[str]:
        """The devices that are there: ``NAME``, or ``NAME.ID`` each if a plugin has several."""
        self._refuse_if_closed()
        devices = []
        for name in self._registry.names:
            try:
                ids = self._ids_of(self._started(name))
            except DeviceError as error:
                _log.info("%s", error)
                continue
            devices += [name] if len(ids) == 1 else [f"{name}.{device_id}" for device_id in ids]
        return devices

    def resolve_device(self, device: str) -> str:
        """Check that one device is there, with those inside it; return its full name; for plugins.

        Raises DeviceError, for a device that only answers queries as well.
        """
        name = self._parsed(device)
        for entry in name.entries:
            if not entry.is_excluded:
                self.resolve_device(entry.device)
        plugin = self._started(name.name)
        plugin.check_device_id(name.id or "")
        reason = plugin.why_no_device()
        if reason is not None:
            raise DeviceError(reason)
        return str(name)

    def device_configuration(self, device: str) -> Configuration:
        """Return the properties that a network loaded now would get; for plugins."""
        name = self._parsed(device)
        return self._started(name.name).configuration(name.id)

    def extensions_of(self, device: str) -> Sequence[Extension]:
        """Return the operators that users have brought for a device; for plugins."""
        return self._started(self._parsed(device).name).extensions

    @staticmethod
    def _ids_of(plugin: Plugin) -> list[str]:
        try:
            return plugin.device_ids()
        except Exception as error:  # a plugin's own mistake must not hide the other devices
            raise DeviceError(f"{plugin.name} cannot list its devices: {error!r}") from error

    def _plugin(
        self, device: str
    ) -> tuple[Plugin, Callable[[Mapping[Any, Any] | None], Configuration]]:
        name = self._parsed(device)
        plugin = self._started(name.name)

        def config_of(given: Mapping[Any, Any] | None) -> Configuration:
            values = property_keys(given, str(name))
            if name.entries:
                self._check_takes_list(plugin, name)
                text = str(name).partition(":")[2]
                if values.setdefault(DEVICE_PRIORITIES, text) != text:
                    raise PropertyError(
                        f"device {device!r} and {DEVICE_PRIORITIES}="
                        f"{values[DEVICE_PRIORITIES]!r} disagree; give one of them",
                        DEVICE_PRIORITIES,
                        device,
                    )
            configuration = plugin.configuration(name.id, values)
            given = {key: configuration[key] for key in configuration.given}
            plugin.honour_log_level(configuration.device, given)
            return configuration

        return plugin, config_of

    def _batched(
        self, device: str, plugin: Plugin, configuration: Configuration
    ) -> tuple[Plugin, Configuration]:
        """Return BATCH around the device where that is asked for without its name."""
        if any(declared.key == DEVICE_PRIORITIES for declared in plugin.properties):
            return plugin, configuration  # AUTO asks again for the device that it chooses
        if BATCH not in self._registry.names:
            return plugin, configuration
        knows = self._started(BATCH).configuration(None).knows
        found = implicit_batch(str(self._parsed(device)), configuration, knows)
        if found is None:
            return plugin, configuration
        batch, config_of = self._plugin(found[0])
        return batch, config_of(found[1])

    @staticmethod
    def _check_takes_list(plugin: Plugin, name: DeviceName) -> None:
        if not any(declared.key == DEVICE_PRIORITIES for declared in plugin.properties):
            raise DeviceError(
                f"{name.name} takes no list of devices; {str(name)!r} would need a virtual device "
                f"such as HETERO before the colon",
                device=str(name),
            )

    def _parsed(self, device: str) -> DeviceName:
        self._refuse_if_closed()  # after a fork, a thread that is gone may hold the registry's lock
        with placed(device=str(device)):
            if isinstance(device, str):
                device = understood(device, self._registry.names)
            return parse_device(device)

    def _started(self, name: str) -> Plugin:
        self._refuse_if_closed()
        plugin = self._registry.get(name)
        plugin.set_defaults(self._settings)
        return plugin

    def _physical_or_bare(self, device: str) -> DeviceName:
        name = self._parsed(device)
        if name.entries:
            raise DeviceError(
                f"{device!r}: ask and set the bare {name.name!r}, or a device of the list; what is "
                f"for one network goes into load_network",
                device=device,
            )
        plugin = self._started(name.name)
        if name.id is not None:
            plugin.check_device_id(name.id)
        return name

    def _set_for_all(self, values: Mapping[str, Any]) -> None:
        self._refuse_if_closed()
        common = {declared.key: declared for declared in _COMMON_PROPERTIES}
        parsed = {}
        for key, given in values.items():
            if key not in common:
                hint = nearest(key, common) or "; a property of one device needs its name"
                raise PropertyError(
                    f"no property {key!r} can be set for all devices{hint}",
                    key,
                    "Core",
                    value=given,
                )
            parsed[key] = common[key].value_of(given, "Core")
        with self._lock:
            self._settings = {**self._settings, **parsed}
        for plugin in self._registry.made():
            plugin.set_defaults(self._settings)

    def _staged(
        self,
        network: ExecutableNetwork,
        preprocess: Preprocess | None,
        postprocess: Postprocess | None,
    ) -> ExecutableNetwork:
        from ..network.staged_network import with_functions

        try:
            functions = UserFunctions(
                network.inputs, network.name, network.device, preprocess, postprocess
            )
            return with_functions(network, replace(functions, adopt=network.adopt_array), self)
        except BaseException:
            network.close()
            raise

    def _keep(self, network: ExecutableNetwork) -> ExecutableNetwork:
        with self._lock:
            if not self._is_closed:
                label = network.name, network.device, network.copy
                if self._labelled.get(label) is not network:  # AUTO returns what this Core loaded
                    network.copy = self._free_copy(network)
                    self._labelled[network.name, network.device, network.copy] = network
                    self._networks[next(self._network_numbers)] = network
                return network
        network.close()
        raise ClosedError("this Core was closed while the network was loaded; make a new one")

    def _free_copy(self, network: ExecutableNetwork) -> int:
        """Return the lowest number that no other open network of the same name and device has."""

        def is_free(number: int) -> bool:
            other = self._labelled.get((network.name, network.device, number))
            return other is None or other.is_closed

        return next(filter(is_free, itertools.count(1)))

    def statistics(self) -> CoreStatistics:
        """Picture its open networks, and how many tasks wait for each executor. Any thread.

        The networks that one such as HETERO's is made of are its ``parts``, and not in the list.
        ``aioinfer.prometheus`` makes metrics of it.
        """
        self._process.check("this Core")
        shown = self._shown_networks()
        return CoreStatistics(
            tuple([network.statistics() for network in shown]), self._executors.waiting_counts()
        )

    def trace(self) -> Trace:
        """Join the traces of its open networks, to be saved as one page; any thread.

        Stages and labels of requests begin with the name of their network there; ``name#2`` is
        that of copy 2 (``NetworkStatistics.copy``).
        """
        from ..tracing.timeline import Trace

        self._process.check("this Core")
        shown = self._shown_networks()
        traces = [network.trace().labelled(network.copy) for network in shown]
        names = ", ".join(trace.network for trace in traces)
        devices = ", ".join(dict.fromkeys(trace.device for trace in traces))
        return Trace.merged(names or "no network", devices or "no device", traces)

    def _shown_networks(self) -> list[ExecutableNetwork]:
        with self._lock:
            networks = list(self._networks.values())
        return [known for known in networks if not (known.is_part or known.is_closed)]

    def _refuse_if_closed(self) -> None:
        if not self._process.is_current:
            raise self._process.error("this Core")
        if self._is_closed:
            raise closed_core()

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> bool:
        """Close its networks, executors and plugins; twice is fine.

        Runs under way finish, or end with ClosedError if ``drain`` is false. Blocks, at most
        ``timeout_s`` for the runs; False says that some were still on their devices then, and the
        next close goes on. Raises PropertyError for a negative ``timeout_s``, and RequestStateError
        on one of aioinfer's own threads.
        """
        refuse_own_thread("close")
        check_timeout(timeout_s, {})
        if not self._process.is_current:
            return True
        give_up_at = None if timeout_s is None else monotonic() + timeout_s
        with self._lock:
            self._is_closed = True
            networks = list(self._networks.values())
        # Outer networks were made after those that they use, or load more as they go.
        networks.reverse()
        networks.sort(key=attrgetter("is_part"))
        for network in networks if not drain else ():
            network.abort()
        is_done = True
        for network in networks:
            left_s = None if give_up_at is None else max(0.0, give_up_at - monotonic())
            is_done = network.close(timeout_s=left_s) and is_done
        if not is_done:
            return False
        self._executors.close()
        self._registry.close()
        return True

    def __reduce__(self) -> NoReturn:
        raise NotSupportedError(
            "a Core cannot be pickled or copied, for it owns threads and devices; share it between "
            "threads and tasks as it is, and make one of its own in another process"
        )

    def __repr__(self) -> str:
        return f"<Core {'closed' if self._is_closed else 'open'}: {', '.join(self.plugin_names)}>"


async def _made_on_thread(make: Callable[[], ExecutableNetwork]) -> ExecutableNetwork:
    """Make a network on a thread; if the task is cancelled, close it as soon as it is there."""
    from anyio import lowlevel, to_thread

    lock = threading.Lock()
    loaded: list[ExecutableNetwork] = []
    is_wanted = True

    def load() -> None:
        network = make()
        with lock:
            if is_wanted:
                loaded.append(network)
                return
        network.close()

    try:
        await to_thread.run_sync(load)
        await lowlevel.checkpoint_if_cancelled()
    except BaseException:  # a task of asyncio is cancelled at once, others after the thread
        with lock:
            is_wanted = False
        for network in loaded:
            await network.aclose()
        raise
    return loaded[0]


@contextmanager
def _failures_named(device: str) -> Iterator[None]:
    """Raise errors of ours for want of a resource, and for a model that Python cannot walk."""
    try:
        with shortage_as_error(f"loading a model for {device}"):
            yield
    except AioInferError as error:
        error.within(device=device)
        raise
    except RecursionError as error:
        raise ModelError("the model is nested, or its nodes follow each other, too deep") from error
    except Exception as error:
        if type(error).__name__ != "EncodeError":  # protobuf's, which is not imported for it
            raise
        raise ModelError(
            f"a part of the model cannot be written for {device} ({error}): it is over 2 GiB "
            f"without its weights, nested too deep, or there is not enough memory"
        ) from error


def _in_memory(model: Model) -> Model:
    """Bring mapped constants into memory, in the model itself where no caller holds it."""
    made = model if model.is_disposable else model.copy()
    read_constants(made.graph)
    made.is_mapped, made.is_disposable = False, True
    return made


def _imported(
    plugin: Plugin, blob: Blob, record: NetworkRecord, config: Configuration, name: str | None
) -> ExecutableNetwork:
    """Have a plugin load a blob, and its requests keep what they kept."""
    if name is not None:
        record = replace(record, name=name)
    with full_collections_paused(), _failures_named(config.device), placed(device=config.device):
        return import_blob(plugin, blob, record, config)


def _warmed(network: ExecutableNetwork, config: Configuration) -> ExecutableNetwork:
    """Run a network once of each shape that was asked for; it is closed if that fails."""
    if config.value_or_default(INPUT_SHAPES):
        try:
            network.warm_up()
        except BaseException:
            network.close()
            raise
    return network


def _cache_of(plugin: Plugin, config: Configuration) -> ModelCache | None:
    """Return the cache that a configuration names, or AIOINFER_CACHE_DIR; None without one.

    A device made of devices has those keep their parts, and functions of users are in no blob.
    """
    named = config.value_or_default(CACHE_DIR) or os.environ.get("AIOINFER_CACHE_DIR", "")
    if not named or not plugin.is_cached or plugin.extensions:
        return None
    from .model_cache import ModelCache

    try:
        folder = Path(named).expanduser()
    except RuntimeError as error:  # there is no such user
        _log.warning("CACHE_DIR %r is not used: %s", named, error)
        return None
    return ModelCache(folder, plugin, config)


def _path_of(source: Any) -> Path | None:
    return Path(os.fsdecode(source)) if isinstance(source, str | os.PathLike) else None


def _check_name(name: Any, device: str) -> None:
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


def _key(key: Any) -> str:
    return str(getattr(key, "key", key))
