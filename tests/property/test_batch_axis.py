"""Wherever the analysis says that rows keep apart, padding rows do not change what others give.

Every operator is drawn as the tests of devices draw it, with some of its inputs led by a batch.
"""

from __future__ import annotations

import warnings
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aioinfer import Core
from aioinfer.errors import AioInferError
from aioinfer.runtime.plans.batch_axis import find_batch_axis
from exhaustive import all_but
from property.operators import elementwise, matmuls, movement, rows, sizes  # noqa: F401
from property.operators.cases import DTYPES, GENERATORS, Case
from property.test_operators import element_types, model_of
from unit.runtime.plans.batch_axis.padded_rows import assert_padding_changes_nothing

EXAMPLES = settings(
    max_examples=12,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
BOUND = 1e-2
"""Libraries sum in another order for other shapes, and some cases are of half precision."""


def with_batch(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """Make the first dimension of these inputs the batch."""
    for value in model.graph.input:
        if value.name in names:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


@pytest.mark.parametrize("op_type", all_but(sorted(GENERATORS)[::3], sorted(GENERATORS)))
def test_padding_rows_of_an_operator_change_no_other(op_type: str, core: Core) -> None:
    @EXAMPLES
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        taken = element_types("", op_type, None) or set(DTYPES)
        case = Case(data.draw, "c", taken)
        GENERATORS[op_type](case, op_type)
        leading = [name for name, array in case.inputs.items() if array.ndim and array.size]
        chosen = [name for name in leading if data.draw(st.integers(0, 3))]
        chosen = [name for name in chosen if len(case.inputs[name]) == len(case.inputs[chosen[0]])]
        if chosen:
            compare(core, with_batch(model_of([case], False), chosen), case.inputs)

    check()


def compare(core: Core, model: onnx.ModelProto, inputs: dict[str, Any]) -> None:
    """Compare one row, and as many as were drawn, with more; where the model takes them at all."""
    axis = find_batch_axis(core.read_model(model.SerializeToString()))
    if isinstance(axis, str):
        return
    one = {name: array[:1] if name in axis.inputs else array for name, array in inputs.items()}
    with warnings.catch_warnings(), core.load_network(model, "REFERENCE") as network:
        warnings.simplefilter("ignore")
        for given_rows in (inputs, one):
            try:
                network.create_infer_request().infer_sync(dict(given_rows))
            except AioInferError:
                continue
            assert_padding_changes_nothing(network, axis, given_rows, BOUND)
