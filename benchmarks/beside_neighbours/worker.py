"""The process that one engine lives in while its neighbours come and go.

Questions and answers are those of ``against_peers``, but for what is asked:

    {"do": "load", "engine": ..., "file": ..., "inputs": file.npz, "setting": [...],
     "network_count": 1}
    {"do": "turn", "seconds": 1.0, "least_runs": 5, "busy_threads": 0, "decoders": 0,
     "is_awaited": false, "times": file.npy}

A turn writes the seconds of each run; with several networks those of all, which run at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from against_peers.engines import ENGINES, Engine, Setting
from against_peers.worker import Answer, serve

from beside_neighbours.runs import Window, awaited_runs, blocking_runs
from beside_neighbours.situations import LEAD_IN_S
from beside_neighbours.threads import busy_thread, decoder_threads

LARGEST_CHANGE = 1e-3  # of the largest value: one thread and a team add up in another order


class NeighboursWorker:
    """What the process knows: its engine, once for each network, and what each answered first."""

    def __init__(self) -> None:
        self._engines: list[Engine] = []
        self._inputs: dict[str, Any] = {}
        self._first: dict[str, Any] = {}
        self._runner: asyncio.Runner | None = None

    def answer(self, question: dict[str, Any]) -> Answer:
        do = question.pop("do")
        return self._load(**question) if do == "load" else self._turn(**question)

    def _load(
        self, engine: str, file: str, inputs: str, setting: list[Any], network_count: int
    ) -> Answer:
        import numpy as np

        with np.load(inputs) as arrays:
            self._inputs = dict(arrays)
        self._engines = [ENGINES[engine](file, Setting(*setting)) for _ in range(network_count)]
        answers = [one.infer(self._inputs) for one in self._engines]
        self._first = {name: array.copy() for name, array in answers[0].items()}
        return {}

    def _turn(
        self,
        seconds: float,
        least_runs: int,
        busy_threads: int,
        decoders: int,
        is_awaited: bool,
        times: str,
    ) -> Answer:
        import numpy as np

        gc.collect()
        before_s, began_s = cpu_s(), time.perf_counter()
        with contextlib.ExitStack() as stack:
            for _ in range(busy_threads):
                stack.enter_context(busy_thread())
            decoded = stack.enter_context(decoder_threads(decoders)) if decoders else int
            taken_s = self._timed(Window(LEAD_IN_S, seconds, least_runs), is_awaited)
            rate = decoded() / (time.perf_counter() - began_s)
            self._compare([engine.infer(self._inputs) for engine in self._engines])
        np.save(times, np.concatenate(taken_s))
        return {"cpu_s": cpu_s() - before_s, "image_rate": rate if decoders else None}

    def _timed(self, window: Window, is_awaited: bool) -> list[list[float]]:
        if not is_awaited:
            return blocking_runs(
                [partial(one.infer, self._inputs) for one in self._engines], window
            )
        if self._runner is None:
            import uvloop

            self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        calls = [partial(one.infer_awaited, self._inputs) for one in self._engines]
        return self._runner.run(awaited_runs(calls, window))

    def _compare(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Refuse to go on if what is beside it has changed what a network answers."""
        import numpy as np

        for answer in answers:
            for name, right in self._first.items():
                change = np.abs(answer[name] - right).max() / np.abs(right).max()
                if not change <= LARGEST_CHANGE:
                    raise ArithmeticError(f"{name} is {change:.1e} off what it was alone")

    def close(self) -> None:
        for engine in self._engines:
            engine.close()
        if self._runner is not None:
            self._runner.close()


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    serve(NeighboursWorker())
