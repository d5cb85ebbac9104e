"""The ladder: all that wants a GPU, from a copy to a network, suites and benchmarks, in 540 s.

    make gpu                                              # all of it; build/gpu has log and archive
    make gpu OUT=folder WHEELS=folder                     # wheels by make gpu-wheels, elsewhere
    make gpu ARGS="conv-f16 resnet50-f16"                 # some steps
    make gpu ARGS="--seconds 3600"                        # with more time for each

Nothing of the project is installed, and nothing is fetched. Each step is a process of its own with
a limit of time, so that one that fails, hangs, crashes or breaks the device does not end the
others. What it says is shown at once, and kept in one log and one archive, whenever we are cut off.
This process imports the standard library only. The exit status is 1 if a step failed, or if this is
no machine for it: the first step says why. AIOINFER_CUDA_DEVICE chooses another GPU than the first,
such as CUDA.1; AIOINFER_GPU_NEEDS names what has to be there, by default cupy,cudnn,nvmath.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gpu.limited_runs import LimitedRun, Outcome, chosen, outcome_text, start

from gpu.gpu_site import ROOT, prepare
from gpu.ladder_journal import Follower, Journal
from gpu.ladder_steps import (
    FACTS,
    STEPS,
    TOTAL_S,
    Step,
    command_of,
    environment_of,
    limit_of,
    turns_of,
)
from gpu.needs import UNFIT

LOOK_S = 0.05
PATH = (ROOT / "tests", ROOT / "benchmarks")

CommandOf = Callable[[Step, float, Path], Sequence[str]]


class Ladder:
    """Runs turns of steps from ``began_s`` of the clock, and shows and keeps what they say.

    ``work`` is an empty folder, ``path`` is where the steps' Python looks, ``cache`` where they
    keep plans.
    """

    def __init__(
        self,
        journal: Journal,
        work: Path,
        path: Sequence[Path],
        cache: Path,
        began_s: float,
        command_of: CommandOf,
    ) -> None:
        self._journal, self._work, self._path, self._cache = journal, work, path, cache
        self._began_s, self._command_of = began_s, command_of
        for name in ("logs", "rows"):
            (work / name).mkdir(parents=True, exist_ok=True)

    def climb(self, steps: Sequence[Step], total_s: float = TOTAL_S) -> list[Outcome]:
        """Run steps in their order, as far as there is time."""
        outcomes: list[Outcome] = []
        for turn in turns_of(steps):
            now_s = time.monotonic() - self._began_s
            limits = [(step, limit_of(step, now_s, total_s)) for step in turn]
            outcomes += [
                Outcome(step.name, "left out: no time", 0.0, False)
                for step, limit_s in limits
                if limit_s is None
            ]
            outcomes += self._run([(step, limit) for step, limit in limits if limit is not None])
            self._journal.pack()
            if outcomes[-1].name == FACTS.name and outcomes[-1].status == UNFIT:
                self._journal.say("nothing else was run: this is no machine for it, see above")
                break
        return outcomes

    def _run(self, limited: Sequence[tuple[Step, float]]) -> list[Outcome]:
        """Run steps side by side until the last has ended."""
        outcomes: list[Outcome] = []
        with ExitStack() as stack:
            running: list[RunningStep] = []
            for step, limit_s in limited:
                try:
                    one = self._started(step, limit_s, has_company=len(limited) > 1)
                except OSError as error:
                    outcomes.append(Outcome(step.name, f"not started: {error}", 0.0, True))
                else:
                    running.append(one)
                    stack.callback(one.close)
            while False in [one.look() for one in running]:
                time.sleep(LOOK_S)
        outcomes += [one.outcome for one in running]
        for outcome in outcomes:
            self._journal.say(f"--- {outcome.name}: {outcome.text}, {outcome.took_s:.1f} s")
        return outcomes

    def _started(self, step: Step, limit_s: float, *, has_company: bool) -> RunningStep:
        now_s = time.monotonic() - self._began_s
        self._journal.say(f"\n=== {step.name}, at {now_s:.0f} s, for up to {limit_s:.0f} s")
        file = self._work / "logs" / f"{step.name}.log"
        command = self._command_of(step, limit_s, self._work / "rows")
        environment = environment_of(step, os.environ, self._path, self._cache)
        with file.open("wb") as output:
            process = start(command, folder=ROOT, environment=environment, output=output)
        follower = Follower(self._journal, file, f"{step.name}: " if has_company else "")
        return RunningStep(step.name, limit_s, LimitedRun(process, limit_s), follower)


@dataclass(frozen=True)
class RunningStep:
    """A process of a step, and what shows what it says."""

    name: str
    limit_s: float
    run: LimitedRun
    follower: Follower

    def look(self) -> bool:
        """Show what is new; True once it is over."""
        self.follower.look()
        return self.run.look()

    def close(self) -> None:
        """End it if it is not over, and what it has left behind."""
        self.run.end()
        self.follower.close()

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        text = outcome_text(self.run.status, self.run.sent, self.limit_s)
        return Outcome(self.name, text, self.run.took_s, text != "passed", self.run.status)


def table_of(outcomes: Sequence[Outcome]) -> str:
    """Show how all steps ended, failures marked. Pure."""
    return "\n".join(
        f"{'!' if one.is_failure else ' '} {one.name:20} {one.text:42} {one.took_s:6.1f} s"
        for one in outcomes
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = ", ".join(step.name for step in STEPS)
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {names}; facts comes first")
    made.add_argument("--seconds", type=float, default=TOTAL_S, help="for all together")
    made.add_argument(
        "--out", type=Path, default=ROOT / "build" / "gpu", help="for log and archive"
    )
    made.add_argument("--wheels", type=Path, default=ROOT / "build" / "gpu-wheels")
    return made


def stop_on_sigterm() -> None:
    """Let SIGTERM end us as Ctrl-C does, with all that was started."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


def main(given: Sequence[str]) -> int:
    began_s = time.monotonic()
    arguments = parser().parse_args(given)
    try:
        steps = chosen(arguments.names and [FACTS.name, *arguments.names], STEPS)
    except ValueError as error:
        parser().error(str(error))
    stop_on_sigterm()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    folder = ROOT / "build" / "gpu-work"
    shutil.rmtree(folder, ignore_errors=True)
    work, cache = folder / "kept", folder / "cache"
    for made in (work, cache):
        made.mkdir(mode=0o700, parents=True)
    journal = Journal(arguments.out, work)
    try:
        journal.say(
            f"Python {platform.python_version()} of {sys.executable}, {platform.platform()}"
        )
        path = (*prepare(folder / "site", arguments.wheels, journal.say), *PATH)
        ladder = Ladder(journal, work, path, cache, began_s, command_of)
        outcomes = ladder.climb(steps, arguments.seconds)
        journal.say(f"\n{table_of(outcomes)}")
        return int(any(one.is_failure for one in outcomes))
    except KeyboardInterrupt:
        journal.say("\nstopped")
        return 130
    finally:
        journal.pack()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
