"""A run of a network inside a run of another: a stage whose executor is the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...executors import NO_LANE, NOW, Lane, Ready, TaskExecutor, Then
from ..runs.bindings import Bindings
from ..runs.stage import Stop

__all__ = ["InnerNetwork", "SubRequestExecutor"]


class InnerNetwork(Protocol):
    """What is asked of the network inside."""

    def start_run(self, bindings: Bindings, stop: Stop, after: Ready, then: Then) -> None:
        """Send a run to the device as soon as a slot is free."""


def _always() -> bool:
    return True


class SubRequestExecutor(TaskExecutor):
    """A run of another network as a place to run a stage; for one outer run at a time.

    ``bind_inner`` makes the bindings of the inner run and may raise; ``stop_of_outer`` returns the
    outer run's. Where ``can_bind`` is false the outer run's earlier stages are waited for to their
    last token, and else only their host code.
    """

    def __init__(
        self,
        name: str,
        network: InnerNetwork,
        bind_inner: Callable[[], Bindings],
        stop_of_outer: Callable[[], Stop],
        can_bind: Callable[[], bool] = _always,
    ) -> None:
        super().__init__(name)
        self._network = network
        self._bind_inner, self._stop_of_outer = bind_inner, stop_of_outer
        self._can_bind = can_bind
        self._bindings: Bindings | None = None

    def bind(self, _lane: Lane) -> Ready:
        """Bind the inner run's tensors: the function of the stage."""
        self._bindings = self._bind_inner()
        return NOW

    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        if after is NOW or after.is_ready or self._can_bind():
            self._start(function, after, then)
            return

        def start_late(_error: BaseException | None) -> None:
            try:
                self._start(function, after, then)
            except BaseException as refused:
                then(after, refused)

        after.when_ready(start_late)

    def _start(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        try:
            if after is not NOW and after.is_ready and after.error is not None:
                raise after.error
            function(NO_LANE)
        except BaseException as error:
            then(after, error)
            return
        bindings, self._bindings = self._bindings, None
        assert bindings is not None  # bind is the function
        self._network.start_run(bindings, self._stop_of_outer(), after, then)

    def close(self) -> None:
        """Do nothing: it has no thread, and the inner network has an owner."""
