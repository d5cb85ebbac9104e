"""Outputs that stay where they were made (OUTPUT_LOCATION), on every device.

A device whose memory is the host's gives a Tensor, too, so that one configuration does for all.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...errors import PropertyError, RequestCancelledError
from ..tensors.tensor import Tensor
from .conformance_case import behaviour, expect, expect_equal, expect_error, load
from .conformance_models import sample_named
from .conformance_networks import partner_of

if TYPE_CHECKING:
    from ..devices.core import Core
    from ..network.executable_network import ExecutableNetwork

DOUBLED = sample_named("doubled")
STAYS = {"OUTPUT_LOCATION": {"y": "DEVICE"}}
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
"""Of positive numbers, which the model doubles."""


def _made(network: ExecutableNetwork, given: object) -> Tensor:
    tensor = network.create_infer_request().infer_sync({"x": given})["y"]
    expect(isinstance(tensor, Tensor), f"'y' is a Tensor, not a {type(tensor).__name__}")
    assert isinstance(tensor, Tensor)
    return tensor


def _uploaded_bytes(network: ExecutableNetwork) -> int:
    return sum(counts.get("upload", 0) for counts in network.statistics().copied_bytes.values())


@behaviour
def _an_output_that_stays_is_a_tensor_of_the_callers(core: Core, device: str) -> None:
    with load(core, device, DOUBLED, STAYS) as network:
        tensor = _made(network, X)
        expect(tensor.shape == X.shape, f"it has shape {X.shape}, not {tensor.shape}")
        expect(tensor.dtype == X.dtype, f"it is {X.dtype}, not {tensor.dtype}")
        later = [_made(network, X + number) for number in range(1, 6)]
        expect_equal(tensor.numpy(), 2 * X, "a tensor, after later runs,")
        expect(np.asarray(tensor.data) is tensor.data, "its content is one array, made once")
        for number, other in enumerate(later, start=1):
            expect_equal(np.asarray(other), 2 * (X + number), f"the tensor of run {number}")


@behaviour
def _an_output_that_stays_is_read_by_networks_there(core: Core, device: str) -> None:
    with (
        load(core, device, DOUBLED, STAYS) as first,
        load(core, device, DOUBLED, STAYS) as second,
    ):
        tensor, request = _made(first, X), second.create_infer_request()
        for _ in range(3):
            tensor = _made(second, tensor)
            if tensor.device == second.device:
                expect(_uploaded_bytes(second) == 0, "what lies there already is not uploaded")
        expect_equal(tensor.numpy(), 16 * X, "the end of a chain")
        request.set_tensor("x", tensor)
        for _ in range(2):
            expect_equal(np.asarray(request.infer_sync()["y"]), 32 * X, "'y' of a bound")


@behaviour
def _an_output_that_stays_is_downloaded_elsewhere(core: Core, device: str) -> None:
    partner = partner_of(core, device)
    with (
        load(core, device, DOUBLED, STAYS) as network,
        load(core, partner, DOUBLED) as elsewhere,
    ):
        tensor = _made(network, X)
        request = elsewhere.create_infer_request()
        for _ in range(2):
            request.start_async({"x": tensor})
            request.wait()
            expect_equal(request.results["y"], 4 * X, f"'y' on {partner}")
        request.set_tensor("x", _made(network, X + 1))
        expect_equal(request.infer_sync()["y"], 4 * (X + 1), f"'y' of a bound tensor on {partner}")


@behaviour
def _an_output_that_stays_is_exported_to_the_host(core: Core, device: str) -> None:
    with load(core, device, DOUBLED, STAYS) as network:
        tensor = _made(network, X)
        given = np.from_dlpack(tensor, device="cpu")
        expect_equal(np.array(given), 2 * X, "what numpy has by DLPack")


@behaviour
def _an_output_that_stays_outlives_its_network(core: Core, device: str) -> None:
    with load(core, device, DOUBLED, STAYS) as network:
        tensor = _made(network, X)
    expect_equal(tensor.numpy(), 2 * X, "a tensor of a network that is closed")


@behaviour
def _readers_of_an_output_that_stays_may_be_cancelled(core: Core, device: str) -> None:
    with (
        load(core, device, DOUBLED, STAYS) as first,
        load(core, device, DOUBLED) as second,
    ):
        tensor, requests = _made(first, X), [second.create_infer_request() for _ in range(4)]
        for number in range(12):
            request = requests[number % 4]
            request.start_async({"x": tensor if number % 3 else _made(first, X)})
            if number % 2:
                request.cancel()
            try:
                request.wait()
            except RequestCancelledError:
                expect(number % 2 == 1, "only what was cancelled is")
            else:
                expect_equal(request.results["y"], 4 * X, f"'y' of run {number}")
            _made(first, X + number)  # writes memory that is free again
        expect_equal(tensor.numpy(), 2 * X, "the tensor, after all that")


@behaviour
def _a_location_that_cannot_be_is_refused(core: Core, device: str) -> None:
    with load(core, device, DOUBLED):
        pass  # or the case is skipped
    for wanted, why in (({"z": "DEVICE"}, "an unknown output"), ({"y": "MOON"}, "no location")):
        config = {"OUTPUT_LOCATION": wanted}
        expect_error(PropertyError, partial(load, core, device, DOUBLED, config), why)
