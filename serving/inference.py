"""One inference for a client: found, checked, run, answered; the same for every wire."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ..errors import ClosedError
from .protocol.call import Answer, InferCall, check_call
from .repository.models import Repository

__all__ = ["run_call"]


async def run_call(
    repository: Repository,
    model: str,
    version: str,
    call: InferCall,
    deadline_s: float | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> Answer:
    """Run what a client asked for, and return the outputs it wants.

    deadline_s: what the wire itself allows; the call's own timeout may be shorter. A model that is
    exchanged between finding and running is found anew. Raises RefusedError, and what the network's
    ``infer`` raises. Cancelling it cancels the run.
    """
    limits_s = [limit for limit in (deadline_s, call.deadline_s) if limit is not None]
    while True:
        served = repository.find(model, version)
        network = served.network
        given, wanted = check_call(call, network.inputs, network.outputs, model)
        try:
            results = await network.infer(
                given, deadline_s=min(limits_s, default=None), priority=call.priority
            )
        except ClosedError:
            if repository.find(model, version).network is network:
                raise
            continue
        served.last_inference_ms = int(wall_clock() * 1000)
        outputs = [(requested, np.asarray(results[requested.name])) for requested in wanted]
        return Answer(model, served.version, call.id, outputs)
