"""Libraries left out one by one: the same numbers by another way, and a device that says so."""

from __future__ import annotations

import pytest

from aioinfer import Core
from gpu.oracle import drawn, relative_error
from gpu.watched_driver import WatchedDriver, cupy_driver, register

BOUNDS = {"f32": 1e-5, "f16": 1e-2}
LEFT_OUT = (
    ("cudnn",),
    ("cublaslt",),
    ("cublas",),
    ("cublaslt", "cublas"),
    ("cudnn", "cublaslt", "cublas"),
)


def libraries_there() -> frozenset[str]:
    return frozenset().union(*(facts.libraries for facts in cupy_driver().find_devices()))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", LEFT_OUT, ids="+".join)
@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("network_name", ["resnet50", "mobilenet_v2", "minilm_l6"])
def test_a_network_gives_the_same_without_a_library(
    core: Core, network_name: str, precision: str, names: tuple[str, ...]
) -> None:
    missing = set(names) - libraries_there()
    if missing:
        pytest.skip(f"not here, so it cannot be left out: {', '.join(sorted(missing))}")
    case = drawn(network_name, 1)
    with Core() as made:
        register(made, "BARE", WatchedDriver(cupy_driver(), names))
        assert not set(names) & set(made.get_metric("BARE", "CUDA_LIBRARIES"))
        config = {"INFERENCE_PRECISION_HINT": precision}
        with made.load_network(case.model, "BARE", config) as network:
            found = network.create_infer_request().infer_sync(dict(case.inputs))
    assert relative_error(found, case.wanted) < BOUNDS[precision]
