"""Run all that wants a GPU: the shared suites, the tests of this folder, the benchmarks.

    make gpu                                                  # all of it
    python tests/gpu/suites.py --minutes 9 --logs build/gpu   # what fits; output goes to files
    python tests/gpu/suites.py conformance -- -n 8            # one suite, with pytest's options

Each suite is a process of its own; one that fails or runs past its time is reported, and the others
go on. The exit status is 1 if any did. Without a GPU one line says why, and the exit status is 0:
nothing was run, so nothing failed. Where a GPU should be, set AIOINFER_REQUIRE_DEVICE=1, and it is
a failure. AIOINFER_CUDA_DEVICE chooses another than the first, such as CUDA.1. The tests of this
folder fill the device's memory, so they are no good company for others on it.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BENCHMARKS = str(ROOT / "benchmarks" / "gpu")
if _BENCHMARKS not in sys.path:
    sys.path.append(_BENCHMARKS)

from limited_runs import Outcome, chosen, run_in_turn, run_limited  # noqa: E402
from measuring import device_reason  # noqa: E402

DEVICE = os.environ.get("AIOINFER_CUDA_DEVICE", "CUDA")
IS_REQUIRED = os.environ.get("AIOINFER_REQUIRE_DEVICE", "0") not in ("", "0")
SHARED = ("tests/conformance", "tests/onnx_backend")
LEAST_S = 10.0
"""With less left no suite is started."""
GRACE_S = 15.0
"""Benchmarks that keep to their time are not stopped in the middle."""


@dataclass(frozen=True)
class Suite:
    """What is run: tests with pytest's options, or the benchmarks where there are none."""

    name: str
    tests: tuple[str, ...] = ()
    conformance_device: str | None = None


SUITES = (
    Suite("gpu", ("tests/gpu",)),
    Suite("property", ("tests/property/test_operators.py", "-k", "CUDA")),
    Suite("conformance", SHARED, DEVICE),
    Suite("benchmarks"),
    Suite("hetero", SHARED, f"HETERO:{DEVICE},REFERENCE"),
)
"""By worth: what finds the most in the least time comes first."""


def command_of(
    suite: Suite, options: Sequence[str], left_s: float, kept: Sequence[str] = ()
) -> list[str]:
    """Write the command line of a suite, of which ``left_s`` is what it may take. Pure.

    ``options`` are pytest's, ``kept`` says to the benchmarks where to keep rows.
    """
    if suite.tests:
        pytest = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider"]
        return [*pytest, *suite.tests, *options]
    command = [sys.executable, "benchmarks/gpu/run.py", "--device", DEVICE]
    if left_s < math.inf:
        command += ["--minutes", f"{max(0.0, left_s - GRACE_S) / 60:.2f}"]
    return [*command, *kept]


def environment_of(suite: Suite, given: Mapping[str, str]) -> dict[str, str]:
    """Let tests fail, not skip, where the device goes away, and tell them which it is. Pure."""
    made = {**given, "AIOINFER_REQUIRE_DEVICE": "1", "PYTHONUNBUFFERED": "1"}
    if suite.conformance_device is not None:
        made["AIOINFER_CONFORMANCE_DEVICE"] = suite.conformance_device
    return made


def run_suite(
    suite: Suite, command: Sequence[str], left_s: float, log: Path | None = None
) -> Outcome:
    """Run one suite for as long as there is time; its output goes to ``log``, too, if given."""
    print(f"\n{suite.name}: {' '.join(command[1:])}", flush=True)
    began_s = time.monotonic()
    environment = environment_of(suite, os.environ)
    status = run_limited(command, left_s, folder=ROOT, environment=environment, log=log)
    took_s = time.monotonic() - began_s
    if status is None:
        return Outcome(suite.name, "stopped: no time", took_s, True)
    text = f"failed with status {status}" if status else "passed"
    return Outcome(suite.name, text, took_s, bool(status))


def last_lines(log: Path, count: int = 15) -> str:
    """Give the end of a suite's output."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])


def split_options(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part our own options from pytest's, which stand behind ``--``. Pure."""
    items = list(given)
    index = items.index("--") if "--" in items else len(items)
    return items[:index], items[index + 1 :]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = [suite.name for suite in SUITES]
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    made.add_argument("--minutes", type=float, default=math.inf, help="for all together")
    made.add_argument("--save", action="store_true", help="keep the benchmarks' rows")
    made.add_argument("--results", type=Path, metavar="DIR", help="keep the rows there, too")
    made.add_argument("--logs", type=Path, metavar="DIR", help="keep each suite's output there")
    return made


def main(given: Sequence[str]) -> int:
    mine, options = split_options(given)
    arguments = parser().parse_args(mine)
    until_s = time.monotonic() + arguments.minutes * 60
    try:
        suites = chosen(arguments.names, SUITES)
    except ValueError as error:
        parser().error(str(error))
    reason = device_reason(DEVICE)
    if reason is not None:
        print(f"make gpu: nothing was run: {reason}")
        return int(IS_REQUIRED)
    kept = ["--save"] if arguments.save else []
    if arguments.results:
        kept += ["--output-dir", str(arguments.results.resolve())]
    if arguments.logs:
        arguments.logs.mkdir(parents=True, exist_ok=True)

    def run(suite: Suite, left_s: float) -> Outcome:
        log = arguments.logs / f"{suite.name}.log" if arguments.logs else None
        command = command_of(suite, options, left_s, kept)
        outcome = run_suite(suite, command, left_s, log)
        if log:
            print(last_lines(log), flush=True)
        return outcome

    outcomes = run_in_turn(suites, until_s, LEAST_S, run)
    print()
    for one in outcomes:
        print(f"{one.name:12} {one.text:28} {one.took_s:6.0f} s")
    return int(any(one.is_failure for one in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
