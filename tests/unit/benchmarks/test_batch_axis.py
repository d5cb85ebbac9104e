"""Rows of the benchmarks' networks keep apart: padding rows do not change what others give."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.runtime.plans.batch_axis import BatchAxis, find_batch_axis
from exhaustive import all_but
from unit.benchmarks.small_networks import MODELS, SMALL, inputs_of
from unit.runtime.plans.batch_axis.padded_rows import assert_padding_changes_nothing

BOUND = 1e-5
"""Libraries sum products in another order for other shapes."""


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as made:
        yield made


@pytest.mark.parametrize("name", all_but(["bert_base", "lstm_tagger", "resnet50"], sorted(SMALL)))
def test_padding_rows_of_a_network_change_no_other(name: str, core: Core) -> None:
    open_sequence = {"sequence": "sequence"} if "sequence" in MODELS[name].dynamic else {}
    model = SMALL[name](batch="batch", **open_sequence)
    axis = find_batch_axis(core.read_model(model.SerializeToString()))
    assert isinstance(axis, BatchAxis), axis
    assert set(axis.outputs) == {value.name for value in model.graph.output}
    inputs = inputs_of(name)
    one = {key: array[:1] for key, array in inputs.items()}
    with core.load_network(model, "REFERENCE") as network:
        results = network.create_infer_request().infer_sync(one)
        assert all(np.isfinite(array).all() for array in results.values())
        for rows in (one, inputs):
            assert_padding_changes_nothing(network, axis, rows, BOUND)
