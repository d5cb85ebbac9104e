"""Whole networks whose arena is full of NaN before each run: nothing is read unwritten."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.runtime.graph import DType
from exhaustive import all_but
from unit.backends.cpu.comparing import precisions
from unit.backends.cpu.compiled_plans import BoundPlan, plan_of
from unit.benchmarks.small_networks import BATCH, MODELS, SMALL, TOKENS, inputs_of

PRECISIONS = [DType.FLOAT32, *([DType.BFLOAT16] if "bf16" in precisions() else [])]


@pytest.mark.parametrize("float_dtype", PRECISIONS, ids=lambda dtype: dtype.label)
@pytest.mark.parametrize("threads", all_but([2], [1, 2]))
@pytest.mark.parametrize("name", all_but(["mobilenet_v2", "bert_base", "lstm_tagger"], SMALL))
def test_a_poisoned_arena_changes_no_bit(
    core: Core, name: str, threads: int, float_dtype: DType
) -> None:
    inputs = inputs_of(name)
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    model = SMALL[name](batch=BATCH, **sequence)
    plan = plan_of(core, model, inputs, threads=threads, float_dtype=float_dtype)
    bound = BoundPlan(plan)
    bound.poison(0)
    first = bound.run(inputs)
    assert all(np.isfinite(array).all() for array in first)
    for byte in (255, 127):  # NaN, and the largest numbers
        bound.poison(byte)
        again = bound.run(inputs)
        for one, other in zip(first, again, strict=True):
            assert one.tobytes() == other.tobytes()
