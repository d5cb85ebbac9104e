"""The MULTI plugin: one model on several devices, whose requests are shared out among them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ...errors import (
    AioInferError,
    BlobError,
    ClosedError,
    DeviceError,
    NotSupportedError,
    PropertyError,
)
from ...runtime.blobs.network_record import NetworkRecord
from ...runtime.blobs.reader import Blob
from ...runtime.devices.device_name import MOST_REQUESTS, DeviceEntry, parse_device
from ...runtime.devices.virtual_plugin import (
    DEVICE_PROPERTIES,
    MULTI_DEVICE_PRIORITIES,
    VirtualPlugin,
)
from ...runtime.graph import Model
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.passes import Support, SupportMap
from ...runtime.properties.properties import (
    OUTPUT_LOCATION,
    PERFORMANCE_HINT,
    Configuration,
    Property,
)
from .executable_network import MultiNetwork
from .member import Member
from .properties import SCHEDULE_POLICY

__all__ = ["MultiPlugin"]

_log = logging.getLogger("aioinfer.MULTI")

_OF_DEVICES = ("NUM_STREAMS", "INFERENCE_NUM_THREADS", "INLINE_THRESHOLD_US")


class MultiPlugin(VirtualPlugin):
    """Loads a whole model on each device of a list; ``MULTI:CUDA,CPU(2)`` gives CPU two at a time.

    A name without an id stands for all devices of that name. One that cannot load the model is left
    out, if another can. Streams and threads are properties of the devices; give them through
    DEVICE_PROPERTIES. Devices are tuned for THROUGHPUT unless something else is said of them. What
    requests keep (STATE) lies with them in the host's memory, so that each run may go anywhere.
    """

    standard_properties: ClassVar[Sequence[Property[Any]]] = tuple(
        declared
        for declared in VirtualPlugin.standard_properties
        if declared.key not in _OF_DEVICES
    )
    properties: ClassVar[Sequence[Property[Any]]] = (*VirtualPlugin.properties, SCHEDULE_POLICY)
    takes_mapped_constants: ClassVar[bool] = True
    divides_devices: ClassVar[bool] = True

    def query_network(self, model: Model, config: Configuration) -> SupportMap:
        """Return the answers of the first device that takes every node; else what none refuses.

        Raises DeviceError if none is there.
        """
        entries, left_out = self._entries(config)
        answers: dict[str, Support] = {}
        for entry in entries:
            values = self.device_config(entry.device, config)
            try:
                support = self.core.query_network(model, entry.device, values)
            except DeviceError as error:
                left_out[entry.device] = str(error)
                continue
            if all(answer.supported for answer in support.values()):
                return support
            for name, answer in support.items():
                if not answer.supported:
                    answer = Support(False, f"{entry.device}: {answer.reason}")
                if answers.setdefault(name, answer).supported:
                    answers[name] = answer
        if len(left_out) and not answers:
            raise self._none_left(f"{self.name} for model {model.name!r}", left_out)
        return answers

    def load_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        entries, left_out = self._entries(config)
        where = f"{self.name} for model {model.name!r}"
        if len(entries) == 1 and entries[0].count is None and not left_out:
            device = entries[0].device  # nothing to share out
            values = self._tuned(device, config, self.device_config(device, config))
            return self.core.load_network(model, device, values)
        is_disposable, model.is_disposable = model.is_disposable, False  # the next needs it

        def load(entry: DeviceEntry) -> ExecutableNetwork:
            values = self._member_config(entry.device, config)
            return self.core.load_network(model, entry.device, values)

        network = self._shared_out(entries, left_out, load, where, config)
        if is_disposable:
            model.dispose()
        _log.info("model %r is shared out among %s", model.name, network.device)
        return network

    def import_network(
        self, blob: Blob, record: NetworkRecord, config: Configuration
    ) -> ExecutableNetwork:
        known = _entries_of(blob.json("members"))
        key = MULTI_DEVICE_PRIORITIES.key
        is_other = config[key] and config[key] != record.given.get(key)
        picked = (
            _picked(known, self.priorities(config), config)
            if is_other
            else {entry.device: (entry, entry.device) for entry in known}
        )

        def load(entry: DeviceEntry) -> ExecutableNetwork:
            values = self._member_config(entry.device, config)
            part = blob.under(picked[entry.device][1])
            return self.core.import_part(part, entry.device, values, name=record.name)

        where = f"{self.name} for the exported network {record.name!r}"
        return self._shared_out([entry for entry, _ in picked.values()], {}, load, where, config)

    def _shared_out(
        self,
        entries: Sequence[DeviceEntry],
        left_out: dict[str, str],
        load: Callable[[DeviceEntry], ExecutableNetwork],
        where: str,
        config: Configuration,
    ) -> MultiNetwork:
        """Load a network on each device that can; raises DeviceError if none does."""
        members: list[Member] = []
        for entry in entries:
            try:
                network = load(entry)
            except (DeviceError, NotSupportedError) as error:
                left_out[entry.device] = str(error)
                _log.warning("%s goes without %s: %s", where, entry.device, error)
                continue
            members.append(Member(entry.device, network, entry.count))
        if not members:
            raise self._none_left(where, left_out)
        return MultiNetwork(members, left_out, config, self.core)

    def _entries(self, config: Configuration) -> tuple[list[DeviceEntry], dict[str, str]]:
        """List the devices, ids and all, and why some are not there.

        Raises DeviceError for an empty list, and for a name that is not registered.
        """
        listed = self.priorities(config)
        if not listed:
            raise DeviceError(
                f"{self.name} shares out requests among devices; name them, the preferred one "
                f"first, with the most requests at a time in parentheses: {self.name}:CUDA,CPU(2)"
            )
        entries: list[DeviceEntry] = []
        left_out: dict[str, str] = {}
        for entry in listed:
            for device in self._devices_of(entry.device, left_out):
                if device in [known.device for known in entries]:
                    raise DeviceError(
                        f"{self.name} has {device} twice, by its name and by its id; name it once"
                    )
                entries.append(DeviceEntry(device, entry.count))
        if not entries:
            raise self._none_left(self.name, left_out)
        names = [entry.device for entry in entries]
        self.check_device_properties(config, [*names, *left_out])
        return entries, left_out

    def _devices_of(self, device: str, left_out: dict[str, str]) -> list[str]:
        """List all devices of a name that stands without an id."""
        name = parse_device(device)
        if name.name not in self.core.plugin_names:
            self.core.resolve_device(device)
        if name.entries:
            return [device]
        try:
            self.core.resolve_device(device)
            if name.id is not None:
                return [device]
            ids = self.core.get_metric(device, "AVAILABLE_DEVICES")
        except ClosedError:  # of the Core, which says nothing of a device
            raise
        except AioInferError as error:
            left_out[device] = str(error)
            return []
        return [f"{device}.{known}" for known in ids] if len(ids) > 1 else [device]

    def _member_config(self, device: str, config: Configuration) -> dict[str, Any]:
        """Collect what is given to one of several devices; outputs stay where callers want them."""
        values = self._tuned(device, config, self.inner_config(device, config))
        locations = config.value_or_default(OUTPUT_LOCATION)
        if locations and self.core.device_configuration(device).knows(OUTPUT_LOCATION.key):
            values[OUTPUT_LOCATION.key] = dict(locations)
        return values

    def _tuned(self, device: str, config: Configuration, values: dict[str, Any]) -> dict[str, Any]:
        """Have the device make the most of many requests, unless something else was said."""
        own, hint = self.core.device_configuration(device), PERFORMANCE_HINT.key
        is_said = config.given & {hint, DEVICE_PROPERTIES.key} or hint in own.given
        return {**values, hint: "THROUGHPUT"} if own.knows(hint) and not is_said else values

    def _none_left(self, where: str, left_out: dict[str, str]) -> DeviceError:
        reasons = "; ".join(f"{device}: {why}" for device, why in left_out.items())
        return DeviceError(f"{where}: none of its devices can be used. {reasons}")


def _picked(
    known: Sequence[DeviceEntry], listed: Sequence[DeviceEntry], config: Configuration
) -> dict[str, tuple[DeviceEntry, str]]:
    """Choose what a list names of an exported network, by device: the entry, and whose part it is.

    A name without an id stands for all of that name, and a count goes before that of the export.
    An id that the export has not gets the part of the first device of its kind. Raises
    PropertyError for a device of a kind that the network has not been compiled for.
    """
    picked: dict[str, tuple[DeviceEntry, str]] = {}
    for wanted in listed:
        found = [entry for entry in known if wanted.device in (entry.device, _kind(entry.device))]
        alike = [entry for entry in known if _kind(entry.device) == _kind(wanted.device)]
        if not found and alike:
            picked[wanted.device] = (wanted, alike[0].device)
            continue
        if not found:
            raise PropertyError(
                f"{config.device} has {wanted.device} in its list, and the exported network is for "
                f"{', '.join(entry.device for entry in known)}; list some of these, or load the "
                f"model",
                MULTI_DEVICE_PRIORITIES.key,
                config.device,
                value=config[MULTI_DEVICE_PRIORITIES],
            )
        for entry in found:
            counted = DeviceEntry(entry.device, wanted.count or entry.count)
            picked[entry.device] = (counted, entry.device)
    return picked


def _kind(device: str) -> str:
    """Return the name that stands for a device with an id and all others of its kind."""
    return parse_device(device).name


def _entries_of(content: Any) -> list[DeviceEntry]:
    """Read the devices of an exported network; raises BlobError for anything else."""
    try:
        entries = [DeviceEntry(str(device), count) for device, count in content]
    except (TypeError, ValueError) as error:
        raise BlobError("the blob is damaged: it does not list its devices") from error
    for entry in entries:
        count = entry.count
        if count is not None and (type(count) is not int or not 1 <= count <= MOST_REQUESTS):
            raise BlobError(f"the blob is damaged: {entry.device} takes {count!r} requests")
    return entries
