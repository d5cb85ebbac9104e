"""Networks on CUDA's plans with real numbers, and what convolutional ones launch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from models import images
from networks import vision

from aioinfer import Core
from aioinfer.backends.accelerator.executable_network import AcceleratorNetwork
from exhaustive import all_but
from unit.backends.comparing import assert_close, run
from unit.benchmarks.small_networks import BATCH, SMALL, inputs_of

BOUNDS = {"f32": 1e-3, "f16": 2e-2}
NETWORKS = (
    *("resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "densenet121"),
    *("shufflenet_v2", "unet", "yolo"),
    *("bert_base", "minilm_l6", "vit_small", "gpt2_like"),
)
IMAGE = 64
COPIES = [("f32", {}), ("f16", {"Output": 1})]


@pytest.mark.parametrize("name", all_but(["resnet50", "minilm_l6"], NETWORKS))
def test_a_network_gives_what_reference_gives(stand_in_core: Core, name: str) -> None:
    inputs = inputs_of(name)
    lengths = {"sequence": inputs["input_ids"].shape[1]} if "input_ids" in inputs else {}
    model = SMALL[name](batch=BATCH, **lengths)
    wanted = run(stand_in_core, model, "REFERENCE", inputs)
    for hint, bound in BOUNDS.items():
        found = run(stand_in_core, model, "STANDIN", inputs, INFERENCE_PRECISION_HINT=hint)
        for key, expected in wanted.items():
            assert_close(f"{key} {hint}", found[key], expected, bound)


def launched(core: Core, model: Any, inputs: Any, **config: Any) -> tuple[Counter[str], Any]:
    """Count the launches of a network by operator, and run it."""
    with core.load_network(model, "STANDIN", config) as network:
        assert isinstance(network, AcceleratorNetwork)
        assert network.only_plan is not None
        counts = Counter(launch.origin.op for launch in network.only_plan.launches)
        return counts, network.create_infer_request().infer_sync(inputs)


@pytest.mark.parametrize(("hint", "behind"), all_but(COPIES[:1], COPIES))
def test_resnet_50_is_53_convolutions_a_pool_a_mean_a_matmul_and_one_copy(
    hint: str, behind: dict[str, int], stand_in_core: Core
) -> None:
    model = vision.resnet50(size=IMAGE)
    inputs = images(IMAGE)(np.random.default_rng(1), 1)
    counts, found = launched(stand_in_core, model, inputs, INFERENCE_PRECISION_HINT=hint)
    assert counts == {
        **behind,
        "aioinfer.cuda::ToChannelsLast": 1,
        "aioinfer.cuda::Conv": 53,
        "aioinfer.cuda::MaxPool": 1,
        "aioinfer.cuda::GlobalAveragePool": 1,
        "Gemm": 1,
    }
    wanted = run(stand_in_core, model, "REFERENCE", inputs)
    assert_close("logits", found["logits"], wanted["logits"], BOUNDS[hint])


@pytest.mark.parametrize(
    "name",
    all_but(
        ["resnet50", "mobilenet_v3_large"],
        ["resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "densenet121"],
    ),
)
def test_no_map_is_turned_inside_of_a_network(stand_in_core: Core, name: str) -> None:
    counts, _ = launched(stand_in_core, SMALL[name](batch=BATCH), inputs_of(name))
    assert counts["aioinfer.cuda::ToChannelsLast"] == 1
    assert counts["Transpose"] == 0
