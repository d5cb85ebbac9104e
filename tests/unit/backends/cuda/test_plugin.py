"""CUDA's devices, what is set and asked, and runs, on a driver without hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.passes import plan_passes
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.cuda.plugin import compile_rules
from aioinfer.backends.hetero.executable_network import HeteroNetwork
from aioinfer.errors import DeviceError, PropertyError
from architecture.tree import pyproject
from unit.backends.accelerator.fake_driver import FakeDriver
from unit.backends.accelerator.serving import draining, negate
from unit.backends.comparing import model_of, operator
from unit.backends.cuda.planning import GPU, cuda_core

X = np.arange(1000, dtype=np.float32)
WAIT_S = 20.0


class Sticky(dict[str, DriverError]):
    """What fails: the first command of this name, and from then on all."""

    TEXT = "cudaErrorIllegalAddress: an illegal memory access"

    def __init__(self, first: str) -> None:
        super().__init__()
        self._first, self._is_broken = first, False

    def pop(self, name: str, default: Any = None) -> Any:
        self._is_broken |= name == self._first
        return DriverError(ErrorKind.LOST, self.TEXT) if self._is_broken else default


def two_gpus(**driver: Any) -> FakeDriver:
    made = FakeDriver(GPU, replace(GPU, name="NVIDIA L4", driver_version="580.2"), **driver)
    made.functions["fused"] = negate
    return made


@pytest.fixture
def driver() -> FakeDriver:
    return two_gpus()


@pytest.fixture
def core(driver: FakeDriver) -> Iterator[Core]:
    with draining(cuda_core(driver), driver) as made:
        yield made


def negating() -> Any:
    return model_of([operator("Neg", "x")], {"x": X})


def test_the_entry_point_of_the_package_names_the_plugin() -> None:
    named = pyproject()["project"]["entry-points"]["aioinfer.backends"]["CUDA"]
    assert named == "aioinfer.backends.cuda.plugin:CudaPlugin"


def test_gpus_are_numbered_and_say_what_they_are(core: Core) -> None:
    named = [name for name in core.available_devices if name.startswith("CUDA")]
    assert named == ["CUDA.0", "CUDA.1"]
    facts = {
        "FULL_DEVICE_NAME": "NVIDIA L4 (NVIDIA CUDA)",
        "DRIVER_VERSION": "580.2",
        "CUDA_VERSION": "CUDA 13.0",
        "CUDA_LIBRARIES": ["cublas", "cudnn"],
        "DEVICE_TYPE": "discrete",
        "DEVICE_TOTAL_MEM_SIZE": GPU.memory_bytes,
        "OPTIMIZATION_CAPABILITIES": [
            "FP32",
            "TF32",
            "FP16",
            "BF16",
            "DYNAMIC",
            "EXPORT_IMPORT",
        ],
    }
    assert {key: core.get_metric("CUDA.1", key) for key in facts} == facts
    assert core.get_metric("CUDA", "DRIVER_VERSION") == "580.1"
    assert core.why_missing("CUDA") is None
    with pytest.raises(DeviceError, match=r"no device '2'; it has \['CUDA\.0', 'CUDA\.1'\]"):
        core.load_network(negating(), "CUDA.2")


def test_a_network_runs_on_the_gpu_that_is_named(core: Core, driver: FakeDriver) -> None:
    for device, config in (("CUDA", {}), ("CUDA.1", {}), ("CUDA", {"DEVICE_ID": "1"})):
        with core.load_network(negating(), device, config) as network:
            np.testing.assert_array_equal(network.create_infer_request().infer_sync(X)["y"], -X)
            number = config.get("DEVICE_ID", device.partition(".")[2] or "0")
            assert network.device == f"CUDA.{number}"
    assert [context.facts.name for context in driver.contexts] == ["NVIDIA H200", "NVIDIA L4"]


def test_auto_prefers_a_gpu(core: Core) -> None:
    config = {"ENABLE_STARTUP_FALLBACK": False}
    with core.load_network(negating(), "AUTO", config) as network:
        assert network.execution_devices == ("CUDA.0",)


def test_hetero_gives_the_rest_to_another_device(core: Core) -> None:
    nodes = [operator("Neg", "x", outputs=["n"]), operator("NonZero", "n")]
    with core.load_network(model_of(nodes, {"x": X}), "HETERO:CUDA,REFERENCE") as network:
        assert isinstance(network, HeteroNetwork)
        assert [part.device for part in network.networks] == ["CUDA.0", "REFERENCE.0"]
        made = network.create_infer_request().infer_sync(X)["y"]
    np.testing.assert_array_equal(made, np.nonzero(X))


@pytest.mark.parametrize(
    ("config", "launch_graphs", "command"),
    [
        ({}, 3, "compute: replay"),
        ({"PERFORMANCE_HINT": "THROUGHPUT"}, 9, "compute: replay"),
        ({"NUM_STREAMS": 1}, 2, "compute: replay"),
        ({"PERFORMANCE_HINT_NUM_REQUESTS": 1}, 1, "compute: replay"),
        ({"CUDA_GRAPHS": "NO"}, 0, "compute: launch"),
        ({"PERF_COUNT": True}, 0, "compute: launch"),
    ],
)
def test_each_slot_replays_a_graph_unless_told_otherwise(
    config: dict[str, Any], launch_graphs: int, command: str, core: Core, driver: FakeDriver
) -> None:
    with core.load_network(negating(), "CUDA", config) as network:
        np.testing.assert_array_equal(network.create_infer_request().infer_sync(X)["y"], -X)
        (context,) = driver.contexts
        assert len(context.launch_graphs) == launch_graphs
    done = [item for item in context.done if item in ("compute: replay", "compute: launch")]
    assert done == [command]


def test_a_gpu_that_records_nothing_launches_one_by_one() -> None:
    driver = FakeDriver(replace(GPU, can_capture=False))
    driver.functions["fused"] = negate
    with cuda_core(driver) as core:
        with core.load_network(negating(), "CUDA") as network:
            np.testing.assert_array_equal(network.create_infer_request().infer_sync(X)["y"], -X)
        with pytest.raises(PropertyError, match="CUDA cannot capture CUDA graphs; leave CUDA_GR"):
            core.load_network(negating(), "CUDA", {"CUDA_GRAPHS": True})


def test_a_hint_halves_what_is_held_between_launches() -> None:
    sizes: list[int] = []
    driver = FakeDriver(GPU)
    driver.functions["fused"] = lambda x, y, count: sizes.append(y.size_bytes)
    held = {}
    with cuda_core(driver) as core:
        for hint in ("f32", "tf32", "f16", "bf16"):
            config = {"INFERENCE_PRECISION_HINT": hint, "CUDA_GRAPHS": False}
            with core.load_network(negating(), "CUDA", config) as network:
                network.create_infer_request().infer_sync(X)
                assert network.get_config("INFERENCE_PRECISION_HINT") == hint
            held[hint], sizes = min(sizes), []
    assert held == {"f32": 4000, "tf32": 4000, "f16": 2000, "bf16": 2000}


@pytest.mark.parametrize("hint", ["tf32", "bf16"])
def test_an_older_gpu_refuses_what_it_cannot_multiply(hint: str) -> None:
    turing = replace(GPU, name="NVIDIA T4", compute_capability=(7, 5))
    words = rf"{hint}'.*needs compute capability 8\.0, and NVIDIA T4 has 7\.5; it has f32, f16"
    with cuda_core(FakeDriver(turing, GPU)) as core:
        with pytest.raises(PropertyError, match=words):
            core.load_network(negating(), "CUDA", {"INFERENCE_PRECISION_HINT": hint})
        found = core.get_metric("CUDA.0", "OPTIMIZATION_CAPABILITIES")
        assert found == ["FP32", "FP16", "DYNAMIC", "EXPORT_IMPORT"]
        core.set_config("CUDA.1", {"INFERENCE_PRECISION_HINT": hint})


@pytest.mark.parametrize(("key", "value"), [("NUM_STREAMS", 17), ("INFERENCE_NUM_THREADS", 2)])
def test_what_a_gpu_cannot_honour_is_refused(key: str, value: int, core: Core) -> None:
    with pytest.raises(PropertyError, match=key):
        core.load_network(negating(), "CUDA", {key: value})


def test_a_network_is_exported_and_imported(core: Core) -> None:
    with core.load_network(negating(), "CUDA", {"EXPORTABLE": True}) as network:
        blob = network.export()
        with core.import_network(blob) as imported:
            assert imported.device == network.device
            assert imported.inputs == network.inputs


def test_the_rules_follow_from_the_libraries_that_work() -> None:
    plain, with_cudnn = (
        [item.name for item in compile_rules(frozenset(libraries)).passes]
        for libraries in ((), ("cudnn",))
    )
    shared = [item.name for item in plan_passes()]
    assert plain[: len(shared)] == with_cudnn[: len(shared)] == shared
    assert len(plain) < len(with_cudnn)


def test_passes_are_left_out_by_name(core: Core) -> None:
    nodes = [operator("Neg", "x", outputs=["n"]), operator("Abs", "n")]
    model = model_of(nodes, {"x": X})
    for disabled, wanted in (
        ((), ["FusedElementwise"]),
        ("elementwise fusion, epilogue fusion", ["Neg", "Abs"]),
    ):
        with core.load_network(model, "CUDA", {"CUDA_DISABLED_PASSES": disabled}) as network:
            assert [node.op_type for node in network.runtime_graph().nodes] == wanted
    with pytest.raises(
        PropertyError, match="no pass 'elementwise fusio'; did you mean 'elementwise fusion'"
    ):
        core.load_network(model, "CUDA", {"CUDA_DISABLED_PASSES": ["elementwise fusio"]})
    with pytest.raises(PropertyError, match="belongs to one network"):
        core.set_config("CUDA", {"CUDA_DISABLED_PASSES": "elementwise fusion"})


def test_what_folds_into_weights_is_left_out_by_name_too(core: Core) -> None:
    nodes = [operator("Pad", "x", "pads", outputs=["p"]), operator("Conv", "p", "w")]
    constants = {"pads": np.array([0, 0, 1, 0, 0, 1]), "w": np.ones((1, 1, 3), np.float32)}
    model = model_of(nodes, {"x": np.zeros((1, 1, 8), np.float32)}, constants=constants)
    plugin, made = core._registry.get("CUDA"), core.read_model(model)
    for disabled in ((), ("pad folding",)):
        config = plugin.configuration(None, {"CUDA_DISABLED_PASSES": disabled})
        graph = plugin.transform_network(made, config)[0].graph
        assert len(list(graph.nodes)) == 1 + len(disabled)


def test_what_does_not_fit_is_refused_and_the_gpu_goes_on(core: Core, driver: FakeDriver) -> None:
    driver.allocation_errors[1] = DriverError(ErrorKind.OUT_OF_MEMORY, "cudaErrorMemoryAllocation")
    with pytest.raises(DeviceError, match=r"CUDA\.0.*cudaErrorMemoryAllocation; close other netw"):
        core.load_network(negating(), "CUDA")
    large = model_of([operator("Neg", "x")], {"x": np.zeros(100_000, np.float32)})
    with pytest.raises(DeviceError, match=r"needs one buffer of .* MiB, and CUDA\.0 makes none"):
        core.load_network(large, "CUDA")
    with core.load_network(negating(), "CUDA") as network:
        np.testing.assert_array_equal(network.create_infer_request().infer_sync(X)["y"], -X)


@pytest.mark.parametrize(
    ("failing", "graphs"),
    [
        ("compute: replay", "YES"),
        ("upload: write", "NO"),
        ("compute: launch", "NO"),
        ("download: read", "NO"),
    ],
)
def test_a_lost_gpu_fails_its_requests_with_the_cause_and_the_other_goes_on(
    failing: str, graphs: str
) -> None:
    driver, cause = two_gpus(is_eager=False), re.escape(Sticky.TEXT)
    with cuda_core(driver) as core:
        config = {"CUDA_GRAPHS": graphs, "NUM_STREAMS": 1}
        devices = "CUDA.0", "CUDA.1"
        lost, other = (core.load_network(negating(), device, config) for device in devices)
        requests = [lost.create_infer_request() for _ in range(4)]
        for request in requests:
            request.start_async(X)
        driver.fails = Sticky(failing)
        first, second = driver.contexts
        driver.is_eager = True
        first.run_all()
        for request in requests:
            with pytest.raises(DeviceError, match=rf"CUDA\.0 .*{cause}"):
                request.wait(WAIT_S)
        with pytest.raises(DeviceError, match=rf"CUDA\.0 is lost \(.*{cause}.*restart the process"):
            lost.create_infer_request().infer_sync(X)
        with pytest.raises(DeviceError, match=r"CUDA\.0 is lost"):
            core.load_network(negating(), "CUDA.0")
        driver.fails = {}
        second.run_all()
        np.testing.assert_array_equal(other.create_infer_request().infer_sync(X)["y"], -X)
        core.load_network(negating(), "CUDA.1").close()
