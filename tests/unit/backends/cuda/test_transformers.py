"""Transformers on CUDA's plans with real numbers, and how many launches a block of them takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networks_language
import numpy as np
import pytest
from models import sentences

from aioinfer import Core
from aioinfer.runtime.accelerator.precision import F32, Precision
from aioinfer.runtime.graph import DType
from unit.backends.comparing import assert_close, run
from unit.backends.cuda.kernels.plans import labels_of, plan_of
from unit.benchmarks.small_networks import BATCH, SMALL, inputs_of

BOUNDS = {"f32": 1e-3, "f16": 2e-2}
LIBRARIES = frozenset({"cublas", "cublaslt", "cudnn"})
HALF = Precision(DType.FLOAT16)
TOKENS = 16


@pytest.mark.parametrize("name", ["bert_base", "minilm_l6", "vit_small", "gpt2_like"])
def test_a_network_gives_what_reference_gives(stand_in_core: Core, name: str) -> None:
    model, inputs = SMALL[name](batch=BATCH), inputs_of(name)
    if name != "vit_small":
        model = SMALL[name](batch=BATCH, sequence=inputs["input_ids"].shape[1])
    wanted = run(stand_in_core, model, "REFERENCE", inputs)
    for hint, bound in BOUNDS.items():
        found = run(stand_in_core, model, "STANDIN", inputs, INFERENCE_PRECISION_HINT=hint)
        for key, expected in wanted.items():
            assert_close(f"{key} {hint}", found[key], expected, bound)


def block(
    precision: Precision, libraries: frozenset[str] = LIBRARIES, *, is_fused: bool = False
) -> Counter[str]:
    """Count the launches by which a MiniLM of three layers has more than one of two."""
    counts = []
    inputs = sentences(TOKENS, 50)(np.random.default_rng(0), 1)
    for layers in (2, 3):
        kind = networks_language.Encoder(layers, 64, 4, 128, vocabulary=50, fused_norm=is_fused)
        model: Any = networks_language.minilm_l6(1, sequence=TOKENS, kind=kind)
        counts.append(Counter(labels_of(plan_of(model, inputs, libraries, precision))))
    return counts[1] - counts[0]


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_block_of_bert_in_half_precision_is_eight_launches(is_fused: bool) -> None:
    """One product for all heads, attention, sum, norm, two layers with a GELU between, norm."""
    assert block(HALF, is_fused=is_fused) == {
        "MATMUL": 4,
        "ATTENTION": 1,
        "chain": 1,
        "normalize": 2,
    }


def test_in_float32_attention_is_four_launches_more() -> None:
    found = block(F32)
    assert found == {"MATMUL": 4, "chain": 1, "product": 2, "softmax": 1, "copy": 1, "normalize": 2}


def test_without_libraries_every_step_has_its_kernel_still() -> None:
    assert block(HALF, frozenset()) == {"product": 6, "softmax": 1, "copy": 1, "normalize": 2}


def test_a_gelu_of_tanh_goes_along_with_its_product() -> None:
    inputs = sentences(TOKENS, 50)(np.random.default_rng(0), 1)
    kind = networks_language.Encoder(2, 64, 4, 128, vocabulary=50)
    model = networks_language.gpt2_like(1, sequence=TOKENS, kind=kind)
    labels = labels_of(plan_of(model, {"input_ids": inputs["input_ids"]}, LIBRARIES, HALF))
    assert Counter(labels)["MATMUL"] == 2 * 4 + 1
    assert not {"chain", "copy"}.intersection(labels[labels.index("MATMUL") : -1])
