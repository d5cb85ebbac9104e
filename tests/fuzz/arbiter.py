"""A second look at suspicions, in a process of its own, since models may end onnxruntime."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

from .drawing import Case
from .oracle import Finding, difference

__all__ = ["is_upheld"]

_WAIT_S = 30
_UPHELD, _DROPPED, _UNKNOWN = 10, 11, 12


def is_upheld(case: Case, finding: Finding) -> bool:
    """Tell whether a suspicion stays one; what onnxruntime cannot say anything about does not.

    ``differs`` stays unless rounding explains it. ``accepted`` stays if onnxruntime refuses the
    case as well, or has another answer than the device; ``refused`` stays if onnxruntime has an
    answer, and REFERENCE the same.
    """
    if case.states and finding.category != "differs":
        return True  # onnxruntime knows of none
    pid = os.fork()
    if pid == 0:
        code = _UNKNOWN
        try:
            signal.alarm(_WAIT_S)
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 2)
            os.dup2(silence, 1)
            code = _UPHELD if _stays(case, finding) else _DROPPED
        except BaseException:
            code = _UNKNOWN
        finally:
            os._exit(code)
    said = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return said != _DROPPED if finding.category == "differs" else said == _UPHELD


def _stays(case: Case, finding: Finding) -> bool:
    if finding.category == "differs":
        return not _is_within_rounding(case, finding.device)
    their = _theirs(case)
    if their is None:
        return False
    is_accepted = finding.category == "accepted"
    ours = _ours(case, finding.device if is_accepted else "REFERENCE")
    for mine, other, run in zip(ours, their, case.runs, strict=True):
        if not isinstance(mine, dict):
            continue
        is_same = isinstance(other, dict) and not difference(other, mine, case)
        if is_accepted and not is_same:
            return True
        if not is_accepted and is_same and (len(case.runs) == 1 or not run.is_valid):
            return True
    return False


def _theirs(case: Case) -> list[dict[str, Any] | str] | None:
    """Run a case on onnxruntime; None where it has no kernels or does not know the model."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(case.model, providers=["CPUExecutionProvider"])
    except Exception as error:
        text = str(error)
        if "NOT_IMPLEMENTED" in text or "opset" in text or "IR version" in text:
            return None
        return [text] * len(case.runs)
    names = [item.name for item in session.get_outputs()]
    wanted = {item.name for item in session.get_inputs()}
    results: list[dict[str, Any] | str] = []
    for run in case.runs:
        try:
            given = {name: value for name, value in run.feeds.items() if name in wanted}
            made = session.run(None, given)
            results.append(dict(zip(names, made, strict=True)))
        except Exception as error:
            if "NOT_IMPLEMENTED" in str(error):
                return None
            results.append(str(error))
    return results


def _is_within_rounding(case: Case, device: str) -> bool:
    from .rounding import is_within_rounding
    from .worker import open_core

    with open_core([device]) as core, np.errstate(all="ignore"):
        return is_within_rounding(core, case, device)


def _ours(case: Case, device: str) -> list[Any]:
    import aioinfer

    from .guarded import GuardedMemory
    from .running import run_case

    with aioinfer.Core() as core, np.errstate(all="ignore"):
        outcome = run_case(core, device, case, GuardedMemory(), None)
        return [outcome.of_run(number) for number in range(len(case.runs))]
