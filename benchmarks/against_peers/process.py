"""The measuring side of a worker: starts it, asks it, counts what others use meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from against_peers.engines import Setting
from against_peers.judgement import Slot, busy_s, foreign_cpus

WORKER = Path(__file__).with_name("worker.py")
ANSWER_TIMEOUT_S = 300.0
END_TIMEOUT_S = 20.0
REST_S = 0.05  # until the threads of the last engine's turn stop spinning
STAT = Path("/proc/stat")


class WorkerError(Exception):
    """An engine that cannot do what was asked, with its reason."""


class WorkerProcess:
    """One engine in a process of its own; it sleeps between questions.

    Raises WorkerError when the engine refuses, when the process dies, or when no answer comes in
    time.
    """

    def __init__(self, engine: str, process: subprocess.Popen[bytes], messages: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.engine, self.process = engine, process
        self._questions, self._answers = process.stdin, process.stdout
        self._messages = messages
        self._unread = b""

    def load(self, file: Path, inputs: Path, setting: Setting) -> dict[str, float]:
        """Load a model and infer once; gives load_s, first_s and peak_bytes."""
        paths = {"file": str(file), "inputs": str(inputs)}
        return self.ask(do="load", engine=self.engine, **paths, setting=list(setting))

    def write_outputs(self, file: Path) -> None:
        self.ask(do="outputs", file=str(file))

    def slot(self, seconds: float) -> Slot:
        time.sleep(REST_S)
        began_s, own_before_s, busy_before_s = time.perf_counter(), own_s(), all_busy_s()
        answer = self.ask(do="slot", seconds=seconds)
        used_s = all_busy_s() - busy_before_s
        ours_s = answer["cpu_s"] + own_s() - own_before_s
        others = foreign_cpus(used_s, ours_s, time.perf_counter() - began_s)
        return Slot(answer["value"], others)

    def end(self) -> None:
        """End the process by the end of its input, or by force after a while."""
        self._questions.close()
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def ask(self, **question: Any) -> dict[str, Any]:
        """Send a question and wait for its answer."""
        try:
            self._questions.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None
        answer: dict[str, Any] = json.loads(self._line(question["do"]))
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _line(self, do: str) -> bytes:
        file = self._answers.fileno()
        until_s = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._unread:
            readable, _, _ = select.select([file], [], [], max(0.0, until_s - time.monotonic()))
            if not readable:
                self.process.kill()
                raise WorkerError(f"no answer to {do!r} within {ANSWER_TIMEOUT_S:.0f} s")
            piece = os.read(file, 65536)
            if not piece:
                raise WorkerError(self._last_words())
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _last_words(self) -> str:
        status = self.process.wait()
        self._messages.seek(0)
        lines = self._messages.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with status {status}: {lines[-1] if lines else 'no message'}"


@contextlib.contextmanager
def started(engine: str, program: Path = WORKER) -> Iterator[WorkerProcess]:
    """Start an engine's process, with nothing loaded, and end it at the end of the block."""
    with (
        tempfile.TemporaryFile() as messages,
        subprocess.Popen(
            [sys.executable, str(program)],
            env=worker_environment(),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
        ) as process,
    ):
        worker = WorkerProcess(engine, process, messages)
        try:
            yield worker
        finally:
            worker.end()


def worker_environment() -> dict[str, str]:
    """Put the benchmarks on a worker's path, also where Python is to be safe about paths."""
    paths = [str(WORKER.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def import_s(engine: str) -> float:
    """Time the import in a fresh process that has imported nothing else."""
    program = f"import time; t = time.perf_counter(); import {engine}; print(time.perf_counter()-t)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S)
    if done.returncode != 0:
        raise WorkerError((done.stderr.strip().splitlines() or ["its import failed"])[-1])
    return float(done.stdout.split()[-1])


def all_busy_s() -> float:
    """Give the seconds that all CPUs together have been busy."""
    return busy_s(STAT.read_text(encoding="utf-8"), os.sysconf("SC_CLK_TCK"))


def own_s() -> float:
    """Give the seconds that this process has computed."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
