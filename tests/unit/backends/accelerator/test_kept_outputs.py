"""Outputs that stay on the device: read there by other runs, downloaded once, given back."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import numpy as np
import pytest

from aioinfer import Core, ExecutableNetwork, Tensor
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.errors import ClosedError, DeviceError, RequestCancelledError, TensorError
from unit.backends.accelerator.fake_driver import FakeContext, FakeDriver
from unit.backends.accelerator.serving import CapturingPlugin, negating, pump, serving

X = np.arange(12, dtype=np.float32).reshape(3, 4)
STAYS = {"OUTPUT_LOCATION": {"y": "DEVICE"}}


def loaded(core: Core, config: Any = STAYS, *, dynamic: bool = False) -> ExecutableNetwork:
    return core.load_network(negating(X, dynamic=dynamic), "FAKE", config)


def kept(context: FakeContext, network: ExecutableNetwork, given: Any) -> Tensor:
    """Run a network of one output that stays, and return that."""
    request = network.create_infer_request()
    request.start_async({"x": given})
    pump(context, request)
    tensor = request.results["y"]
    assert isinstance(tensor, Tensor)
    assert tensor.device == "FAKE.0"
    return tensor


def copies(context: FakeContext) -> list[str]:
    """List what was copied, by queue."""
    return [item for item in context.done if item.rsplit(" ", 1)[1] in ("write", "read", "copy")]


def test_the_next_network_reads_it_in_place(driver: FakeDriver, fake_core: Core) -> None:
    with loaded(fake_core) as first, loaded(fake_core) as second:
        (context,) = driver.contexts
        tensor = kept(context, first, X)
        assert (tensor.shape, tensor.dtype) == (X.shape, X.dtype)
        assert repr(tensor) == "<Tensor float32 [3,4] on FAKE.0>"
        assert copies(context) == ["upload: write"]
        for number in range(6):
            tensor = kept(context, second, tensor)
            assert copies(context) == ["upload: write"], "nothing more, however often it goes on"
            if number % 2:
                del context.done[:]
                np.testing.assert_array_equal(tensor.numpy(), -X)
                assert copies(context) == ["reads: read"]
                context.done[:] = ["upload: write"]
        assert "upload" not in [span.stage for span in second.trace()][-2:]


def test_hetero_reads_it_in_place_on_the_device_that_takes_it(
    driver: FakeDriver, fake_core: Core
) -> None:
    with (
        loaded(fake_core) as first,
        fake_core.load_network(negating(X), "HETERO:FAKE,REFERENCE") as second,
        fake_core.load_network(negating(X), "HETERO:REFERENCE,FAKE") as elsewhere,
    ):
        (context,) = driver.contexts
        tensor = kept(context, first, X)
        request = second.create_infer_request()
        for _ in range(3):
            del context.done[:]
            request.start_async({"x": tensor})
            pump(context, request)
            np.testing.assert_array_equal(request.results["y"], X)
            (copied,) = copies(context)
            assert copied.endswith(": read"), "of the output alone"
            assert copied != "reads: read"
        del context.done[:]
        request = elsewhere.create_infer_request()
        request.start_async({"x": tensor})
        pump(context, request)
        np.testing.assert_array_equal(request.results["y"], X)
        assert copies(context) == ["reads: read"], "downloaded for a device of the host"


@pytest.mark.parametrize("plugin", [CapturingPlugin])
def test_a_launch_graph_has_it_copied_on_the_device(driver: FakeDriver, fake_core: Core) -> None:
    with loaded(fake_core) as first, loaded(fake_core) as second:
        (context,) = driver.contexts
        for number in range(4):
            tensor = kept(context, second, kept(context, first, X + number))
            np.testing.assert_array_equal(tensor.numpy(), X + number)
        assert second.get_metric("CAPTURED_PLAN_COUNT") > 0
        names = {"upload: write", "compute: copy", "1: copy", "reads: read"}
        assert set(copies(context)) == names


@pytest.mark.parametrize("plugin", [CapturingPlugin, OpenClPlugin])
@pytest.mark.parametrize("seed", range(5))
def test_memory_is_written_again_only_when_the_device_has_read_it(
    seed: int, driver: FakeDriver, fake_core: Core
) -> None:
    order = random.Random(seed)
    with loaded(fake_core) as first, loaded(fake_core, {}) as second:
        (context,) = driver.contexts
        makers = [first.create_infer_request() for _ in range(3)]
        readers: list[tuple[Any, int]] = []
        for number in range(12):
            maker = makers[number % 3]
            maker.start_async({"x": X + number})
            pump(context, maker, seed=seed)
            reader = second.create_infer_request()
            reader.start_async({"x": maker.results["y"]})  # nobody else holds it for long
            readers.append((reader, number))
            if order.random() < 0.3:
                reader.cancel()
                readers.pop()
            for _ in range(order.randrange(4)):
                context.advance(order)
        pump(context, *(reader for reader, _ in readers), seed=seed)
        for reader, number in readers:
            np.testing.assert_array_equal(reader.results["y"], X + number)
        context.run_all()


def test_it_is_downloaded_once_whoever_asks(driver: FakeDriver, fake_core: Core) -> None:
    with loaded(fake_core) as network, fake_core.load_network(negating(X), "CPU") as other:
        (context,) = driver.contexts
        tensor = kept(context, network, X)
        arrays: list[np.ndarray] = []
        threads = [threading.Thread(target=lambda: arrays.append(tensor.data)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(2):
            np.testing.assert_array_equal(other.create_infer_request().infer_sync(tensor)["y"], X)
        assert all(array is arrays[0] for array in arrays)
        assert not arrays[0].flags.writeable
        assert np.asarray(tensor) is not None
        assert context.done.count("reads: read") == 1


def test_a_wrong_shape_is_refused_before_anything_is_downloaded(
    driver: FakeDriver, fake_core: Core
) -> None:
    with loaded(fake_core) as network, fake_core.load_network(negating(X[:2]), "CPU") as other:
        (context,) = driver.contexts
        tensor = kept(context, network, X)
        with pytest.raises(TensorError, match=r"'x' has shape \[3,4\], and \[2,4\] is wanted"):
            other.create_infer_request().infer_sync(tensor)
        assert "reads: read" not in context.done
        with pytest.raises(TensorError, match=r"output 'y' cannot be bound to a .*read-only"):
            network.create_infer_request().set_tensor("y", tensor)


def test_a_bound_input_stays_where_it_is(driver: FakeDriver, fake_core: Core) -> None:
    with loaded(fake_core) as network:
        (context,) = driver.contexts
        tensor = kept(context, network, X)
        request = network.create_infer_request()
        request.set_tensor("x", tensor)
        handle = request.get_tensor("y")
        before = context.done.count("upload: write")
        for _ in range(2):
            request.start_async()
            pump(context, request)
            assert handle.device == "FAKE.0"
        assert context.done.count("upload: write") == before
        assert "reads: read" not in context.done
        np.testing.assert_array_equal(handle.numpy(), X)
        assert request.get_tensor("x").device == "FAKE.0"


def test_memory_that_the_caller_has_bound_goes_first(driver: FakeDriver, fake_core: Core) -> None:
    with loaded(fake_core) as network:
        (context,) = driver.contexts
        request, mine = network.create_infer_request(), np.zeros_like(X)
        request.set_tensor("y", mine)
        request.start_async({"x": X})
        pump(context, request)
        assert request.results["y"] is mine
        np.testing.assert_array_equal(mine, -X)


def test_rows_of_a_bucket_are_those_of_the_run(driver: FakeDriver, fake_core: Core) -> None:
    config = {**STAYS, "BATCH_BUCKETS": "8"}
    with loaded(fake_core, config, dynamic=True) as network:
        (context,) = driver.contexts
        for rows in (1, 3, 8):
            batch = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
            tensor = kept(context, network, kept(context, network, batch))
            assert tensor.shape == batch.shape
            np.testing.assert_array_equal(tensor.numpy(), batch)
        assert network.get_metric("PLAN_COUNT") == 1


def test_no_rows_take_no_copy(driver: FakeDriver, fake_core: Core) -> None:
    with loaded(fake_core, dynamic=True) as network:
        (context,) = driver.contexts
        tensor = kept(context, network, kept(context, network, X[:0]))
        assert tensor.numpy().shape == (0, 4)
        assert copies(context) == []


def test_memory_goes_back_to_runs_that_follow_and_with_the_last_of_it_to_the_device(
    driver: FakeDriver, fake_core: Core
) -> None:
    gc.disable()
    try:
        network = loaded(fake_core)
        (context,) = driver.contexts
        tensor = kept(context, network, X)
        before = len(context.buffers)
        for number in range(20):
            tensor = kept(context, network, X + number)
        assert len(context.buffers) <= before + 1
        many = [kept(context, network, X + number) for number in range(20)]
        taken = len([item for item in context.buffers if not item.is_released])
        del many
        assert len([item for item in context.buffers if not item.is_released]) < taken - 10
        network.close()
        np.testing.assert_array_equal(tensor.numpy(), -(X + 19))
        del network, tensor
        assert context.alive == []
    finally:
        gc.enable()


def test_a_closed_core_has_taken_the_memory_back(driver: FakeDriver) -> None:
    driver.is_eager = True
    with serving(driver) as core:
        network = loaded(core)
        (context,) = driver.contexts
        gone = network.create_infer_request().infer_sync(X)["y"]
        read = network.create_infer_request().infer_sync(X)["y"]
        np.testing.assert_array_equal(read.numpy(), -X)
    assert context.alive == []
    np.testing.assert_array_equal(read.numpy(), -X)
    with pytest.raises(ClosedError, match=r"an output of 'g' that stays on FAKE\.0 is gone"):
        gone.numpy()
    with serving(FakeDriver()) as other, pytest.raises(ClosedError):
        loaded(other).create_infer_request().infer_sync(gone)


@pytest.mark.parametrize("plugin", [CapturingPlugin, OpenClPlugin])
def test_a_run_that_is_cancelled_anywhere_leaves_nothing(
    driver: FakeDriver, fake_core: Core
) -> None:
    with loaded(fake_core) as first, loaded(fake_core) as second:
        (context,) = driver.contexts
        tensor = kept(context, first, X)
        kept(context, second, tensor)
        alive, order = len(context.alive), random.Random(1)
        for steps in range(8):
            for network, given in ((first, X), (second, tensor)):
                request = network.create_infer_request()
                request.start_async({"x": given})
                for _ in range(steps):
                    context.advance(order)
                request.cancel()
                context.run_all()
                try:
                    pump(context, request)
                except RequestCancelledError:
                    pass
                del request
        np.testing.assert_array_equal(kept(context, second, tensor).numpy(), X)
        assert len(context.alive) <= alive + 2


def test_a_run_that_fails_gives_no_tensor_and_its_memory_back(
    driver: FakeDriver, fake_core: Core
) -> None:
    with loaded(fake_core) as network:
        (context,) = driver.contexts
        kept(context, network, X)
        alive = len(context.alive)
        for _ in range(5):
            driver.fails["compute: launch"] = DriverError(ErrorKind.OTHER, "a kernel failed")
            request = network.create_infer_request()
            request.start_async({"x": X})
            with pytest.raises(DeviceError, match="a kernel failed"):
                pump(context, request)
        np.testing.assert_array_equal(kept(context, network, X).numpy(), -X)
        assert len(context.alive) <= alive + 1


def test_no_room_for_an_output_is_told_and_the_next_run_tries_again(
    driver: FakeDriver, fake_core: Core
) -> None:
    with loaded(fake_core) as network:
        (context,) = driver.contexts
        driver.allocation_errors[driver.allocation_count + 1] = DriverError(
            ErrorKind.OUT_OF_MEMORY, "no room"
        )
        request = network.create_infer_request()
        request.start_async({"x": X})
        with pytest.raises(DeviceError, match="an output of 'g' that stays on FAKE"):
            pump(context, request)
        np.testing.assert_array_equal(kept(context, network, X).numpy(), -X)


def test_a_download_that_fails_says_so_and_may_be_tried_again(
    driver: FakeDriver, fake_core: Core
) -> None:
    with loaded(fake_core) as network:
        (context,) = driver.contexts
        tensor = kept(context, network, X)
        driver.fails["reads: read"] = DriverError(ErrorKind.OTHER, "a cable")
        with pytest.raises(DeviceError, match="downloading a tensor: a cable"):
            tensor.numpy()
        np.testing.assert_array_equal(tensor.numpy(), -X)
