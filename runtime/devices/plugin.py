"""Plugin: what drives the devices of one kind; a backend subclasses it (docs/add-a-device.md)."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from ...errors import DeviceError, NotSupportedError, PropertyError, nearest, placed
from ...executors.late_imports import late_imports
from ..graph import Model, Node
from ..passes import PassReport, Support, SupportMap, map_to_original, run_passes
from ..passes.default_passes import default_passes
from ..properties.properties import (
    DEVICE_ID,
    LOG_LEVEL,
    LOG_LEVELS,
    STANDARD_PROPERTIES,
    Configuration,
    Metric,
    Property,
    property_keys,
)
from .extension import Extension, NodeRule, TypeRuleOf, rule_of_extension

if TYPE_CHECKING:
    from ...executors import ExecutorManager
    from ..blobs.network_record import NetworkRecord
    from ..blobs.reader import Blob
    from ..network.executable_network import ExecutableNetwork

__all__ = ["CoreHandle", "Division", "Plugin"]

_log = logging.getLogger("aioinfer")


class CoreHandle(Protocol):
    """What a plugin may ask of the Core that made it; virtual devices reach others through it."""

    @property
    def executors(self) -> ExecutorManager:
        """The executors that all networks of the Core share."""

    def load_network(
        self, model: Any, device: str = "AUTO", config: Mapping[Any, Any] | None = None
    ) -> ExecutableNetwork:
        """Compile a model for a device."""

    def loading_on(
        self, device: str, config: Mapping[Any, Any] | None = None
    ) -> Callable[[Model], ExecutableNetwork]:
        """Return what compiles models for a device; for callers that load many alike."""

    def import_part(
        self,
        blob: Blob,
        device: str | None = None,
        config: Mapping[Any, Any] | None = None,
        *,
        name: str | None = None,
    ) -> ExecutableNetwork:
        """Load a network from the frames of a blob, which ``write_blob`` wrote."""

    def query_network(
        self, model: Any, device: str, config: Mapping[Any, Any] | None = None
    ) -> SupportMap:
        """Ask a device which nodes of a model it can run."""

    def get_metric(self, device: str, key: str, **options: Any) -> Any:
        """Ask a device for a fact."""

    @property
    def plugin_names(self) -> list[str]:
        """The registered plugins, also those that cannot start."""

    @property
    def available_devices(self) -> list[str]:
        """The devices of all plugins that could start."""

    def resolve_device(self, device: str) -> str:
        """Check that a device is there and return its full name; raises DeviceError."""

    def device_configuration(self, device: str) -> Configuration:
        """Return what a device would be configured with now: defaults and ``set_config``."""

    def extensions_of(self, device: str) -> Sequence[Extension]:
        """Return the operators that users have brought for a device."""

    def type_rules_of(self, device: str) -> TypeRuleOf:
        """Return a device's ``type_rule_of``."""


class Division(Protocol):
    """A model cut into pieces for several devices, none of them compiled."""

    @property
    def partition(self) -> Any:
        """Which node runs where and why, and what crosses, as plain data."""

    def explain(self) -> str:
        """Return the same in words."""

    def selection_trace(self) -> str:
        """Return how the pieces were selected, step by step, as Markdown."""

    def diagram(self, language: Literal["dot", "svg"]) -> str:
        """Draw every node in the colour of its device, and what crosses with its size."""

    def subgraph_models(self) -> list[tuple[str, Model]]:
        """Return each piece's device and a copy of its model, in order of execution."""


