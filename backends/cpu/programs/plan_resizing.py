"""Has plans made for smaller teams, on a thread that no run waits for."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ....errors import ClosedError, DeviceError
from ....executors import NOW, Lane, Ready, TaskExecutor, is_shortage
from ....executors.late_imports import late_imports
from ..plans.packed_weights import WeightStore
from ..plans.plan import Plan

__all__ = ["PlanResizing"]

_log = logging.getLogger("aioinfer")


class PlanResizing:
    """What streams of one network ask. Thread-safe; ``weights_of`` names those of a plan.

    That is None where they are closed.
    """

    def __init__(
        self, executor: TaskExecutor, weights_of: Callable[[Plan], WeightStore | None]
    ) -> None:
        self._executor, self._weights_of = executor, weights_of

    def want(self, plan: Plan, thread_count: int) -> None:
        """Have ``plan.resized`` filled for a number of threads; never blocks and raises nothing."""
        plan.resized[thread_count] = None
        weights = self._weights_of(plan)

        def make(_lane: Lane) -> Ready:
            with late_imports:
                from .resized_plan import resized_plan

            if weights is not None and not weights.is_closed:
                plan.resized[thread_count] = resized_plan(plan, thread_count, weights)
            return NOW

        def made(_ready: Ready, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, ClosedError):
                if is_shortage(error):
                    plan.resized.pop(thread_count, None)  # a later run may have more luck
                _log.warning("%r has no plan for %d threads", plan, thread_count, exc_info=error)

        try:
            self._executor.run(make, NOW, made)
        except ClosedError:
            return  # it will not be asked for
        except DeviceError as error:  # there is no thread for it
            made(NOW, error)
