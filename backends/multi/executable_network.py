"""MultiNetwork: one model on several devices, among which runs are balanced."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from ...errors import PropertyError, nearest
from ...executors import StreamsConfig, TimerHandle, hand_over, hop
from ...runtime.blobs.writer import BlobWriter
from ...runtime.devices.device_failure import Verdict, verdict_on
from ...runtime.devices.device_name import parse_device
from ...runtime.devices.plugin import CoreHandle
from ...runtime.devices.virtual_plugin import DEVICE_PROPERTIES, MULTI_DEVICE_PRIORITIES
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.replicated_network import ReplicatedNetwork
from ...runtime.properties.properties import Configuration, Metric, slot_count
from ...runtime.runs.stage import Stop
from ...runtime.tracing.statistics import DeviceStatistics
from .balance import Balancer, DeviceLoad
from .balanced_run import BalancedRun
from .member import Member
from .probe import Probe
from .properties import SCHEDULE_POLICY

__all__ = ["MultiNetwork"]

_log = logging.getLogger("aioinfer.MULTI")

_Picked = tuple[BalancedRun, DeviceLoad]
"""A run that is to start now, and where."""

PROBE_END_S = 1.0
"""What a close grants the run by which a device is tried, which was stopped: a step or a launch."""


class MultiNetwork(ReplicatedNetwork):
    """Gives each run to the device that is expected to end it first; see ``balance.py``.

    A device that fails is taken out; what it had runs on another one, once its token has fired. It
    is tried now and then with made up inputs, and gets requests again when that succeeds.

    It adopts no arrays in a device's memory (``adopt_array`` is None): inputs are taken before a
    device is chosen, and of an array that lies on one of them no other one could make use, neither
    first nor after a failure. What another network has kept on its device comes by the host.
    """

    def __init__(
        self,
        members: Sequence[Member],
        left_out: Mapping[str, str],
        config: Configuration,
        core: CoreHandle,
    ) -> None:
        first = members[0].network
        names = ",".join(member.name for member in members)
        super().__init__(
            name=first.name,
            device=f"{config.device}:{names}",
            inputs=first.inputs,
            outputs=first.outputs,
            config=config.with_values({MULTI_DEVICE_PRIORITIES: names}),
            core=core,
        )
        self.members = tuple(members)
        self._left_out = dict(left_out)
        self._balancer: Balancer[BalancedRun] = Balancer(self.members, config[SCHEDULE_POLICY])
        self._balancing = threading.Lock()
        self._alarm: TimerHandle | None = None
        self._is_over = False
        """No run is left, and none comes: nothing is to happen later."""
        self.probe_stop = Stop()
        """Of the runs by which devices are tried; set by a close."""
        self.probes = core.executors.acquire(StreamsConfig("MULTI.probe"))
        for member in members:
            member.network.is_part = True
        self.removed_nodes = first.removed_nodes
        self.has_perf_count = any(member.network.has_perf_count for member in members)
        try:
            count = sum(member.place_count for member in members)
            self._provide_slots([BalancedRun(self) for _ in range(slot_count(config, count))])
        except BaseException:
            self._abandon()
            raise

    @property
    def has_waiting(self) -> bool:
        """True if runs wait for a device."""
        return self._balancer.waiting_count > 0

    def offer(self, run: BalancedRun) -> None:
        """Have a run wait for a device, which it may get at once. Never blocks.

        If it raises, the run does not wait.
        """
        stop, run.ticket = run.stop, run.bindings.ticket
        picked: _Picked | None = None
        with self._balancing:
            self._balancer.add(run)
        try:
            with self._balancing:
                picked = self._balancer.take(self.clock.now_s(), self.admission.waiting_count)
            if picked is None:
                stop.when_set(run.drop)
                self._look_again()
            elif picked[0] is run:
                run.go(picked[1])
            else:
                stop.when_set(run.drop)
                self._start(*picked)
                picked = None
                hand_over(self.balance)
        except Exception as error:  # no memory
            self._not_started(picked, error)

    def balance(self) -> None:
        """Start what is to start now of the runs that wait."""
        while self._balancer.waiting_count:
            picked: _Picked | None = None
            try:
                with self._balancing:
                    picked = self._balancer.take(self.clock.now_s(), self.admission.waiting_count)
                if picked is None:
                    self._look_again()
                    return
                self._start(*picked)
            except Exception as error:  # no memory
                self._not_started(picked, error)
                if picked is None:
                    return

    def hop_failed(self, error: BaseException) -> None:
        """Balance all the same: there was no memory for the call that was to do that."""
        _log.warning("%r goes on after %r", self, error)
        self.balance()

    def _not_started(self, picked: _Picked | None, error: Exception) -> None:
        """End a run that could not begin; or all that wait, if there is none.

        What waits while devices are busy is begun when these are done.
        """
        if picked is not None:
            picked[0].hop_failed(error)
            return
        with self._balancing:
            left = self._balancer.take_all()
        for run in left:
            run.hop_failed(error)

    def drop(self, run: BalancedRun) -> bool:
        """Take a stopped run out of those that wait; False: it has a device."""
        with self._balancing:  # which a slot that is another run's by now would wait in again
            return run.stop.error is not None and self._balancer.drop(run)

    def forget(self, run: BalancedRun) -> None:
        """Note that no device has a run, without measuring it."""
        with self._balancing:
            self._balancer.forget(run)

    def over(self, run: BalancedRun, member: Member, error: BaseException | None) -> bool:
        """Note that a device is done with a run; True: the run goes on elsewhere.

        Raises only where the run does not go on.
        """
        now_s = self.clock.now_s()
        with self._balancing:
            taken_s = self._balancer.ended(run, member, now_s, is_well=error is None)
            if error is None:
                if not member.is_out:  # then it was given this one before it failed
                    member.health.served()
                return False
        verdict = Verdict.TELL if run.stop.error is not None else verdict_on(error)
        if verdict is Verdict.TELL:
            return False
        self.note_failure(run.bindings, member.name, error, taken_s)
        if verdict is Verdict.OUT:
            self._take_out(member, error)
        run.tried.append(member)
        with self._balancing:
            following = self._balancer.elsewhere(run.tried)
            if following is not None:
                member.moved_count += 1
                self._balancer.give(run, following, now_s)
        if following is None:
            others = ", ".join(load.name for load in run.tried if load is not member)
            if others:
                error.add_note(f"it had failed on {others} before")
            return False
        _log.info(
            "request %d of %r goes on to %s: %s has failed with %r",
            run.bindings.run_id, self.name, following.name, member.name, error,
        )  # fmt: skip
        run.go(following)
        return True

    def _start(self, run: BalancedRun, load: DeviceLoad) -> None:
        run.stop.forget(run.drop)
        run.go(load)

    def _look_again(self) -> None:
        """Come back to runs that wait for a busy device beside an idle one."""
        with self._balancing:
            due_s = self._balancer.look_again_s(self.clock.now_s())
            alarm, self._alarm = self._alarm, None
            if alarm is not None:
                alarm.cancel()
            if due_s is not None and not self._is_over:
                self._alarm = self.clock.call_at(due_s, partial(hand_over, self.balance))

    def _take_out(self, member: Member, error: BaseException) -> None:
        with self._balancing:
            if member.is_out:
                return
            member.is_out = True
            delay_s = member.health.failed(error)
        _log.warning(
            "%s is taken out of network %r, and tried again in %g s: %r",
            member.name, self.name, delay_s, error,
        )  # fmt: skip
        self._try_later(member, delay_s)

    def _try_later(self, member: Member, delay_s: float) -> None:
        with self._balancing:
            if not self._is_over:
                at_s = self.clock.now_s() + delay_s
                member.alarm = self.clock.call_at(
                    at_s, partial(hand_over, Probe(self, member).begin)
                )

    def tried(self, member: Member, error: BaseException | None) -> None:
        """Take the device in again, unless it is still at fault."""
        member.is_tried = False
        if self.is_closed:
            return
        has_shown_nothing = isinstance(error, MemoryError)
        if error is not None and (has_shown_nothing or verdict_on(error) is Verdict.OUT):
            with self._balancing:
                delay_s = member.health.failed(error)
            self._try_later(member, delay_s)
            return
        with self._balancing:
            member.is_out = False
        _log.warning("%s is taken into network %r again", member.name, self.name)
        hop(self.balance)

    def set_config(self, values: Mapping[Any, Any]) -> None:
        """Change MULTI_DEVICE_PRIORITIES or SCHEDULE_POLICY for runs that start from now on.

        Devices that are left out of the list get no more runs until they are named again; a new one
        cannot be added. Raises PropertyError, and then nothing is changed.
        """
        config = self.config.with_values(values)
        changed = [key for key in config if config[key] != self.config[key]]
        fixed = set(changed) - {MULTI_DEVICE_PRIORITIES.key, SCHEDULE_POLICY.key}
        if fixed:
            super().set_config({key: config[key] for key in fixed})
        order = self._in_order(config[MULTI_DEVICE_PRIORITIES])
        with self._balancing:
            self._balancer.order, self._balancer.policy = list(order), config[SCHEDULE_POLICY]
            self.config = config
        self.balance()

    def _in_order(self, text: str) -> list[Member]:
        known = {member.name: member for member in self.members}
        order: dict[str, Member] = {}
        listed = parse_device(f"{self.config.device}:{text}").entries if text else ()
        for entry in listed:
            name = entry.device
            named = {name: known[name]} if name in known else {}
            named = named or {k: v for k, v in known.items() if k.startswith(f"{name}.")}
            if not named or entry.count is not None or named.keys() & order.keys():
                raise PropertyError(
                    f"{self.device} cannot use {text!r}: give names of its devices "
                    f"{list(known)}, each once and without a count{nearest(name, known)}",
                    MULTI_DEVICE_PRIORITIES.key,
                    self.device,
                    value=text,
                )
            order.update(named)
        if not order:
            raise PropertyError(
                f"{self.device} needs one of its devices {list(known)} at least",
                MULTI_DEVICE_PRIORITIES.key,
                self.device,
                value=text,
            )
        return list(order.values())

    @property
    def networks(self) -> tuple[ExecutableNetwork, ...]:
        return tuple(member.network for member in self.members)

    @property
    def execution_devices(self) -> tuple[str, ...]:
        """The devices that get runs now, the preferred one first."""
        names = [
            name
            for load in self._balancer.usable()
            if isinstance(load, Member)
            for name in load.network.execution_devices
        ]
        return tuple(dict.fromkeys(names))

    def explain(self) -> str:
        policy = self.config[SCHEDULE_POLICY]
        lines = [f"{self.name}: each request runs whole on one of these devices, by {policy}"]
        statistics = {device.device: device for device in self._device_statistics()}
        for member in self.members:
            facts = statistics[member.name]
            state = "in use"
            if member.is_out:
                state = f"taken out, tried again now and then: {member.health.why}"
            elif member not in self._balancer.order:
                state = f"not among {MULTI_DEVICE_PRIORITIES.key}"
            mean_s = facts.mean_service_s
            taken = "not measured yet" if mean_s is None else f"{1000 * mean_s:.3g} ms a request"
            lines.append(
                f"{member.name}: up to {member.place_count} requests at a time, {taken}; {state}; "
                f"{member.network.explain()}"
            )
        lines += [f"{device} was left out: {why}" for device, why in self._left_out.items()]
        return "\n".join(lines)

    def _device_statistics(self) -> tuple[DeviceStatistics, ...]:
        with self._balancing:
            return tuple(
                DeviceStatistics(
                    device=member.name,
                    is_in_use=not member.is_out and member in self._balancer.order,
                    run_count=member.run_count,
                    running_run_count=len(member.started),
                    failure_count=member.health.failure_count,
                    moved_run_count=member.moved_count,
                    mean_service_s=member.service.mean_s,
                )
                for member in self.members
            )

    def get_config(self, key: str) -> Any:
        """Return a property; DEVICE_PROPERTIES are all that its devices were compiled with."""
        if key == DEVICE_PROPERTIES.key:
            return {member.name: dict(member.network.config) for member in self.members}
        return super().get_config(key)

    def _metrics(self) -> Sequence[Metric]:
        return [
            Metric(
                DEVICE_PROPERTIES.key,
                lambda _: {member.name: dict(member.network.config) for member in self.members},
                "What each device was compiled with: {device: {key: value}}.",
            )
        ]

    def _write_payload(self, blob: BlobWriter) -> None:
        blob.add_json("members", [[member.name, member.place_count] for member in self.members])
        for member in self.members:
            member.network.write_blob(blob.under(member.name))

    def _stop_warm_up(self) -> None:
        """End what no caller has asked for: warm-ups, and the runs by which devices are tried."""
        super()._stop_warm_up()
        self.probe_stop.set(self._was_closed_error())

    def _release_device(self) -> None:
        with self._balancing:
            self._is_over = True
            alarms = [self._alarm, *(member.alarm for member in self.members)]
        for alarm in alarms:
            if alarm is not None:
                alarm.cancel()  # it holds the network
        with ExitStack() as stack:
            for member in self.members:
                stack.callback(_close_member, member)
            self._core.executors.release(self.probes)


def _close_member(member: Member) -> None:
    """Close a device's network; if the device does not heed a Stop, when it has ended by itself."""
    network = member.network
    if not network.close(timeout_s=PROBE_END_S if member.is_tried else None):
        _log.warning("%r is closed when %s has ended what it is tried with", network, member.name)
