"""How long one run of a network takes, tried with made up inputs."""

from __future__ import annotations

import logging
from time import perf_counter

from ...errors import ClosedError
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.warm_up import made_up_inputs, run_in_slots, shapes_to_warm_up
from ...runtime.properties.properties import INPUT_SHAPES, Configuration
from ...runtime.runs.stage import Stop

__all__ = ["measured_s"]

_log = logging.getLogger("aioinfer.AUTO")

MOST_RUNS = 5
ENOUGH_S = 0.5
"""A run that takes that long is not repeated."""


def measured_s(network: ExecutableNetwork, config: Configuration, stop: Stop) -> float | None:
    """Return the shortest of a few runs, after a first one, in seconds; None if they fail.

    Inputs are of the first of INPUT_SHAPES, else 1 for what the model leaves open. Blocks. Raises
    ClosedError once the network is closed.
    """
    wanted = config[INPUT_SHAPES]
    try:
        (shapes,) = shapes_to_warm_up(network.model_inputs, wanted[:1] or ({},))
        inputs = made_up_inputs(network.model_inputs, shapes)
        run_in_slots(network, inputs, 1, stop)
        best_s = total_s = 0.0
        for _ in range(MOST_RUNS):
            started_s = perf_counter()
            run_in_slots(network, inputs, 1, stop)
            taken_s = max(1e-9, perf_counter() - started_s)
            best_s, total_s = min(best_s or taken_s, taken_s), total_s + taken_s
            if total_s > ENOUGH_S:
                break
    except ClosedError:
        raise
    except Exception as error:  # the model's own, or the device's: its speed is not known then
        _log.info("%r cannot be measured: %s", network, error)
        return None
    return best_s
