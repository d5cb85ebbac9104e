"""What the message of an error names, its attributes carry: one table of mistakes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer import errors
from aioinfer.errors import AioInferError
from unit.runtime.models import tiny_model, two_input_model

X = np.zeros((1, 3), np.float32)
DEVICE = "REFERENCE.0"
OF_NETWORK = {"network": "tiny", "device": DEVICE}
READ_ONLY = np.zeros((1, 3), np.float32)
READ_ONLY.flags.writeable = False

Mistake = Callable[[aioinfer.ExecutableNetwork], Any]


def request(network: aioinfer.ExecutableNetwork) -> aioinfer.InferRequest:
    return network.create_infer_request()


def closed(network: aioinfer.ExecutableNetwork) -> aioinfer.ExecutableNetwork:
    network.close()
    return network


MISTAKES: dict[str, tuple[Mistake, dict[str, Any]]] = {
    "an unknown input": (lambda n: request(n).infer_sync({"z": X}), {"tensor": "z"}),
    "a missing input": (lambda n: request(n).infer_sync({}), {"tensor": "x"}),
    "no inputs": (lambda n: request(n).infer_sync(None), {}),
    "a sequence of another length": (lambda n: request(n).infer_sync([X, X]), {}),
    "a dtype": (lambda n: request(n).infer_sync(X.astype(int)), {"tensor": "x", "dtype": "int64"}),
    "a shape": (lambda n: request(n).infer_sync(X[:, :2]), {"tensor": "x", "shape": (1, 2)}),
    "no array": (lambda n: request(n).infer_sync({"x": object()}), {"tensor": "x"}),
    "a bound dtype": (lambda n: request(n).set_tensor("x", X.astype(int)), {"tensor": "x"}),
    "a bound shape": (lambda n: request(n).set_tensor("y", X[:, :2]), {"tensor": "y"}),
    "an output that is read-only": (
        lambda n: request(n).set_tensor("y", READ_ONLY),
        {"tensor": "y"},
    ),
    "an output that is a list": (
        lambda n: request(n).set_tensor("y", [[1.0] * 3]),
        {"tensor": "y"},
    ),
    "a tensor without memory": (
        lambda n: request(n).set_tensor("y", request(n).get_tensor("y")),
        {"tensor": "y"},
    ),
    "an unknown tensor": (lambda n: request(n).get_tensor("z"), {"tensor": "z"}),
    "a deadline": (
        lambda n: request(n).infer_sync(X, deadline_s="soon"),  # type: ignore[arg-type]
        {"key": "deadline_s", "value": "soon"},
    ),
    "a priority": (
        lambda n: request(n).infer_sync(X, priority="high"),  # type: ignore[arg-type]
        {"key": "priority", "value": "high"},
    ),
    "a timeout": (lambda n: request(n).wait(-1), {"key": "timeout_s", "value": -1}),
    "a timeout of close": (lambda n: n.close(timeout_s=-1), {"key": "timeout_s", "value": -1}),
    "a look-ahead": (lambda n: n.stream([X], look_ahead=0), {"key": "look_ahead", "value": 0}),
    "no source": (lambda n: n.stream(7), {}),  # type: ignore[arg-type]
    "no results": (lambda n: request(n).results, {"state": "idle", "request_id": 0}),
    "no latency": (lambda n: request(n).latency_s, {"state": "idle", "request_id": 0}),
    "no profile": (lambda n: request(n).profiling(), {"key": "PERF_COUNT"}),
    "shapes of a warm-up": (lambda n: n.warm_up({"x": "wide"}), {}),
    "a shape of a warm-up": (lambda n: n.warm_up({"x": (1, 2)}), {"tensor": "x"}),
    "an input of a warm-up": (lambda n: n.warm_up({"z": (1, 2)}), {"tensor": "z"}),
    "an unknown property": (
        lambda n: n.get_config("NUMSTREAMS"),
        {"key": "NUMSTREAMS", "device": "REFERENCE"},
    ),
    "a fact that is asked as a property": (
        lambda n: n.get_config("NETWORK_NAME"),
        {"key": "NETWORK_NAME"},
    ),
    "an unknown metric": (lambda n: n.get_metric("NAME"), {"key": "NAME"}),
    "an option of a metric": (
        lambda n: n.get_metric("NETWORK_NAME", DEVICE_ID="1"),
        {"key": "NETWORK_NAME"},
    ),
    "an export of a closed network": (lambda n: closed(n).export(), {}),
    "a copied network": (copy.copy, {}),
    "a copied request": (lambda n: copy.copy(request(n)), {}),
    "a closed network": (lambda n: request(closed(n)), {}),
    "a run of a closed network": (lambda n: closed(n).warm_up(), {}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_with_a_network_names_it_and_its_device(
    core: aioinfer.Core, mistake: str
) -> None:
    make, attributes = MISTAKES[mistake]
    with core.load_network(tiny_model(), "REFERENCE") as network:
        with pytest.raises(AioInferError) as caught:
            make(network)
        said = {name: getattr(caught.value, name) for name in {**OF_NETWORK, **attributes}}
        assert said == {**OF_NETWORK, **attributes}, caught.value


OF_CORE: dict[str, tuple[Callable[[aioinfer.Core], Any], dict[str, Any]]] = {
    "a device": (lambda c: c.load_network(tiny_model(), "GPUS"), {"device": "GPUS"}),
    "a device id": (
        lambda c: c.load_network(tiny_model(), "REFERENCE.7"),
        {"device": "REFERENCE.7"},
    ),
    "a list for one device": (
        lambda c: c.load_network(tiny_model(), "REFERENCE:CPU"),
        {"device": "REFERENCE:CPU"},
    ),
    "a device twice": (
        lambda c: c.load_network(tiny_model(), "HETERO:REFERENCE,REFERENCE"),
        {"device": "HETERO:REFERENCE,REFERENCE"},
    ),
    "a device within itself": (
        lambda c: c.load_network(tiny_model(), "HETERO:HETERO"),
        {"device": "HETERO:HETERO"},
    ),
    "an asked list": (
        lambda c: c.get_config("HETERO:REFERENCE", "PERF_COUNT"),
        {"device": "HETERO:REFERENCE"},
    ),
    "a configuration": (
        lambda c: c.load_network(tiny_model(), "REFERENCE", 7),  # type: ignore[arg-type]
        {"device": "REFERENCE", "value": 7},
    ),
    "a key": (
        lambda c: c.load_network(tiny_model(), "REFERENCE", {"NUMSTREAMS": 1}),
        {"device": "REFERENCE", "key": "NUMSTREAMS"},
    ),
    "a value": (
        lambda c: c.load_network(tiny_model(), "REFERENCE", {"NUM_STREAMS": "many"}),
        {"device": "REFERENCE", "key": "NUM_STREAMS", "value": "many"},
    ),
    "a precision": (
        lambda c: c.load_network(tiny_model(), "REFERENCE", {"INFERENCE_PRECISION_HINT": "bf16"}),
        {"device": "REFERENCE", "key": "INFERENCE_PRECISION_HINT", "value": "bf16"},
    ),
    "a number of threads": (
        lambda c: c.load_network(tiny_model(), "REFERENCE", {"INFERENCE_NUM_THREADS": 2}),
        {"device": "REFERENCE", "key": "INFERENCE_NUM_THREADS", "value": 2},
    ),
    "a key of one network": (
        lambda c: c.set_config("REFERENCE", {"INPUT_SHAPES": {}}),
        {"device": "REFERENCE", "key": "INPUT_SHAPES"},
    ),
    "a shape to compile": (
        lambda c: c.load_network(tiny_model(), "REFERENCE", {"INPUT_SHAPES": {"x": (1, 2)}}),
        {"device": DEVICE, "key": "INPUT_SHAPES", "network": "tiny"},
    ),
    "a name": (
        lambda c: c.load_network(tiny_model(), "REFERENCE", name=" "),
        {"device": "REFERENCE", "key": "name", "value": " "},
    ),
    "an affinity": (
        lambda c: c.load_network(tiny_model(), "HETERO:REFERENCE", {"AFFINITY": {"relu": "CPU"}}),
        {"node": "relu", "device": "CPU"},
    ),
    "an export of a network with functions": (
        lambda c: c.load_network(tiny_model(), "REFERENCE", preprocess={"x": abs}).export(),
        {"network": "tiny", "device": "REFERENCE.0"},
    ),
    "an import": (
        lambda c: c.import_network(b"blob", "REFERENCE"),
        {"device": "REFERENCE"},
    ),
    "a partition of one device": (
        lambda c: c.divide_network(tiny_model(), "REFERENCE"),
        {"device": "REFERENCE"},
    ),
    "a model that is reshaped": (
        lambda c: c.read_model(two_input_model()).reshape({"z": [3]}),
        {"tensor": "z"},
    ),
    "lengths that differ": (
        lambda c: c.read_model(two_input_model()).reshape({"a": [3], "b": [4]}),
        {"tensor": "b"},
    ),
    "the suffix of a trace": (
        lambda c: c.trace().save("trace.txt"),
        {"key": "path", "value": "trace.txt"},
    ),
    "a timeout": (lambda c: c.close(timeout_s=-1), {"key": "timeout_s", "value": -1}),
}


@pytest.mark.parametrize("mistake", OF_CORE)
def test_a_mistake_with_a_core_names_what_it_is_about(core: aioinfer.Core, mistake: str) -> None:
    make, attributes = OF_CORE[mistake]
    with pytest.raises(AioInferError) as caught:
        make(core)
    assert {name: getattr(caught.value, name) for name in attributes} == attributes, caught.value


def test_a_file_that_is_missing_is_named(core: aioinfer.Core, tmp_path: Path) -> None:
    path = str(tmp_path / "none.onnx")
    for call in (core.read_model, core.load_network, core.query_network):
        with pytest.raises(errors.ModelError) as caught:
            call(path, *(["REFERENCE"] if call != core.read_model else []))
        assert caught.value.model == path
