"""AUTO: the first device that is there and runs every node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import aioinfer
from aioinfer.backends.auto import measuring, plugin
from aioinfer.backends.auto.choose import DEFAULT_ORDER, default_turns
from aioinfer.backends.auto.plugin import warn_once
from aioinfer.errors import DeviceError, NotSupportedError, PropertyError
from aioinfer.executors import ImmediateExecutor
from aioinfer.runtime.devices.plugin import CoreHandle, Plugin
from aioinfer.runtime.graph import Model
from aioinfer.runtime.network.executable_network import ExecutableNetwork
from aioinfer.runtime.properties.properties import Configuration, Metric
from aioinfer.runtime.runs.stage import Stop
from aioinfer.testing import MockDevices, MockPlugin
from unit.backends.hetero.small_graphs import graph

MODEL = graph("a@0 = Relu(p)\nb@0 = Neg(a)", "b")


@pytest.fixture(autouse=True)
def only_reference(core: aioinfer.Core) -> None:
    """Of the devices that AUTO tries by itself, leave REFERENCE, whatever is installed here."""
    for name in (set(DEFAULT_ORDER) & set(core.plugin_names)) - {"REFERENCE"}:
        core.unregister_plugin(name)


def cannot_start(core: CoreHandle, name: str) -> Plugin:
    raise DeviceError(f"no driver for {name}")


def test_without_a_list_the_default_order_decides(core: aioinfer.Core) -> None:
    assert core.load_network(MODEL).device == "REFERENCE.0"
    devices = MockDevices(1)
    core.register_plugin("CPU", devices.make_plugin)
    assert core.load_network(MODEL).device == "MOCK.0"


@pytest.mark.parametrize(
    ("there", "processors", "turns"),
    [
        (DEFAULT_ORDER, (), DEFAULT_ORDER),
        (DEFAULT_ORDER, ("OPENCL",), ("CUDA", "CPU", "ONNXRUNTIME", "OPENCL", "REFERENCE")),
        (("OPENCL", "REFERENCE"), ("OPENCL",), ("OPENCL", "REFERENCE")),
    ],
)
def test_opencl_on_the_processor_comes_after_onnxruntime(
    there: tuple[str, ...], processors: tuple[str, ...], turns: tuple[str, ...]
) -> None:
    assert tuple(default_turns(there, processors.__contains__)) == turns


def test_what_a_device_is_is_not_asked_before_its_turn() -> None:
    asked: list[str] = []
    turns = default_turns(DEFAULT_ORDER, lambda device: bool(asked.append(device)))
    assert [next(turns), next(turns)] == ["CUDA", "CPU"]
    assert not asked
    next(turns)
    assert asked == ["OPENCL"]


@pytest.mark.parametrize(("kind", "chosen"), [("cpu", 1), ("discrete", 0)])
def test_a_device_is_asked_what_hardware_it_is(
    kind: str, chosen: int, core: aioinfer.Core, mock: MockDevices
) -> None:
    class Typed(MockPlugin):
        def metrics(self) -> Sequence[Metric]:
            return (Metric("DEVICE_TYPE", lambda _: kind, "What it is."),)

    core.register_plugin("OPENCL", lambda handle, name: Typed(handle, name, mock.devices[:1]))
    core.register_plugin(
        "ONNXRUNTIME", lambda handle, name: MockPlugin(handle, name, mock.devices[1:])
    )
    alone = {"ENABLE_STARTUP_FALLBACK": False, "ENABLE_RUNTIME_FALLBACK": False}
    assert core.load_network(MODEL, "AUTO", alone).device == f"MOCK.{chosen}"


def test_a_device_that_refuses_a_node_is_passed_over(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    assert core.load_network(MODEL, "AUTO:MOCK.0,MOCK.1").device == "MOCK.0"
    mock[0].refused_ops["Neg"] = "it cannot count below zero"
    assert core.load_network(MODEL, "AUTO:MOCK.0,MOCK.1").device == "MOCK.1"
    assert all(a.supported for a in core.query_network(MODEL, "AUTO:MOCK.0,MOCK.1").values())


@pytest.mark.parametrize("hint", ["LATENCY", "CUMULATIVE_THROUGHPUT"])
def test_devices_that_refuse_different_nodes_take_a_model_together(
    core: aioinfer.Core, mock: MockDevices, hint: str
) -> None:
    mock[0].refused_ops["Neg"] = "it cannot count below zero"
    mock[1].refused_ops["Relu"] = "it cannot bend"
    names = "AUTO:MOCK.0,MOCK.1"
    network = core.load_network(MODEL, names, {"PERFORMANCE_HINT": hint})
    assert network.execution_devices == ("MOCK.0", "MOCK.1")
    explained = network.explain()
    assert "no device runs every node" in explained
    assert "MOCK.0 refuses 'b' (it cannot count below zero)" in explained
    assert all(answer.supported for answer in core.query_network(MODEL, names).values())


def test_devices_that_refuse_the_same_node_do_not_take_a_model_together(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    mock[0].refused_ops["Neg"] = mock[1].refused_ops["Neg"] = "it cannot count below zero"
    mock[1].refused_ops["Relu"] = "it cannot bend"
    with pytest.raises(NotSupportedError, match="no device runs every node"):
        core.load_network(MODEL, "AUTO:MOCK.0,MOCK.1")


def test_a_device_that_is_not_there_is_passed_over(core: aioinfer.Core) -> None:
    core.register_plugin("CUDA", cannot_start)
    assert core.load_network(MODEL).device == "REFERENCE.0"
    assert core.load_network(MODEL, "AUTO:CUDA,REFERENCE.7,REFERENCE.1").device == "REFERENCE.1"


def test_a_device_that_says_yes_and_cannot_load_is_passed_over(core: aioinfer.Core) -> None:
    class Liar(MockPlugin):
        def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
            raise NotSupportedError("out of registers")

    core.register_plugin("CPU", lambda handle, name: Liar(handle, name, MockDevices(1).devices))
    assert core.load_network(MODEL).device == "REFERENCE.0"
    with pytest.raises(NotSupportedError, match="CPU cannot load it: out of registers"):
        core.load_network(MODEL, "AUTO:CPU")


def test_if_nobody_takes_it_the_error_has_every_reason(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    core.register_plugin("CUDA", cannot_start)
    mock[0].refused_ops["Neg"] = "it cannot count below zero"
    with pytest.raises(NotSupportedError) as caught:
        core.load_network(MODEL, "AUTO:CUDA,MOCK.0")
    text = str(caught.value)
    assert "CUDA is not there" in text
    assert "no driver for CUDA" in text
    assert "MOCK.0 refuses 'b' (it cannot count below zero)" in text
    answers = core.query_network(MODEL, "AUTO:CUDA,MOCK.0")
    assert {name: answer.supported for name, answer in answers.items()} == {"a": True, "b": False}
    with pytest.raises(NotSupportedError, match="no driver"):
        core.query_network(MODEL, "AUTO:CUDA")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("AUTO:REFERENSE", "did you mean 'REFERENCE'"),
        ("AUTO:REFERENCE.0(2)", "a count says"),
        ("AUTO:AUTO", "would hold itself"),
    ],
)
def test_a_bad_list_is_refused(core: aioinfer.Core, device: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        core.load_network(MODEL, device)


def test_properties_go_down_to_the_chosen_device(core: aioinfer.Core) -> None:
    config = {"NUM_STREAMS": 2, "INPUT_SHAPES": {"p": (2, 3)}}
    network = core.load_network(MODEL, "AUTO", config)
    assert network.get_config("NUM_STREAMS") == 2
    assert network.get_config("INPUT_SHAPES") == ({"p": (2, 3)},)
    nested = {"DEVICE_PROPERTIES": {"REFERENCE": {"NUM_STREAMS": 3}}}
    network = core.load_network(MODEL, "AUTO:REFERENCE.1", {**nested, "NUM_STREAMS": 2})
    assert network.get_config("NUM_STREAMS") == 3
    core.set_config("REFERENCE", {"NUM_STREAMS": 4})
    assert core.load_network(MODEL).get_config("NUM_STREAMS") == 4


def test_auto_has_no_id_and_is_not_listed(core: aioinfer.Core) -> None:
    refused: list[Callable[[], object]] = [
        lambda: core.load_network(MODEL, "AUTO", {"DEVICE_ID": "1"}),
        lambda: core.load_network(MODEL, "AUTO", {"DEVICE_PROPERTIES": {"CUDDA": {}}}),
    ]
    for call in refused:
        with pytest.raises(PropertyError):
            call()
    assert not any(device.startswith("AUTO") for device in core.available_devices)


def test_a_device_that_is_chosen_by_auto_may_be_a_part_of_hetero(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    mock[0].refused_ops["Neg"] = "it cannot count below zero"
    with core.load_network(MODEL, "HETERO:MOCK.0,AUTO") as network:
        assert network.execution_devices == ("MOCK.0", "REFERENCE.0")


def not_installed(core: CoreHandle, name: str) -> Plugin:
    raise DeviceError(f"{name} lacks a package", install=f"pip install aioinfer[{name.lower()}]")


@pytest.fixture
def warns_again() -> Iterator[None]:
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


@pytest.mark.usefixtures("warns_again")
def test_falling_to_reference_for_want_of_packages_is_warned_of_once(
    core: aioinfer.Core, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("CPU", "CUDA", "ONNXRUNTIME"):
        core.register_plugin(name, not_installed)
    with caplog.at_level(logging.WARNING, "aioinfer.AUTO"):
        for _ in range(3):
            assert core.load_network(MODEL).device == "REFERENCE.0"
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    text = record.getMessage()
    assert "CPU: pip install aioinfer[cpu]" in text
    assert "ONNXRUNTIME: pip install aioinfer[onnxruntime]" in text
    assert "CUDA" not in text, "it may be missing for want of a GPU"


@pytest.mark.usefixtures("warns_again")
def test_nothing_is_warned_of_where_packages_would_not_help(
    core: aioinfer.Core, caplog: pytest.LogCaptureFixture
) -> None:
    core.register_plugin("CPU", cannot_start)
    core.register_plugin("ONNXRUNTIME", not_installed)
    assert core.load_network(MODEL, "REFERENCE").device == "REFERENCE.0"
    core.unregister_plugin("ONNXRUNTIME")
    assert core.load_network(MODEL).device == "REFERENCE.0"
    devices = MockDevices(1)
    core.unregister_plugin("CPU")
    core.register_plugin("CPU", devices.make_plugin)
    core.register_plugin("ONNXRUNTIME", not_installed)
    assert core.load_network(MODEL).device == "MOCK.0"
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_what_was_measured_decides_and_is_remembered(
    core: aioinfer.Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def measure(network: ExecutableNetwork, *_: object) -> float:
        measured.append(network.device)
        return {"MOCK.0": 3.0, "MOCK.1": 1.0, "MOCK.2": 2.0}[network.device]

    monkeypatch.setattr(plugin, "measured_s", measure)
    core.register_plugin("MOCK", MockDevices(3).make_plugin)
    names = "AUTO:MOCK.0,MOCK.1,MOCK.2"
    for _ in range(2):
        network = core.load_network(MODEL, names, {"CACHE_DIR": str(tmp_path)})
        assert network.device == "MOCK.1"
        assert "MOCK.1 1e+03 ms" in network.explain()
    assert measured == ["MOCK.0", "MOCK.1", "MOCK.2"]
    assert core.load_network(MODEL, names).device == "MOCK.0"


def test_measuring_runs_the_network(core: aioinfer.Core) -> None:
    network = core.load_network(MODEL, "REFERENCE", {"INPUT_SHAPES": {"p": (2, 3)}})
    time_s = measuring.measured_s(network, network.config, Stop())
    assert time_s is not None
    assert 0 < time_s < 10
    assert network.statistics().finished_request_count == 0
    mock = MockDevices(1, executor=ImmediateExecutor("mock"))
    mock[0].stage_fault = lambda stage: RuntimeError("no")
    core.register_plugin("MOCK", mock.make_plugin)
    failing = core.load_network(MODEL, "MOCK")
    assert measuring.measured_s(failing, failing.config, Stop()) is None


def test_a_model_of_a_higher_priority_keeps_others_off_its_device(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    names = "AUTO:MOCK.0,MOCK.1"
    first = core.load_network(MODEL, names, {"MODEL_PRIORITY": "HIGH"})
    assert first.device == "MOCK.0"
    assert core.load_network(MODEL, names).device == "MOCK.1"
    assert core.load_network(MODEL, names, {"MODEL_PRIORITY": "HIGH"}).device == "MOCK.0"
    assert core.load_network(MODEL, "AUTO:MOCK.0").device == "MOCK.0"
    first.close()
    core.close()
    with aioinfer.Core() as other:
        other.register_plugin("MOCK", MockDevices(2).make_plugin)
        assert other.load_network(MODEL, names).device == "MOCK.0"


def test_a_hint_asks_for_all_devices_at_once(core: aioinfer.Core, mock: MockDevices) -> None:
    hint = {"PERFORMANCE_HINT": "CUMULATIVE_THROUGHPUT"}
    network = core.load_network(MODEL, "AUTO:MOCK.0,MOCK.1", hint)
    assert network.execution_devices == ("MOCK.0", "MOCK.1")
    assert network.device.startswith("MULTI:")


@pytest.mark.parametrize(("length", "count", "is_cut"), [(4, 1, False), (3_000_000, 20, True)])
def test_what_the_processor_refuses_in_part_is_cut_if_that_pays(
    length: int, count: int, is_cut: bool, core: aioinfer.Core
) -> None:
    devices = MockDevices(1)
    devices[0].refused_ops["Neg"] = "it cannot count below zero"
    core.register_plugin("CPU", devices.make_plugin)
    layers = "\n".join(f"a{n}@0 = Relu({'p' if not n else f'a{n - 1}'})" for n in range(count))
    proto = graph(f"{layers}\nz@0 = Neg(a{count - 1})", "z", shape=(1, length))
    network = core.load_network(proto)
    assert network.execution_devices == (("MOCK.0", "REFERENCE.0") if is_cut else ("REFERENCE.0",))
    assert "is expected to take" in network.explain()
    assert ("not cut, as HETERO:CPU,REFERENCE" in network.explain()) is not is_cut
    assert "CPU refuses 'z' (it cannot count below zero)" in network.explain()
    with core.load_network(proto, "AUTO", {"INLINE_THRESHOLD_US": 100}) as other:
        assert other.execution_devices == network.execution_devices


def test_the_choice_is_explained(core: aioinfer.Core) -> None:
    core.register_plugin("CUDA", cannot_start)
    explained = core.load_network(MODEL).explain()
    assert "chosen by AUTO; CUDA is not there" in explained


def test_devices_can_be_left_out(core: aioinfer.Core) -> None:
    core.register_plugin("CPU", MockDevices(2).make_plugin)
    assert core.load_network(MODEL, "AUTO").device == "MOCK.0"
    assert core.load_network(MODEL, "AUTO:-CPU").device == "REFERENCE.0"
    assert core.load_network(MODEL, "AUTO:-CPU.0").device == "MOCK.1"
    assert core.load_network(MODEL, "AUTO:CPU,REFERENCE,-CPU.0").device == "MOCK.1"
    with pytest.raises(DeviceError, match="leave fewer out"):
        core.load_network(MODEL, "AUTO:-CPU,-REFERENCE")
    with pytest.raises(DeviceError, match="unknown device 'CPUU'"):
        core.load_network(MODEL, "AUTO:-CPUU")


async def test_an_export_is_that_of_the_device_that_serves(core: aioinfer.Core) -> None:
    config = {"ENABLE_RUNTIME_FALLBACK": True, "EXPORTABLE": True}
    network = core.load_network(MODEL, "AUTO:REFERENCE.0,REFERENCE.1", config)
    again = core.import_network(network.export())
    assert again.device == "REFERENCE.0"
