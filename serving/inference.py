"""Inference for clients: found, checked, run, answered; the same for every wire."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from ..errors import ClosedError
from .access_log import AccessLog
from .protocol.call import Answer, InferCall, Requested, fitted
from .protocol.describing import extensions
from .protocol.generation import next_inputs
from .protocol.in_flight import BodiesInFlight
from .protocol.limits import Limits
from .protocol.refusal import RefusedError
from .regions import SharedRegions, loaded
from .repository.models import Repository, ServedVersion
from .sequences import Sequences
from .spans import Spans, installed_spans

__all__ = ["Inference"]


class Inference:
    """What all wires of a server share: its models, its bounds, and what is under way.

    ``has_sequences``: whether requests may belong together, with their state.

    ``access_log``: called for each request; None: there is none. ``spans``: None are those of
    OpenTelemetry, where it is installed. ``regions``: of shared memory; None: clients have none.
    Used on one event loop.
    """

    def __init__(
        self,
        repository: Repository,
        limits: Limits,
        *,
        access_log: AccessLog | None = None,
        spans: Spans | None = None,
        regions: SharedRegions | None = None,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.repository, self.limits = repository, limits
        self.has_sequences = True
        self.access_log = access_log
        self.spans = installed_spans() if spans is None else spans
        self.regions = regions
        self.bodies = BodiesInFlight(limits.bodies_bytes)
        self.sequences = Sequences(limits, clock)
        self._wall_clock, self._clock = wall_clock, clock

    @property
    def extensions(self) -> list[str]:
        """What of the protocol's extensions is there, by their names."""
        return extensions(
            can_manage=self.repository.can_manage,
            has_sequences=self.has_sequences,
            has_regions=self.regions is not None,
        )

    async def run(
        self, model: str, version: str, call: InferCall, deadline_s: float | None = None
    ) -> Answer:
        """Run what a client asked for, and return the outputs it wants.

        deadline_s: what the wire itself allows; the call's own timeout may be shorter. A model that
        is exchanged between finding and running is found anew, unless a sequence keeps to it.
        Raises RefusedError, and what the network's ``infer`` raises. Cancelling it cancels the run.
        """
        if call.shared:
            with self.bodies.share() as share:
                call = await loaded(call, share, self.limits)
                return await self.run(model, version, call, deadline_s)
        limit_s = _shortest(deadline_s, call.deadline_s)
        place = call.sequence
        while True:
            served = self.repository.find(model, version)
            if place is not None:
                served = self.sequences.served(model, version, place) or served
            network = served.network
            call = fitted(call, keeps_bytes=served.keeps_bytes)
            given, wanted = served.signature.check(call)
            try:
                results: Mapping[str, Any]
                if place is not None:
                    results = await self.sequences.infer(served, version, call, given, limit_s)
                else:
                    results = await network.infer(given, deadline_s=limit_s, priority=call.priority)
            except ClosedError:
                if self.repository.find(model, version).network is network:
                    raise
                continue
            return self._answer(served, call, wanted, results)

    async def stream(
        self, model: str, version: str, call: InferCall, deadline_s: float | None = None
    ) -> AsyncGenerator[Answer, None]:
        """Run what a client asked for, and yield each answer when it is there.

        A model with a generation has an answer for each step, any other one. Otherwise as ``run``;
        close it where it is not read to its end.
        """
        if call.shared:
            with self.bodies.share() as share:
                call = await loaded(call, share, self.limits)
                async with aclosing(self.stream(model, version, call, deadline_s)) as answers:
                    async for answer in answers:
                        yield answer
            return
        served = self.repository.find(model, version)
        generation = served.generation
        if generation is None:
            yield await self.run(model, version, call, deadline_s)
            return
        if call.sequence is not None:
            raise RefusedError(
                f"model {model!r} generates, and each generation is a sequence of its own",
                field="parameters.sequence_id",
            )
        network = served.network
        call = fitted(call, keeps_bytes=served.keeps_bytes)
        given, wanted = served.signature.check(call)
        most = generation.step_count
        left = min(call.step_count or most, most)
        limit_s = _shortest(deadline_s, call.deadline_s)
        ends_at_s = None if limit_s is None else self._clock() + limit_s
        async with self.sequences.lent(network) as request:
            while left:
                left -= 1
                left_s = None if ends_at_s is None else max(0.0, ends_at_s - self._clock())
                results = await request.infer(given, deadline_s=left_s, priority=call.priority)
                if generation.is_end(results):
                    left = 0
                yield self._answer(served, call, wanted, results, is_last=not left, is_step=True)
                given = next_inputs(generation, given, results)

    def _answer(
        self,
        served: ServedVersion,
        call: InferCall,
        wanted: Sequence[Requested],
        results: Mapping[str, Any],
        *,
        is_last: bool = True,
        is_step: bool = False,
    ) -> Answer:
        served.last_inference_ms = int(self._wall_clock() * 1000)
        outputs = [(requested, np.asarray(results[requested.name])) for requested in wanted]
        return Answer(served.model, served.version, call.id, outputs, is_last, is_step)


def _shortest(limit_s: float | None, other_s: float | None) -> float | None:
    if limit_s is None or other_s is None:
        return other_s if limit_s is None else limit_s
    return min(limit_s, other_s)
