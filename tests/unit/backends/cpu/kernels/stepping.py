"""What tests of kernels ask of plans and of single native kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aioinfer import Core
from aioinfer.backends.cpu.native.step_runner import KIND_END, step_runner
from aioinfer.backends.cpu.onednn.bindings import Engine

Array = np.ndarray[Any, Any]


def implementations(
    core: Core, model: Any, inputs: Mapping[str, Array], **config: Any
) -> list[tuple[str, str]]:
    """Load a model on CPU, run it once, and list (operator, implementation) of all steps."""
    with core.load_network(model, "CPU", config) as network:
        network.create_infer_request().infer_sync(dict(inputs))
        return [(step.origin.op, step.implementation) for step in network._compiler.latest.steps]


def run_kernel(
    engine: Engine, name: str, arrays: Sequence[Array], parameters: Sequence[int]
) -> tuple[int, int] | None:
    """Run one native kernel on arrays; None, or the status and the step that failed."""
    run = step_runner(engine)
    references = [word for array in arrays for word in (0, array.ctypes.data)]
    payload = [len(arrays), *references, *parameters]
    table = [0, 0, 0, run.kinds[name], 2 + len(payload), *payload, KIND_END, 2]
    return run.run(np.array(table, np.int64), (), 2)
