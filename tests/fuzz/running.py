"""Running a case on a device: loading, a few runs, and every exception caught and told apart."""

from __future__ import annotations

import contextlib
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import aioinfer
from aioinfer.errors import AioInferError, NotSupportedError, TensorError

from .drawing import Case, Run
from .guarded import GuardedMemory
from .oracle import Failure, Outcome

__all__ = ["run_case"]

_PACKAGE = Path(__file__).parents[2]
_OWN = Path(__file__).parent
WAIT_S = 5.0
"""A deadline, which ends loops without an end."""


def run_case(
    core: aioinfer.Core, device: str, case: Case, guarded: GuardedMemory, reference: Outcome | None
) -> Outcome:
    """Load a case and do its runs; raises nothing but what ends the process."""
    outcome, begun = Outcome(), time.process_time()
    config: dict[str, Any] = {"STATE": dict(case.states)} if case.states else {}
    if device == "CPU":
        config["INFERENCE_NUM_THREADS"] = case.thread_count
    try:
        with np.errstate(all="ignore"):
            network = core.load_network(case.model, device, config)
    except BaseException as error:
        outcome.load_error = _failure(error)
    else:
        with network, np.errstate(all="ignore"):
            request = network.create_infer_request()
            for number, run in enumerate(case.runs):
                if not case.states:
                    request = network.create_infer_request()
                wanted = None if reference is None else reference.of_run(number)
                try:
                    outcome.runs.append(_run(request, case, run, guarded, wanted))
                except BaseException as error:
                    outcome.runs.append(_failure(error))
    outcome.cpu_s = time.process_time() - begun
    return outcome


def _run(
    request: aioinfer.InferRequest,
    case: Case,
    run: Run,
    guarded: GuardedMemory,
    wanted: dict[str, Any] | Failure | None,
) -> dict[str, Any]:
    given = {name: guarded.place(array, at_end=case.at_end) for name, array in run.feeds.items()}
    if case.binds and isinstance(wanted, dict):
        for name, array in wanted.items():
            if isinstance(array, np.ndarray) and not array.dtype.hasobject:
                memory = guarded.place(np.zeros_like(array), at_end=case.at_end)
                # A wrong model may declare another shape than its results have.
                with contextlib.suppress(*([] if run.is_valid else [TensorError])):
                    request.set_tensor(name, memory)
    # The place is given to other arrays later.
    return {
        name: np.array(value) if isinstance(value, np.ndarray) else value
        for name, value in request.infer_sync(given, deadline_s=WAIT_S).items()
    }


def _failure(error: BaseException) -> Failure:
    is_ours = isinstance(error, AioInferError)
    return Failure(
        is_ours,
        type(error).__name__,
        " ".join(str(error).split()),
        "" if is_ours else _place(error),
        isinstance(error, NotSupportedError),
    )


def _place(error: BaseException) -> str:
    """Name the innermost frames that are of this project."""
    frames = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if _PACKAGE in path.parents and _OWN not in path.parents and ".venv" not in path.parts:
            frames.append(f"{path.relative_to(_PACKAGE)}:{frame.name}:{frame.lineno}")
    return " < ".join(reversed(frames[-2:]))
