"""What a device says of itself is true: properties, metrics, queries; and how networks end."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from unittest import SkipTest
from weakref import ref

import numpy as np

from ...errors import DeviceError, PropertyError
from ..devices.device_name import parse_device
from .conformance_case import WAIT_S, behaviour, expect, expect_equal, expect_error, load
from .conformance_models import SAMPLES, SampleModel, sample_named

if TYPE_CHECKING:
    from ..devices.core import Core

DOUBLED = sample_named("doubled")
X = np.array([[-1, 2, 3]], np.float32)
CUT_COUNT = 4  # random cuts of each sample, beside one cut around every node

BAD_VALUES: dict[str, Any] = {
    "PERFORMANCE_HINT": "FAST",
    "PERFORMANCE_HINT_NUM_REQUESTS": -10,
    "NUM_STREAMS": -10,
    "INFERENCE_NUM_THREADS": "many",
    "INFERENCE_PRECISION_HINT": "f31",
    "LOG_LEVEL": 5,
    "PERF_COUNT": -1,
    "INPUT_SHAPES": "1x3",
}


def bare_name(device: str) -> str:
    """Return the name to ask properties by: of a device made of others, without its list."""
    name = parse_device(device)
    return name.name if name.entries else device


def _properties(core: Core, device: str) -> dict[str, str]:
    supported = core.get_metric(bare_name(device), "SUPPORTED_PROPERTIES")
    expect(bool(supported), f"{device} lists its properties")
    return dict(supported)


@behaviour
def _every_listed_property_can_be_read(core: Core, device: str) -> None:
    bare = bare_name(device)
    supported = _properties(core, device)
    for key, access in supported.items():
        expect(access in ("RO", "RW"), f"{key} is RO or RW, not {access!r}")
        read = core.get_metric if access == "RO" else core.get_config
        expect(read(bare, key) is not None, f"{key} of {bare} has a value")
    for access, list_key in (("RO", "SUPPORTED_METRICS"), ("RW", "SUPPORTED_CONFIG_KEYS")):
        listed = sorted(key for key in supported if supported[key] == access)
        expect_equal(sorted(core.get_metric(bare, list_key)), listed, list_key)


@behaviour
def _every_default_can_be_written_back(core: Core, device: str) -> None:
    bare = bare_name(device)
    for key, access in _properties(core, device).items():
        if access != "RW":
            continue
        value = core.get_config(bare, key)
        with load(core, device, DOUBLED, {key: value} if _differs(device, key) else {}) as network:
            outputs = network.create_infer_request().infer_sync({"x": X})
            expect_equal(outputs["y"], np.maximum(X, 0) + X, f"'y' with {key} at its default")
        try:
            core.set_config(bare, {key: value})
        except PropertyError as error:
            expect("load_network" in str(error), f"{key}={value!r} is taken: {error}")
        expect_equal(core.get_config(bare, key), value, f"{key} as it was written")


def _differs(device: str, key: str) -> bool:
    """A list in the device's name is the value of its property, and given twice is an error."""
    return not (parse_device(device).entries and key == "MULTI_DEVICE_PRIORITIES")


@behaviour
def _unknown_keys_are_refused_by_name(core: Core, device: str) -> None:
    bare, key = bare_name(device), "NO_SUCH_KEY"
    with load(core, device, DOUBLED) as network:
        for what, call in {
            "set_config": lambda: core.set_config(bare, {key: 1}),
            "get_config": lambda: core.get_config(bare, key),
            "get_metric": lambda: core.get_metric(bare, key),
            "load_network": lambda: core.load_network(DOUBLED.proto(), device, {key: 1}),
            "query_network": lambda: core.query_network(DOUBLED.proto(), device, {key: 1}),
            "network.get_config": lambda: network.get_config(key),
            "network.get_metric": lambda: network.get_metric(key),
        }.items():
            error = expect_error(PropertyError, call, f"{what} with an unknown key")
            expect(key in str(error), f"the error of {what} names the key: {error}")
            expect(error.key == key, f"the error of {what} carries the key")


@behaviour
def _bad_values_are_refused_before_anything_is_compiled(core: Core, device: str) -> None:
    supported = _properties(core, device)
    for key, value in BAD_VALUES.items():
        if supported.get(key) != "RW":
            continue
        for call in (
            lambda key=key, value=value: core.load_network(DOUBLED.proto(), device, {key: value}),
            lambda key=key, value=value: core.set_config(bare_name(device), {key: value}),
        ):
            error = expect_error(PropertyError, call, f"{key}={value!r}")
            expect(error.key == key, f"the error for {key} carries the key: {error}")


@behaviour
def _a_device_that_is_not_there_is_an_error(core: Core, device: str) -> None:
    name = parse_device(device).name
    for bad in (f"{name}.no-such-id", "", "NO_SUCH_DEVICE", f"{name}:"):
        expect_error(
            DeviceError,
            partial(core.load_network, DOUBLED.proto(), bad),
            f"loading on {bad!r}",
        )


