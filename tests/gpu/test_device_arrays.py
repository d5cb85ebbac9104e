"""Arrays that lie on the device already: taken without a host copy, and written where they lie."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from gpu.device import DEVICE, cupy
from unit.benchmarks.small_networks import SMALL, inputs_of

NAME = "resnet50"


@pytest.fixture
def inputs() -> dict[str, np.ndarray]:
    return {key: array[:1] for key, array in inputs_of(NAME).items()}


def test_cupy_inputs_give_what_numpy_inputs_give(core: Core, inputs: dict[str, np.ndarray]) -> None:
    module = cupy()
    with core.load_network(SMALL[NAME](), DEVICE) as network:
        request = network.create_infer_request()
        wanted = dict(request.infer_sync(inputs))
        given = {key: module.asarray(array) for key, array in inputs.items()}
        found = dict(request.infer_sync(given))
    for key, array in wanted.items():
        assert found[key].tobytes() == array.tobytes()


def test_a_bound_cupy_output_is_written_on_the_device(
    core: Core, inputs: dict[str, np.ndarray]
) -> None:
    module = cupy()
    with core.load_network(SMALL[NAME](), DEVICE) as network:
        request = network.create_infer_request()
        wanted = dict(request.infer_sync(inputs))
        bound = {key: module.full(array.shape, np.nan, "f") for key, array in wanted.items()}
        for key, array in bound.items():
            request.set_tensor(key, array)
        found = request.infer_sync(inputs)
        for key, array in wanted.items():
            assert found[key] is bound[key]
            assert bound[key].get().tobytes() == array.tobytes()


def test_torch_inputs_give_what_numpy_inputs_give(
    core: Core, inputs: dict[str, np.ndarray]
) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    with core.load_network(SMALL[NAME](), DEVICE) as network:
        request = network.create_infer_request()
        wanted = dict(request.infer_sync(inputs))
        given = {key: torch.from_numpy(array).cuda() for key, array in inputs.items()}
        found = dict(request.infer_sync(given))
    for key, array in wanted.items():
        assert found[key].tobytes() == array.tobytes()
