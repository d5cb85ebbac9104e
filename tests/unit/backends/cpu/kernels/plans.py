"""Plans of small models, to look at their steps; and what this CPU can do."""

from __future__ import annotations

from typing import Any

import numpy as np

from aioinfer import Core
from aioinfer.backends.cpu.compiler import Compiler
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.passes import plan_passes
from aioinfer.runtime.graph import DType


def implementations(core: Core, model: Any, inputs: dict[str, np.ndarray]) -> list[str]:
    """Compile a model as CPU does and name what each step runs."""
    compiler = Compiler(
        core.read_model(model),
        open_engine(),
        device="CPU",
        thread_count=1,
        float_dtype=DType.FLOAT32,
        passes=plan_passes(),
    )
    plan = compiler.compile({name: array.shape for name, array in inputs.items()}, {})
    return [step.implementation for step in plan.steps]
