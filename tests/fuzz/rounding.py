"""Whether a difference is no more than what rounding makes of a case: REFERENCE is asked again.

It is given floats that are off by a unit or so of their last place, several times. Where its own
results then scatter, as behind the norm of a row of equal numbers, or where a stored number is
just between two, no other device can be held to the ones of the first time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from .drawing import Case, Run
from .guarded import GuardedMemory
from .oracle import difference
from .running import run_case

__all__ = ["is_within_rounding", "nearby_cases", "without_rounding"]

Array = np.ndarray[Any, Any]
Results = Mapping[str, Any]

_TIMES = 16
_MARGIN = 4.0
"""So many times the scatter of as few runs is still chance."""


def is_within_rounding(core: Any, case: Case, device: str) -> bool:
    """Tell whether a device's results differ again, and lie where those of REFERENCE scatter.

    What differs once and not again, or is no result the second time, is not rounding.
    """
    memory = GuardedMemory()
    wanted = run_case(core, "REFERENCE", case, memory, None)
    got = run_case(core, device, case, memory, wanted)
    others = [run_case(core, "REFERENCE", near, memory, None) for near in nearby_cases(case)]
    differs = False
    for number in range(len(case.runs)):
        right, found = wanted.of_run(number), got.of_run(number)
        if not isinstance(right, dict):
            continue
        if not isinstance(found, dict):
            return False
        if difference(right, found, case) is None:
            continue
        differs = True
        near = [item for other in others if isinstance(item := other.of_run(number), dict)]
        if difference(right, without_rounding(right, found, near), case) is not None:
            return False
    return differs


def nearby_cases(case: Case) -> Iterator[Case]:
    """Make the same case of other floats, each off by at most a unit of its last place."""
    random = np.random.default_rng(case.index)
    for _ in range(_TIMES):
        model = onnx.load_from_string(case.model)
        for item in model.graph.initializer:
            array = numpy_helper.to_array(item)
            if array.dtype.kind == "f":
                item.CopyFrom(numpy_helper.from_array(_off(array, random), item.name))
        runs = [
            Run({name: _off(x, random) for name, x in run.feeds.items()}, run.is_valid)
            for run in case.runs
        ]
        yield replace(case, model=model.SerializeToString(), runs=tuple(runs), binds=False)


def _off(x: Any, random: np.random.Generator) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
        return x
    with np.errstate(all="ignore"):
        ends = np.where(random.random(x.shape) < 0.5, -np.inf, np.inf).astype(x.dtype)
        return np.where(random.random(x.shape) < 0.7, np.nextafter(x, ends), x)


def without_rounding(right: Results, found: Results, near: Sequence[Results]) -> dict[str, Any]:
    """Copy what is found, with what is right where it is as far off as ``near`` scatters. Pure."""
    made = dict(found)
    for name, wanted in right.items():
        value = found.get(name)
        if not _is_alike(wanted, value):
            continue
        with np.errstate(all="ignore"):
            scatter = np.zeros(wanted.shape)
            for results in near:
                if _is_alike(wanted, results.get(name)):
                    off = np.abs(results[name].astype(np.float64) - wanted.astype(np.float64))
                    scatter = np.fmax(scatter, np.where(np.isfinite(off), off, 0))
            limit = _MARGIN * scatter if wanted.dtype.kind == "f" else scatter
            off = np.abs(value.astype(np.float64) - wanted.astype(np.float64))
            made[name] = np.where(off <= limit, wanted, value)
    return made


def _is_alike(wanted: Any, value: Any) -> bool:
    return (
        isinstance(wanted, np.ndarray)
        and isinstance(value, np.ndarray)
        and wanted.dtype.kind in "fiu"
        and (wanted.dtype, wanted.shape) == (value.dtype, value.shape)
    )
