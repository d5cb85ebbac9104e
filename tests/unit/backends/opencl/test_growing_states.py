"""States that grow on OPENCL: a run writes behind what is there, in the device's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.memory.kept_output import KeptOutput
from onnx_text import parse_proto
from unit.backends.opencl.test_states import DECODER, PAIRS
from unit.backends.states_in_place import CHECKS, FORMS

STATE = {"STATE": {"past": "present"}}


@pytest.mark.parametrize("check", CHECKS)
def test_a_state_grows_in_place(core: Core, check: str) -> None:
    CHECKS[check](core, FORMS["grows"], "OPENCL")


def test_a_decoder_reads_states_where_they_lie(core: Core) -> None:
    """Keys are read through their transposition, values as they are: no launch copies either."""
    with core.load_network(DECODER, "OPENCL", {**PAIRS, "PERF_COUNT": True}) as network:
        request = network.create_infer_request()
        random = np.random.default_rng(2)
        names: set[tuple[str, ...]] = set()
        for step in range(20):
            request.infer_sync({"x": random.normal(size=(1, 1, 8)).astype(np.float32)})
            if step > 2:
                names.add(tuple(node.op for node in request.profiling()))
        (ops,) = names
        assert ops.count("Concat") == 2, "only the rows that are new"
        assert "Transpose" not in ops or ops.count("Transpose") <= 2, "of x and of the result"


@pytest.mark.parametrize(
    "line",
    [
        "y = Relu (present)",
        "two = Mul (present, present) y = Add (two, past_sum)",
        "turned = Transpose <perm = [2, 0, 1]> (present) y = Neg (turned)",
        "y = Slice (present, zero, one)",
        "y = MatMul (present, weight)",
        "turned = Transpose <perm = [0, 2, 1]> (present) y = MatMul (turned, present)",
        "turned = Transpose <perm = [1, 0, 2]> (present) y = MatMul (turned, weight)",
        "y = ReduceSum (present, one)",
        "y = Concat <axis = 1> (present, x)",
    ],
)
def test_whatever_reads_a_growing_state_reads_all_of_it(core: Core, line: str) -> None:
    model = parse_proto(f"""
        g (float[2,n,3] x, float[2,m,3] past) => (float[a,b,c] y, float[2,k,3] present)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, float[3,2] weight = {{1, 2, 3, 4, 5, 6}}> {{
            past_sum = ReduceSum (past, one)
            present = Concat <axis = 1> (past, x)
            {line}
        }}
    """)
    with (
        core.load_network(model, "OPENCL", STATE) as network,
        core.load_network(model, "REFERENCE") as plain,
    ):
        request, other = network.create_infer_request(), plain.create_infer_request()
        past = np.zeros((2, 0, 3), np.float32)
        for step in range(45):
            x = np.random.default_rng(step).normal(size=(2, step % 3, 3)).astype(np.float32)
            expected = other.infer_sync({"x": x, "past": past})
            past = expected["present"]
            found = request.infer_sync({"x": x})["y"]
            np.testing.assert_allclose(found, expected["y"], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(request.query_state()[0].state, past)


def test_a_part_on_the_same_device_reads_a_state_that_has_room(core: Core) -> None:
    """The second part has a plan of its own, for which what the first one keeps is not dense."""
    proto = parse_proto("""
        g (float[2,1,3] x, float[2,m,3] past) => (float[2,k,3] y, float[2,k,3] present)
        <int64[1] one = {1}> {
            [join] present = Concat <axis = 1> (past, x)
            [sums] sums = ReduceSum (present, one)
            [middle] low = Neg (sums)
            [last] y = Add (present, low)
        }
    """)
    model = core.read_model(proto)
    for name in ("join", "sums", "last"):
        model.node(name).affinity = "OPENCL"
    model.node("middle").affinity = "CPU"
    with core.load_network(model, "HETERO:OPENCL,CPU", STATE) as network:
        assert network.get_metric("NUMBER_OF_SUBGRAPHS") == 3
        request, past = network.create_infer_request(), np.zeros((2, 0, 3), np.float32)
        for step in range(60):
            x = np.random.default_rng(step).normal(size=(2, 1, 3)).astype(np.float32)
            past = np.concatenate([past, x], 1)
            y = request.infer_sync({"x": x})["y"]
            np.testing.assert_allclose(y, past - past.sum(1, keepdims=True), rtol=1e-3, atol=1e-4)
        kept: Any = request.kept_states
        assert kept.values["past"].room == (2, 72, 3)
        np.testing.assert_array_equal(request.query_state()[0].state, past)


def test_a_run_that_goes_on_unnoticed_shares_no_room_with_the_next(core: Core) -> None:
    with core.load_network(DECODER, "OPENCL", PAIRS) as network:
        request, other = network.create_infer_request(), network.create_infer_request()
        x = np.ones((1, 1, 8), np.float32)
        for each in (request, other):
            each.infer_sync({"x": x})
        before = _blocks(request)
        kept: Any = request.kept_states
        kept.begin().part()
        expected = other.infer_sync({"x": -x})["y"]
        np.testing.assert_array_equal(request.infer_sync({"x": -x})["y"], expected)
        assert before.isdisjoint(_blocks(request)), "the next run moves to memory of its own"


def _blocks(request: Any) -> set[int]:
    values = request.kept_states.values.values()
    assert all(isinstance(value, KeptOutput) for value in values)
    return {id(value.block) for value in values}