@behaviour
def _a_network_tells_what_it_was_compiled_with(core: Core, device: str) -> None:
    with load(core, device, DOUBLED, {"PERFORMANCE_HINT_NUM_REQUESTS": 1}) as network:
        for key in network.get_metric("SUPPORTED_METRICS"):
            expect(network.get_metric(key) is not None, f"the network's {key} has a value")
        for key in network.get_metric("SUPPORTED_CONFIG_KEYS"):
            expect(network.get_config(key) is not None, f"the network's {key} has a value")
        expect_equal(network.get_config("PERFORMANCE_HINT_NUM_REQUESTS"), 1, "what was asked for")
        expect_equal(network.get_metric("NETWORK_NAME"), DOUBLED.name, "NETWORK_NAME")
        expect_equal(network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS"), 1, "requests")
        expect(bool(network.get_metric("EXECUTION_DEVICES")), "some device computes")
        expect([port.name for port in network.inputs] == ["x"], "the inputs are the model's")
        expect([port.name for port in network.outputs] == ["y"], "the outputs are the model's")
        names = {name for node in network.runtime_graph().nodes for name in node.fused_from}
        expect(names == set(DOUBLED.node_names), f"the runtime graph tells of {DOUBLED.node_names}")


@behaviour
def _compiling_leaves_the_callers_model_alone(core: Core, device: str) -> None:
    model = core.read_model(DOUBLED.proto())
    before = str(model)
    core.load_network(model, device).close()
    expect_equal(str(model), before, "the model after load_network")


def partner_of(core: Core, device: str) -> str:
    """Find a REFERENCE device for what is left of a cut model; SkipTest if there is none."""
    name = parse_device(device)
    if name.entries or not core.get_metric(name.name, "AVAILABLE_DEVICES"):
        raise SkipTest(f"{device} is made of other devices; they are cut themselves")
    for partner in ("REFERENCE.1", "REFERENCE.0"):
        if partner in core.available_devices and partner != device:
            return partner
    raise SkipTest("there is no other REFERENCE device to run the rest of a cut model")


def _check_cut(
    core: Core, device: str, partner: str, sample: SampleModel, chosen: Sequence[str]
) -> None:
    affinity = {name: device if name in chosen else partner for name in sample.node_names}
    cut = core.load_network(sample.proto(), f"HETERO:{device},{partner}", {"AFFINITY": affinity})
    with cut, core.load_network(sample.proto(), partner) as whole:
        for feed in sample.feeds():
            expected = whole.create_infer_request().infer_sync(feed)
            outputs = cut.create_infer_request().infer_sync(feed)
            for name, array in expected.items():
                what = f"output {name!r} of {sample.name} with {list(chosen)} on {device}"
                expect_equal(outputs[name], array, what)


def _supported_nodes(core: Core, device: str, sample: SampleModel) -> list[str]:
    answers = core.query_network(sample.proto(), device)
    expect_equal(sorted(answers), sorted(sample.node_names), f"query_network of {sample.name}")
    for name, answer in answers.items():
        expect(answer.supported or bool(answer.reason), f"a no for {name!r} comes with a reason")
    return [name for name in sample.node_names if answers[name].supported]


@behaviour
def _a_node_with_a_yes_compiles_alone(core: Core, device: str) -> None:
    partner = partner_of(core, device)
    for sample in SAMPLES:
        for name in _supported_nodes(core, device, sample):
            _check_cut(core, device, partner, sample, [name])


@behaviour
def _nodes_with_a_yes_compile_in_any_cut(core: Core, device: str) -> None:
    partner, chance = partner_of(core, device), random.Random(5)
    for sample in SAMPLES:
        supported = _supported_nodes(core, device, sample)
        for _ in range(CUT_COUNT if len(supported) > 2 else 0):
            chosen = [name for name in supported if chance.random() < 0.5]
            _check_cut(core, device, partner, sample, chosen)


def core_like(core: Core) -> Core:
    """Make another Core that knows the same plugins."""
    from ..devices.core import Core

    made = Core()
    for name in set(core.plugin_names) - set(made.plugin_names):
        made.register_plugin(name, core._registry.maker_of(name))
    return made


@behaviour
def _core_network_and_request_may_go_in_any_order(core: Core, device: str) -> None:
    for order in itertools.permutations(("core", "network", "request")):
        held: dict[str, Any] = {"core": core_like(core)}
        executors = held["core"].executors
        held["network"] = load(held["core"], device, DOUBLED)
        held["request"] = held["network"].create_infer_request()
        results = held["request"].infer_sync({"x": X})
        watched = {name: ref(item) for name, item in held.items()}
        for name in order:
            del held[name]
            if "request" in held:
                again = held["request"].infer_sync({"x": X + 1})["y"]
                expect_equal(again, np.maximum(X + 1, 0) + X + 1, f"'y' without {name}")
            expect_equal(results["y"], np.maximum(X, 0) + X, f"an earlier 'y' without {name}")
        give_up_at = monotonic() + WAIT_S  # a thread that answered may still be on its way back
        while _are_held(watched.values()) and monotonic() < give_up_at:
            pass
        for name, alive in watched.items():
            expect(alive() is None, f"nothing keeps the {name} alive when all were dropped")
        executors.close()


def _are_held(watched: Iterable[Callable[[], object]]) -> bool:
    gc.collect()
    return any(alive() is not None for alive in watched)


@behaviour
def _closing_in_any_order_is_safe(core: Core, device: str) -> None:
    for order in itertools.permutations(("core", "network", "request")):
        own = core_like(core)
        network = load(own, device, DOUBLED)
        request = network.create_infer_request()
        request.start_async({"x": X})
        closing: dict[str, Callable[[], object]]
        closing = {"core": own.close, "network": network.close, "request": request.wait}
        for name in order:
            closing[name]()
        expect_equal(request.results["y"], np.maximum(X, 0) + X, f"'y' when closed as {order}")
