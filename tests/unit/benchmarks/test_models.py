"""The benchmarks' networks, in small: valid, finite and at unit scale."""

import numpy as np
import onnx
import pytest
from models import MODELS

from unit.benchmarks.small_networks import BATCH, SMALL, TOKENS, inputs_of

onnxruntime = pytest.importorskip("onnxruntime")


def test_each_model_has_a_small_one() -> None:
    assert list(SMALL) == list(MODELS)


@pytest.mark.parametrize("name", SMALL)
def test_a_model_is_valid_and_its_outputs_have_the_declared_shapes(name: str) -> None:
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    model = SMALL[name](batch=BATCH, **sequence)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    outputs = session.run(None, inputs_of(name))
    for output, declared in zip(outputs, model.graph.output, strict=True):
        assert output.shape == tuple(dim.dim_value for dim in declared.type.tensor_type.shape.dim)
        assert np.isfinite(output).all()
        assert 0.05 < np.abs(output).max() < 100
