"""Plans by shape signature: bounded, each built once, runs parked meanwhile.

A run gets a token for its plan (:meth:`PlanCache.request`), after which its next stage starts. All
runs that need the same plan wait for the same token.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from ...errors import AioInferError, ClosedError
from ...executors import NOW, HostReady, Lane, Ready, TaskExecutor
from ..properties.properties import PLAN_CACHE_BYTES, PLAN_CACHE_COUNT, Configuration

__all__ = ["PendingPlan", "PlanCache", "PlanLimits", "refuse_to_build"]

P = TypeVar("P")
K = TypeVar("K", bound=Hashable)

PLAN_COUNT = 32
"""Shapes that a service sees in turn, where nothing is said of how large their plans are."""


class PlanLimits(NamedTuple):
    """How many plans are kept, and how many bytes of them; most_bytes 0: no bound.

    ``is_count_asked``: the user has said how many, so a warm-up gets no room for more.
    """

    most_count: int = PLAN_COUNT
    most_bytes: int = 0
    is_count_asked: bool = False

    @classmethod
    def of(cls, config: Configuration, usual_count: int = PLAN_COUNT) -> PlanLimits:
        """Read them from a network's configuration; ``usual_count`` is what suits the device.

        The bound on bytes means nothing where the device does not know how large plans are.
        """
        asked = config[PLAN_CACHE_COUNT.key]
        most_bytes = config.value_or_default(PLAN_CACHE_BYTES)
        return cls(asked or usual_count, most_bytes, bool(asked))


def refuse_to_build(*_: Any) -> Any:
    """Stand in for what built the plans of a network that is closed."""
    raise ClosedError("the network of these plans is closed; load the model again")


class PendingPlan(HostReady, Generic[P]):
    """Fires when the plan is there, or with the error of building it."""

    __slots__ = ("_plan",)

    def __init__(self) -> None:
        super().__init__()
        self._plan: P | None = None

    @property
    def is_built(self) -> bool:
        """True once the plan is there."""
        return self._plan is not None

    @property
    def plan(self) -> P:
        """The plan; only once the token has fired without error."""
        if self._plan is None:
            raise AioInferError("the plan is not built yet; wait for its token")
        return self._plan

    def deliver(self, plan: P) -> None:
        """Set the plan and fire."""
        self._plan = plan
        self.fire()


class PlanCache(Generic[K, P]):
    """The most recently used plans of one network. Thread-safe.

    ``build`` makes the plan of a key; it may take long and runs on ``executor``. A failed build is
    not kept: the next run of that shape tries again. ``dropped`` is called with each plan that is
    kept no longer, which runs may still use; it never blocks. ``size_of`` tells a plan's bytes.
    """

    def __init__(
        self,
        build: Callable[[K], P],
        executor: TaskExecutor,
        limits: PlanLimits | None = None,
        size_of: Callable[[P], int] = lambda _plan: 0,
        dropped: Callable[[P], None] | None = None,
    ) -> None:
        self._build, self._executor, self._size_of = build, executor, size_of
        self._dropped = dropped
        self._limits = limits or PlanLimits()
        self._capacity = self._usual_capacity = self._limits.most_count
        self._asked_ahead: set[K] | None = None
        self._offered: set[K] = set()
        """Keys of plans that are at hand, to be built when they are asked for first."""
        self._sizes: dict[K, int] = {}
        self._lock = threading.Lock()
        self._plans: OrderedDict[K, PendingPlan[P]] = OrderedDict()
        self.newest: PendingPlan[P] | None = None
        """The token that was asked for last, if it is kept."""
        self.repeat_count = 0
        """How many atomic runs have used the newest plan, without asking."""
        self.hit_count = self.miss_count = self.eviction_count = 0
        """How many requests found their plan, which may be in the making; how many had it built;
        and how many plans were dropped for others."""

    def __len__(self) -> int:
        return len(self._plans)

    def plans(self) -> list[P]:
        """List the plans that are kept and built."""
        with self._lock:
            kept = list(self._plans.values())
        return [pending.plan for pending in kept if pending.is_ready and pending.error is None]

    def find(self, key: K) -> P | None:
        """Return a plan that is kept and built."""
        with self._lock:
            pending = self._plans.get(key)
        return pending.plan if pending is not None and pending.is_built else None

    def kept_keys(self) -> list[K]:
        """List what is kept, also what is being built."""
        with self._lock:
            return list(self._plans)

    def clear(self) -> None:
        """Drop all plans, and what builds them; called when no run is left and none may come."""
        with self._lock:
            plans, self._plans = self._plans, OrderedDict()
            self.newest = None
            self._sizes.clear()
            self._offered.clear()
            self._build = refuse_to_build
        for pending in plans.values():
            self._drop(pending)

    def request(self, key: K) -> PendingPlan[P]:
        """Return the token of a plan, and have the plan built if no run has yet. Never blocks."""
        with self._lock:
            self.newest = None
            if self._asked_ahead is not None:
                self._asked_ahead.add(key)
            pending = self._plans.get(key)
            if pending is not None and key not in self._offered:
                self.hit_count += 1
                self._plans.move_to_end(key)
                if self._asked_ahead is None:
                    self.newest = pending
                return pending
            self.miss_count += 1
            self._offered.discard(key)
            pending = self._plans[key] = PendingPlan()
            self._plans.move_to_end(key)
            while len(self._plans) > self._capacity:
                self._evict()

        def build(_lane: Lane) -> Ready:
            plan = self._build(key)
            self._note_size(key, pending, plan)
            pending.deliver(plan)
            return NOW

        def built(_ready: Ready, error: BaseException | None) -> None:
            if error is not None:
                self._fail(key, pending, error)

        try:
            self._executor.run(build, NOW, built)
        except BaseException as refused:
            self._fail(key, pending, refused)
        return pending

    def offer(self, key: K, size_bytes: int) -> None:
        """Keep a plan that ``build`` has at hand, and makes when a run asks for it first."""
        with self._lock:
            if key in self._plans:
                return
            self.newest = None
            self._plans[key], self._sizes[key] = PendingPlan(), size_bytes
            self._offered.add(key)
            while len(self._plans) > self._capacity:
                self._evict()
            self._drop_bytes()

    def build_now(self, key: K) -> P:
        """Build a plan on this thread, for compiling ahead; raises what building raises.

        There is room for all plans that were asked for ahead, however many.
        """
        pending: PendingPlan[P] = PendingPlan()
        plan = self._build(key)
        pending.deliver(plan)
        with self._lock:
            self._offered.discard(key)
            self.newest = None
            self._plans[key], self._sizes[key] = pending, self._size_of(plan)
            self._capacity = max(self._capacity, len(self._plans))
        return plan

    def begin_ahead(self, count: int) -> None:
        """Make room for plans that are asked for ahead, unless the user bounds them."""
        with self._lock:
            self._asked_ahead, self._usual_capacity = set(), self._capacity
            self.newest = None
            if not self._limits.is_count_asked:
                self._capacity = max(self._capacity, len(self._plans) + count)

    def end_ahead(self) -> str:
        """Give back room that is not in use; say what is lost of what was asked for since."""
        with self._lock:
            asked, self._asked_ahead = self._asked_ahead or set(), None
            kept = sum(key in self._plans for key in asked)
            is_full = len(self._plans) >= self._capacity
            self._capacity = max(self._usual_capacity, len(self._plans))
        if kept == len(asked):
            return ""
        bound = PLAN_CACHE_COUNT if is_full else PLAN_CACHE_BYTES
        return f"{kept} of {len(asked)} plans are kept; raise {bound.key}"

    @property
    def size_bytes(self) -> int:
        """Bytes of the plans that are kept."""
        with self._lock:
            return sum(self._sizes.values())

    def _note_size(self, key: K, pending: PendingPlan[P], plan: P) -> None:
        """Count a plan, and drop others while there are too many bytes, in use or not."""
        with self._lock:
            if self._plans.get(key) is not pending:
                return
            self._sizes[key] = self._size_of(plan)
            self._drop_bytes()

    def _drop_bytes(self) -> None:
        most = self._limits.most_bytes
        while most and len(self._sizes) > 1 and sum(self._sizes.values()) > most:
            self._evict()

    def _evict(self) -> None:
        """Drop the plan that was least recently used; under the lock."""
        key, pending = self._plans.popitem(last=False)
        self._sizes.pop(key, None)
        self._offered.discard(key)
        self.eviction_count += 1
        if pending is self.newest:
            self.newest = None
        self._drop(pending)

    def _drop(self, pending: PendingPlan[P]) -> None:
        if self._dropped is not None and pending.is_built:
            self._dropped(pending.plan)

    def _fail(self, key: K, pending: PendingPlan[P], error: BaseException) -> None:
        with self._lock:
            if self._plans.get(key) is pending:
                del self._plans[key]
            if self._asked_ahead is not None:
                self._asked_ahead.discard(key)
        pending.fire(error)
