"""AutoNetwork: a model that moves from one device to the next, without a lost or doubled request.

One network serves at a time. Each run is given to the one that serves when it starts, and ends
there; so a move is one assignment, and the network before is closed when what it has is over. While
the first device still compiles, on a thread of this network, the processor serves; both are
measured then, and the faster one stays. A device that fails when it serves makes place for the next
one; the runs that it had, and those that come before the next is compiled, are parked, and go on
there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from ...errors import ClosedError, DeviceError
from ...executors import hand_over
from ...executors.shortage import start_thread
from ...runtime.blobs.writer import BlobWriter
from ...runtime.devices.device_failure import Verdict, verdict_on
from ...runtime.devices.plugin import CoreHandle
from ...runtime.loops.completion import until_told
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.replicated_network import ReplicatedNetwork, numbers_of
from ...runtime.properties.properties import INPUT_SHAPES, Configuration
from ...runtime.runs.error_frames import own_error, parting_copy
from ...runtime.runs.stage import Stop
from ...runtime.tracing.statistics import DeviceStatistics
from ...runtime.tracing.totals import Numbers
from .candidate import Candidate
from .choose import is_same_or_one_of
from .measuring import measured_s
from .moving_run import MovingRun

__all__ = ["AutoNetwork", "Surroundings"]

_log = logging.getLogger("aioinfer.AUTO")

SLOT_COUNT = 64
"""A slot is no memory here, and the device that is to come may have any number of its own."""


LOAD_WAIT_S = 10.0
"""How long a close waits for a device that is being compiled, which nothing can stop."""


@dataclass(frozen=True)
class Surroundings:
    """What an AutoNetwork asks of the plugin that made it.

    ``note`` is called with what was measured, and ``over`` when no more is loaded.
    """

    load: Callable[[str], ExecutableNetwork]
    note: Callable[[str, float], None]
    over: Callable[[], None]
    falls_back: bool


class AutoNetwork(ReplicatedNetwork):
    """Serves with one of several devices at a time; ``candidates`` are in the order of preference.

    ``first`` is loaded already. With ``wanted``, a device that is to compile, it only stands in.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        first: Candidate,
        wanted: Candidate | None,
        surroundings: Surroundings,
        config: Configuration,
        core: CoreHandle,
        reasons: Sequence[str],
    ) -> None:
        network = first.network
        assert network is not None
        names = ",".join(candidate.device for candidate in candidates)
        super().__init__(
            name=network.name,
            device=f"{config.device}:{names}",
            inputs=network.inputs,
            outputs=network.outputs,
            config=config,
            core=core,
        )
        self.candidates = tuple(candidates)
        self._around = surroundings
        self._reasons = list(reasons)
        self.serving: Candidate | None = first
        """The device that runs are given to; None while the next one compiles."""
        self._facts: Candidate = first
        """The device that served last."""
        self._loading: Candidate | None = None
        self._choosing = threading.Lock()
        self._parked: list[MovingRun] = []
        self._told: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []
        """They load devices, and close those that do not serve any more."""
        self._load_count = 0
        """How many of them are not done."""
        self._is_left = False
        """It is closed, and the last of them gives back what it has loaded."""
        self._measuring = Stop()
        self._closing: list[ExecutableNetwork] = []
        """Networks that do not serve any more and have runs left."""
        self._gone = Numbers()
        """What networks did that are closed."""
        network.is_part = True
        self.removed_nodes = network.removed_nodes
        self.has_perf_count = network.has_perf_count
        try:
            wanted_count = int(config["PERFORMANCE_HINT_NUM_REQUESTS"])
            self._provide_slots([MovingRun(self) for _ in range(wanted_count or SLOT_COUNT)])
        except BaseException:
            self._abandon()
            raise
        if wanted is not None:
            self._bring(wanted)

    @property
    def networks(self) -> tuple[ExecutableNetwork, ...]:
        with self._choosing:
            ordered = [self._facts, *self.candidates]
        found = [candidate.network for candidate in ordered]
        return tuple(dict.fromkeys(network for network in found if network is not None))

    @property
    def execution_devices(self) -> tuple[str, ...]:
        """What serves now, or served last."""
        network = (self.serving or self._facts).network
        return () if network is None else network.execution_devices

    @property
    def optimal_request_count(self) -> int:
        """What keeps the device busy that serves now."""
        network = (self.serving or self._facts).network
        return super().optimal_request_count if network is None else network.optimal_request_count

    def run_everywhere(self, inputs: Mapping[str, Any], stop: Stop) -> None:
        try:
            super().run_everywhere(inputs, stop)
        except ClosedError:  # a device has made place for another one, which is warm
            self.refuse_if_closed()

    def serve(self, run: MovingRun) -> None:
        """Give a run to the device that serves, or have it wait for the next one. Never raises."""
        serving, stop = self.serving, run.stop
        if serving is None:
            with self._choosing:
                serving = self.serving
                if serving is None:
                    self._parked.append(run)
            if serving is None:
                try:
                    stop.when_set(run.drop)
                except BaseException:  # no memory: it does not wait
                    with self._choosing:
                        self._parked.remove(run)
                    raise
                return
        if run.failure is not None and serving in run.tried:
            run.end(run.failure)  # there is nothing else left
        else:
            run.go(serving)

    def count(self, candidate: Candidate, arrival: object) -> None:
        """Note that a device has taken a run; an arrival that is known by now counts once."""
        with self._choosing:
            if arrival in candidate.arriving:
                candidate.arriving.remove(arrival)
                candidate.run_count += 1

    def drop(self, run: MovingRun) -> bool:
        """Take a stopped run out of those that wait for a device; False: it has one."""
        with self._choosing:
            if run not in self._parked or run.stop.error is None:  # the slot is another run's now
                return False
            self._parked.remove(run)
        return True

    def goes_on(self, run: MovingRun, candidate: Candidate, error: BaseException) -> bool:
        """Decide whether a run that has failed goes on; if so, another device is to serve."""
        if run.stop.error is not None or not self._around.falls_back:
            return False
        if verdict_on(error) is not Verdict.OUT:
            return False
        following: Candidate | None = None
        with self._choosing:
            if self.serving is candidate:
                following = self._next_after_failure(candidate, error)
            serving = self.serving
            if serving is not None and serving in run.tried:
                return False
            candidate.moved_count += 1
        if following is not None:
            self._bring(following)
        with suppress(MemoryError):
            self.note_failure(run.bindings, candidate.device, error, 0.0)
        return True

    def _next_after_failure(self, failed: Candidate, error: BaseException) -> Candidate | None:
        """Have another device serve, or return the one that is to be brought; under the lock."""
        failed.error = error
        failed.failure_count += 1
        left = [item for item in self.candidates if item.error is None]
        loaded = [item for item in left if item.network is not None and not item.was_slower]
        if loaded:
            self.serving = self._facts = loaded[0]
        elif self._loading is not None:
            self.serving = None  # which is on its way
        elif left:
            self.serving = None
            _log.warning("%r: %s has failed; %s is next", self.name, failed.device, left[0].device)
            return left[0]
        else:
            failed.error = None  # there is nothing else
        return None

    def _bring(self, candidate: Candidate) -> None:
        """Load a device on a thread of its own, and have it serve."""
        with self._choosing:
            self._loading = candidate
        name = f"aioinfer.AUTO.{candidate.device}"
        before = [known for known in self._threads if known.is_alive()]
        is_counted = False
        try:
            thread = threading.Thread(target=self._load_in_turn, args=[candidate], name=name)
            thread.daemon = True
            self._threads = [*before, thread]
            with self._choosing:
                self._load_count += 1
                is_counted = True
            start_thread(thread)
        except (DeviceError, MemoryError) as error:
            self._threads = before
            with self._choosing:
                self._load_count -= is_counted
            candidate.error = error
            self._settle(None)

    def _load_in_turn(self, wanted: Candidate) -> None:
        """Load the wanted device, or those after it that are as good; the thread's function."""
        candidate: Candidate | None = wanted
        is_better = False
        while candidate is not None:
            try:
                network = self._around.load(candidate.device)
                network.is_part = True
                candidate.network = network
                if self.config[INPUT_SHAPES]:
                    network.warm_up(self.config[INPUT_SHAPES])
                is_better = self._is_worth_it(candidate)
                break
            except BaseException as error:  # of this device: the next is tried
                candidate.error = error
                candidate.failure_count += 1
                log = _log.debug if self.is_closed else _log.warning
                log("%r: %s cannot be loaded: %r", self.name, candidate.device, error)
                candidate = None if self.is_closed else self._next_to_load()
        brought = candidate if candidate is not None and is_better else None
        try:
            self._settle(brought)
        except MemoryError:  # runs wait for this
            self._settle(brought)
        with self._choosing:
            self._load_count -= 1
            gives_back = self._is_left and not self._load_count
        if gives_back:
            self._close_candidates(lambda _: True)
            self._around.over()
        else:
            self._close_unused()

    def _next_to_load(self) -> Candidate | None:
        with self._choosing:
            for candidate in self.candidates:
                if candidate is self.serving:
                    break  # what comes after it is no better
                if candidate.error is None and candidate.network is None:
                    self._loading = candidate
                    return candidate
        return None

    def _is_worth_it(self, candidate: Candidate) -> bool:
        """Measure the device that is loaded now, and the one that it would replace."""
        serving = self.serving
        if serving is None:
            return True
        for measured in (candidate, serving):
            if measured.time_s is None and measured.network is not None:
                measured.time_s = measured_s(measured.network, self.config, self._measuring)
                if measured.time_s is not None:
                    self._around.note(measured.device, measured.time_s)
        if candidate.time_s is None or serving.time_s is None:
            return True
        candidate.was_slower = candidate.time_s > serving.time_s
        return not candidate.was_slower

    def _settle(self, brought: Candidate | None) -> None:
        """Serve by the device that was brought, if one was; and go on with what waits for it."""
        with self._choosing:
            self._loading = None
            if brought is not None and brought.error is None:
                self.serving = self._facts = brought
            error: BaseException | None = None
            if self.serving is None:
                error = self._facts.error
                self._facts.error = None  # it is all that is left
                self.serving = self._facts if self._facts.network is not None else None
            parked, self._parked = self._parked, []
            told, self._told = self._told, []
        if brought is not None:
            _log.info("%r is served by %s now", self.name, brought.device)
        for run in parked:
            try:
                hand_over(run.go_on, None if error is None else own_error(error))
            except MemoryError as lacking:  # for the call itself; the others go on
                run.hop_failed(lacking)
        for wake in told:
            wake()

    def _close_unused(self) -> None:
        """Give devices back that do not serve any more, as soon as their runs are over."""
        self._close_candidates(lambda item: item is not self.serving and item is not self._facts)

    def _close_candidates(self, may_go: Callable[[Candidate], bool]) -> None:
        """Close networks when their runs are over; their numbers stay."""
        unused: list[tuple[Candidate, ExecutableNetwork]] = []
        with self._choosing:
            for item in self.candidates:
                network = item.network
                if network is not None and may_go(item):
                    item.network = None  # a caller that wants the device again loads it again
                    unused.append((item, network))
                    self._closing.append(network)
        for candidate, network in unused:
            network.close()
            numbers = numbers_of(network)
            with self._choosing:  # at no time is it counted twice, or not at all
                self._closing.remove(network)
                self._gone = Numbers.total([self._gone, numbers])
            _log.info("%r is not on %s any more", self.name, candidate.device)

    def _counted(self) -> tuple[tuple[ExecutableNetwork, ...], Numbers]:
        with self._choosing:
            loaded = [item.network for item in self.candidates if item.network is not None]
            return (*loaded, *self._closing), self._gone

    def write_blob(self, blob: BlobWriter) -> None:
        """Add the network that serves, as that of its own device."""
        self.refuse_if_closed()
        self.networks[0].write_blob(blob)

    async def ready(self, device: str | None = None) -> None:
        while not self._is_ready(device):
            await until_told(self._tell_later, self._forget)

    def _tell_later(self, wake: Callable[[], None]) -> None:
        with self._choosing:
            if self._loading is not None:
                self._told.append(wake)
                return
        wake()

    def _forget(self, wake: Callable[[], None]) -> None:
        with self._choosing:
            if wake in self._told:
                self._told.remove(wake)

    def _is_ready(self, device: str | None) -> bool:
        """Return whether a device serves; raises DeviceError if it never will, and ClosedError."""
        self.refuse_if_closed()
        with self._choosing:
            if device is None:
                return self._loading is None
            known = [item for item in self.candidates if is_same_or_one_of(item.device, device)]
            if self.serving in known:
                return True
            failed = next((item for item in known if item.error is not None), None)
            if known and self._loading is not None and failed is None:
                return False
        why = "it is not among its devices"
        if failed is not None:
            why = f"it has failed: {failed.error}"
        elif known:
            why = self._state(known[0])
        raise DeviceError(
            f"network {self.name!r} is not served by {device}: {why}",
            **self.admission.where,
        ) from (failed.error if failed is not None else None)

    def _state(self, candidate: Candidate) -> str:
        if candidate.error is not None:
            return f"not used any more: {candidate.error}"
        if candidate is self.serving:
            return "serves"
        if candidate is self._loading:
            return "is being compiled, to serve then"
        if candidate.was_slower:
            return "was slower when measured"
        return "comes next should what serves fail"

    def explain(self) -> str:
        lines = [f"{self.name}: AUTO moves between devices; one serves at a time"]
        for candidate in self.candidates:
            time_s = candidate.time_s
            measured = "" if time_s is None else f", measured {1000 * time_s:.3g} ms a request"
            lines.append(f"{candidate.device}: {self._state(candidate)}{measured}")
        lines += self._reasons
        lines += [network.explain() for network in self.networks[:1]]
        return "\n".join(lines)

    def _device_statistics(self) -> tuple[DeviceStatistics, ...]:
        with self._choosing:
            return tuple(
                DeviceStatistics(
                    device=candidate.device,
                    is_in_use=candidate is self.serving,
                    run_count=candidate.run_count,
                    running_run_count=len(candidate.running),
                    failure_count=candidate.failure_count,
                    moved_run_count=candidate.moved_count,
                    mean_service_s=candidate.time_s,
                )
                for candidate in self.candidates
            )

    def _release_device(self) -> None:
        error = ClosedError(f"network {self.name!r} was closed", **self.admission.where)
        self._measuring.set(error)
        give_up_at = monotonic() + LOAD_WAIT_S
        for thread in self._threads:
            thread.join(max(0.0, give_up_at - monotonic()))
        with self._choosing:
            self._is_left = self._load_count > 0
        if self._is_left:
            _log.warning(
                "%r is closed, and a device is still being loaded for it; that is given back when "
                "it is loaded",
                self.name,
            )
        self._close_candidates(lambda _: True)
        for candidate in self.candidates:
            if candidate.error is not None:  # whose frames may hold this network
                candidate.error = parting_copy(candidate.error)
        with self._choosing:
            told, self._told = self._told, []
        for wake in told:
            wake()
        if not self._is_left:
            self._around.over()
