"""Whole transformers, as exporters write them, specialised and fused by all of these passes."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from networks import language

from aioinfer.backends.cpu.onednn.post_ops import CPU_DOMAIN
from aioinfer.backends.cpu.passes.shared_input_fusion import SharedInputFusion
from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.passes import Pass, default_passes, run_passes, specialize
from aioinfer.runtime.passes.attention.attention_fusion import AttentionFusion
from aioinfer.runtime.passes.folding.constant_cache import ConstantCache
from aioinfer.runtime.passes.fusion.flat_gemm_fusion import FlatGemmFusion
from aioinfer.runtime.passes.fusion.layer_normalization_fusion import LayerNormalizationFusion
from aioinfer.runtime.passes.layout.transpose_elimination import TransposeElimination
from unit.runtime.passes.transformer_models import Arrays, assert_same, fused, ops

LAYERS = 3
KIND = language.Encoder(layers=LAYERS, width=32, heads=4, hidden=64, vocabulary=50)
Build = Callable[..., onnx.ModelProto]


def passes(cache: ConstantCache) -> list[Pass]:
    fusions = [
        LayerNormalizationFusion(cache, domain=CPU_DOMAIN),
        SharedInputFusion(cache),
        AttentionFusion(CPU_DOMAIN),
    ]
    return [TransposeElimination(), FlatGemmFusion(), *fusions]


def tokens(batch: int, sequence: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    mask = np.arange(sequence)[None] < np.array([[sequence], [sequence - 2]])[:batch]
    return {
        "input_ids": generator.integers(0, 50, (batch, sequence)),
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": generator.integers(0, 2, (batch, sequence)),
    }


def specialized(model: Model, inputs: Arrays) -> Model:
    return specialize(model, {name: array.shape for name, array in inputs.items()})


@pytest.mark.parametrize("build", [language.bert_base, language.minilm_l6])
@pytest.mark.parametrize(("batch", "sequence"), [(1, 8), (2, 5), (2, 1), (1, 1)])
def test_an_encoder_is_fused_whole(build: Build, batch: int, sequence: int) -> None:
    model = read_model(build("batch", sequence="sequence", kind=KIND))
    longer = tokens(batch, max(sequence, 3))
    inputs = {name: array[:, :sequence] for name, array in longer.items()}
    plan = specialized(model, inputs)
    found = fused(plan, *passes(ConstantCache()))
    counts = ops(found)
    assert counts["cpu::Attention"] == LAYERS
    assert counts["cpu::LayerNormalization"] == 2 * LAYERS + 1
    assert counts["Split"] == LAYERS
    assert counts["MatMul"] == 4 * LAYERS
    assert not {"Softmax", "ReduceMean", "Sqrt", "Transpose", "Reshape", "Pow"} & counts.keys()
    assert_same(plan, found, inputs)


def test_a_decoder_is_fused_whole() -> None:
    model = read_model(language.gpt2_like("batch", sequence="sequence", kind=KIND))
    inputs = {"input_ids": tokens(2, 6)["input_ids"]}
    plan = specialized(model, inputs)
    found = fused(plan, *passes(ConstantCache()))
    counts = ops(found)
    assert counts["cpu::Attention"] == LAYERS
    assert counts["cpu::LayerNormalization"] == 2 * LAYERS + 1
    assert counts["Split"] == LAYERS
    assert counts["Where"] == 1
    assert not {"Softmax", "ReduceMean", "Transpose", "Reshape", "Gemm"} & counts.keys()
    run_passes(found, default_passes())
    assert "Where" not in ops(found)
    assert_same(plan, found, inputs)


def test_a_vision_transformer_is_fused_whole() -> None:
    model = read_model(language.vit_small("batch", size=64, kind=KIND, classes=10))
    image = np.random.default_rng(0).normal(size=(2, 3, 64, 64)).astype(np.float32)
    plan = specialized(model, {"image": image})
    found = fused(plan, *passes(ConstantCache()))
    counts = ops(found)
    assert counts["cpu::Attention"] == LAYERS
    assert counts["cpu::LayerNormalization"] == 2 * LAYERS + 1
    assert counts["Split"] == LAYERS
    assert counts["Transpose"] == 1
    assert not {"Softmax", "ReduceMean"} & counts.keys()
    assert_same(plan, found, {"image": image})


def test_plans_for_different_shapes_share_all_weights() -> None:
    model = read_model(language.bert_base("batch", sequence="sequence", kind=KIND))
    cache = ConstantCache()
    weights = []
    for sequence in (5, 7):
        found = fused(specialized(model, tokens(2, sequence)), *passes(cache))
        weights.append(
            [
                value.constant
                for node in found.graph.nodes
                if node.op_type in ("MatMul", "LayerNormalization", "Gemm")
                for value in node.inputs[1:]
                if value is not None
            ]
        )
    assert len(weights[0]) == 4 * LAYERS + 2 * (2 * LAYERS + 1) + 2
    assert all(one is other for one, other in zip(*weights, strict=True))


@pytest.mark.parametrize(
    ("left_out", "missing"),
    [(0, set()), (1, set()), (2, {"ReduceMean"}), (3, set()), (4, {"Softmax"})],
)
def test_each_pass_works_without_the_others(left_out: int, missing: set[str]) -> None:
    model = read_model(language.gpt2_like(2, sequence=4, kind=KIND))
    inputs = {"input_ids": tokens(2, 4)["input_ids"]}
    plan = specialized(model, inputs)
    chosen = passes(ConstantCache())
    del chosen[left_out]
    found = fused(plan, *chosen)
    assert {"ReduceMean", "Softmax"} & ops(found).keys() == missing
    assert_same(plan, found, inputs)


def test_the_order_of_the_passes_does_not_matter() -> None:
    model = read_model(language.minilm_l6(2, sequence=4, kind=KIND))
    plan = specialized(model, tokens(2, 4))
    forwards = fused(plan, *passes(ConstantCache()))
    backwards = fused(plan, *reversed(passes(ConstantCache())))
    assert ops(backwards) == ops(forwards)
    assert_same(plan, backwards, tokens(2, 4))
