"""Sequences: requests of one client that belong together, run by one request object with its state.

The first request of a sequence makes a request object of the network that serves its model then,
and the sequence keeps to it, whatever is loaded later: the state is that network's. Requests of one
sequence run one behind the other, in the order in which they came. A sequence ends when its client
says so, when no client has used it for a while, and when its network is closed. How many are open
is bounded, as each holds its state's memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..errors import ClosedError, DeadlineExceededError, RequestBusyError
from ..runtime.network.executable_network import ExecutableNetwork
from ..runtime.network.infer_request import InferRequest
from .protocol.call import InferCall, SequencePlace
from .protocol.limits import Limits
from .protocol.refusal import RefusedError
from .repository.models import ServedVersion

__all__ = ["Sequences"]

_RETRY_AFTER_S = 1
_MOST_WAITING = 64  # of one sequence; each holds its body

_Key = tuple[str, str, int | str]
_CallLater = Callable[[float, Callable[[], None]], Any]


class _Sequence:
    """One that is open. ``user_count``: requests of it that run or wait."""

    def __init__(self, served: ServedVersion, now_s: float) -> None:
        self.served = served
        self.request: InferRequest = served.network.create_infer_request()
        self.turn = asyncio.Lock()
        self.user_count = 0
        self.used_s = now_s

    def begin(self) -> None:
        """Have the next run start from the initial states."""
        try:
            self.request.reset_state()
        except RequestBusyError:  # its device still works for a run that was cancelled or late
            self.request = self.served.network.create_infer_request()


class Sequences:
    """The open sequences of all models. Used on one event loop.

    clock: counts seconds. call_later: calls a function after some seconds; None: the loop's own.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        call_later: _CallLater | None = None,
    ) -> None:
        self._limits, self._clock, self._call_later = limits, clock, call_later
        self._open: dict[_Key, _Sequence] = {}
        self._lent_count = 0
        self._is_sweep_due = False

    @property
    def open_count(self) -> int:
        """How many hold a request object now, those of generations included."""
        return len(self._open) + self._lent_count

    def served(self, model: str, version: str, place: SequencePlace) -> ServedVersion | None:
        """Return what an open sequence runs on; None if it is not open, or begins anew."""
        sequence = self._open.get((model, version, place.id))
        return None if sequence is None or place.is_start else sequence.served

    async def infer(
        self,
        served: ServedVersion,
        version: str,
        call: InferCall,
        inputs: Mapping[str, Any],
        deadline_s: float | None,
    ) -> Mapping[str, Any]:
        """Run a request of a sequence, after those that came before it.

        version: as the client gave it, which is part of the sequence's name. Raises RefusedError
        for a sequence that is not open and does not begin, for one too many, and for a model that
        keeps no state; and what ``infer`` raises.
        """
        place = call.sequence
        assert place is not None
        key = (served.model, version, place.id)
        sequence = self._entered(key, served, place)
        sequence.user_count += 1
        ends_at_s = None if deadline_s is None else self._clock() + deadline_s
        try:
            async with self._turn_of(sequence, deadline_s):
                if place.is_start:
                    self._begin(key, sequence)
                elif self._open.get(key) is not sequence:
                    raise _not_open(place)
                left_s = None if ends_at_s is None else max(0.0, ends_at_s - self._clock())
                results: Mapping[str, Any] = await sequence.request.infer(
                    dict(inputs), deadline_s=left_s, priority=call.priority
                )
                if place.is_end:
                    self._close(key, sequence)
                return results
        except ClosedError:
            self._close(key, sequence)
            text = f"sequence {place.id!r} has ended: its model was unloaded or reloaded"
            raise RefusedError(text, field="parameters.sequence_id") from None
        except BaseException:
            if place.is_start:
                self._close(key, sequence)
            raise
        finally:
            sequence.user_count -= 1
            sequence.used_s = self._clock()

    @asynccontextmanager
    async def lent(self, network: ExecutableNetwork) -> AsyncIterator[InferRequest]:
        """Lend a request object for one generation, which counts as an open sequence meanwhile."""
        self._refuse_one_more()
        self._lent_count += 1
        try:
            yield network.create_infer_request()
        finally:
            self._lent_count -= 1

    def sweep(self) -> None:
        """End the sequences that no client has used for ``sequence_idle_s``."""
        now_s = self._clock()
        for key, sequence in list(self._open.items()):
            is_idle = now_s - sequence.used_s >= self._limits.sequence_idle_s
            if (is_idle and not sequence.user_count) or sequence.served.network.is_closed:
                self._close(key, sequence)

    def _entered(self, key: _Key, served: ServedVersion, place: SequencePlace) -> _Sequence:
        sequence = self._open.get(key)
        if sequence is not None and sequence.user_count >= _MOST_WAITING:
            text = f"{_MOST_WAITING} requests of sequence {place.id!r} wait already"
            raise RefusedError(text, status=503, retry_after_s=_RETRY_AFTER_S)
        if not place.is_start:
            if sequence is None:
                raise _not_open(place)
            return sequence
        if served.network.states is None:
            raise RefusedError(
                f"model {served.model!r} keeps no state, so its requests belong to no sequence",
                field="parameters.sequence_id",
            )
        if sequence is None or sequence.served is not served:
            if sequence is None:
                self._refuse_one_more()
            sequence = self._open[key] = _Sequence(served, self._clock())
            self._sweep_later()
        return sequence

    def _begin(self, key: _Key, sequence: _Sequence) -> None:
        """Begin when its turn has come; one before it may have ended the sequence."""
        if key not in self._open:
            self._refuse_one_more()
            self._open[key] = sequence
            self._sweep_later()
        sequence.begin()

    def _refuse_one_more(self) -> None:
        if self.open_count >= self._limits.sequence_count:
            self.sweep()
        if self.open_count >= self._limits.sequence_count:
            raise RefusedError(
                f"{self._limits.sequence_count} sequences are open already",
                status=503,
                retry_after_s=_RETRY_AFTER_S,
            )

    @asynccontextmanager
    async def _turn_of(self, sequence: _Sequence, deadline_s: float | None) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline_s):
                await sequence.turn.acquire()
        except TimeoutError:
            raise DeadlineExceededError(
                "the deadline has passed while others of its sequence ran", deadline_s=deadline_s
            ) from None
        try:
            yield
        finally:
            sequence.turn.release()

    def _close(self, key: _Key, sequence: _Sequence) -> None:
        if self._open.get(key) is sequence:
            del self._open[key]

    def _sweep_later(self) -> None:
        if self._is_sweep_due:
            return
        self._is_sweep_due = True
        call_later = self._call_later or asyncio.get_running_loop().call_later
        call_later(self._limits.sequence_idle_s, self._sweep_again)

    def _sweep_again(self) -> None:
        self._is_sweep_due = False
        self.sweep()
        if self._open:
            self._sweep_later()


def _not_open(place: SequencePlace) -> RefusedError:
    return RefusedError(
        f"sequence {place.id!r} is not open: its first request has sequence_start, and one that is "
        f"not used for a while ends",
        field="parameters.sequence_id",
    )
