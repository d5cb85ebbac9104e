"""What the ladder climbs, in its order, and how long each step may take. Tables and pure functions.

Rungs come first: the smallest things that a device has to do, from a copy to a network, so that the
first two minutes tell what is broken. Then come the suites, each by its worth for the time that it
takes; those that fill the device's memory come last. Then the benchmarks, one by one. What is left
of the time goes to the rest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpu.limited_runs import GRACE_S

__all__ = [
    "DEVICE",
    "FACTS",
    "STEPS",
    "TOTAL_S",
    "Step",
    "command_of",
    "environment_of",
    "limit_of",
    "turns_of",
]

DEVICE = os.environ.get("AIOINFER_CUDA_DEVICE", "CUDA")
TOTAL_S = 540.0
LEAST_S = 8.0
"""With less left no step is begun."""
ENDS_S: Mapping[str, float] = {"rungs": 150, "suites": 385, "benchmarks": 525, "rest": 525}
"""By part, when of ``TOTAL_S`` its last step is over; with other totals all in proportion."""
HUNG = 0.6
"""Of a suite's time; a test that takes longer ends its process, even blocked with the GIL held."""
_PLUGINS = (
    *("gpu.early_failures", "xdist.plugin", "pytest_timeout", "pytest_asyncio.plugin"),
    "_hypothesis_pytestplugin",
)
_SHARED = ("tests/conformance", "tests/onnx_backend")


@dataclass(frozen=True)
class Step:
    """One process, or one tree of them; ``arguments`` are pytest's.

    ``limit_s`` is what it may take at most, of the usual total. Steps of one ``turn`` run side by
    side.
    """

    name: str
    kind: Literal["rung", "tests", "benchmark"]
    limit_s: float
    part: str
    arguments: tuple[str, ...] = ()
    conformance_device: str | None = None
    turn: str | None = None


def _rung(name: str, limit_s: float) -> Step:
    return Step(name, "rung", limit_s, "rungs")


def _file(name: str, limit_s: float, processes: int = 1) -> Step:
    """Make a step of one file; another process goes on when one crashes."""
    arguments = (f"tests/gpu/test_{name}.py", f"-n{processes}", "--dist=worksteal")
    return Step(name, "tests", limit_s, "suites", arguments)


def _shared(name: str, limit_s: float, *arguments: str) -> Step:
    device = DEVICE if name == "conformance" else None
    return Step(name, "tests", limit_s, "suites", arguments, device, turn="side by side")


def _benchmark(name: str, limit_s: float, part: str = "benchmarks") -> Step:
    return Step(name, "benchmark", limit_s, part)


FACTS = _rung("facts", 30)
"""The first; nothing follows if it says that this is no machine to climb on."""
_EACH = ("-n", f"{max(1, min(6, (os.cpu_count() or 1) // 2))}", "--dist=worksteal")
STEPS = (
    FACTS,
    _rung("queues", 25),
    _rung("capture", 25),
    _rung("perceptron-kernels", 25),
    _rung("perceptron-cublas", 25),
    _rung("perceptron-cublaslt", 25),
    _rung("conv-f16", 40),
    _rung("conv-f32", 40),
    _rung("attention", 40),
    _rung("attention-mask", 40),
    _rung("resnet50-f16", 40),
    _file("references", 120, processes=4),
    _file("graphs", 40),
    _file("device_arrays", 25),
    _shared("property", 80, "tests/property/test_operators.py", "-k", "CUDA", *_EACH),
    _shared("conformance", 80, *_SHARED, *_EACH),
    _file("racing_slots", 40),
    _file("libraries", 50),
    _file("hetero", 60, processes=2),
    _file("failures", 40),
    _benchmark("device_facts", 25),
    _benchmark("launch_cost", 20),
    _benchmark("completion", 25),
    _benchmark("async_requests", 35),
    _benchmark("graph_replay", 30),
    _benchmark("resnet50", 75),
    _benchmark("transfers", 20),
    _benchmark("bert_base", 90, "rest"),
    _benchmark("kernel_times", 75, "rest"),
    _benchmark("overlap", 30, "rest"),
    Step("hetero-suite", "tests", 90, "rest", (*_SHARED, *_EACH), f"HETERO:{DEVICE},REFERENCE"),
    Step("extensions", "tests", 40, "rest", ("tests/gpu/test_extensions.py", "-n1")),
    _benchmark("torch_baseline", 150, "rest"),
)


def turns_of(steps: Sequence[Step]) -> list[list[Step]]:
    """Put steps that run side by side together. Pure."""
    turns: list[list[Step]] = []
    for step in steps:
        if turns and step.turn is not None and turns[-1][0].turn == step.turn:
            turns[-1].append(step)
        else:
            turns.append([step])
    return turns


def limit_of(step: Step, now_s: float, total_s: float = TOTAL_S) -> float | None:
    """Say how long a step may take that begins ``now_s`` after the ladder; None: no time. Pure."""
    scale = total_s / TOTAL_S
    own_s = step.limit_s * max(1.0, scale)
    limit_s = min(own_s, ENDS_S[step.part] * scale - GRACE_S - now_s)
    return None if limit_s < LEAST_S else limit_s


def command_of(step: Step, limit_s: float, rows: Path) -> list[str]:
    """Write the command line of a step; a benchmark's rows go to a file in ``rows``. Pure."""
    if step.kind == "rung":
        return [sys.executable, "-P", "-m", "gpu.rungs", step.name]
    if step.kind == "benchmark":
        file, seconds = rows / f"{step.name}.json", max(1.0, limit_s - 6.0)
        options = ["--json", str(file), "--device", DEVICE, "--seconds", f"{seconds:.0f}"]
        return [sys.executable, f"benchmarks/gpu/{step.name}.py", *options]
    pytest = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "--tb=short"]
    hung = f"faulthandler_timeout={limit_s * HUNG:.0f}"
    return [*pytest, "-o", hung, "-o", "faulthandler_exit_on_timeout=true", *step.arguments]


def environment_of(
    step: Step, given: Mapping[str, str], path: Sequence[Path], cache: Path
) -> dict[str, str]:
    """Let a step find ``path``, show where it crashes, and fail, not skip, without a device. Pure.

    Plans are made anew, and kept in ``cache``. Of pytest's plugins only those that the tests need
    are there: others warn, and warnings are errors.
    """
    joined = [*map(str, path), *filter(None, [given.get("PYTHONPATH")])]
    made = {
        **given,
        "PYTHONPATH": os.pathsep.join(joined),
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        "AIOINFER_REQUIRE_DEVICE": "1",
        "AIOINFER_CACHE_DIR": str(cache),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": ",".join(_PLUGINS),
    }
    if step.conformance_device is not None:
        made["AIOINFER_CONFORMANCE_DEVICE"] = step.conformance_device
    return made
