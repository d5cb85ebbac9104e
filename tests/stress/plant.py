"""What the clients of the stress test share: networks, runs to come, and who may be cancelled."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import aioinfer
from stress.networks import COMMON, MOST_WAITING, SMALL, Networks, Target

BEAT_RUNS = 100
FEWEST_RUNS = 20_000  # fewer are over before memory is looked at often, or each outcome comes


class Plant:
    """The networks, the count of runs that are still to come, and the requests of the last ones.

    Any client may use the first ``common_count`` of the targets; the others have clients of their
    own. In the queue of ``narrow`` and of ``full`` there is little room; ``small`` is None without
    a device for it.
    """

    def __init__(
        self,
        networks: Networks,
        run_count: int,
        seed: int,
        note_progress: Callable[[float], None] | None = None,
    ) -> None:
        self.networks, self.run_count, self.seed = networks, run_count, seed
        self.targets: list[Target] = []
        for kind in COMMON:
            self._load(kind)
        self.common_count = len(COMMON)
        self.narrow = self._load("MOCK.0", MAX_QUEUED_REQUESTS=MOST_WAITING)
        self.full = self._load("MOCK.1", MAX_QUEUED_REQUESTS=MOST_WAITING)
        self.small = self._load(SMALL) if networks.has_small else None
        self._note_progress = note_progress
        self._numbers, self._settled = itertools.count(1), itertools.count(1)
        self._listeners: list[SimpleQueue[bool]] = []
        self.goes_on = True
        """False once all runs are taken."""
        self._recent: deque[aioinfer.InferRequest] = deque(maxlen=64)

    def _load(self, kind: str, **config: Any) -> int:
        self.targets.append(self.networks.load(kind, self.networks.core, **config))
        return len(self.targets) - 1

    def take(self) -> bool:
        """Take one of the runs that are to be made; False when all are."""
        if not self.goes_on:
            return False
        is_one = next(self._numbers) <= self.run_count
        if not is_one:
            self.goes_on = False
        return is_one

    def settle(self) -> None:
        """Count one of the runs that were taken as over."""
        number = next(self._settled)
        if number % BEAT_RUNS == 0:
            if self._note_progress is not None:
                self._note_progress(number / self.run_count)
            self._tell(True)
        if number == self.run_count:
            self._tell(False)

    def give_up(self) -> None:
        """Have all clients come to their end: one of them has failed."""
        self.goes_on = False
        self._tell(False)

    def listen(self) -> Callable[[], Iterator[None]]:
        """Return the beats: one each time that BEAT_RUNS have settled, until the end."""
        heard: SimpleQueue[bool] = SimpleQueue()
        self._listeners.append(heard)

        def beats() -> Iterator[None]:
            while heard.get():
                yield

        return beats

    def _tell(self, goes_on: bool) -> None:
        for heard in self._listeners:
            heard.put(goes_on)

    def show(self, request: aioinfer.InferRequest) -> None:
        """Say that this request runs, so that anybody may cancel it."""
        self._recent.append(request)

    def cancel_another(self, chance: random.Random) -> None:
        """Sometimes cancel what anybody has started lately."""
        will_cancel, which = chance.random() < 0.05, chance.random()
        if will_cancel and self._recent:
            self._recent[int(which * len(self._recent))].cancel()

    def forget(self) -> None:
        self._recent.clear()
