"""Core: the entry object. Reads models, knows the devices, loads networks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import GraphError, NotSupportedError, PropertyError
from ...executors import ExecutorManager, full_collections_paused
from ...executors.base import refuse_own_thread
from ...executors.fork import ProcessMark
from ...executors.late_imports import late_imports
from ..graph import Model
from ..loops.closing import Closing
from ..network.deadlines import check_timeout
from ..passes import SupportMap
from ..properties.properties import Configuration, property_keys
from .device_lookup import DeviceLookup
from .extension import Extension, TypeRuleOf
from .loading import loading, made_on_thread
from .network_loader import ModelSource, NetworkLoader, read_source
from .open_networks import OpenNetworks
from .plugin import Division, Plugin
from .plugin_registry import MakePlugin, PluginRegistry

if TYPE_CHECKING:
    from ..blobs.reader import Blob, BlobSource
    from ..network.executable_network import ExecutableNetwork
    from ..network.user_functions import Postprocess, Preprocess
    from ..tracing.statistics import CoreStatistics
    from ..tracing.timeline import Trace

__all__ = ["Core", "ModelSource"]


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
        self._closer = threading.RLock()
        self._registry = PluginRegistry(self)
        self._devices = DeviceLookup(self._registry, self._process)
        self._networks = OpenNetworks()
        self._loader = NetworkLoader(self, self._devices, self._networks)

    @property
    def executors(self) -> ExecutorManager:
        """The executors that all networks of this Core share; for plugins."""
        return self._executors

    def read_model(self, source: ModelSource) -> Model:
        """Read an ONNX model from a path, bytes, a binary file object or a ModelProto.

        Models of older operator sets are converted. Raises ModelError that says what is wrong.
        """
        self._devices.refuse_if_closed()
        return read_source(source, is_mapped=False)

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
            return self._loader.load(model, device, config, name, (preprocess, postprocess))

    def loading_on(
        self, device: str, config: Mapping[Any, Any] | None = None
    ) -> Callable[[Model], ExecutableNetwork]:
        """Return what loads models on a device as ``load_network`` does.

        For plugins that load many as parts of one, while that is loaded: device and properties are
        looked up once.
        """
        return self._loader.loading_on(device, config)

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
            return plugin.query_network(read_source(model, is_mapped=True), config_of(config))

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
            return plugin.divide_network(read_source(model, is_mapped=True), config_of(config))

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
            return self._loader.load_blob(source, device, config, name, (preprocess, postprocess))

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
        return self._loader.import_part(blob, device, config, name)

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
        return self._devices.names

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

    def statistics(self) -> CoreStatistics:
        """Picture its open networks, and how many tasks wait for each executor. Any thread.

        The networks that one such as HETERO's is made of are its ``parts``, and not in the list.
        ``aioinfer.prometheus`` makes metrics of it.
        """
        with late_imports:
            from ..tracing.statistics import CoreStatistics

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
        with late_imports:
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
        ``timeout_s`` for the runs; False says that some were still on their devices then: a thread
        goes on when these have ended, and a next close waits for that. Raises PropertyError for a
        negative ``timeout_s``, and RequestStateError on one of aioinfer's own threads.
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
            self._close_later("Core")
            return False
        with self._closer:  # a second caller returns when the first is done
            self._executors.close()
            self._registry.close()
        self._join_late_closer()
        return True

    def __reduce__(self) -> NoReturn:
        raise NotSupportedError(
            "a Core cannot be pickled or copied, for it owns threads and devices; share it between "
            "threads and tasks as it is, and make one of its own in another process"
        )

    def __repr__(self) -> str:
        state = "closed" if self._devices.is_closed else "open"
        return f"<Core {state}: {', '.join(self.plugin_names)}>"


def _key(key: Any) -> str:
    return str(getattr(key, "key", key))
