"""How many launches a block of a transformer takes on CUDA's plans."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from models import sentences
from networks import language

from aioinfer.backends.accelerator.precision import F32, Precision
from aioinfer.runtime.graph import DType
from unit.backends.cuda.kernels.plans import labels_of, plan_of

LIBRARIES = frozenset({"cublas", "cublaslt", "cudnn"})
HALF = Precision(DType.FLOAT16)
TOKENS = 16


def block(
    precision: Precision, libraries: frozenset[str] = LIBRARIES, *, is_fused: bool = False
) -> Counter[str]:
    """Count the launches by which a MiniLM of three layers has more than one of two."""
    counts = []
    inputs = sentences(TOKENS, 50)(np.random.default_rng(0), 1)
    for layers in (2, 3):
        kind = language.Encoder(layers, 64, 4, 128, vocabulary=50, fused_norm=is_fused)
        model: Any = language.minilm_l6(1, sequence=TOKENS, kind=kind)
        counts.append(Counter(labels_of(plan_of(model, inputs, libraries, precision))))
    return counts[1] - counts[0]


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_block_of_bert_in_half_precision_is_eight_launches(is_fused: bool) -> None:
    """One matmul for all heads, attention, sum, norm, two layers with a GELU between, norm."""
    assert block(HALF, is_fused=is_fused) == {
        "MATMUL": 4,
        "ATTENTION": 1,
        "fused": 1,
        "normalize": 2,
    }


def test_in_float32_attention_is_four_launches_more() -> None:
    found = block(F32)
    assert found == {"MATMUL": 4, "fused": 1, "matmul": 2, "softmax": 1, "copy": 1, "normalize": 2}


def test_without_libraries_every_step_has_its_kernel_still() -> None:
    assert block(HALF, frozenset()) == {"matmul": 6, "softmax": 1, "copy": 1, "normalize": 2}


def test_a_gelu_of_tanh_goes_along_with_its_matmul() -> None:
    inputs = sentences(TOKENS, 50)(np.random.default_rng(0), 1)
    kind = language.Encoder(2, 64, 4, 128, vocabulary=50)
    model = language.gpt2_like(1, sequence=TOKENS, kind=kind)
    labels = labels_of(plan_of(model, {"input_ids": inputs["input_ids"]}, LIBRARIES, HALF))
    assert Counter(labels)["MATMUL"] == 2 * 4 + 1
    assert not {"fused", "copy"}.intersection(labels[labels.index("MATMUL") : -1])
