"""The AUTO plugin: the device that suits a model best, and others that stand in for it."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ...errors import AioInferError, DeviceError, NotSupportedError, UnsupportedOpError
from ...runtime.devices.device_name import devices_inside, parse_device
from ...runtime.devices.virtual_plugin import DEVICE_PROPERTIES, VirtualPlugin
from ...runtime.graph import Model
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.passes import SupportMap
from ...runtime.properties.properties import (
    ALLOW_AUTO_BATCHING,
    CACHE_DIR,
    INLINE_THRESHOLD_US,
    PERFORMANCE_HINT,
    Configuration,
    Property,
)
from ...runtime.runs.stage import Stop
from .candidate import Candidate
from .choice import Choice, listed, refused_nodes
from .choose import (
    BY_NUMPY,
    DEFAULT_ORDER,
    SPEEDS,
    by_speed,
    default_turns,
    joint_devices,
    unheld,
    without,
)
from .cut_or_whole import CUT_ON, CutChoice, weigh
from .executable_network import AutoNetwork, Surroundings
from .held_devices import held_devices, hold
from .load import Load
from .measuring import measured_s
from .properties import (
    AUTO_PROPERTIES,
    ENABLE_RUNTIME_FALLBACK,
    ENABLE_STARTUP_FALLBACK,
    MODEL_PRIORITY,
)
from .speed_memory import SpeedMemory

__all__ = ["AutoPlugin"]

ON_ANY_MACHINE = ("CPU", "ONNXRUNTIME")
"""What needs nothing but its packages; the others may be missing for want of hardware."""

SLOWEST = "REFERENCE"
"""Made to check the others by, and only taken where nothing else is there."""

ACCELERATORS = ("integrated", "discrete")
"""What DEVICE_TYPE says of devices that compile slowly and may be lost."""

_log = logging.getLogger("aioinfer.AUTO")


class AutoPlugin(VirtualPlugin):
    """Chooses a device for a model, which gets the properties that AUTO is given.

    Where that is an accelerator, the processor serves while it compiles, and goes on if it fails;
    else the network that is loaded is the device's own.
    """

    properties: ClassVar[Sequence[Property[Any]]] = (*VirtualPlugin.properties, *AUTO_PROPERTIES)
    standard_properties: ClassVar[Sequence[Property[Any]]] = (
        *VirtualPlugin.standard_properties,
        ALLOW_AUTO_BATCHING,
    )
    takes_mapped_constants: ClassVar[bool] = True
    takes_exclusions: ClassVar[bool] = True

    def query_network(self, model: Model, config: Configuration) -> SupportMap:
        """Return the chosen device's answers; those of several if only together they take it."""
        choice = Choice(f"{self.name} for model {model.name!r}")
        chosen = next(self._takers(model, config, choice), None)
        if not choice.answers:
            raise choice.error("Install one of them")
        together = self._together(choice, config) if chosen is None else None
        if together is not None:
            return self.core.query_network(model, *together)
        return choice.answers[chosen or next(iter(choice.answers))]

    def load_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        choice = Choice(f"{self.name} for model {model.name!r}")
        is_disposable, model.is_disposable = model.is_disposable, False  # the next may need it
        network = self._load(Load(model, config, choice, is_disposable))
        if is_disposable and not isinstance(network, AutoNetwork):
            model.is_disposable = True  # which networks of it ask for
            model.dispose()
        hold(network, config[MODEL_PRIORITY])
        _log.info("model %r goes to %s; %s", model.name, network.device, choice.refusals or "")
        return network

    def _load(self, load: Load) -> ExecutableNetwork:
        config, choice = load.config, load.choice
        takers = self._takers(load.model, config, choice)
        if (
            config[PERFORMANCE_HINT] == "CUMULATIVE_THROUGHPUT"
            and "MULTI" in self.core.plugin_names
        ):
            return self._load_on_all(load, list(takers))
        first = next(takers, None)
        if first is None:
            return self._load_divided(load)
        if config[CACHE_DIR]:
            load.remember(SpeedMemory(config[CACHE_DIR]))
            faster = [name for name in takers if not _is(name, SLOWEST)]
            takers = iter(by_speed([first, *faster], load.times_s))
            first = next(takers)
        if load.may_move and self._is_worth_moving(first, config):
            candidates = [first, *takers]
            if len(candidates) > 1:
                return self._load_moving(load, candidates)
            takers = iter(())
        weighed = self._weigh(load, first)
        if weighed is not None and not weighed.is_taken:
            choice.weighed = weighed.reason
        elif weighed is not None and (weighed.is_cut or load.memory is None):
            network = self._try(load, weighed.device, weighed.config)
            if network is not None:
                return self._own(load, network, weighed.reason)
        if load.memory is not None:
            return self._load_fastest(load, [first, *takers])
        return self._load_first(load, [first], takers)

    def _load_first(
        self, load: Load, first: Iterable[str], others: Iterator[str]
    ) -> ExecutableNetwork:
        """Load on the first device that can; each gets to know of its load alone."""
        choice = load.choice
        for devices in (first, others):
            for device in devices:
                network = self._try(load, device, self.device_config(device, load.config))
                if network is None:
                    continue
                if _is(device, SLOWEST) and choice.installs:
                    warn_once(self.name, tuple(choice.installs.items()))
                return self._own(load, network)
        raise choice.error(self.advise(load.model, choice.answers))

    def _load_fastest(self, load: Load, devices: Sequence[str]) -> ExecutableNetwork:
        """Load on the device that was measured to be fastest; those that are new are measured."""
        loaded: dict[str, ExecutableNetwork] = {}
        try:
            for device in devices if len(devices) > 1 else ():
                if device in load.times_s:
                    continue
                network = self._try(load, device, self.device_config(device, load.config))
                if network is None:
                    continue
                loaded[device] = network
                time_s = measured_s(network, load.config, Stop())
                if time_s is not None:
                    load.note(device, time_s)
            for device in by_speed(devices, load.times_s):
                values = self.device_config(device, load.config)
                network = loaded.pop(device, None) or self._try(load, device, values)
                if network is not None:
                    times = ", ".join(f"{name} {1000 * t:.3g} ms" for name, t in
                                      load.times_s.items())  # fmt: skip
                    return self._own(load, network, f"measured: {times}" if times else "")
        finally:
            for network in loaded.values():
                network.close()
        raise load.choice.error(self.advise(load.model, load.choice.answers))

    def _load_on_all(self, load: Load, takers: Sequence[str]) -> ExecutableNetwork:
        """Share requests out among all devices; a hint asks for that."""
        if not takers:
            return self._load_divided(load)
        names = [name for name in takers if not _is(name, SLOWEST)] or list(takers)
        device = f"MULTI:{','.join(names)}"
        values = self.device_config(device, load.config)
        known = {item.key for item in AUTO_PROPERTIES}
        kept = {key: value for key, value in values.items() if key not in known}
        kept.pop(PERFORMANCE_HINT.key, None)
        return self._own(load, self.core.load_network(load.model, device, kept))

    def _load_divided(self, load: Load) -> ExecutableNetwork:
        """Load over several devices what none of them takes alone; raises if they do not either."""
        choice = load.choice
        together = self._together(choice, load.config)
        network = None if together is None else self._try(load, *together)
        if network is None:
            raise choice.error(self.advise(load.model, choice.answers))
        return self._own(load, network, "no device runs every node")

    def _together(
        self, choice: Choice, config: Configuration
    ) -> tuple[str, Mapping[str, Any]] | None:
        """Return the HETERO of devices that together take a model, and what it is given."""
        answers = choice.answers
        taken = {name: said.keys() - refused_nodes(said).keys() for name, said in answers.items()}
        parts = joint_devices(taken, {node for said in answers.values() for node in said})
        if not parts or "HETERO" not in self.core.plugin_names:
            return None
        device = f"HETERO:{','.join(parts)}"
        return device, self._cut_config(device, parts, config)

    def _load_moving(self, load: Load, devices: Sequence[str]) -> ExecutableNetwork:
        """Load a network that moves between devices, with the first that is there quickly."""
        model, config = load.model, load.config
        kept = model if load.is_disposable else model.copy()
        candidates = [Candidate(name, time_s=load.times_s.get(name)) for name in devices]
        loading = threading.Lock()

        def bring(device: str) -> ExecutableNetwork:
            with loading:
                return self.core.load_network(kept, device, self.inner_config(device, config))

        first, wanted = self._first_of(load, candidates, bring)
        if first is None:
            raise load.choice.error(self.advise(model, load.choice.answers))
        around = Surroundings(bring, load.note, kept.dispose, config[ENABLE_RUNTIME_FALLBACK])
        usable = [item for item in candidates if item.error is None]
        try:
            return AutoNetwork(
                usable, first, wanted, around, config, self.core, load.choice.refusals
            )
        except BaseException:
            if first.network is not None:
                first.network.close()
            raise

    def _first_of(
        self, load: Load, candidates: Sequence[Candidate], bring: Any
    ) -> tuple[Candidate | None, Candidate | None]:
        """Load what serves first, and name what is to serve as soon as it is compiled."""
        order = list(candidates)
        stands_in = load.config[ENABLE_STARTUP_FALLBACK] and self._is_accelerator(order[0].device)
        if stands_in:
            order.sort(key=lambda item: self._is_accelerator(item.device))
        for candidate in order:
            try:
                candidate.network = bring(candidate.device)
            except (DeviceError, NotSupportedError) as error:
                candidate.error = error
                load.choice.refusals.append(f"{candidate.device} cannot load it: {error}")
                continue
            preferred = [item for item in candidates if item.error is None]
            wanted = preferred[0] if preferred[0] is not candidate else None
            return candidate, wanted
        return None, None

    def _own(self, load: Load, network: ExecutableNetwork, why: str = "") -> ExecutableNetwork:
        """Have a device's own network say why it was chosen."""
        reasons = [*load.choice.refusals, *filter(None, [load.choice.weighed, why])]
        network.reason = "; ".join(["chosen by AUTO", *reasons])
        return network

    def _try(self, load: Load, device: str, values: Mapping[str, Any]) -> ExecutableNetwork | None:
        try:
            return self.core.load_network(load.model, device, values)
        except (DeviceError, NotSupportedError) as error:
            load.choice.refusals.append(f"{device} cannot load it: {error}")
            return None

    def _is_worth_moving(self, device: str, config: Configuration) -> bool:
        """A device that compiles at once and is never lost needs no other one beside it."""
        if not (config[ENABLE_RUNTIME_FALLBACK] or config[ENABLE_STARTUP_FALLBACK]):
            return False
        is_asked_for = ENABLE_RUNTIME_FALLBACK.key in config.given
        return (is_asked_for and config[ENABLE_RUNTIME_FALLBACK]) or self._is_accelerator(device)

    def _weigh(self, load: Load, first: str) -> CutChoice | None:
        """Decide where a model goes that CPU refuses in part, or leaves to numpy in part."""
        if "HETERO" not in self.core.plugin_names:
            return None
        model, config, choice = load.model, load.config, load.choice
        try:
            return weigh(
                self.core, model, first, choice.answers, lambda: self._compiling(config),
                lambda other: self._takes(other, model, config, choice),
                lambda device, parts: self._cut_config(device, parts, config),
            )  # fmt: skip
        except (DeviceError, NotSupportedError, UnsupportedOpError) as error:
            choice.refusals.append(f"it cannot be cut: {error}")
            return None

    def _compiling(self, config: Configuration) -> list[str]:
        """List what may have compiled code on the processor where CPU has none."""
        names = [name for name in self._named(config)[0] if name in SPEEDS and name not in BY_NUMPY]
        held = held_devices()
        return [name for name in unheld(names, held, config[MODEL_PRIORITY]) if name != CUT_ON]

    def _cut_config(
        self, device: str, parts: Sequence[str], config: Configuration
    ) -> dict[str, Any]:
        """Collect what a device is given: of HETERO's, what only its parts know, goes to them.

        None of its runs stays on a caller's thread, and it takes no INLINE_THRESHOLD_US for them.
        """
        values = self.device_config(device, config)
        if not parts:
            return values
        nested: dict[str, dict[str, Any]] = {}
        for part in parts:
            own = self.device_config(part, config)
            own.pop(INLINE_THRESHOLD_US.key, None)
            nested[part] = {key: value for key, value in own.items() if key not in values}
        return {**values, DEVICE_PROPERTIES.key: nested}

    def _takers(self, model: Model, config: Configuration, choice: Choice) -> Iterator[str]:
        """Yield the devices that take every node, in order; notes why others do not."""
        for device in self._candidates(config):
            if self._takes(device, model, config, choice):
                yield device

    def _takes(self, device: str, model: Model, config: Configuration, choice: Choice) -> bool:
        """Ask a device, once, whether it takes every node; notes why it does not."""
        if device in choice.takes:
            return choice.takes[device]
        choice.takes[device] = False
        try:
            self.core.resolve_device(device)
        except DeviceError as error:
            choice.refusals.append(f"{device} is not there: {error}")
            if error.install and parse_device(device).name in ON_ANY_MACHINE:
                choice.installs[device] = error.install
            return False
        values = self.device_config(device, config)
        answers = choice.answers[device] = self.core.query_network(model, device, values)
        refused = refused_nodes(answers)
        if refused:
            choice.refusals.append(f"{device} refuses {listed(refused)}")
        choice.takes[device] = not refused
        return not refused

    def _candidates(self, config: Configuration) -> Iterable[str]:
        """Return the devices to try; raises DeviceError for a listed one that is not registered."""
        devices, is_listed = self._named(config)
        turns = devices if is_listed else default_turns(devices, self._is_processor)
        held = held_devices()
        return unheld(list(turns), held, config[MODEL_PRIORITY]) if held else turns

    def _named(self, config: Configuration) -> tuple[Sequence[str], bool]:
        """Return the devices that may be tried, and whether a list gives their order."""
        self.devices_without_counts(config)  # refuses counts
        entries, known = self.priorities(config), self.core.plugin_names
        for entry in entries:
            for device in (entry.device, *devices_inside(entry.device)):
                if parse_device(device).name not in known:
                    self.core.resolve_device(device)
        listed = [entry.device for entry in entries if not entry.is_excluded]
        excluded = [entry.device for entry in entries if entry.is_excluded]
        devices = listed or [name for name in DEFAULT_ORDER if name in known]
        self.check_device_properties(config, devices)
        if excluded:
            devices = without(devices, excluded, self._ids_of)
            if not devices:
                raise DeviceError(f"{config.device}: {excluded} leave no device; leave fewer out")
        return devices, bool(listed)

    def _ids_of(self, device: str) -> list[str]:
        try:
            return list(self.core.get_metric(device, "AVAILABLE_DEVICES"))
        except AioInferError:
            return []

    def _is_processor(self, device: str) -> bool:
        return self._type_of(device) == "cpu"

    def _is_accelerator(self, device: str) -> bool:
        return self._type_of(device) in ACCELERATORS

    def _type_of(self, device: str) -> str:
        """Ask a device what it is; "" for one that is not there, or does not say."""
        key = "DEVICE_TYPE"
        try:
            has_type = key in self.core.get_metric(device, "SUPPORTED_METRICS")
            return str(self.core.get_metric(device, key)) if has_type else ""
        except AioInferError:
            return ""


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


def _is(device: str, name: str) -> bool:
    return parse_device(device).name == name
