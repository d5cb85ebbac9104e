"""The process that one engine lives in: loads a network, runs a slot when told to, else sleeps.

Questions come as lines of JSON on standard input, answers go out on standard output:

    {"do": "load", "engine": ..., "file": ..., "inputs": file.npz, "setting": [...]}
    {"do": "outputs", "file": file.npz}
    {"do": "slot", "seconds": 1.0}

An answer with "error" says why it could not be done. The process ends with its input.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from against_peers.engines import ENGINES, Engine, Setting

Answer = dict[str, Any]


class Answers(Protocol):
    """What a process does with the questions that it reads."""

    def answer(self, question: dict[str, Any]) -> Answer:
        """Do what was asked; what it raises is the answer as well."""

    def close(self) -> None:
        """Release what is held."""


class Worker:
    """What the process knows: its engine and what it feeds it."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._inputs: dict[str, Any] = {}
        self._has_streams = False

    def answer(self, question: dict[str, Any]) -> Answer:
        do = question.pop("do")
        if do == "load":
            return self._load(**question)
        if self._engine is None:
            raise ValueError(f"{do!r} was asked for before anything was loaded")
        if do == "outputs":
            return self._write_outputs(self._engine, **question)
        return self._slot(self._engine, **question)

    def _load(self, engine: str, file: str, inputs: str, setting: list[Any]) -> Answer:
        wanted = Setting(*setting)
        __import__(engine)
        began_s = time.perf_counter()
        self._engine = ENGINES[engine](file, wanted)
        load_s = time.perf_counter() - began_s
        import numpy as np

        with np.load(inputs) as arrays:
            self._inputs = dict(arrays)
        self._has_streams = wanted.has_streams
        asked_s = time.perf_counter()
        self._engine.infer(self._inputs)
        return {
            "load_s": load_s,
            "first_s": time.perf_counter() - asked_s,
            "peak_bytes": peak_bytes(),
        }

    def _write_outputs(self, engine: Engine, file: str) -> Answer:
        import numpy as np

        np.savez(file, **engine.infer(self._inputs))
        return {}

    def _slot(self, engine: Engine, seconds: float) -> Answer:
        """Give the milliseconds of the median inference, or the inferences per second."""
        before = resource.getrusage(resource.RUSAGE_SELF)
        began_s = time.perf_counter()
        if self._has_streams:
            count = engine.fill(self._inputs, began_s + seconds)
            value = count / (time.perf_counter() - began_s)
        else:
            times_s: list[float] = []
            while not times_s or time.perf_counter() < began_s + seconds:
                asked_s = time.perf_counter()
                engine.infer(self._inputs)
                times_s.append(time.perf_counter() - asked_s)
            value, count = statistics.median(times_s) * 1000, len(times_s)
        after = resource.getrusage(resource.RUSAGE_SELF)
        own_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"value": value, "count": count, "cpu_s": own_s}

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


def peak_bytes() -> int:
    """Give the most memory that this process and those that it has started have held."""
    own = os.getpid()
    total = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            status = status_of(folder / "status")
            if int(folder.name) == own or status.get("PPid") == str(own):
                total += int(status.get("VmHWM", "0 kB").split()[0]) * 1024
    return total


def status_of(file: Path) -> dict[str, str]:
    """Read a process's status; empty where it has ended meanwhile."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def serve(worker: Answers) -> None:
    """Answer the questions on standard input until it ends."""
    # What an engine prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    worker.close()


if __name__ == "__main__":
    serve(Worker())
