"""Callers' arrays in the device's memory: read and written there, behind what their owners do."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.errors import RequestCancelledError, TensorError
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver
from unit.backends.accelerator.on_device import OnDevice
from unit.backends.accelerator.serving import negating, pump

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(params=["discrete", "cpu"])
def driver(request: pytest.FixtureRequest) -> FakeDriver:
    return FakeDriver(replace(FACTS, kind=request.param, can_adopt=True), is_eager=False)


@pytest.mark.parametrize("seed", range(10))
def test_an_input_is_read_after_its_owner_has_written_it_and_never_on_the_host(
    seed: int, driver: FakeDriver, fake_core: Core
) -> None:
    with fake_core.load_network(negating(X), "FAKE") as network:
        (context,) = driver.contexts
        requests = [network.create_infer_request() for _ in range(4)]
        for number, request in enumerate(requests):
            request.start_async({"x": OnDevice(context, X + number)})
        pump(context, *requests, seed=seed)
        for number, request in enumerate(requests):
            np.testing.assert_array_equal(request.results["y"], -(X + number))
    assert "compute: copy" in context.done
    assert not [item for item in context.done if item.startswith("upload: ") and "write" in item]


@pytest.mark.parametrize("seed", range(10))
def test_a_bound_output_stays_on_the_device_and_is_what_results_hold(
    seed: int, driver: FakeDriver, fake_core: Core
) -> None:
    with fake_core.load_network(negating(X), "FAKE") as network:
        (context,) = driver.contexts
        made, request = OnDevice(context, np.zeros_like(X)), network.create_infer_request()
        request.set_tensor("y", made)
        assert request.get_tensor("y").data is made
        for number in range(3):
            request.start_async({"x": X + number})
            pump(context, request, seed=seed + number)
            assert request.results["y"] is made
            np.testing.assert_array_equal(made.content(), -(X + number))
    assert "download: read" not in context.done


def test_a_bound_input_is_read_behind_what_its_owner_enqueued_since_the_last_run(
    driver: FakeDriver, fake_core: Core
) -> None:
    with fake_core.load_network(negating(X), "FAKE") as network:
        (context,) = driver.contexts
        given, request = OnDevice(context, X), network.create_infer_request()
        request.set_tensor("x", given)
        for number in range(3):
            given.fill(X + number)
            request.start_async()
            pump(context, request)
            np.testing.assert_array_equal(request.results["y"], -(X + number))


def test_the_memory_is_held_until_the_device_is_done_with_a_cancelled_run(
    driver: FakeDriver, fake_core: Core
) -> None:
    with fake_core.load_network(negating(X), "FAKE") as network:
        (context,) = driver.contexts
        request = network.create_infer_request()
        given = OnDevice(context, X)
        alive = weakref.ref(given)
        request.start_async({"x": given})
        request.cancel()
        del given
        gc.collect()
        assert alive() is not None, "the device has not read it yet"
        context.run_all()
        with pytest.raises(RequestCancelledError):
            request.wait()
        request.start_async({"x": X})
        pump(context, request)
        gc.collect()
        assert alive() is None


@pytest.mark.parametrize("rows", [1, 3, 5, 8])
def test_rows_on_the_device_are_repeated_to_fill_their_bucket(
    rows: int, driver: FakeDriver, fake_core: Core
) -> None:
    batch = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    model = negating(X, dynamic=True)
    with fake_core.load_network(model, "FAKE", {"BATCH_BUCKETS": "8"}) as network:
        (context,) = driver.contexts
        request, made = network.create_infer_request(), OnDevice(context, np.zeros_like(batch))
        request.set_tensor("y", made)
        request.start_async({"x": OnDevice(context, batch)})
        pump(context, request)
        np.testing.assert_array_equal(made.content(), -batch)
        assert network.get_metric("PLAN_COUNT") == 1


def test_an_empty_array_is_neither_read_nor_written(driver: FakeDriver, fake_core: Core) -> None:
    none = np.zeros((0, 4), np.float32)
    with fake_core.load_network(negating(X, dynamic=True), "FAKE") as network:
        (context,) = driver.contexts
        request, made = network.create_infer_request(), OnDevice(context, none)
        request.set_tensor("y", made)
        request.start_async({"x": OnDevice(context, none)})
        pump(context, request)
        assert request.results["y"] is made
    assert not [item for item in context.done if item.endswith(": copy")]


def test_what_does_not_fit_is_refused_by_name(driver: FakeDriver, fake_core: Core) -> None:
    with fake_core.load_network(negating(X, dynamic=True), "FAKE") as network:
        (context,) = driver.contexts
        request = network.create_infer_request()
        with pytest.raises(TensorError, match="'x' is float64, and float32 is wanted"):
            request.infer_sync({"x": OnDevice(context, X.astype(np.float64))})
        with pytest.raises(TensorError, match="output 'y' cannot be bound to a OnDevice"):
            request.set_tensor("y", OnDevice(context, X, is_writable=False))
        request.set_tensor("y", OnDevice(context, X[:2]))
        request.start_async({"x": X})
        with pytest.raises(TensorError, match=r"output 'y' is \[3,4\] in this run, .*\[2,4\]"):
            pump(context, request)


def test_an_array_of_another_device_is_refused_with_both_names(fake_core: Core) -> None:
    other = FakeDriver(replace(FACTS, can_adopt=True)).open(FACTS)
    with fake_core.load_network(negating(X), "FAKE") as network:
        expected = r"'x' lies in the memory of CUDA\.0, and FAKE\.0 computes; copy it there"
        with pytest.raises(TensorError, match=expected):
            network.create_infer_request().infer_sync({"x": OnDevice(other, X)})


def test_an_input_that_decides_shapes_has_to_be_on_the_host(
    driver: FakeDriver, fake_core: Core
) -> None:
    shape = np.array([4, 3], np.int64)
    model = model_of([operator("Reshape", "x", "shape")], {"x": X, "shape": shape})
    with fake_core.load_network(model, "FAKE") as network:
        (context,) = driver.contexts
        request = network.create_infer_request()
        request.start_async({"x": X, "shape": OnDevice(context, shape)})
        with pytest.raises(TensorError, match="the content of input 'shape' decides what is comp"):
            pump(context, request)
