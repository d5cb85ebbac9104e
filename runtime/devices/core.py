"""Core: the entry object. Reads models, knows the devices, loads networks."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Union

from ...errors import GraphError, NotSupportedError, PropertyError, placed
from ...executors import ExecutorManager, allowance_kept
from ...executors.base import refuse_own_thread
from ...executors.fork import ProcessMark
from ..blobs.network_record import NetworkRecord, read_network_record
from ..blobs.reader import Blob, BlobSource
from ..graph import Model
from ..graph.mapped_file import constants_held
from ..loops.closing import Closing
from ..network.deadlines import check_timeout
from ..network.states.state_pairs import find_pairs
from ..network.user_functions import Postprocess, Preprocess, UserFunctions
from ..passes import SupportMap
from ..properties.properties import ENABLE_MMAP, Configuration, property_keys
from ..tracing.statistics import CoreStatistics
from ..type_inference import has_static_types
from .collection_pause import full_collections_paused
from .device_lookup import DeviceLookup
from .extension import Extension, TypeRuleOf
from .importing import (
    FileStatus,
    blob_at_fault,
    chosen_by_caller,
    configuration_of,
    device_of,
    file_status,
    import_blob,
    refuse_other_device,
    without_local,
)
from .loading import (
    cache_of,
    check_network_name,
    in_memory,
    loading,
    loading_failures_named,
    made_on_thread,
    path_of,
    reading_again,
    warm_up_if_asked,
)
from .open_networks import OpenNetworks
from .plugin import Division, Plugin
from .plugin_registry import MakePlugin, PluginRegistry

if TYPE_CHECKING:
    import onnx

    from ..network.executable_network import ExecutableNetwork
    from ..tracing.timeline import Trace

__all__ = ["Core", "ModelSource"]

ModelSource = Union[str, os.PathLike[str], bytes, BinaryIO, "onnx.ModelProto", Model]
"""What a model may be read from."""


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
        self._executors = ExecutorManager()
        self._registry = PluginRegistry(self)
        self._devices = DeviceLookup(self._registry, self._process)
        self._networks = OpenNetworks()

    @property
    def executors(self) -> ExecutorManager:
        """The executors that all networks of this Core share; for plugins."""
        return self._executors

    def read_model(self, source: ModelSource) -> Model:
        """Read an ONNX model from a path, bytes, a binary file object or a ModelProto.

        Models of older operator sets are converted. Raises ModelError that says what is wrong.
        """
        self._devices.refuse_if_closed()
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
        with loading(device):
            check_network_name(name, device)
            plugin, config_of = self._devices.loadable(device)
            chosen = config_of(config)
            return self._loaded(device, plugin, chosen, model, name, preprocess, postprocess)

    def loading_on(
        self, device: str, config: Mapping[Any, Any] | None = None
    ) -> Callable[[Model], ExecutableNetwork]:
        """Return what loads models as ``load_network`` does, after it has been told where and how.

        For plugins that load many as parts of one, while that is loaded: device and properties are
        looked up once.
        """
        plugin, config_of = self._devices.loadable(device)
        configuration = config_of(config)

        def load(model: Model) -> ExecutableNetwork:
            with loading_failures_named(device):
                network = self._compiled(device, plugin, model, configuration)
            self._networks.keep(network)
            warm_up_if_asked(network, configuration)
            return network

        return load

    def _loaded(
        self,
        device: str,
        plugin: Plugin,
        configuration: Configuration,
        model: ModelSource,
        name: str | None,
        preprocess: Preprocess | None,
        postprocess: Postprocess | None,
    ) -> ExecutableNetwork:
        cache, file = cache_of(plugin, configuration), path_of(model)
        with full_collections_paused(), allowance_kept():
            is_alone = self._devices.batched(device, plugin, configuration)[0] is plugin
            network = cache.load_known(file, name) if cache and file and is_alone else None
            if network is None:
                network = self._read_and_compiled(device, plugin, model, configuration, name)
        if preprocess is not None or postprocess is not None:
            network = self._staged(network, preprocess, postprocess)
        self._networks.keep(network)
        warm_up_if_asked(network, configuration)
        return network

    def _read_and_compiled(
        self,
        device: str,
        plugin: Plugin,
        model: ModelSource,
        configuration: Configuration,
        name: str | None,
    ) -> ExecutableNetwork:
        was = file_status(path_of(model))
        wanted = self._read(model, is_mapped=_may_map(plugin, configuration))
        if wanted is not model:
            wanted.is_disposable = True
            if was is not None and wanted.is_one_file and wanted.path is not None:
                read = partial(self._read, is_mapped=False)
                wanted.read_again = reading_again(read, wanted.path, was)
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
    ) -> ExecutableNetwork:
        """Have the plugin compile a model, or import it where its content is known."""
        if wanted.is_mapped and (
            has_static_types(wanted.inputs) or not _may_map(plugin, configuration)
        ):
            wanted = in_memory(wanted)  # once is enough
        pairs = find_pairs(wanted, configuration)
        if not pairs:
            plugin, configuration = self._devices.batched(device, plugin, configuration)
        cache = cache_of(plugin, configuration)
        held = constants_held(wanted.graph) if wanted.is_mapped else nullcontext()
        with held, placed(network=wanted.name):
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
        return await made_on_thread(
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
        with loading(device):
            plugin, config_of = self._devices.loadable(device)
            return plugin.query_network(self._read(model, is_mapped=True), config_of(config))

    def divide_network(
        self, model: ModelSource, device: str, config: Mapping[Any, Any] | None = None
    ) -> Division:
        """Cut a model as a device such as ``HETERO:CUDA,CPU`` would load it; compile nothing.

        So a partition can be planned where its devices are not, if they answer queries. Raises
        UnsupportedOpError for a node that none takes, NotSupportedError for a device that runs a
        model whole.
        """
        with full_collections_paused(), loading(device):
            plugin, config_of = self._devices.loadable(device)
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
        with loading(device or ""):
            self._devices.refuse_if_closed()
            check_network_name(name, device or "")
            blob = Blob.open(source)
            plugin, record, configuration = self._import_of(blob, device, config)
            if blob.is_mapped and not configuration.value_or_default(ENABLE_MMAP):
                blob = Blob.open(source, is_mapped=False)
                plugin, record, configuration = self._import_of(blob, device, config)
            chosen = chosen_by_caller(record, configuration, device, config)
            network = _imported(plugin, blob, record, configuration, chosen, name)
            if preprocess is not None or postprocess is not None:
                network = self._staged(network, preprocess, postprocess)
            self._networks.keep(network)
            with blob_at_fault(record, configuration.device, chosen):
                warm_up_if_asked(network, configuration)
        return network

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
        return await made_on_thread(
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
        chosen = chosen_by_caller(record, configuration, device, config)
        return _imported(plugin, blob, record, configuration, chosen, name)

    def _import_of(
        self, blob: Blob, device: str | None, config: Mapping[Any, Any] | None
    ) -> tuple[Plugin, NetworkRecord, Configuration]:
        """Return the device that a blob is imported on, its facts, and its properties there."""
        record = read_network_record(blob)
        refuse_other_device(None if device is None else str(self._devices.parsed(device)), record)
        plugin, config_of = self._devices.loadable(device or device_of(record, self.plugin_names))
        record = without_local(record, self._devices.started)
        return plugin, record, configuration_of(config_of, record, device, config)

    def set_config(self, device: str | None, values: Mapping[Any, Any]) -> None:
        """Set properties of a device, or with None of all devices that know the key.

        For networks that are loaded from now on. Unknown keys and bad values are refused at once,
        and then nothing is set. With None, a device that cannot honour a value keeps its own;
        ``get_config`` tells.
        """
        if device is None:
            self._devices.set_for_all(property_keys(values, "Core"))
            return
        name = self._devices.physical_or_bare(device)
        self._registry.get(name.name).set_config(values, name.id)

    def get_config(self, device: str, key: str) -> Any:
        """Return the value that a network loaded on the device now would get."""
        name = self._devices.physical_or_bare(device)
        return self._devices.started(name.name).get_config(_key(key), name.id)

    def get_metric(self, device: str, key: str, **options: Any) -> Any:
        """Return a fact about a device, such as FULL_DEVICE_NAME; DEVICE_ID="1" is an option."""
        name = self._devices.physical_or_bare(device)
        if "DEVICE_ID" in options:
            options["DEVICE_ID"] = str(options["DEVICE_ID"])
        if name.id is not None and options.setdefault("DEVICE_ID", name.id) != name.id:
            raise PropertyError(
                f"device {device!r} and DEVICE_ID={options['DEVICE_ID']!r} disagree; give one",
                "DEVICE_ID",
                device,
                value=options["DEVICE_ID"],
            )
        return self._devices.started(name.name).get_metric(_key(key), options)

    def add_extension(self, extension: Extension, device: str = "REFERENCE") -> None:
        """Add a user's kernel to the devices of a kind; networks loaded from now on use it.

        REFERENCE and CPU take numpy functions.

        Raises NotSupportedError if the device takes none, GraphError if it is no Extension.
        """
        if not isinstance(extension, Extension):
            raise GraphError(
                f"add_extension wants an aioinfer.Extension, not {type(extension).__name__}"
            )
        self._devices.started(self._devices.physical_or_bare(device).name).add_extension(extension)

    def register_plugin(self, name: str, make: MakePlugin) -> None:
        """Add a device under a name: a Plugin class, or ``make(core_handle, name) -> Plugin``."""
        self._devices.refuse_if_closed()
        self._registry.register(name, make)

    def unregister_plugin(self, name: str) -> None:
        """Forget a plugin; its networks go on, and it is closed when the Core is."""
        self._devices.refuse_if_closed()
        self._registry.unregister(name)

    @property
    def plugin_names(self) -> list[str]:
        """The registered plugins, also those that cannot start."""
        return self._registry.names

    def why_missing(self, name: str) -> str | None:
        """Return why a plugin, or its search for devices, fails; None if it does not."""
        return self._devices.why_missing(name)

    def plugin_of(self, device: str) -> Plugin:
        """Return the plugin of a device, for listings; raises DeviceError if it cannot start."""
        return self._devices.started(self._devices.physical_or_bare(device).name)

    @property
    def available_devices(self) -> list[str]:
        """The devices that are there: ``NAME``, or ``NAME.ID`` each if a plugin has several."""
        return self._devices.available()

    def resolve_device(self, device: str) -> str:
        """Check that one device is there, with those inside it; return its full name; for plugins.

        Raises DeviceError, for a device that only answers queries as well.
        """
        return self._devices.resolve(device)

    def device_configuration(self, device: str) -> Configuration:
        """Return the properties that a network loaded now would get; for plugins."""
        name = self._devices.parsed(device)
        return self._devices.started(name.name).configuration(name.id)

    def extensions_of(self, device: str) -> Sequence[Extension]:
        """Return the operators that users have brought for a device; for plugins."""
        return self._devices.started(self._devices.parsed(device).name).extensions

    def type_rules_of(self, device: str) -> TypeRuleOf:
        """Return what tells the types of nodes that ONNX does not know; for plugins."""
        return self._devices.started(self._devices.parsed(device).name).type_rule_of

    def _staged(
        self,
        network: ExecutableNetwork,
        preprocess: Preprocess | None,
        postprocess: Postprocess | None,
    ) -> ExecutableNetwork:
        from ..network.staged_network import with_functions

        functions = UserFunctions(
            network.inputs, network.name, network.device, preprocess, postprocess
        )
        return with_functions(network, replace(functions, adopt=network.adopt_array), self)

    def statistics(self) -> CoreStatistics:
        """Picture its open networks, and how many tasks wait for each executor. Any thread.

        The networks that one such as HETERO's is made of are its ``parts``, and not in the list.
        ``aioinfer.prometheus`` makes metrics of it.
        """
        self._process.check("this Core")
        shown = self._networks.shown()
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
        shown = self._networks.shown()
        traces = [network.trace().labelled(network.copy) for network in shown]
        names = ", ".join(trace.network for trace in traces)
        devices = ", ".join(dict.fromkeys(trace.device for trace in traces))
        return Trace.merged(names or "no network", devices or "no device", traces)

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
        self._devices.is_closed = True
        networks = self._networks.end()
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
        state = "closed" if self._devices.is_closed else "open"
        return f"<Core {state}: {', '.join(self.plugin_names)}>"


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
    if name is not None:
        record = replace(record, name=name)
    with (
        full_collections_paused(),
        loading(config.device),
        placed(device=config.device),
    ):
        return import_blob(plugin, blob, record, config, chosen)


def _key(key: Any) -> str:
    return str(getattr(key, "key", key))
