"""Users of a network that looks numbers up in a table: what they ask for, and what came of it.

Random rows, lengths, priorities, deadlines, cancels and items that no run can take; on two event
loops and from threads.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import uvloop
from onnx import parser

import aioinfer
from aioinfer.errors import ClosedError, DeadlineExceededError, RequestCancelledError, TensorError
from exhaustive import drawn
from stress.faults import PLANTED

__all__ = ["RUN_COUNT", "SEED", "LoopUsers", "ThreadUsers", "Users", "all_ask", "lookup_model"]

RUN_COUNT = int(os.environ.get("AIOINFER_STRESS_RUNS", drawn(20_000)))
SEED = int(os.environ.get("AIOINFER_STRESS_SEED", "11") or random.randrange(1 << 31))
"""Drawn by ``make stress``, which leaves it empty if none is given; else the same each time."""
TABLE = np.arange(0, 80, 10, dtype=np.float32)
MODEL = (
    '<ir_version: 9, opset_import: ["": 20]> g (int64[b, n] x) => (float[b, n] y) '
    "<float[8] table = {0, 10, 20, 30, 40, 50, 60, 70}> { y = Gather (table, x) }"
)
BAD = 99
TASKS = 60
WAIT_S = 60.0


def lookup_model() -> Any:
    """Return y = 10 * x for x of 0 to 7, which refuses anything else."""
    return parser.parse_model(MODEL)


class Users:
    """Draw what is asked for, and count what came of it."""

    def __init__(self, network: aioinfer.ExecutableNetwork, seed: int) -> None:
        self.network, self.chance = network, random.Random(seed)
        self.seen: Counter[str] = Counter()

    def draw(self) -> np.ndarray[Any, Any]:
        chance = self.chance
        shape = chance.choice((1, 1, 1, 2, 3, 9)), chance.choice((1, 1, 2, 3, 5))
        x = np.array([chance.randrange(8) for _ in range(shape[0] * shape[1])]).reshape(shape)
        if chance.random() < 0.01:
            x[-1, -1] = BAD
        return x

    def options(self) -> dict[str, Any]:
        if self.chance.random() < 0.8:
            return {}
        return self.chance.choice(
            ({"priority": self.chance.randrange(-2, 3)}, {"deadline_s": 0.0005}, {"deadline_s": 60})
        )

    def check(self, x: np.ndarray[Any, Any], outputs: Any) -> None:
        assert not (x == BAD).any()
        np.testing.assert_array_equal(outputs["y"], TABLE[x])
        self.seen["finished"] += 1

    def note(self, x: np.ndarray[Any, Any], error: BaseException) -> None:
        if isinstance(error, RequestCancelledError | asyncio.CancelledError):
            self.seen["cancelled"] += 1
        elif isinstance(error, DeadlineExceededError):
            self.seen["expired"] += 1
        elif isinstance(error, TensorError):
            assert (x == BAD).any()
            self.seen["failed"] += 1
        elif isinstance(error, PLANTED):
            self.seen["failed"] += 1
        else:
            raise error


class LoopUsers(Users):
    """Tasks of one loop, some with requests of their own, some of which are cancelled."""

    def __init__(self, network: aioinfer.ExecutableNetwork, seed: int) -> None:
        super().__init__(network, seed)
        self._requests = [network.create_infer_request() for _ in range(0, TASKS, 5)]

    async def run(self, count: int) -> None:
        left = iter(range(count))
        await asyncio.gather(*(self._work(left, task) for task in range(TASKS)))

    async def _work(self, left: Any, number: int) -> None:
        request = self._requests[number // 5] if number % 5 == 0 else None
        for _ in left:
            x, options = self.draw(), self.options()
            target: Any = self.network if request is None else request
            task = asyncio.ensure_future(target.infer(x, **options))
            if self.chance.random() < 0.05:
                for _ in range(self.chance.randrange(4)):
                    await asyncio.sleep(0)
                task.cancel()
            try:
                self.check(x, await task)
            except (Exception, asyncio.CancelledError, *PLANTED) as error:
                self.note(x, error)
            if request is not None:
                with suppress(Exception, *PLANTED):  # the same outcome again, once it is idle
                    await request.wait_async()
            if self.chance.random() < 0.02:
                await asyncio.sleep(self.chance.random() * 1e-3)


class ThreadUsers(Users):
    """A thread with several requests under way, some with memory of its own for the output."""

    def __init__(self, network: aioinfer.ExecutableNetwork, seed: int) -> None:
        super().__init__(network, seed)
        self._requests = [network.create_infer_request() for _ in range(8)]

    def run(self, count: int) -> None:
        requests = self._requests
        started: dict[aioinfer.InferRequest, np.ndarray[Any, Any]] = {}
        for number in range(count):
            request = requests[number % len(requests)]
            if request in started:
                self._end(request, started.pop(request))
            x = self.draw()
            try:
                request.start_async(x, **self.options())
            except ClosedError as error:
                self.note(x, error)
                continue
            started[request] = x
            if self.chance.random() < 0.05:
                request.cancel()
        for request, x in started.items():
            self._end(request, x)

    def _end(self, request: aioinfer.InferRequest, x: np.ndarray[Any, Any]) -> None:
        try:
            assert request.wait(WAIT_S)
            self.check(x, request.results)
        except (Exception, *PLANTED) as error:
            self.note(x, error)


def all_ask(
    network: aioinfer.ExecutableNetwork,
    users: tuple[LoopUsers, LoopUsers, ThreadUsers, ThreadUsers],
    share: int,
    meanwhile: Callable[[], None] | None = None,
) -> Counter[str]:
    """Have two loops and two threads ask for so much each, and return what they have seen.

    ``meanwhile`` is done on this thread beside them. Raises what a user has not expected.
    """
    failures: list[BaseException] = []

    def guarded(call: Any, *given: Any) -> None:
        try:
            call(*given)
        except BaseException as error:
            failures.append(error)

    first, second, *alone = users
    workers = [
        threading.Thread(target=guarded, args=(asyncio.run, first.run(share))),
        threading.Thread(target=guarded, args=(uvloop.run, second.run(share))),
        *(threading.Thread(target=guarded, args=(one.run, share)) for one in alone),
    ]
    for worker in workers:
        worker.start()
    if meanwhile is not None:
        meanwhile()
    for worker in workers:
        worker.join(100 + RUN_COUNT // 100)
        assert not worker.is_alive(), f"{network!r}: {network.statistics()}"
    if failures:
        raise failures[0]
    return seen_by(users)


def seen_by(users: Sequence[Users]) -> Counter[str]:
    """Add up what users have seen."""
    return sum((one.seen for one in users), Counter())
