"""The AUTO plugin: the first device, in an order, that can run the whole model."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ...errors import DeviceError, NotSupportedError
from ...runtime.devices.device_name import devices_inside, parse_device
from ...runtime.devices.virtual_plugin import VirtualPlugin
from ...runtime.graph import Model
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.passes import SupportMap
from ...runtime.properties.properties import Configuration

__all__ = ["AutoPlugin"]

DEFAULT_ORDER = ("CUDA", "CPU", "OPENCL", "ONNXRUNTIME", "REFERENCE")
"""Fastest first; without a list, the devices that are there are tried in this order."""

AFTER_AS_PROCESSOR = {"OPENCL": "ONNXRUNTIME"}
"""Device that may drive an accelerator -> the one that precedes it where it only drives a CPU."""

ON_ANY_MACHINE = ("CPU", "ONNXRUNTIME")
"""What needs nothing but its packages; the others may be missing for want of hardware."""

SLOWEST = "REFERENCE"
"""Made to check the others by, and only taken where nothing else is there."""

LISTED_NODES = 3
"""How many refused nodes of one device an error names."""

_log = logging.getLogger("aioinfer.AUTO")


class AutoPlugin(VirtualPlugin):
    """Chooses one device for a whole model, which gets the properties that AUTO is given.

    The network that is loaded is the device's own.
    """

    takes_mapped_constants: ClassVar[bool] = True

    def query_network(self, model: Model, config: Configuration) -> SupportMap:
        """Return the chosen device's answers; the first one's if none takes every node."""
        choice = _Choice(f"{self.name} for model {model.name!r}")
        chosen = next(self._takers(model, config, choice), None)
        if not choice.answers:
            raise choice.error("Install one of them")
        return choice.answers[chosen or next(iter(choice.answers))]

    def load_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        choice = _Choice(f"{self.name} for model {model.name!r}")
        is_disposable, model.is_disposable = model.is_disposable, False  # the next may need it
        for device in self._takers(model, config, choice):
            try:
                network = self.core.load_network(model, device, self.device_config(device, config))
            except (DeviceError, NotSupportedError) as error:
                choice.refusals.append(f"{device} cannot load it: {error}")
                continue
            if is_disposable:
                model.dispose()
            _log.info("model %r goes to %s; %s", model.name, device, choice.refusals or "")
            if parse_device(device).name == SLOWEST and choice.installs:
                warn_once(self.name, tuple(choice.installs.items()))
            return network
        raise choice.error(self.advise(model, choice.answers))

    def _takers(self, model: Model, config: Configuration, choice: _Choice) -> Iterator[str]:
        """Yield the devices that take every node, in order; notes why others do not."""
        for device in self._candidates(config):
            try:
                self.core.resolve_device(device)
            except DeviceError as error:
                choice.refusals.append(f"{device} is not there: {error}")
                if error.install and parse_device(device).name in ON_ANY_MACHINE:
                    choice.installs[device] = error.install
                continue
            values = self.device_config(device, config)
            answers = choice.answers[device] = self.core.query_network(model, device, values)
            refused = _refused(answers)
            if refused:
                choice.refusals.append(f"{device} refuses {_listed(refused)}")
            else:
                yield device

    def _candidates(self, config: Configuration) -> Iterable[str]:
        """Return the devices to try; raises DeviceError for a listed one that is not registered."""
        listed = self.devices_without_counts(config)
        known = self.core.plugin_names
        for device in (*listed, *(name for item in listed for name in devices_inside(item))):
            if parse_device(device).name not in known:
                self.core.resolve_device(device)
        devices = listed or [name for name in DEFAULT_ORDER if name in known]
        self.check_device_properties(config, devices)
        return devices if listed else default_turns(devices, self._is_processor)

    def _is_processor(self, device: str) -> bool:
        """Ask a device; one that is not there, or does not say what it is, counts as none."""
        key = "DEVICE_TYPE"
        try:
            has_type = key in self.core.get_metric(device, "SUPPORTED_METRICS")
            return has_type and self.core.get_metric(device, key) == "cpu"
        except DeviceError:
            return False


def default_turns(devices: Sequence[str], is_processor: Callable[[str], bool]) -> Iterator[str]:
    """Yield devices, which stand in DEFAULT_ORDER, in the order of their turns.

    What a device is, is asked only when its turn comes: a device is opened for the answer.
    """
    waiting: dict[str, str] = {}
    for device in devices:
        other = AFTER_AS_PROCESSOR.get(device)
        if other is not None and other in devices and is_processor(device):
            waiting[other] = device
            continue
        yield device
        if device in waiting:
            yield waiting[device]


@functools.cache
def warn_once(name: str, installs: tuple[tuple[str, str], ...]) -> None:
    """Log how to get a faster device than REFERENCE; of the same ones once in a process."""
    ways = "; or ".join(f"{device}: {command}" for device, command in installs)
    _log.warning(
        "%s runs models on %s, which is slow, because faster devices are not installed; install "
        "one with  %s",
        name,
        SLOWEST,
        ways,
    )


@dataclass
class _Choice:
    """What the devices answered, and why those that were tried did not take the model."""

    where: str
    answers: dict[str, SupportMap] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    installs: dict[str, str] = field(default_factory=dict)
    """Devices that are only not installed, and the commands that install them."""

    def error(self, way_out: str) -> NotSupportedError:
        reasons = ". ".join(self.refusals) or f"none of {list(DEFAULT_ORDER)} is installed"
        advice = way_out[:1].upper() + way_out[1:]
        return NotSupportedError(f"{self.where}: no device runs every node. {reasons}. {advice}")


def _refused(answers: SupportMap) -> dict[str, str]:
    return {name: answer.reason for name, answer in answers.items() if not answer.supported}


def _listed(refused: dict[str, str]) -> str:
    def texts() -> Iterable[str]:
        for name in list(refused)[:LISTED_NODES]:
            yield f"{name!r} ({refused[name]})"
        if len(refused) > LISTED_NODES:
            yield f"{len(refused) - LISTED_NODES} more nodes"

    return ", ".join(texts())
