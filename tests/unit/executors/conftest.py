"""What the executors' tests share: a record of calls, a chain of stages, no leaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from aioinfer.executors import NOW, Lane, Ready, TaskExecutor, hop

WAIT_S = 20.0  # a bound for what must happen; never slept through


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert left == []


class Told:
    """A ``then`` that remembers each call; a second call is an error of the executor."""

    def __init__(self) -> None:
        self.calls: list[tuple[Ready, BaseException | None]] = []
        self._first = threading.Event()

    def __call__(self, ready: Ready, error: BaseException | None) -> None:
        self.calls.append((ready, error))
        self._first.set()

    def wait(self) -> tuple[Ready, BaseException | None]:
        assert self._first.wait(WAIT_S), "then was not called"
        return self.only

    @property
    def only(self) -> tuple[Ready, BaseException | None]:
        assert len(self.calls) == 1, f"then was called {len(self.calls)} times"
        return self.calls[0]

    @property
    def error(self) -> BaseException | None:
        return self.only[1]


class Chain:
    """Stages in a row, as the contract wants them driven: the next one by who ends the last."""

    def __init__(
        self,
        stages: Sequence[tuple[TaskExecutor, Callable[[Lane], Ready]]],
        then: Callable[[Ready, BaseException | None], None],
    ) -> None:
        self._stages = iter(stages)
        self._then = then
        self.stop_error: BaseException | None = None

    def start(self, after: Ready = NOW) -> None:
        hop(self._step, after, None)

    def _advance(self, ready: Ready, error: BaseException | None) -> None:
        hop(self._step, ready, error)

    def _step(self, ready: Ready, error: BaseException | None) -> None:
        error = error or self.stop_error
        stage = next(self._stages, None) if error is None else None
        if stage is None:
            self._then(ready, error)
            return
        try:
            stage[0].run(stage[1], ready, self._advance)
        except BaseException as refused:
            self._then(ready, refused)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def make_told() -> type[Told]:
    return Told


@pytest.fixture
def make_chain() -> type[Chain]:
    return Chain
