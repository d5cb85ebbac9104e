"""Runs of any number of rows in the plans of a few buckets: exact, bounded, and without padding."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioinfer import Core, ExecutableNetwork
from aioinfer.errors import PropertyError, RequestCancelledError, TensorError
from onnx_text import parse_proto
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver, FakeQueue
from unit.backends.accelerator.serving import CapturingPlugin, pump

BUCKETS = {"BATCH_BUCKETS": "1,2,4,8"}
SIZES = (1, 2, 4, 8)
WIDTH = 4
WAIT_S = 20.0
RUN_KINDS = ("cpu", "discrete")
"""Kinds of devices: results come straight, or by staging memory."""


@pytest.fixture(params=RUN_KINDS)
def driver(request: pytest.FixtureRequest) -> FakeDriver:
    return FakeDriver(replace(FACTS, kind=request.param))


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, np.ndarray]]:
    """Collect what is uploaded, as it is then, and the host memory that is downloaded to."""
    seen: list[tuple[str, np.ndarray]] = []
    write, read = FakeQueue.write, FakeQueue.read

    def noted_write(queue: FakeQueue, target: Any, source: np.ndarray) -> Any:
        seen.append(("write", source.copy()))
        return write(queue, target, source)

    def noted_read(queue: FakeQueue, target: np.ndarray, source: Any) -> Any:
        seen.append(("read", target))
        return read(queue, target, source)

    monkeypatch.setattr(FakeQueue, "write", noted_write)
    monkeypatch.setattr(FakeQueue, "read", noted_read)
    return seen


def batched(nodes: list[Any], inputs: dict[str, np.ndarray], **options: Any) -> Any:
    """Make a model whose inputs are led by the batch, their other lengths static."""
    model = model_of(nodes, inputs, **options)
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def negating() -> Any:
    return batched([operator("Neg", "x")], {"x": rows_of(1)})


def rows_of(count: int, seed: int = 0) -> np.ndarray:
    chance = np.random.default_rng(1000 * seed + count)
    return chance.standard_normal((count, WIDTH), np.float32)


def plan_count(network: ExecutableNetwork) -> int:
    return int(network.get_metric("PLAN_COUNT"))


def test_batches_of_all_sizes_share_the_plans_of_the_buckets(fake_core: Core) -> None:
    with fake_core.load_network(negating(), "FAKE", BUCKETS) as network:
        request = network.create_infer_request()
        for count in (3, 8, 1, 7, 2, 5, 4, 6, 3, 1, 8):
            given = rows_of(count)
            np.testing.assert_array_equal(request.infer_sync(given)["y"], -given)
        assert plan_count(network) == len(SIZES)
        assert network.statistics().plans.build_count == len(SIZES)
        assert network.get_metric("BATCH_BUCKETS_REFUSAL") == ""


def test_above_the_largest_bucket_and_without_rows_a_batch_has_a_plan_of_its_own(
    fake_core: Core,
) -> None:
    with fake_core.load_network(negating(), "FAKE", BUCKETS) as network:
        request = network.create_infer_request()
        for count in (9, 11, 0):
            given = rows_of(count)
            np.testing.assert_array_equal(request.infer_sync(given)["y"], -given)
        assert plan_count(network) == 3


def test_the_last_row_pads_the_upload_and_the_download_is_of_the_runs_own_rows(
    fake_core: Core, copies: list[tuple[str, np.ndarray]]
) -> None:
    with fake_core.load_network(negating(), "FAKE", BUCKETS) as network:
        given = rows_of(3)
        result = network.create_infer_request().infer_sync(given)["y"]
        (uploaded,) = [array for kind, array in copies if kind == "write"]
        padded = np.concatenate([given, given[2:]])
        np.testing.assert_array_equal(uploaded.view(np.float32).reshape(-1, WIDTH), padded)
        (target,) = [array for kind, array in copies if kind == "read"]
        assert target.nbytes == given.nbytes
        assert result.shape == given.shape
        assert result.base is None or result.base.nbytes <= given.nbytes


def test_bound_memory_has_the_rows_of_the_run(fake_core: Core) -> None:
    with fake_core.load_network(negating(), "FAKE", BUCKETS) as network:
        request, given = network.create_infer_request(), rows_of(3)
        for memory in (np.zeros((3, WIDTH), np.float32), np.zeros((WIDTH, 3), np.float32).T):
            request.set_tensor("y", memory)
            assert request.infer_sync(given)["y"] is memory
            np.testing.assert_array_equal(memory, -given)
        request.set_tensor("y", np.zeros((4, WIDTH), np.float32))
        with pytest.raises(
            TensorError, match=r"output 'y' is \[3,4\] in this run, .* bound to it is \[4,4\]"
        ):
            request.infer_sync(given)


def test_wrong_shapes_are_refused_as_without_buckets(fake_core: Core) -> None:
    texts = []
    inputs = {"x": rows_of(1), "z": rows_of(1)}
    model = batched([operator("Add", "x", "z")], inputs)
    for config in (BUCKETS, {}):
        with fake_core.load_network(model, "FAKE", config) as network:
            request = network.create_infer_request()
            for given in ({"x": rows_of(3), "z": rows_of(4)}, {"x": rows_of(3), "z": np.ones(3)}):
                with pytest.raises(TensorError) as caught:
                    request.infer_sync(given)
                texts.append(str(caught.value))
    assert texts[:2] == texts[2:]


def test_shapes_that_are_compiled_ahead_are_those_of_buckets(fake_core: Core) -> None:
    shapes = [{"x": (3, WIDTH)}, {"x": (4, WIDTH)}, {"x": (7, WIDTH)}]
    config = {**BUCKETS, "INPUT_SHAPES": shapes}
    with fake_core.load_network(negating(), "FAKE", config) as network:
        assert plan_count(network) == 2
        built = network.statistics().plans.build_count
        network.create_infer_request().infer_sync(rows_of(5))
        assert network.statistics().plans.build_count == built == 2


def test_a_network_of_static_inputs_has_one_plan_and_says_why(fake_core: Core) -> None:
    model = model_of([operator("Neg", "x")], {"x": rows_of(3)})
    with fake_core.load_network(model, "FAKE", BUCKETS) as network:
        given = rows_of(3)
        np.testing.assert_array_equal(network.create_infer_request().infer_sync(given)["y"], -given)
        reason = network.get_metric("BATCH_BUCKETS_REFUSAL")
        assert reason == "no input has an open first dimension"
        assert plan_count(network) == 1


def test_each_bucket_is_recorded_once_a_slot(driver: FakeDriver, fake_core: Core) -> None:
    driver.facts = [replace(facts, can_capture=True) for facts in driver.facts]
    fake_core.register_plugin("REC", lambda handle, name: CapturingPlugin(handle, name, driver))
    config = {**BUCKETS, "PERFORMANCE_HINT_NUM_REQUESTS": 1}
    with fake_core.load_network(negating(), "REC", config) as network:
        request = network.create_infer_request()
        for count in reversed(SIZES):  # a larger one would have the slot's memory grow
            request.infer_sync(rows_of(count))
        assert network.get_metric("CAPTURED_PLAN_COUNT") == len(SIZES)
        allocations = driver.allocation_count
        for count in (8, 3, 5, 1, 7, 2, 6):
            given = rows_of(count)
            np.testing.assert_array_equal(request.infer_sync(given)["y"], -given)
        assert network.get_metric("CAPTURED_PLAN_COUNT") == len(SIZES)
        assert driver.allocation_count == allocations


@pytest.mark.parametrize("seed", range(10))
def test_runs_of_mixed_sizes_are_right_in_every_order_of_the_queues(
    seed: int, driver: FakeDriver, fake_core: Core
) -> None:
    network = fake_core.load_network(negating(), "FAKE", BUCKETS)
    for count in SIZES:
        network.create_infer_request().infer_sync(rows_of(count))
    driver.is_eager = False
    chance = random.Random(seed)
    given = [rows_of(chance.randint(1, 9), number) for number in range(8)]
    requests = [network.create_infer_request() for _ in given]
    for request, rows in zip(requests, given, strict=True):
        request.start_async(rows)
    pump(driver.contexts[0], *requests, seed=seed)
    for request, rows in zip(requests, given, strict=True):
        np.testing.assert_array_equal(request.results["y"], -rows)
    assert plan_count(network) <= len(SIZES) + 1


def test_a_cancelled_run_leaves_nothing_of_its_padding_to_the_next(
    driver: FakeDriver, fake_core: Core
) -> None:
    config = {**BUCKETS, "PERFORMANCE_HINT_NUM_REQUESTS": 1}
    network = fake_core.load_network(negating(), "FAKE", config)
    request, other = network.create_infer_request(), network.create_infer_request()
    for count in (4, 8):
        request.infer_sync(rows_of(count))
    driver.is_eager = False
    request.start_async(rows_of(5))
    request.cancel()
    with pytest.raises(RequestCancelledError):
        _ = request.results
    given = rows_of(4, 1)
    other.start_async(given)
    pump(driver.contexts[0], other)
    np.testing.assert_array_equal(other.results["y"], -given)
    driver.is_eager = True
    np.testing.assert_array_equal(request.infer_sync(rows_of(6))["y"], -rows_of(6))


LAYERS = """g (float[N,6] x) => (y, lines, table)
<float[6,4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6}, int64[2] flat = {-1,2},
 float[4] bias = {1,2,3,4}, int64[1] last = {1}>
{ m = Gemm (x, w, bias)  y = Softmax <axis = -1> (m)  lines = Reshape (m, flat)
  table = Exp (bias) }"""


def test_a_device_gives_what_it_gives_without_buckets(core: Core) -> None:
    model = parse_proto(LAYERS)
    chance = np.random.default_rng(1)
    with (
        core.load_network(model, "OPENCL", BUCKETS) as network,
        core.load_network(model, "OPENCL") as plain,
    ):
        request, exact = network.create_infer_request(), plain.create_infer_request()
        for count in (1, 3, 8, 5, 9, 2, 7):
            given = chance.standard_normal((count, 6), np.float32)
            found, expected = request.infer_sync(given), exact.infer_sync(given)
            assert [found[name].shape for name in found] == [(count, 4), (2 * count, 2), (4,)]
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert plan_count(network) == len(SIZES) + 1
        assert plan_count(plain) == 7
        assert plain.get_metric("BATCH_BUCKETS_REFUSAL") == "no buckets are set"


def test_requests_of_mixed_sizes_side_by_side_on_a_device(core: Core) -> None:
    config = {**BUCKETS, "PERFORMANCE_HINT": "THROUGHPUT"}
    with core.load_network(negating(), "OPENCL", config) as network:
        given = [rows_of(1 + number % 8, number) for number in range(64)]
        requests = [network.create_infer_request() for _ in given]
        for request, rows in zip(requests, given, strict=True):
            request.start_async(rows)
        for request, rows in zip(requests, given, strict=True):
            assert request.wait(WAIT_S)
            np.testing.assert_array_equal(request.results["y"], -rows)
        assert plan_count(network) <= len(SIZES)


def test_rows_that_do_not_keep_apart_have_plans_of_their_own(core: Core) -> None:
    axes = {"axes": np.array([0], np.int64)}
    model = batched(
        [operator("ReduceMean", "x", "axes", keepdims=0)], {"x": rows_of(1)}, constants=axes
    )
    with core.load_network(model, "OPENCL", BUCKETS) as network:
        request = network.create_infer_request()
        for count in (3, 5, 6):
            given = rows_of(count)
            np.testing.assert_allclose(request.infer_sync(given)["y"], given.mean(0), rtol=1e-5)
        assert plan_count(network) == 3
        reason = network.get_metric("BATCH_BUCKETS_REFUSAL")
        assert reason == "ReduceMean (node 'ReduceMean'): it joins values of different rows"


def test_an_input_whose_content_names_the_batch_is_not_padded(core: Core) -> None:
    """The target says how many rows there are, so it would be wrong for padded ones."""
    inputs = {"x": rows_of(6), "shape": np.array([6, WIDTH], np.int64)}
    model = model_of([operator("Reshape", "x", "shape")], inputs)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    with core.load_network(model, "OPENCL", BUCKETS) as network:
        request = network.create_infer_request()
        for count in (3, 5):
            given = {"x": rows_of(count), "shape": np.array([2, 2 * count], np.int64)}
            np.testing.assert_array_equal(
                request.infer_sync(given)["y"], given["x"].reshape(2, 2 * count)
            )
        assert network.get_metric("BATCH_BUCKETS_REFUSAL").startswith("Reshape (node")


def test_bad_buckets_are_refused_when_a_network_is_loaded(core: Core) -> None:
    with pytest.raises(PropertyError, match="BATCH_BUCKETS: ascending batch sizes"):
        core.load_network(negating(), "OPENCL", {"BATCH_BUCKETS": "4,2"})
