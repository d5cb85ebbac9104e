"""The benchmarks' networks, in small: valid, finite, at unit scale, and the same every time."""

import argparse
from collections.abc import Iterable

import networks_language
import numpy as np
import onnx
import pytest
from models import MODELS, dim

from unit.benchmarks.small_networks import BATCH, ENCODER, FUSED, SMALL, TOKENS, inputs_of

onnxruntime = pytest.importorskip("onnxruntime")


def session_of(model: onnx.ModelProto, optimised: bool = True) -> "onnxruntime.InferenceSession":
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def normed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make every result of a BatchNormalization an output as well."""
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            model.graph.output.append(
                onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None)
            )
    return model


def symbolic(dims: Iterable[str]) -> dict[str, str]:
    return {name: name for name in dims}


def test_each_model_has_a_small_one() -> None:
    assert list(SMALL) == list(MODELS)


@pytest.mark.parametrize("name", SMALL)
def test_a_model_is_valid_and_its_outputs_have_the_declared_shapes(name: str) -> None:
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    model = SMALL[name](batch=BATCH, **sequence)
    onnx.checker.check_model(model, full_check=True)
    outputs = session_of(model).run(None, inputs_of(name))
    for output, declared in zip(outputs, model.graph.output, strict=True):
        assert output.shape == tuple(dim.dim_value for dim in declared.type.tensor_type.shape.dim)
        assert np.isfinite(output).all()
        assert 0.05 < np.abs(output).max() < 100


@pytest.mark.parametrize("name", SMALL)
def test_symbolic_dimensions_change_no_result(name: str) -> None:
    dims = MODELS[name].dynamic
    fixed = SMALL[name](batch=BATCH, **({"sequence": TOKENS} if "sequence" in dims else {}))
    free = SMALL[name](**symbolic(dims))
    onnx.checker.check_model(free, full_check=True)
    given = inputs_of(name)
    pairs = zip(session_of(fixed).run(None, given), session_of(free).run(None, given), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


CONVOLUTIONAL = [name for name in SMALL if name not in ("vit_small", *list(SMALL)[8:])]


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_activations_stay_at_unit_scale(name: str) -> None:
    model = SMALL[name](batch=BATCH)
    own = len(model.graph.output)
    values = session_of(normed(model), optimised=False).run(None, inputs_of(name))
    deviations = [value.std() for value in values[own:]]
    assert len(deviations) > 5
    assert min(deviations) > 0.2
    assert max(deviations) < 3


def test_the_seed_decides_the_weights() -> None:
    build = SMALL["resnet50"]
    assert build(seed=3).SerializeToString() == build(seed=3).SerializeToString()
    assert build(seed=3).SerializeToString() != build(seed=4).SerializeToString()


def test_no_node_is_an_identity_and_names_are_unique() -> None:
    for build in SMALL.values():
        nodes = build().graph.node
        assert "Identity" not in {node.op_type for node in nodes}
        assert len({node.name for node in nodes}) == len(nodes)


def test_a_fused_norm_is_one_node() -> None:
    plain, fused = (
        {node.op_type for node in networks_language.minilm_l6(kind=kind).graph.node}
        for kind in (ENCODER, FUSED)
    )
    assert "LayerNormalization" in fused
    assert "ReduceMean" not in fused
    assert {"ReduceMean", "Sqrt", "Erf"} <= plain


def test_a_batch_is_a_number_or_a_name() -> None:
    assert dim("8") == 8
    assert dim("batch") == "batch"
    for wrong in ("0", "-1", "1.5", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="number from 1 on"):
            dim(wrong)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_small_differences_stay_small(name: str) -> None:
    session, given = session_of(SMALL[name](batch=BATCH)), inputs_of(name)
    moved = {key: array * np.float32(1 + 1e-3) for key, array in given.items()}
    for one, other in zip(session.run(None, given), session.run(None, moved), strict=True):
        assert 0 < np.abs(one - other).max() < 0.01 * np.abs(one).max()
