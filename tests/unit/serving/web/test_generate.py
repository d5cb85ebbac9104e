"""Generations over HTTP: answers in one, and one event for each step."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

import aioinfer
from aioinfer.serving import Generation, app
from aioinfer.testing import MockDevices
from unit.serving.asgi_client import AsgiClient, Reply
from unit.serving.models import OF_DATATYPE, STATE, counter, echo, scaled

GENERATION = Generation({"next": "token"}, 5, {"next": 9})
STREAM = "/v2/models/counter/generate_stream"


@pytest.fixture
def client(core: aioinfer.Core, tmp_path: Path) -> Iterator[AsgiClient]:
    counting = core.load_network(counter(tmp_path / "counter.onnx"), "REFERENCE", STATE)
    double = core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE")
    with counting, double:
        made = app([counting, double], generations={"counter": GENERATION})
        yield AsgiClient(made)


def events(reply: Reply) -> list[Any]:
    assert reply.headers["content-type"].startswith("text/event-stream")
    texts = reply.body.decode().split("\n\n")
    assert texts.pop() == ""
    return [json.loads(text.removeprefix("data: ")) for text in texts]


async def test_each_step_is_an_event(client: AsgiClient) -> None:
    told = events(await client.post(STREAM, {"token": 1, "id": "a"}))
    assert [(event["next"], event["total"]) for event in told] == [
        (2, 1),
        (3, 3),
        (4, 6),
        (5, 10),
        (6, 15),
    ]
    assert told[0] | {"next": 0, "total": 0} == {
        "model_name": "counter",
        "model_version": "1",
        "id": "a",
        "next": 0,
        "total": 0,
    }


async def test_a_value_ends_it_and_so_does_the_client(client: AsgiClient) -> None:
    told = events(await client.post(STREAM, {"token": [[7]]}))
    assert [event["next"] for event in told] == [8, 9]
    told = events(await client.post(STREAM, {"token": [1], "max_steps": 2}))
    assert [event["next"] for event in told] == [2, 3]
    told = events(await client.post(STREAM, {"token": 1, "parameters": {"max_steps": 99}}))
    assert len(told) == 5


async def test_without_a_stream_the_answers_are_one(client: AsgiClient) -> None:
    told = (await client.post("/v2/models/counter/generate", {"token": 1, "max_steps": 3})).json()
    assert (told["next"], told["total"]) == ([2, 3, 4], [1, 3, 6])
    told = (await client.post("/v2/models/counter/generate", {"token": 8})).json()
    assert (told["next"], told["total"]) == (9, 8)


async def test_a_model_that_does_not_generate_has_one_answer(client: AsgiClient) -> None:
    given = {"x": [1, 2, 3], "nothing": 1}
    (event,) = events(await client.post("/v2/models/double/generate_stream", given))
    assert event["y"] == [2, 4, 6]
    assert (await client.post("/v2/models/double/generate", given)).json()["y"] == [2, 4, 6]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "inputs: 'token' missing"),
        ({"token": "a"}, "token: an element is not of INT64"),
        ({"token": [[1], [2]]}, "token.shape: 'token' has shape [1, 1], not [2, 1]"),
        ({"token": [[1, 2], [3]]}, "token: lists side by side are not equally long"),
        ({"token": [[[[1]]]]}, "token.shape: 'token' has shape [1, 1], not [1, 1, 1, 1]"),
        ({"token": 1, "max_steps": -1}, "parameters.max_steps: a whole number"),
        ({"token": 1, "sequence_id": 3}, "parameters.sequence_id: model 'counter' generates"),
        ([], "the body: an object is wanted"),
    ],
)
async def test_what_is_wrong_is_said_before_the_stream(
    client: AsgiClient, given: Any, told: str
) -> None:
    for path in (STREAM, "/v2/models/counter/generate"):
        reply = await client.post(path, given)
        assert (reply.status, reply.error[: len(told)]) == (400, told)
    assert (await client.post("/v2/models/other/generate", {})).status == 404


async def test_no_finite_number_has_no_event(client: AsgiClient) -> None:
    reply = await client.post("/v2/models/double/generate", {"x": [1, 2, float("inf")]})
    assert (reply.status, "NaN or infinite" in reply.error) == (400, True)


async def test_what_a_half_cannot_hold_is_infinite(core: aioinfer.Core, tmp_path: Path) -> None:
    number = int(OF_DATATYPE["FP16"])
    path = echo(tmp_path / "half.onnx", [number])
    with core.load_network(path, "REFERENCE", name="echo") as network:
        reply = await AsgiClient(app(network)).post(
            "/v2/models/echo/generate", {f"in_{number}": 1e30}
        )
    assert (reply.status, "NaN or infinite" in reply.error) == (400, True)


@pytest.mark.parametrize("call", ["generate", "generate_stream"])
async def test_long_answers_are_written_off_the_event_loop(
    client: AsgiClient, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    from aioinfer.serving.web import application

    threads = []
    write = application.generate_document

    def noted(answer: Any) -> Any:
        threads.append(threading.get_ident())
        return write(answer)

    monkeypatch.setattr(application, "generate_document", noted)
    for rows in (1, 10_000):
        reply = await client.post(f"/v2/models/double/{call}", {"x": [[1, 2, 3]] * rows})
        assert reply.status == 200
    assert [thread == threading.get_ident() for thread in threads] == [True, False]


def test_names_that_do_not_fit_are_refused(core: aioinfer.Core, tmp_path: Path) -> None:
    with core.load_network(counter(tmp_path / "counter.onnx"), "REFERENCE", STATE) as network:
        for generation, told in (
            (Generation({"nxt": "token"}, 5), "output 'nxt'.*did you mean 'next'"),
            (Generation({"next": "past"}, 5), "input 'past'"),
            (Generation({"next": "token"}, 5, {"no": 1}), "output 'no'"),
            (Generation({"next": "token"}, 0), "0 steps"),
        ):
            with pytest.raises(aioinfer.errors.PropertyError, match=told):
                app(network, generations={"counter": generation})
        with pytest.raises(aioinfer.errors.PropertyError, match="'other'"):
            app(network, generations={"other": GENERATION})


@pytest.mark.parametrize("steps_before", [0, 1])
async def test_a_client_that_leaves_ends_its_generation(tmp_path: Path, steps_before: int) -> None:
    devices = MockDevices(1)
    with aioinfer.Core() as core:
        core.register_plugin("MOCK", devices.make_plugin)
        network = core.load_network(counter(tmp_path / "counter.onnx"), "MOCK", STATE)
        client = AsgiClient(app(network, generations={"counter": GENERATION}))
        leave = asyncio.Event()
        body = json.dumps({"token": 1}).encode()
        call = asyncio.ensure_future(client.send("POST", STREAM, [body], {}, leave))
        done = 0
        while done < steps_before:
            if devices[0].held.waiting_count:
                devices[0].held.release()
            await checkpoint()
            done = network.statistics().finished_request_count
        while not devices[0].held.waiting_count:
            await checkpoint()
        leave.set()
        await call
        assert network.statistics().cancelled_request_count == 1
        while network.statistics().running_run_count:
            if devices[0].held.waiting_count:
                devices[0].held.release()
            await checkpoint()
        network.close()


async def test_texts_and_halves_are_fields_too(core: aioinfer.Core, tmp_path: Path) -> None:
    for datatype, value in (("BYTES", "ü"), ("FP16", 0.5), ("BF16", 0.5), ("BOOL", True)):
        number = int(OF_DATATYPE[datatype])
        path = echo(tmp_path / f"{datatype}.onnx", [number])
        with core.load_network(path, "REFERENCE", name="echo") as network:
            reply = await AsgiClient(app(network)).post(
                "/v2/models/echo/generate", {f"in_{number}": value}
            )
            assert reply.json()[f"out_{number}"] == value
