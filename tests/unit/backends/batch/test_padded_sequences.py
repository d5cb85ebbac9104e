"""Requests whose sequences have several lengths, and share runs all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.backends.batch.batch_record import check_batch, read_batch
from aioinfer.backends.batch.executable_network import BatchNetwork
from aioinfer.errors import (
    BlobError,
    DeadlineExceededError,
    GraphError,
    NotSupportedError,
    PropertyError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.tensors.tensor import Port
from aioinfer.testing import MockDevices, VirtualTimer
from unit.backends.batch.test_crowd import answers, call, settle
from unit.backends.batch.test_executable_network import RELU, WAIT_S, batches, load, row, start
from unit.benchmarks.small_networks import SMALL

HEADER = '<ir_version: 9, opset_import: ["": 20]> g'
BUCKETS = {"LENGTH_BUCKETS": "4,8", "PADDING_VALUES": {"x": -5}}
BOUND = 1e-5
"""Libraries sum products in another order for other shapes."""


def sentence(chance: np.random.Generator, length: int, rows: int = 1) -> dict[str, Any]:
    ids = chance.integers(0, 50, (rows, length))
    return {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_an_encoder_answers_as_without_padding(device: str) -> None:
    chance = np.random.default_rng(0)
    lengths = (3, 5, 8, 9, 12, 16, 20, 20, 7, 1, 15)
    given = [sentence(chance, length, 1 + length % 2) for length in lengths]
    model = SMALL["bert_base"](batch="batch", sequence="sequence")
    config = {
        "LENGTH_BUCKETS": (8, 16),
        "MASK_INPUT": "attention_mask",
        "PADDING_VALUES": {"input_ids": 49},
    }

    async def run(network: aioinfer.ExecutableNetwork) -> list[Any]:
        return await asyncio.gather(*(network.infer(item) for item in given))

    with aioinfer.Core() as core:
        padded = core.load_network(model, f"BATCH:{device}(32)", config)
        alone = core.load_network(model, device)
        assert "sequences padded to 8, 16" in padded.explain()
        for inputs, found in zip(given, asyncio.run(run(padded)), strict=True):
            wanted = alone.create_infer_request().infer_sync(inputs)
            for name, value in wanted.items():
                assert found[name].shape == value.shape
                np.testing.assert_allclose(found[name], value, rtol=0, atol=BOUND)
        assert max(batches(padded)) >= 4


@pytest.mark.parametrize("kind", ["int64", "float16", "bool", "uint8"])
def test_masks_of_any_type_are_padded_with_zeros(
    core: aioinfer.Core, mock: MockDevices, kind: str
) -> None:
    config = {"LENGTH_BUCKETS": "4", "MASK_INPUT": "mask", "PADDING_VALUES": {"x": 100}}
    network = load(core, sum_model(kind), **config)
    given = [
        {"x": row(number, length=length), "mask": np.ones((1, length), kind)}
        for number, length in enumerate((2, 3, 4, 1, 3))
    ]
    requests = start(network, *given)  # type: ignore[arg-type]
    mock[0].held.release(2)
    for request, inputs in zip(requests, given, strict=True):
        assert request.wait(WAIT_S)
        np.testing.assert_array_equal(request.results["y"], inputs["x"])
        np.testing.assert_array_equal(request.results["total"], [[inputs["x"].sum()]])
    assert batches(network) == {1: 1, 4: 1}


def sum_model(kind: str) -> str:
    return (
        f"{HEADER} (float[b, s] x, {kind}[b, s] mask) => (float[b, s] y, float[b, 1] total) "
        "<int64[1] one = {1}> "
        "{ m = Cast <to = 1> (mask) y = Mul (x, m) total = ReduceSum (y, one) }"
    )


async def test_calls_of_one_bucket_are_one_run_and_each_is_cut_to_its_length(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, device="BATCH:MOCK(8)", **BUCKETS)
    given = [
        row(number - 2, length=length, count=1 + number % 2)
        for number, length in enumerate((2, 1, 3, 4, 6, 8, 9, 0))
    ]
    tasks = call(network, *given)
    await settle()
    while mock[0].held.waiting_count:
        mock[0].held.release()
        await settle()
    for inputs, outputs in zip(given, await answers(tasks), strict=True):
        np.testing.assert_array_equal(outputs["y"], np.maximum(inputs, 0))
    assert batches(network) == {1: 2, 2: 1, 3: 1, 5: 1}  # 2 alone; 1, 3 and 4; 6 and 8; 9; 0


def test_what_is_bound_gets_its_own_length(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, **BUCKETS)
    given = [row(1), row(2, length=3), row(3, length=4)]
    requests = [network.create_infer_request() for _ in given]
    bound, wrong = np.empty((1, 3), np.float32), np.empty((1, 8), np.float32)
    requests[1].set_tensor("y", bound)
    requests[2].set_tensor("y", wrong)
    for request, inputs in zip(requests, given, strict=True):
        request.start_async(inputs)
    mock[0].held.release(2)
    mock[0].held.release(mock[0].held.waiting_count)
    assert requests[1].wait(WAIT_S)
    np.testing.assert_array_equal(bound, given[1])
    with pytest.raises(TensorError, match=r"output 'y' is \[1,4\] in this run"):
        requests[2].wait(WAIT_S)


def test_inputs_that_contradict_each_other_fail_alone(core: aioinfer.Core) -> None:
    config = {"LENGTH_BUCKETS": "4", "MASK_INPUT": "mask"}
    network = core.load_network(
        parser.parse_model(sum_model("int64")), "BATCH:REFERENCE(4)", config
    )

    async def run() -> list[Any]:
        calls = [
            network.infer({"x": row(1, length=3), "mask": np.ones((1, length), np.int64)})
            for length in (3, 3, 2, 3, 3)
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second, bad, *others = asyncio.run(run())
    assert isinstance(bad, TensorError)
    for outputs in (first, second, *others):
        np.testing.assert_array_equal(outputs["total"], [[3]])


async def test_cancels_and_deadlines_leave_the_others_their_rows(
    core: aioinfer.Core, mock: MockDevices, clock: VirtualTimer
) -> None:
    network = load(core, device="BATCH:MOCK(8)", **BUCKETS)
    network.clock = clock
    requests = start(network, row(1), row(2, length=1), row(3, length=3), row(4, length=4))
    late = start(network, row(5, length=3), deadline_s=1.0)[0]
    requests[2].cancel()
    clock.advance(2.0)
    tasks = call(network, row(6, length=3), row(7, length=2))
    await settle()
    tasks[0].cancel()
    await settle()
    while mock[0].held.waiting_count:
        mock[0].held.release()
        await settle()
    gone, stays = await answers(tasks)
    assert isinstance(gone, asyncio.CancelledError)
    np.testing.assert_array_equal(stays["y"], row(7, length=2))
    for request, number, length in ((requests[1], 2, 1), (requests[3], 4, 4)):
        assert request.wait(WAIT_S)
        np.testing.assert_array_equal(request.results["y"], row(number, length=length))
    for stopped, kind in ((requests[2], RequestCancelledError), (late, DeadlineExceededError)):
        with pytest.raises(kind):
            stopped.wait(WAIT_S)
    assert batches(network) == {1: 1, 3: 1}


@pytest.fixture
def clock() -> VirtualTimer:
    return VirtualTimer()


TWO = (
    "(float[b, s] x, float[b, t] k) => (float[b, s] y, float[b, t] z) { y = Relu (x) z = Relu (k) }"
)


@pytest.mark.parametrize(
    ("text", "config", "message"),
    [
        (RELU, {"LENGTH_BUCKETS": "8,4"}, "ascending lengths"),
        (RELU, {"LENGTH_BUCKETS": "0,4"}, "ascending lengths"),
        (RELU, {"LENGTH_BUCKETS": "4"}, "nothing is said of input 'x'; without a MASK_INPUT"),
        (RELU, {"MASK_INPUT": "x"}, "MASK_INPUT .* LENGTH_BUCKETS does not say"),
        (RELU, {"PADDING_VALUES": {"x": 1}}, "PADDING_VALUES .* LENGTH_BUCKETS does not say"),
        (RELU, {**BUCKETS, "MASK_INPUT": "X"}, "input 'X' is none of those.*did you mean 'x'"),
        (RELU, {**BUCKETS, "MASK_INPUT": "x"}, "-5 for 'x', which is the MASK_INPUT"),
        (RELU, {**BUCKETS, "LENGTH_DIMENSION": "m"}, "no input has a dimension 'm'"),
        (RELU, {**BUCKETS, "LENGTH_DIMENSION": "batch"}, "no input has a dimension 'batch'"),
        (
            f"{HEADER} (float[b, 3] x) => (float[b, 3] y) {{ y = Relu (x) }}",
            BUCKETS,
            r"no dimension of an input is open behind the batch; the inputs are 'x' \[b,3\]",
        ),
        (f"{HEADER} {TWO}", BUCKETS, "'s' and 't' are open; LENGTH_DIMENSION says which"),
        (
            f"{HEADER} {TWO}",
            {**BUCKETS, "LENGTH_DIMENSION": "s", "PADDING_VALUES": {"k": 1}},
            "input 'k' is none of those that are padded",
        ),
        (
            f"{HEADER} (uint8[b, s] x) => (uint8[b, s] y) {{ y = Identity (x) }}",
            BUCKETS,
            "input 'x' is uint8, which cannot hold -5",
        ),
        (
            f"{HEADER} (float16[b, s] x) => (float16[b, s] y) {{ y = Identity (x) }}",
            {**BUCKETS, "PADDING_VALUES": {"x": 1e6}},
            "input 'x' is float16, which cannot hold 1000000.0",
        ),
    ],
)
def test_what_the_model_contradicts_is_refused_with_the_input(
    core: aioinfer.Core, text: str, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        core.load_network(parser.parse_model(text), "BATCH:REFERENCE(4)", config)


def test_an_open_dimension_without_a_name_is_named_by_its_place(core: aioinfer.Core) -> None:
    model = parser.parse_model(RELU.replace("batch, n", "batch, ?"))
    with pytest.raises(PropertyError, match="dimension 1 of input 'x' is open and has no name"):
        core.load_network(model, "BATCH:REFERENCE(4)", BUCKETS)


def test_a_model_whose_outputs_cannot_be_cut_is_refused_or_runs_unbatched(
    core: aioinfer.Core,
) -> None:
    text = f"{HEADER} (float[b, s] x) => (float[b, t] y) {{ y = Concat <axis = 1> (x, x) }}"
    why = "pads 's' .LENGTH_BUCKETS., and .* dimension 1 of output 'y'"
    with pytest.raises(NotSupportedError, match=why):
        core.load_network(parser.parse_model(text), "BATCH:REFERENCE(4)", BUCKETS)
    network = core.load_network(
        parser.parse_model(text), "BATCH:REFERENCE(4)", {**BUCKETS, "ALLOW_UNBATCHED": True}
    )
    assert "output 'y'" in network.batching_refusal


def test_a_bucket_that_the_model_cannot_take_is_refused(core: aioinfer.Core) -> None:
    text = (
        f"{HEADER} (float[b, s] x) => (float[b, s] y) "
        "<float[1, 6] table = {1, 2, 3, 4, 5, 6}, int64[1] zero = {0}, int64[1] one = {1}> "
        "{ n = Shape <start = 1> (x) t = Slice (table, zero, n, one) y = Add (x, t) }"
    )
    with pytest.raises(NotSupportedError, match="a length of 8 contradicts the model: Add"):
        core.load_network(parser.parse_model(text), "BATCH:REFERENCE(4)", BUCKETS)


def test_above_the_last_bucket_an_output_may_have_another_length(core: aioinfer.Core) -> None:
    text = (
        f"{HEADER} (float[b, s] x) => (float[b, t] y) "
        "<int64[1] zero = {0}, int64[1] six = {6}, int64[1] one = {1}> "
        "{ y = Slice (x, zero, six, one) }"
    )
    network = core.load_network(
        parser.parse_model(text), "BATCH:REFERENCE(8)", {**BUCKETS, "LENGTH_BUCKETS": "4"}
    )
    given = [row(number, length=length) for number, length in enumerate((8, 8, 8, 3, 4, 2, 7, 8))]

    async def run() -> list[Any]:
        return await asyncio.gather(*map(network.infer, given))

    for inputs, outputs in zip(given, asyncio.run(run()), strict=True):
        np.testing.assert_array_equal(outputs["y"], inputs[:, :6])
    assert max(batches(network)) > 1


async def test_a_blob_knows_where_sequences_are(core: aioinfer.Core) -> None:
    model = parser.parse_model(RELU)
    blob = core.load_network(model, "BATCH:REFERENCE(8)", BUCKETS).export()
    network = core.import_network(blob)
    given = [row(number, length=length) for number, length in enumerate((3, 2, 3, 1, 4))]
    for inputs, outputs in zip(given, await answers(call(network, *given)), strict=True):
        np.testing.assert_array_equal(outputs["y"], inputs)
    assert network.get_config("LENGTH_BUCKETS") == (4, 8)
    plain = core.load_network(model, "BATCH:REFERENCE(8)").export()
    with pytest.raises(PropertyError, match="exported without"):
        core.import_network(plain, config=BUCKETS)


def test_a_damaged_record_of_lengths_is_refused() -> None:
    port = Port("x", TensorType(DType.FLOAT32, ("b", "s")))
    whole: dict[str, Any] = {"inputs": ["x"], "outputs": ["x"]}
    for lengths in (
        7,
        {"inputs": {}, "outputs": {}},
        {"inputs": {"x": [0]}, "outputs": {}},
        {"inputs": {"x": [True]}, "outputs": {}},
        {"inputs": {"x": [2]}, "outputs": {}},
        {"inputs": {"x": [1]}, "outputs": {"x": [-1]}},
        {"inputs": {"z": [1]}, "outputs": {}},
    ):
        with pytest.raises(BlobError, match="damaged"):
            check_batch(*read_batch({**whole, "lengths": lengths}), [port], [port])


async def test_a_model_that_computes_with_the_length_is_refused_with_the_node(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    text = (
        f"{HEADER} (float[batch, n] x) => (float[batch, n] y) <int64 one = {{1}}> "
        "{ s = Shape (x) l = Gather (s, one) f = Cast <to = 1> (l) y = Div (x, f) }"
    )
    with pytest.raises(NotSupportedError, match=r"Div \(node .*computes with the length"):
        load(core, text, **BUCKETS)
    load(core, text).close()  # equal lengths are joined as ever


async def test_outputs_that_cannot_be_cut_take_nobody_down(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, **BUCKETS)
    assert isinstance(network, BatchNetwork)
    padding = network.padding
    checked: list[int] = []

    def refuse(results: dict[str, Any], length: int) -> None:
        checked.append(length)
        raise GraphError("outputs of a length of their own")

    padding.check = refuse
    inputs = [row(1, length=2), row(2, length=3), row(3, length=2)]
    tasks = call(network, *inputs)
    await settle()
    while mock[0].held.waiting_count:
        mock[0].held.release()
        await settle()
    for given, outputs in zip(inputs, await answers(tasks), strict=True):
        np.testing.assert_array_equal(outputs["y"], given)
    assert checked == [4]
