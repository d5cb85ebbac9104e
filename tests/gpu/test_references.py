"""Whole networks against float64, with memory poisoned before each run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aioinfer import Core, InferRequest
from gpu.device import DEVICE, leave_nan_behind
from gpu.oracle import drawn, relative_error

NETWORKS = ("resnet50", "mobilenet_v2", "bert_base", "minilm_l6")
SEEDS = (1, 2)
BOUNDS = {"f32": 1e-5, "tf32": 1e-3, "f16": 1e-2, "bf16": 1e-2}
DEEPER = {("bert_base", "bf16"): 2e-2, ("bert_base", "tf32"): 2e-3}
"""Twelve layers of roundings to 8 bits are off by 1e-2 on a processor, too; to 10 bits, by less."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_gives_what_float64_gives(core: Core, name: str, precision: str) -> None:
    leave_nan_behind()
    config = {"INFERENCE_PRECISION_HINT": precision}
    errors = []
    with core.load_network(drawn(name, SEEDS[0]).model, DEVICE, config) as network:
        request = network.create_infer_request()
        for seed in (*SEEDS, SEEDS[0]):
            case = drawn(name, seed)
            found = run_into_nan(request, case.inputs, case.wanted)
            errors.append(relative_error(found, case.wanted))
    print(f"{name} {precision}: {', '.join(f'{error:.2g}' for error in errors)}")
    assert max(errors) < DEEPER.get((name, precision), BOUNDS[precision])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NETWORKS)
def test_strict_float32_is_more_exact_than_tf32(core: Core, name: str) -> None:
    case = drawn(name, SEEDS[0])
    errors = []
    for precision in ("f32", "tf32"):
        config = {"INFERENCE_PRECISION_HINT": precision}
        with core.load_network(case.model, DEVICE, config) as network:
            found = network.create_infer_request().infer_sync(dict(case.inputs))
        errors.append(relative_error(found, case.wanted))
    strict, rounded = errors
    print(f"{name}: f32 {strict:.2g}, tf32 {rounded:.2g}")
    assert strict <= rounded


@pytest.mark.timeout(300)
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_symbolic_batch_gives_what_float64_gives(core: Core, batch: int) -> None:
    from models import MODELS

    from gpu.oracle import in_float64

    model = MODELS["mobilenet_v2"].build(batch="batch")
    inputs = MODELS["mobilenet_v2"].inputs(np.random.default_rng(batch), batch)
    leave_nan_behind()
    with core.load_network(model, DEVICE) as network:
        found = network.create_infer_request().infer_sync(dict(inputs))
    assert relative_error(found, in_float64(model, inputs)) < BOUNDS["f32"]


def run_into_nan(
    request: InferRequest, inputs: Mapping[str, Any], like: Mapping[str, Any]
) -> dict[str, Any]:
    """Run into memory that is full of NaN, so that an element nobody wrote is seen."""
    for name, array in like.items():
        request.set_tensor(name, np.full(array.shape, np.nan, np.float32))
    return dict(request.infer_sync(dict(inputs)))
