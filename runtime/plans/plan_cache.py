"""Plans by shape signature: bounded, each built once, runs parked meanwhile.

Theory of operation. A run asks for its plan with :meth:`PlanCache.request` and gets a token: one
that has fired if the plan is there, else one that fires when the compile executor has built it. All
runs that need the same plan wait for the same token. The run's next stage starts after it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from ...errors import AioInferError, ClosedError
from ...executors import NOW, HostReady, Lane, Ready, TaskExecutor

__all__ = ["PendingPlan", "PlanCache", "refuse_to_build"]

P = TypeVar("P")
K = TypeVar("K", bound=Hashable)

PLAN_COUNT = 32  # shapes that a service sees in turn; plans share the weights of the model


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
    kept no longer, which runs may still use; it never blocks.
    """

    def __init__(
        self,
        build: Callable[[K], P],
        executor: TaskExecutor,
        capacity: int = PLAN_COUNT,
        dropped: Callable[[P], None] | None = None,
    ) -> None:
        self._build, self._executor, self._capacity = build, executor, capacity
        self._dropped = dropped
        self._lock = threading.Lock()
        self._plans: OrderedDict[K, PendingPlan[P]] = OrderedDict()
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

    def kept_keys(self) -> list[K]:
        """List what is kept, also what is being built."""
        with self._lock:
            return list(self._plans)

    def clear(self) -> None:
        """Drop all plans, and what builds them; called when no run is left and none may come."""
        with self._lock:
            plans, self._plans = self._plans, OrderedDict()
            self._build = refuse_to_build
        for pending in plans.values():
            self._drop(pending)

    def request(self, key: K) -> PendingPlan[P]:
        """Return the token of a plan, and have the plan built if no run has yet. Never blocks."""
        with self._lock:
            pending = self._plans.get(key)
            if pending is not None:
                self.hit_count += 1
                self._plans.move_to_end(key)
                return pending
            self.miss_count += 1
            pending = self._plans[key] = PendingPlan()
            while len(self._plans) > self._capacity:
                self.eviction_count += 1
                self._drop(self._plans.popitem(last=False)[1])

        def build(_lane: Lane) -> Ready:
            pending.deliver(self._build(key))
            return NOW

        def built(_ready: Ready, error: BaseException | None) -> None:
            if error is not None:
                self._fail(key, pending, error)

        try:
            self._executor.run(build, NOW, built)
        except BaseException as refused:
            self._fail(key, pending, refused)
        return pending

    def build_now(self, key: K) -> P:
        """Build a plan on this thread, for compiling ahead; raises what building raises.

        There is room for all plans that were asked for ahead, however many.
        """
        pending: PendingPlan[P] = PendingPlan()
        pending.deliver(self._build(key))
        with self._lock:
            self._plans[key] = pending
            self._capacity = max(self._capacity, len(self._plans))
        return pending.plan

    def _drop(self, pending: PendingPlan[P]) -> None:
        if self._dropped is not None and pending.is_built:
            self._dropped(pending.plan)

    def _fail(self, key: K, pending: PendingPlan[P], error: BaseException) -> None:
        with self._lock:
            if self._plans.get(key) is pending:
                del self._plans[key]
        pending.fire(error)
