"""VirtualPlugin: a device made of other devices, which it reaches through the Core's handle.

The properties that it gets go on to the devices. Which value one gets, the strongest first: what
DEVICE_PROPERTIES says of the device, of its kind (``CUDA`` for ``CUDA.1``), what the virtual device
was given itself, ``set_config`` of the device, the default.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from ...errors import DeviceError, NotSupportedError, PropertyError, nearest
from ..graph import Model
from ..network.executable_network import ExecutableNetwork
from ..passes import SupportMap
from ..properties.properties import (
    ALLOW_AUTO_BATCHING,
    DEVICE_ID,
    DEVICE_SHARE,
    INPUT_SHAPES,
    OUTPUT_LOCATION,
    REQUEST_PROPERTIES,
    STANDARD_PROPERTIES,
    STATE,
    Configuration,
    Metric,
    Property,
    property_keys,
)
from .device_advice import LAST_RESORT, device_advice
from .device_aliases import understood
from .device_name import (
    DEVICE_PRIORITIES,
    DeviceEntry,
    devices_inside,
    parse_device,
    parse_entries,
)
from .extension import Extension
from .plugin import Plugin

__all__ = ["DEVICE_PROPERTIES", "MULTI_DEVICE_PRIORITIES", "VirtualPlugin"]

TARGET_FALLBACK = "TARGET_FALLBACK"
"""The name that OpenVINO 1.x gave to MULTI_DEVICE_PRIORITIES; it is still understood."""


def _parse_devices(given: Any) -> str:
    text = ",".join(given) if isinstance(given, list | tuple) else given
    if not isinstance(text, str):
        raise ValueError("device names with commas between them are wanted, such as 'CUDA,CPU'")
    try:
        return ",".join(map(str, parse_entries(text))) if text else ""
    except DeviceError as error:
        raise ValueError(str(error)) from error


def _parse_device_properties(given: Any) -> Mapping[str, Mapping[str, Any]]:
    wanted = "a mapping is wanted, such as {'CPU': {'NUM_STREAMS': 2}}"
    if not isinstance(given, Mapping):
        raise ValueError(wanted)
    parsed = {}
    for device, values in given.items():
        if not isinstance(device, str) or not isinstance(values, Mapping):
            raise ValueError(f"{wanted}; the entry {device!r}: {values!r} is none")
        parsed[device] = MappingProxyType(property_keys(values, device))
    return MappingProxyType(parsed)


MULTI_DEVICE_PRIORITIES = Property(
    DEVICE_PRIORITIES,
    _parse_devices,
    "",
    "The devices to use, the preferred one first: 'CUDA,CPU' is what 'HETERO:CUDA,CPU' sets.",
)
DEVICE_PROPERTIES: Property[Mapping[str, Mapping[str, Any]]] = Property(
    "DEVICE_PROPERTIES",
    _parse_device_properties,
    MappingProxyType({}),
    "Properties of single devices: {device: {key: value}}; what is said of CUDA is for CUDA.1 too.",
    only_at_load=True,
)


class VirtualPlugin(Plugin):
    """A device made of devices; a subclass says how to load a network and which nodes can run.

    ``standard_properties`` are those that make sense for the whole; other keys of a device are
    given through DEVICE_PROPERTIES. It never is among the Core's ``available_devices``.
    """

    standard_properties: ClassVar[Sequence[Property[Any]]] = tuple(
        declared
        for declared in STANDARD_PROPERTIES
        if declared not in (DEVICE_ID, ALLOW_AUTO_BATCHING)
    )
    properties: ClassVar[Sequence[Property[Any]]] = (MULTI_DEVICE_PRIORITIES, DEVICE_PROPERTIES)
    is_cached: ClassVar[bool] = False
    takes_exclusions: ClassVar[bool] = False
    """Whether ``-NAME`` in the list leaves a device out."""

    divides_devices: ClassVar[bool] = False
    """True if the parts of a device that the list names (CPU.0, CPU.1) are all used at once."""

    @abstractmethod
    def query_network(self, model: Model, config: Configuration) -> SupportMap:
        """Answer for each original node: supported, and by which device, or the reasons why not."""

    @abstractmethod
    def load_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        """Load a copy of the model on the devices. May take long; blocks."""

    def device_ids(self) -> list[str]:
        return []

    def full_device_name(self, device_id: str) -> str:
        return self.name

    def capabilities(self) -> list[str]:
        return ["EXPORT_IMPORT"]

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        answers = self.query_network(model, config)
        return {name: answer.reason for name, answer in answers.items() if not answer.supported}

    def add_extension(self, extension: Extension) -> None:
        raise NotSupportedError(
            f"{self.name} runs no operators itself; add the extension to a device of its list that "
            f"takes one, such as REFERENCE"
        )

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        return self.load_network(model, config)

    def configuration(
        self, device_id: str | None, given: Mapping[Any, Any] | None = None
    ) -> Configuration:
        return super().configuration(device_id, self._own_keys(given))

    def set_config(self, values: Mapping[Any, Any], device_id: str | None = None) -> None:
        super().set_config(self._own_keys(values), device_id)

    def get_config(self, key: str, device_id: str | None = None) -> Any:
        self._refuse_key_of_devices(key)
        return super().get_config(
            MULTI_DEVICE_PRIORITIES.key if key == TARGET_FALLBACK else key, device_id
        )

    def priorities(self, config: Configuration) -> list[DeviceEntry]:
        """List the devices that the network may use, the preferred one first; empty if none said.

        Whether they are there is not looked at. Raises DeviceError for one that is listed twice, or
        is or holds this one, and for ``-NAME`` unless ``takes_exclusions``.
        """
        text = config[MULTI_DEVICE_PRIORITIES]
        listed = understood(f"{self.name}:{text}", self.core.plugin_names)
        entries = list(parse_device(listed).entries) if text else []
        names = [entry.device for entry in entries]
        for entry in entries:
            if entry.is_excluded and not self.takes_exclusions:
                raise DeviceError(
                    f"{self.name}:{text} leaves {entry.device} out, and uses only what is listed; "
                    f"list what it is to use"
                )
        for name in names:
            if self.name in {parse_device(item).name for item in (name, *devices_inside(name))}:
                raise DeviceError(f"{self.name}:{text} would hold itself; list other devices")
            if names.count(name) > 1:
                raise DeviceError(f"{self.name}:{text} lists {name} twice; name it once")
        return entries

    def devices_without_counts(self, config: Configuration) -> list[str]:
        """List the names of ``priorities``; raises DeviceError for an entry such as ``CPU(2)``."""
        entries = self.priorities(config)
        for entry in entries:
            if entry.count is not None:
                raise DeviceError(
                    f"{self.name} cannot take {entry.device}({entry.count}): a count says how many "
                    f"requests a device of MULTI gets; leave it out"
                )
        return [entry.device for entry in entries]

    def advise(self, model: Model, answers: Mapping[str, SupportMap]) -> str:
        """Return on which devices a model would run that those which answered do not all run."""
        known = {parse_device(device).name for device in answers}
        if LAST_RESORT not in known and LAST_RESORT in self.core.plugin_names:
            support = self.core.query_network(model, LAST_RESORT)
            answers = {**answers, LAST_RESORT: support}
        return device_advice(model, answers)

    def device_config(self, device: str, config: Configuration) -> dict[str, Any]:
        """Collect what is to be given to one device of the list.

        What DEVICE_PROPERTIES says of devices inside of it goes to it as its DEVICE_PROPERTIES.
        Raises PropertyError for what that device does not know.
        """
        own = self.core.device_configuration(device)
        declared = {item.key for item in self.standard_properties}
        values = {key: config[key] for key in declared & config.given if own.knows(key)}
        properties = config[DEVICE_PROPERTIES]
        for name in dict.fromkeys((parse_device(device).name, device)):
            values.update(properties.get(name, {}))
        inside = _names_of(devices_inside(device))
        passed_on = {name: said for name, said in properties.items() if name in inside}
        if passed_on:
            key = DEVICE_PROPERTIES.key
            values[key] = {**passed_on, **values.get(key, {})}
        if self.divides_devices and DEVICE_SHARE.key not in values and own.knows(DEVICE_SHARE.key):
            values.update(self._share(device, config))
        own.with_values(values)
        return values

    def _share(self, device: str, config: Configuration) -> dict[str, str]:
        """Return which part a device of the list is, among those of its kind that have an id."""
        kind = parse_device(device).name
        listed = [parse_device(entry.device) for entry in self.priorities(config)]
        parts = [str(name) for name in listed if name.name == kind and name.id is not None]
        if device not in parts or len(parts) < 2:
            return {}
        return {DEVICE_SHARE.key: f"{parts.index(device)}/{len(parts)}"}

    def inner_config(self, device: str, config: Configuration) -> dict[str, Any]:
        """Collect what is given to a device for a network inside the one that users ask.

        What means something to requests alone stays outside, and so do shapes to run once, and
        where results are.
        """
        values = self.device_config(device, config)
        if ALLOW_AUTO_BATCHING not in self.standard_properties and values.pop(
            ALLOW_AUTO_BATCHING.key, False
        ):
            raise PropertyError(
                f"{self.name}: requests share runs of {device} where the list says so: write "
                f"BATCH:{device}(8) instead of {ALLOW_AUTO_BATCHING.key}",
                ALLOW_AUTO_BATCHING.key,
                self.name,
                value=True,
            )
        for declared in (*REQUEST_PROPERTIES, INPUT_SHAPES, OUTPUT_LOCATION):
            values.pop(declared.key, None)
        if self.core.device_configuration(device).knows(STATE.key):
            values[STATE.key] = {}  # whatever the model's metadata says: requests keep it
        return values

    def check_device_properties(self, config: Configuration, devices: Sequence[str]) -> None:
        """Raise PropertyError if DEVICE_PROPERTIES names none of these, or of those inside them."""
        known = _names_of([*devices, *(name for item in devices for name in devices_inside(item))])
        for device in config[DEVICE_PROPERTIES]:
            if device not in known:
                raise PropertyError(
                    f"{self.name}: DEVICE_PROPERTIES names {device!r}, which is not among its "
                    f"devices {list(devices)}{nearest(device, known)}",
                    DEVICE_PROPERTIES.key,
                    self.name,
                    value=config[DEVICE_PROPERTIES],
                )

    def _own_keys(self, given: Mapping[Any, Any] | None) -> dict[str, Any]:
        values = property_keys(given, self.name)
        for key in values:
            self._refuse_key_of_devices(key)
        old = values.pop(TARGET_FALLBACK, None)
        if old is not None and values.setdefault(MULTI_DEVICE_PRIORITIES.key, old) != old:
            raise PropertyError(
                f"{self.name}: {TARGET_FALLBACK}={old!r} and {MULTI_DEVICE_PRIORITIES.key}="
                f"{values[MULTI_DEVICE_PRIORITIES.key]!r} disagree; the first is the old name of "
                f"the second, give one",
                TARGET_FALLBACK,
                self.name,
                value=old,
            )
        return values

    def _refuse_key_of_devices(self, key: str) -> None:
        """Raise PropertyError that says where a key of single devices belongs."""
        declared = {item.key for item in self.all_properties()}
        kinds = [name for name in self.core.plugin_names if name != self.name]
        owner = next((name for name in kinds if str(key).startswith(f"{name}_")), None)
        is_standard = key in {item.key for item in STANDARD_PROPERTIES}
        if key in declared or not (is_standard or owner):
            return
        who = "each of its devices has one; give it to them" if is_standard else f"it is {owner}'s"
        raise PropertyError(
            f"{self.name} has no {key} of its own, {who}: "
            f"{{'{DEVICE_PROPERTIES.key}': {{'{owner or 'CPU'}': {{'{key}': ...}}}}}}",
            key,
            self.name,
        )

    def _standard_metrics(self) -> list[Metric]:
        """A whole has no streams: the ranges are those of its devices."""
        standard = super()._standard_metrics()
        return [item for item in standard if not item.key.startswith("RANGE_FOR_")]


def _names_of(devices: Sequence[str]) -> set[str]:
    """Return what DEVICE_PROPERTIES may call these devices: themselves, and their kinds."""
    return {*devices, *(parse_device(device).name for device in devices)}
