"""The application over HTTP, without sockets: every address, every datatype, every refusal."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio.lowlevel import checkpoint

import aioinfer
from aioinfer.serving import Limits, app
from aioinfer.serving.protocol.datatypes import DATATYPES, raw_bytes
from aioinfer.testing import MockDevices
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import OF_DATATYPE, echo, scaled

X = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}


@pytest.fixture(scope="module")
def network(
    core: aioinfer.Core, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[aioinfer.ExecutableNetwork]:
    path = scaled(tmp_path_factory.mktemp("models") / "double.onnx", 2.0)
    with core.load_network(path, "REFERENCE") as loaded:
        yield loaded


@pytest.fixture
def client(network: aioinfer.ExecutableNetwork) -> AsgiClient:
    return AsgiClient(app(network))


async def test_the_server_says_what_it_is(client: AsgiClient) -> None:
    for path in ("/v2", "/v2/"):
        told = (await client.get(path)).json()
        assert (told["name"], told["version"]) == ("aioinfer", aioinfer.__version__)
        assert "binary_tensor_data" in told["extensions"]
        assert "model_repository" not in told["extensions"]


async def test_health_is_told_of_server_and_models(client: AsgiClient) -> None:
    for path in (
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/double/ready",
        "/v2/models/double/versions/1/ready",
    ):
        assert (await client.get(path)).status == 200
    assert (await client.get("/v2/models/other/ready")).status == 404
    assert (await client.get("/v2/models/double/versions/2/ready")).status == 404


async def test_a_long_body_about_the_models_is_read_off_the_event_loop(
    client: AsgiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioinfer.serving.web import application

    threads = []
    read = application.read_json

    def noted(body: Any, limits: Limits) -> object:
        threads.append(threading.get_ident())
        return read(body, limits)

    monkeypatch.setattr(application, "read_json", noted)
    for length in (1, 100_000):
        assert (await client.post("/v2/repository/index", {"told": "x" * length})).status == 200
    assert [thread == threading.get_ident() for thread in threads] == [True, False]


async def test_a_closed_network_is_not_ready(core: aioinfer.Core, tmp_path: Path) -> None:
    with core.load_network(scaled(tmp_path / "gone.onnx", 1.0), "REFERENCE") as network:
        client = AsgiClient(app(network))
    assert (await client.get("/v2/health/ready")).status == 503
    assert (await client.get("/v2/models/gone/ready")).status == 503
    assert (await client.post("/v2/models/gone/infer", {"inputs": [X]})).status == 503
    assert (await client.post("/v2/repository/index")).json()[0]["state"] == "UNAVAILABLE"


async def test_a_model_says_what_it_takes(client: AsgiClient) -> None:
    told = (await client.get("/v2/models/double/versions/1")).json()
    assert told == (await client.get("/v2/models/double")).json()
    assert (told["name"], told["versions"]) == ("double", ["1"])
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert told["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]


async def test_an_inference_by_json(client: AsgiClient) -> None:
    reply = await client.post("/v2/models/double/infer", {"id": "a", "inputs": [X]})
    assert reply.json() == {
        "model_name": "double",
        "model_version": "1",
        "id": "a",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [2, 4, 6]}],
    }
    assert reply.headers["content-type"] == "application/json"


async def test_an_inference_with_raw_tensors(client: AsgiClient) -> None:
    array = np.float32([[1, 2, 3], [4, 5, 6]])
    document = {
        "inputs": [
            {
                "name": "x",
                "datatype": "FP32",
                "shape": [2, 3],
                "parameters": {"binary_data_size": array.nbytes},
            }
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    text = json.dumps(document).encode()
    reply = await client.post(
        "/v2/models/double/versions/1/infer",
        text + array.tobytes(),
        Inference_Header_Content_Length=str(len(text)),
    )
    length = int(reply.headers["inference-header-content-length"])
    (told,) = json.loads(reply.body[:length])["outputs"]
    assert told["parameters"] == {"binary_data_size": array.nbytes}
    np.testing.assert_array_equal(
        np.frombuffer(reply.body[length:], np.float32).reshape(2, 3), array * 2
    )


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_body_in_pieces_is_the_same_body(client: AsgiClient, size: int) -> None:
    array = np.arange(300, dtype=np.float32).reshape(100, 3)
    entry = {"name": "x", "datatype": "FP32", "shape": [100, 3]}
    entry["parameters"] = {"binary_data_size": array.nbytes}
    text = json.dumps({"inputs": [entry]}).encode()
    body = text + array.tobytes()
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    head = {"inference-header-content-length": str(len(text))}
    for length in (None, -1):  # -1: chunked, its length is not told
        reply = await client.send("POST", "/v2/models/double/infer", pieces, head, length=length)
        assert reply.json()["outputs"][0]["data"] == (array * 2).ravel().tolist()


@pytest.mark.parametrize("datatype", OF_DATATYPE)
async def test_every_datatype_goes_there_and_back(
    core: aioinfer.Core, tmp_path: Path, datatype: str
) -> None:
    number = int(OF_DATATYPE[datatype])
    array = np.array([[0, 1, 3]]).astype(DATATYPES[datatype].numpy)
    if datatype == "BYTES":
        array = np.array([["", "ü", "a b"]], object)
    raw = bytes(raw_bytes(array))
    entry = {"name": f"in_{number}", "datatype": datatype, "shape": [1, 3]}
    document: dict[str, Any] = {
        "inputs": [{**entry, "parameters": {"binary_data_size": len(raw)}}],
        "parameters": {"binary_data_output": True},
    }
    text = json.dumps(document).encode()
    with core.load_network(echo(tmp_path / "echo.onnx", [number]), "REFERENCE") as network:
        client = AsgiClient(app(network))
        reply = await client.post(
            "/v2/models/echo/infer",
            text + raw,
            inference_header_content_length=str(len(text)),
        )
        length = int(reply.headers["inference-header-content-length"])
        assert reply.body[length:] == raw
        assert json.loads(reply.body[:length])["outputs"][0]["datatype"] == datatype
        document["parameters"] = {}
        text = json.dumps(document).encode()
        plain = await client.post(
            "/v2/models/echo/infer",
            text + raw,
            inference_header_content_length=str(len(text)),
        )
        if datatype in ("FP16", "BF16"):
            assert plain.status == 400
            assert f"{datatype} has no form in JSON" in plain.error
        else:
            assert plain.json()["outputs"][0]["data"] == array.ravel().tolist()


async def test_outputs_are_those_asked_for_in_that_order(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    types = [int(OF_DATATYPE[name]) for name in ("FP32", "INT32", "INT64")]
    path = echo(tmp_path / "three.onnx", types)
    given = [
        {"name": f"in_{number}", "datatype": name, "shape": [1, 1], "data": [number]}
        for name, number in zip(("FP32", "INT32", "INT64"), types, strict=True)
    ]
    with core.load_network(path, "REFERENCE") as network:
        reply = await AsgiClient(app(network)).post(
            "/v2/models/three/infer",
            {
                "inputs": given,
                "outputs": [{"name": f"out_{types[2]}"}, {"name": f"out_{types[0]}"}],
            },
        )
    told = [(output["name"], output["data"]) for output in reply.json()["outputs"]]
    assert told == [(f"out_{types[2]}", [types[2]]), (f"out_{types[0]}", [types[0]])]


async def test_the_greatest_elements_as_classes(client: AsgiClient) -> None:
    wanted = {"name": "y", "parameters": {"classification": 2}}
    reply = await client.post(
        "/v2/models/double/infer",
        {"inputs": [{**X, "shape": [2, 3], "data": [1, 3, 2, 5, 5, 4]}], "outputs": [wanted]},
    )
    (told,) = reply.json()["outputs"]
    assert (told["datatype"], told["shape"]) == ("BYTES", [2, 2])
    assert told["data"] == ["6.000000:1", "4.000000:2", "10.000000:0", "10.000000:1"]


@pytest.mark.parametrize(
    ("document", "status", "told"),
    [
        ({"inputs": []}, 400, "inputs: 'x' missing"),
        ({"inputs": [{**X, "name": "z"}]}, 400, r"inputs[0].name: model 'double' has no input 'z'"),
        ({"inputs": [X, X]}, 400, "inputs[1].name: 'x' is given twice"),
        (
            {"inputs": [{**X, "datatype": "INT32"}]},
            400,
            "inputs[0].datatype: 'x' is FP32, not INT32",
        ),
        ({"inputs": [{**X, "shape": [3]}]}, 400, "inputs[0].shape: 'x' has shape [-1, 3], not [3]"),
        ({"inputs": [X], "outputs": [{"name": "x"}]}, 400, "outputs[0].name: model 'double' has"),
        ({"inputs": [X], "outputs": [{"name": "y"}] * 2}, 400, "outputs[1].name: 'y' is asked for"),
        ({"inputs": [X], "parameters": {"timeout": 1 << 62}}, 200, ""),
    ],
)
async def test_what_does_not_fit_the_model_is_refused(
    client: AsgiClient, document: dict[str, Any], status: int, told: str
) -> None:
    reply = await client.post("/v2/models/double/infer", document)
    assert reply.status == status
    assert told in (reply.error if status != 200 else "")


async def test_what_is_not_there_is_404_and_405(client: AsgiClient) -> None:
    reply = await client.post("/v2/models/doubel/infer", {"inputs": [X]})
    assert (reply.status, reply.error) == (
        404,
        "there is no model 'doubel'; did you mean 'double'?",
    )
    reply = await client.post("/v2/models/double/versions/3/infer", {"inputs": [X]})
    assert (reply.status, "no version '3'" in reply.error) == (404, True)
    reply = await client.get("/v3")
    assert (reply.status, reply.error) == (404, "there is nothing at '/v3' for GET")
    assert (await client.get("/v2/models/double/infer")).status == 405
    assert (await client.get("/v2/models/..%2f..%2fetc/ready")).status == 404


async def test_model_management_is_off(client: AsgiClient) -> None:
    for verb in ("load", "unload"):
        reply = await client.post(f"/v2/repository/models/double/{verb}")
        assert (reply.status, reply.error) == (403, "model management is switched off")
    index = (await client.post("/v2/repository/index", {"ready": True})).json()
    assert index == [{"name": "double", "version": "1", "state": "READY", "reason": ""}]


async def test_a_body_is_bounded_before_it_is_read(network: aioinfer.ExecutableNetwork) -> None:
    client = AsgiClient(app(network, limits=Limits(body_bytes=100)))
    told = await client.send("POST", "/v2/models/double/infer", [b"x"], {}, length=101)
    assert (told.status, told.headers["connection"]) == (413, "close")
    chunks = await client.send("POST", "/v2/models/double/infer", [b"x" * 60] * 2, {}, length=-1)
    assert chunks.status == 413
    lied = await client.send("POST", "/v2/models/double/infer", [b"x" * 60] * 2, {}, length=90)
    assert (lied.status, "longer than its Content-Length" in lied.error) == (400, True)
    short = await client.send("POST", "/v2/models/double/infer", [b"x", b"y"], {}, length=90)
    assert (short.status, "shorter than its Content-Length" in short.error) == (400, True)


async def test_bodies_are_bounded_together(tmp_path: Path) -> None:
    devices = MockDevices(1)
    body = json.dumps({"inputs": [X]}).encode()
    with aioinfer.Core() as core:
        core.register_plugin("MOCK", devices.make_plugin)
        with core.load_network(scaled(tmp_path / "held.onnx", 2.0), "MOCK") as network:
            client = AsgiClient(app(network, limits=Limits(bodies_bytes=len(body) + 5)))
            first = asyncio.ensure_future(client.post("/v2/models/held/infer", body))
            while network.statistics().running_run_count == 0:
                await checkpoint()
            second = await client.post("/v2/models/held/infer", body)
            assert (second.status, second.headers["retry-after"]) == (503, "1")
            pieces = [body[:4], body[4:]]
            third = await client.send("POST", "/v2/models/held/infer", pieces, {}, length=-1)
            assert third.status == 503
            devices[0].held.release()
            assert (await first).status == 200
            last = asyncio.ensure_future(client.post("/v2/models/held/infer", body))
            while not last.done():
                if devices[0].held.waiting_count:
                    devices[0].held.release()
                await checkpoint()
            assert last.result().status == 200


async def test_what_json_has_no_form_for_is_refused(client: AsgiClient) -> None:
    """Python reads NaN and writes it, and nobody else does."""
    given = {"inputs": [{**X, "data": [1, float("nan"), float("inf")]}]}
    reply = await client.post("/v2/models/double/infer", given)
    assert (reply.status, reply.error.startswith("output 'y': has elements that are NaN")) == (
        400,
        True,
    )
    given["outputs"] = [{"name": "y", "parameters": {"binary_data": True}}]
    reply = await client.post("/v2/models/double/infer", given)
    raw = reply.body[int(reply.headers["inference-header-content-length"]) :]
    np.testing.assert_array_equal(np.frombuffer(raw, np.float32), [2, np.nan, np.inf])


async def test_headers_are_bounded_and_read_with_care(client: AsgiClient) -> None:
    many = {f"x-{number}": "1" for number in range(101)}
    assert (await client.send("GET", "/v2", [], many)).status == 431
    path = "/v2/models/double/infer"
    for length in ("-1", "1e3", "\u0663", "9" * 30):
        reply = await client.post(path, b"{}", inference_header_content_length=length)
        assert (reply.status, "inference-header-content-length" in reply.error) == (400, True)
    assert (await client.post(path, b"{}", content_encoding="gzip")).status == 415


async def test_a_token_is_wanted_of_all_but_probes(network: aioinfer.ExecutableNetwork) -> None:
    client = AsgiClient(app(network, token="secret"))
    assert (await client.get("/v2/health/live")).status == 200
    assert (await client.get("/v2/health/ready")).status == 200
    for headers in ({}, {"authorization": "Bearer secre"}, {"authorization": "secret"}):
        reply = await client.send("GET", "/v2", [], headers)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert (await client.get("/v2", authorization="Bearer secret")).status == 200


async def test_a_mounted_application_answers_below_its_place(
    network: aioinfer.ExecutableNetwork,
) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    outer = AsgiClient(Starlette(routes=[Mount("/models", app({"other": network}))]))
    reply = await outer.post("/models/v2/models/other/infer", {"inputs": [X]})
    assert reply.json()["outputs"][0]["data"] == [2, 4, 6]


async def test_many_at_once(client: AsgiClient) -> None:
    async def one(number: int) -> list[float]:
        entry = {**X, "data": [number, number, number]}
        reply = await client.post("/v2/models/double/infer", {"inputs": [entry]})
        data: list[float] = reply.json()["outputs"][0]["data"]
        return data

    answers = await asyncio.gather(*(one(number) for number in range(200)))
    assert answers == [[2 * number] * 3 for number in range(200)]


def test_two_networks_of_one_name_are_refused(network: aioinfer.ExecutableNetwork) -> None:
    with pytest.raises(aioinfer.errors.PropertyError, match="two networks are called 'double'"):
        app([network, network])
