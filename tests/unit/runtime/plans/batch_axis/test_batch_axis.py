"""Which graphs may be given more rows, and why others may not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.runtime.graph import Model, TensorType, graph_text
from aioinfer.runtime.plans.batch_axis import BatchAxis, find_batch_axis
from onnx_text import parse
from unit.runtime.plans.batch_axis.graphs import APART, JOINED
from unit.runtime.plans.batch_axis.padded_rows import assert_padding_changes_nothing

LENGTHS = {"S": 3, "H": 2, "W": 5}


@pytest.fixture(scope="module")
def reference() -> Iterator[Core]:
    with Core() as core:
        yield core


def drawn(model: Model, rows: int) -> dict[str, Any]:
    """Draw small integers, of whatever type, as inputs."""
    chance, inputs = np.random.default_rng(rows), {}
    for value in model.inputs:
        assert isinstance(value.type, TensorType)
        dims = [
            dim if isinstance(dim, int) else LENGTHS.get(dim or "", rows)
            for dim in value.type.shape or ()
        ]
        inputs[value.name] = chance.integers(0, 3, dims).astype(value.type.dtype.numpy)
    return inputs


@pytest.mark.parametrize("what", APART)
def test_rows_that_keep_apart(what: str, reference: Core) -> None:
    model = parse(APART[what])
    axis = find_batch_axis(model)
    assert isinstance(axis, BatchAxis), axis
    with reference.load_network(model, "REFERENCE") as network:
        for rows in (1, 3):
            assert_padding_changes_nothing(network, axis, drawn(model, rows), 1e-6)


@pytest.mark.parametrize("what", JOINED)
def test_rows_that_do_not_and_why(what: str) -> None:
    text, reason = JOINED[what]
    found = find_batch_axis(parse(text))
    assert isinstance(found, str)
    assert re.search(reason, found), found


def test_inputs_and_outputs_that_have_rows_are_told_from_others() -> None:
    text = "g (float[N,2] x, float[2] w) => (y, c) { y = Mul (x, w)  c = Exp (w) }"
    assert find_batch_axis(parse(text)) == BatchAxis(("x",), ("y",))


def test_a_batch_whose_content_plans_are_made_for_is_refused() -> None:
    model = parse("g (int64[N] sizes) => (y) { y = Neg (sizes) }")
    assert find_batch_axis(model, ["sizes"]) == "plans depend on the content of input 'sizes'"


def test_what_a_file_says_of_its_inner_lengths_is_not_believed() -> None:
    """For 6 columns a line of 4 crosses rows, whatever the file says of the value between."""
    text = """g (float[N,6] x) => (y) <int64[2] t = {-1,4}> { a = Neg (x)  y = Reshape (a, t) }"""
    model = parse(text)
    (inner,) = model.graph.nodes_of("Neg")
    inner.outputs[0].type = TensorType(model.inputs[0].type.dtype, ("N", 8))  # type: ignore
    assert "end where a row ends" in str(find_batch_axis(model))


def test_the_model_is_left_as_it_is() -> None:
    model = parse(APART["heads of attention, by lengths of the input"])
    before = graph_text(model.graph)
    find_batch_axis(model)
    assert graph_text(model.graph) == before