class Plugin(ABC):
    """Drives the devices of one kind: says which there are, what they can, and compiles for them.

    The constructor checks that the backend can work and raises DeviceError, with the reason, if it
    cannot; one that answers queries without a device does not raise, and ``why_no_device`` says
    why. ``properties`` are the keys beyond ``standard_properties``, which every device with
    hardware has. Methods may be called from any thread.

    ```python
    class Refusing(aioinfer.Plugin):
        def device_ids(self):
            return ["0"]

        def full_device_name(self, device_id):
            return "a device without kernels"

        def find_unsupported(self, model, config):
            return {node.name: "it has no kernels" for node in model.graph.nodes}

        def compile_network(self, model, config):
            raise aioinfer.errors.NotSupportedError(f"{self.name} has no kernels; use CPU")

    with aioinfer.Core() as core:
        core.register_plugin("REFUSING", Refusing)
        answers = core.query_network("model.onnx", "REFUSING")
        assert not any(answer.supported for answer in answers.values())
    ```
    """

    standard_properties: ClassVar[Sequence[Property[Any]]] = STANDARD_PROPERTIES
    properties: ClassVar[Sequence[Property[Any]]] = ()
    takes_mapped_constants: ClassVar[bool] = False
    """True for devices that keep no weights as they are, so that those may stay in their file."""
    is_cached: ClassVar[bool] = True
    """True for devices whose networks CACHE_DIR keeps; those that are made of devices have none."""
    takes_extensions: ClassVar[bool] = False
    """True for devices that run operators which users bring along; see ``extensions``."""
    unfolded_ops: ClassVar[frozenset[str]] = frozenset()
    """Operators that are never computed ahead, because the device asks where numbers come from."""

    def __init__(self, core: CoreHandle, name: str) -> None:
        self.core, self.name = core, name
        self._settings: dict[str, dict[str, Any]] = {}
        self._settings_lock = threading.Lock()
        self._defaults: Mapping[str, Any] = {}
        self._offered: Mapping[str, Any] = {}
        self._extensions: dict[tuple[str, str], Extension] = {}

    @abstractmethod
    def device_ids(self) -> list[str]:
        """List the ids of the devices that are there, the default first."""

    @abstractmethod
    def full_device_name(self, device_id: str) -> str:
        """Return the name of the hardware behind a device."""

    @abstractmethod
    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        """Return the nodes of a transformed model that cannot run, by name, each with the reason.

        What is not named must compile, alone and in any cut around it.
        """

    @abstractmethod
    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        """Compile a transformed model, which is the plugin's own. May take long; blocks."""

    def find_implementations(self, _model: Model, _config: Configuration) -> Mapping[str, str]:
        """(optional) Tell by name what will compute nodes of a transformed model that it takes.

        As far as that is known before they are compiled, and worth a decision: AUTO weighs what
        ``runtime.costs`` has a price for, which is ``numpy``. By default nothing is told.
        """
        return {}

    def why_no_device(self) -> str | None:
        """(optional) Say why there is no device to load on, for one that answers queries even so.

        None where there is one, and by default: a plugin without devices cannot start.
        """
        return None

    def check_values(self, config: Configuration) -> None:
        """(optional) Refuse values that this device cannot honour, with PropertyError."""
        return

    def metrics(self) -> Sequence[Metric]:
        """(optional) List facts beyond the standard ones."""
        return ()

    def capabilities(self) -> list[str]:
        """(optional) List OPTIMIZATION_CAPABILITIES, such as FP32 or EXPORT_IMPORT."""
        return ["FP32"]

    def stream_range(self) -> tuple[int, int]:
        """(optional) Return the lowest and highest useful NUM_STREAMS."""
        return (1, 1)

    def close(self) -> None:
        """(optional) Give the backend back; called once, after all its networks were closed."""
        return

    def transform_network(self, model: Model, config: Configuration) -> tuple[Model, PassReport]:
        """(optional) Rewrite a copy of a model into what the kernels want; see ``to_rewrite``.

        Used for compiling and for queries alike. By default: the common passes.
        """
        copied = model.to_rewrite()
        return copied, run_passes(copied, default_passes(self.unfolded_ops))

    @property
    def extensions(self) -> Sequence[Extension]:
        """The operators that users have brought for this device, as they are now."""
        return tuple(self._extensions.values())

    def type_rule_of(self, node: Node, _opsets: Mapping[str, int]) -> NodeRule | None:
        """(optional) Return what tells a node's types where ONNX does not; an extension's rule.

        It is tied to the node, and asked whenever the types of the model, or of a piece that has
        the node, are inferred: also on other devices, and on other threads.
        """
        return rule_of_extension(node, self._extensions.values())

    def add_extension(self, extension: Extension) -> None:
        """Keep a user's kernel for an operator, if the device ``takes_extensions``; or refuse."""
        if not self.takes_extensions:
            raise NotSupportedError(
                f"{self.name} takes no extensions; add it to a device that does, such as "
                f"REFERENCE, and load on 'HETERO:{self.name},REFERENCE'",
                device=self.name,
            )
        with self._settings_lock:
            key = extension.domain, extension.op_type
            self._extensions = {**self._extensions, key: extension}

    def import_network(
        self, blob: Blob, record: NetworkRecord, config: Configuration
    ) -> ExecutableNetwork:
        """(optional) Load what the network's ``export`` wrote; by default compile its model.

        ``record`` are its facts. Raises BlobError for what no export of this device writes.
        """
        with late_imports:
            from ..blobs.graph_record import read_model_record

        blob.check_frames()
        model = self.bind_extensions(read_model_record(blob))
        model.name = record.name
        network = self.compile_network(model, config)
        network.removed_nodes = record.removed_nodes
        network.remarks = record.remarks
        if blob.is_mapped:
            network.model_again = partial(_model_of, blob)
        return network

    def cache_facts(self, config: Configuration) -> Mapping[str, Any]:
        """(optional) Tell what a cached network depends on beside its model and properties."""
        return {"full_device_name": self.full_device_name(config[DEVICE_ID])}

    def bind_extensions(self, model: Model) -> Model:
        """(optional) Tie an imported model to the operators that users have brought."""
        return model

    def divide_network(self, model: Model, config: Configuration) -> Division:
        """(optional) Cut a copy of a model as ``load_network`` would; by default refuse.

        Nothing is compiled, and the devices need not be there if they answer queries.
        """
        raise NotSupportedError(
            f"{config.device} runs a model whole, so there is no partition to draw or save; query "
            f"a device such as 'HETERO:CUDA,CPU'"
        )

    def remarks(self, model: Model, report: PassReport, config: Configuration) -> tuple[str, ...]:
        """(optional) Say what rewrites did that users should know, for a network's ``explain``.

        ``model`` is what is to be compiled, and may be rewritten then.
        """
        return ()

    def query_network(self, model: Model, config: Configuration) -> SupportMap:
        """Answer for each original node: supported, or the reason why not."""
        transformed, report = self.transform_network(model, config)
        reasons = self.find_unsupported(transformed, config)
        told = self.find_implementations(transformed, config)
        verdict = {
            node.name: Support(False, reasons[node.name])
            if node.name in reasons
            else Support(True, "", told.get(node.name, ""))
            for node in transformed.graph.nodes
        }
        names = dict.fromkeys(name for node in model.graph.nodes for name in node.fused_from)
        answers = map_to_original(names, transformed.graph, report.removed_names, verdict)
        if transformed is not model:
            transformed.dispose()
        return answers

    def load_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        """Transform the model, or a copy of one that a caller holds, and compile it."""
        read_again = model.read_again
        transformed, report = self.transform_network(model, config)
        if model.is_disposable and transformed is not model:
            model.dispose()  # weights that were folded into others are free from here on
        log = logging.getLogger(f"aioinfer.{config.device}")
        log.debug("model %r: %s", transformed.name, report)
        transformed.is_settled = not report.patch_count
        remarks = self.remarks(transformed, report, config)
        network = self.compile_network(transformed, config)
        network.removed_nodes, network.remarks = report.removed_names, remarks
        network.is_as_given = not report.patch_count
        if read_again is not None:
            network.model_again = partial(self._transformed_again, read_again, config)
        log.info("model %r is compiled for %s: %r", network.name, network.device, config)
        return network

    def load_alike(
        self, _model: Model, _config: Configuration, _known: ExecutableNetwork
    ) -> ExecutableNetwork | None:
        """(optional) Load a model that differs in names alone from that of a network just loaded.

        ``known`` has the same properties and was compiled from its model as it was given. What was
        compiled for it may be shared, as far as no name is in it and a close does not free it. None
        where nothing can be, and by default: it is loaded as any other then.
        """
        return None

    def _transformed_again(self, read_again: Callable[[], Model], config: Configuration) -> Model:
        model = read_again()
        model.is_disposable = True
        return self.transform_network(model, config)[0]

    def configuration(
        self, device_id: str | None, given: Mapping[Any, Any] | None = None
    ) -> Configuration:
        """Resolve all properties of a device: argument over ``set_config`` over default.

        What is set for the kind holds for each of its devices, where nothing is set for that one.
        """
        return self._resolve(self._defaults, device_id, given)

    def _resolve(
        self,
        defaults: Mapping[str, Any],
        device_id: str | None,
        given: Mapping[Any, Any] | None = None,
    ) -> Configuration:
        device = self.name if device_id is None else f"{self.name}.{device_id}"
        values = property_keys(given, device)
        self._refuse_other_id(device_id, values)
        base = Configuration(device, self.all_properties(), self.all_metrics())
        base = base.with_defaults(defaults).with_values(self._settings.get("", {}))
        config = base.with_values(values)
        if config.knows(DEVICE_ID.key):  # a device made of devices has no id
            ids = self.device_ids()
            chosen = device_id or config[DEVICE_ID] or (ids[0] if ids else "")
            self.check_device_id(chosen)
            config = base.with_values(self._settings.get(chosen, {})).with_values(values)
            config = config.with_values({DEVICE_ID: chosen})
        else:
            self.check_device_id(device_id or "")
        try:
            self.check_values(config)
        except PropertyError as error:
            if error.value is None and config.knows(error.key):
                error.value = config[error.key]
            raise
        return config

    def _refuse_other_id(self, device_id: str | None, given: Mapping[str, Any]) -> None:
        """Refuse an id in the name and another one beside it; ``set_config`` is only a default."""
        wanted = given.get(DEVICE_ID.key, device_id)
        if device_id is not None and wanted != device_id:
            raise PropertyError(
                f"device '{self.name}.{device_id}' and DEVICE_ID={wanted!r} disagree; give one",
                DEVICE_ID.key,
                self.name,
            )

    def check_device_id(self, device_id: str) -> None:
        """Raise DeviceError for an id that is not there."""
        ids = self.device_ids()
        if device_id and device_id not in ids:
            raise DeviceError(
                f"{self.name} has no device {device_id!r}; it has "
                f"{[f'{self.name}.{known}' for known in ids]}",
                device=f"{self.name}.{device_id}",
            )

    def set_defaults(self, values: Mapping[str, Any]) -> None:
        """Take those of the Core's settings for all devices that this one can honour."""
        if values is self._offered:
            return
        taken: dict[str, Any] = {}
        for key, value in values.items():
            try:
                self._resolve({**taken, key: value}, None)
            except PropertyError as error:
                _log.info("%s keeps its own %s: %s", self.name, key, error)
            else:
                taken[key] = value
        self._defaults, self._offered = taken, values
        self.honour_log_level(self.name, taken)

    @staticmethod
    def honour_log_level(device: str, values: Mapping[str, Any]) -> None:
        """Set the device's logger to the level LOG_LEVEL, if these values have it."""
        if LOG_LEVEL.key in values:
            level = LOG_LEVELS[LOG_LEVEL.value_of(values[LOG_LEVEL.key], device)]
            logging.getLogger(f"aioinfer.{device}").setLevel(level)

    def set_config(self, values: Mapping[Any, Any], device_id: str | None = None) -> None:
        """Set properties of one device, or of all of this kind; all or none are taken."""
        keys = property_keys(values, self.name)
        for declared in self.all_properties():
            if declared.only_at_load and declared.key in keys:
                raise PropertyError(
                    f"{declared.key} belongs to one network; give it to load_network",
                    declared.key,
                    self.name,
                    value=keys[declared.key],
                )
        config = self.configuration(device_id, keys)  # refuses bad values before any is kept
        with self._settings_lock:
            of_device = {**self._settings.get(device_id or "", {}), **{k: config[k] for k in keys}}
            self._settings = {**self._settings, device_id or "": of_device}
        self.honour_log_level(config.device, {key: config[key] for key in keys})

    def get_config(self, key: str, device_id: str | None = None) -> Any:
        """Return the value that a network loaded now would get."""
        return self.configuration(device_id)[key]

    def get_metric(self, key: str, options: Mapping[str, Any]) -> Any:
        """Return a fact; ``options`` may hold DEVICE_ID. PropertyError for an unknown key."""
        metrics = self.all_metrics()
        if key not in metrics:
            hint = nearest(key, metrics) or f"; it has {sorted(metrics)}"
            if key in self._property_keys():
                hint = "; that is a property that can be set: ask with get_config"
            raise PropertyError(f"{self.name} has no metric {key!r}{hint}", key, self.name)
        if DEVICE_ID.key in options:
            self.check_device_id(options[DEVICE_ID.key])
        with placed(device=self.name):
            return metrics[key].value(options, self.name, (DEVICE_ID.key,))

    def _standard_metrics(self) -> list[Metric]:
        read: dict[str, tuple[Callable[[Mapping[str, Any]], Any], str]] = {
            "AVAILABLE_DEVICES": (lambda _: self.device_ids(), "The ids of the devices."),
            "FULL_DEVICE_NAME": (
                lambda options: self.full_device_name(self._id_of(options)),
                "The hardware behind a device.",
            ),
            "OPTIMIZATION_CAPABILITIES": (lambda _: self.capabilities(), "Types and abilities."),
            "RANGE_FOR_STREAMS": (lambda _: self.stream_range(), "Useful NUM_STREAMS: low, high."),
            "RANGE_FOR_ASYNC_INFER_REQUESTS": (
                lambda _: (1, 2 * self.stream_range()[1], 1),
                "Useful requests in flight: low, high, step.",
            ),
            "SUPPORTED_METRICS": (lambda _: sorted(self.all_metrics()), "For get_metric."),
            "SUPPORTED_CONFIG_KEYS": (lambda _: sorted(self._property_keys()), "For get_config."),
            "SUPPORTED_PROPERTIES": (
                lambda _: {
                    **dict.fromkeys(self.all_metrics(), "RO"),
                    **dict.fromkeys(self._property_keys(), "RW"),
                },
                "All keys, with RO or RW.",
            ),
        }
        if self.unfolded_ops:
            read["UNFOLDED_OPS"] = (
                lambda _: sorted(self.unfolded_ops),
                "Operators that are not computed ahead, even of constants.",
            )
        return [Metric(key, function, doc) for key, (function, doc) in read.items()]

    def all_properties(self) -> Sequence[Property[Any]]:
        """List the standard properties of its devices and their own."""
        return (*self.standard_properties, *self.properties)

    def all_metrics(self) -> Mapping[str, Metric]:
        """Return every fact that ``get_metric`` tells, by key."""
        return {metric.key: metric for metric in (*self._standard_metrics(), *self.metrics())}

    def _property_keys(self) -> list[str]:
        return [declared.key for declared in self.all_properties()]

    def _id_of(self, options: Mapping[str, Any]) -> str:
        ids = self.device_ids()
        return str(options.get(DEVICE_ID.key) or (ids[0] if ids else ""))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def _model_of(blob: Blob) -> Model:
    """Read the model of a blob that is still mapped, and may have been written to since."""
    with late_imports:
        from ..blobs.graph_record import read_model_record

    blob.check_frames()
    return read_model_record(blob)
