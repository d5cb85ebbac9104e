"""Tensors in shared memory, with Triton's four clients and its own functions for regions."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from collections.abc import Callable, Iterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.serving import Limits, app
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import echo, scaled
from unit.serving.serve_process import Serving, serve

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its messages are older than the runtime
    http = pytest.importorskip("tritonclient.http")
    http_aio = pytest.importorskip("tritonclient.http.aio")
    grpc = pytest.importorskip("tritonclient.grpc")
    grpc_aio = pytest.importorskip("tritonclient.grpc.aio")
    from tritonclient.utils import InferenceServerException, serialize_byte_tensor
    from tritonclient.utils import shared_memory as shm

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::pytest.PytestWarning"
)

CLIENTS = {"http": http, "http aio": http_aio, "grpc": grpc, "grpc aio": grpc_aio}
PREFIX = f"aioinfer_test_{os.getpid()}_"
X = np.float32([[1, 2, 3], [4, 5, 6]])


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    root = tmp_path_factory.mktemp("models")
    scaled(root / "double" / "1" / "model.onnx", 2.0)
    echo(root / "echo" / "1" / "model.onnx", [1, 8])
    options = ("-d", "REFERENCE", "--grpc-port", "0", "--max-body-mb", "1")
    with serve(root, *options, "--shared-memory-prefix", f"/{PREFIX}") as started:
        yield started
    gc.collect()  # sockets of Triton's clients warn, though they are closed


class Client:
    """One of the four, whose calls are awaited whether or not it blocks."""

    def __init__(self, kind: str, serving: Serving) -> None:
        self.module, self.is_grpc = CLIENTS[kind], "grpc" in kind
        self.raw = self.module.InferenceServerClient(
            serving.addresses[self.is_grpc].partition("://")[2]
        )

    async def call(self, name: str, *given: Any, **named: Any) -> Any:
        told = getattr(self.raw, name)(*given, **named)
        return await told if isawaitable(told) else told

    async def states(self, *given: Any) -> list[tuple[str, str, int, int]]:
        named = {"as_json": True} if self.is_grpc else {}
        told = await self.call("get_system_shared_memory_status", *given, **named)
        entries = told.get("regions", {}).values() if self.is_grpc else told
        return [
            (each["name"], each["key"], int(each.get("offset", 0)), int(each["byte_size"]))
            for each in entries
        ]

    def input(
        self,
        offset: int = 0,
        size: int = X.nbytes,
        *,
        name: str = "x",
        shape: tuple[int, ...] = X.shape,
        datatype: str = "FP32",
    ) -> Any:
        made = self.module.InferInput(name, list(shape), datatype)
        made.set_shared_memory("region", size, offset=offset)
        return made

    def output(self, offset: int, size: int, name: str = "y") -> Any:
        made = self.module.InferRequestedOutput(name)
        made.set_shared_memory("region", size, offset=offset)
        return made


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest, serving: Serving) -> Any:
    opened = Client(request.param, serving)
    try:
        yield opened
    finally:
        await opened.call("unregister_system_shared_memory")
        await opened.call("close")


@pytest.fixture
def region() -> Iterator[Any]:
    """4096 bytes, named by the client's own functions; X is at their beginning."""
    made = shm.create_shared_memory_region("region", f"/{PREFIX}a", 4096, create_only=True)
    shm.set_shared_memory_region(made, [X])
    try:
        yield made
    finally:
        shm.destroy_shared_memory_region(made)


async def test_the_extension_is_told_and_regions_come_and_go(client: Client, region: Any) -> None:
    server = await client.call(
        "get_server_metadata", **({"as_json": True} if client.is_grpc else {})
    )
    assert "system_shared_memory" in server["extensions"]
    for name, offset in (("region", 0), ("a name/with slashes?", 64)):
        await client.call("register_system_shared_memory", name, f"/{PREFIX}a", 1024, offset=offset)
    assert sorted(await client.states()) == [
        ("a name/with slashes?", f"/{PREFIX}a", 64, 1024),
        ("region", f"/{PREFIX}a", 0, 1024),
    ]
    assert await client.states("region") == [("region", f"/{PREFIX}a", 0, 1024)]
    await client.call("unregister_system_shared_memory", "region")
    with pytest.raises(InferenceServerException, match="no region 'region' is registered"):
        await client.states("region")
    await client.call("unregister_system_shared_memory")
    assert await client.states() == []


async def test_inputs_and_outputs_lie_in_a_region(client: Client, region: Any) -> None:
    await client.call("register_system_shared_memory", "region", f"/{PREFIX}a", 4096)
    for factor in (1, 10):
        shm.set_shared_memory_region(region, [X * factor])
        told = await client.call(
            "infer", "double", [client.input()], outputs=[client.output(256, X.nbytes)]
        )
        made = shm.get_contents_as_numpy(region, np.float32, X.shape, 256)
        np.testing.assert_array_equal(made, X * factor * 2)
        output = told.get_output("y")
        parameters = output.parameters if client.is_grpc else output["parameters"]
        size = parameters["shared_memory_byte_size"]
        assert (size.int64_param if client.is_grpc else size) == X.nbytes
        if not client.is_grpc:  # without it Triton's C++ client reads no such answer
            assert parameters["binary_data_size"] == 0
    only_input = await client.call("infer", "double", [client.input()])
    np.testing.assert_array_equal(only_input.as_numpy("y"), X * 20)


async def test_tensors_of_a_request_and_of_a_region_are_mixed(client: Client, region: Any) -> None:
    await client.call("register_system_shared_memory", "region", f"/{PREFIX}a", 4096)
    texts = np.array([["a", "bc", "ü"]], object)
    raw = serialize_byte_tensor(texts).item()
    region._mpsm_handle.buf[512 : 512 + len(raw)] = raw
    given = client.module.InferInput("in_1", [1, 3], "FP32")
    given.set_data_from_numpy(X[:1])
    shared = client.input(512, len(raw), name="in_8", shape=(1, 3), datatype="BYTES")
    for inputs in ([given, shared], [shared, given]):
        told = await client.call(
            "infer",
            "echo",
            inputs,
            outputs=[
                client.output(1024, 100, "out_8"),
                client.module.InferRequestedOutput("out_1"),
            ],
        )
        np.testing.assert_array_equal(told.as_numpy("out_1"), X[:1])
        made = shm.get_contents_as_numpy(region, np.object_, [1, 3], 1024)
        assert [each.decode() for each in made.ravel()] == ["a", "bc", "ü"]


async def test_overlapping_places_are_read_before_they_are_written(
    client: Client, region: Any
) -> None:
    await client.call("register_system_shared_memory", "region", f"/{PREFIX}a", 4096)
    await client.call("infer", "double", [client.input()], outputs=[client.output(4, X.nbytes)])
    made = shm.get_contents_as_numpy(region, np.float32, [7])
    np.testing.assert_array_equal(made, [1, *(X * 2).ravel()])


WRONG: dict[str, tuple[Callable[[Client], tuple[Any, Any]], str]] = {
    "too few bytes": (lambda it: (it.input(size=20), None), r"inputs\[0\].*20 bytes; FP32"),
    "too many": (lambda it: (it.input(size=28), None), r"inputs\[0\].*28 bytes; FP32"),
    "beyond": (lambda it: (it.input(4090), None), r"inputs\[0\].*are not all in"),
    "far beyond": (lambda it: (it.input(1 << 62, 1 << 62), None), r"are not all in|whole number"),
    "another shape": (lambda it: (it.input(shape=(3, 2)), None), r"inputs\[0\]\.shape"),
    "another type": (lambda it: (it.input(datatype="INT32"), None), r"inputs\[0\]\.datatype"),
    "an unknown input": (lambda it: (it.input(name="q"), None), r"inputs\[0\]\.name"),
    "little room": (lambda it: (it.input(), [it.output(0, 23)]), r"outputs\[0\].*24 bytes"),
    "no room": (lambda it: (it.input(), [it.output(4090, 24)]), r"outputs\[0\].*not all in"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_is_wrong_with_a_place_is_told(client: Client, region: Any, what: str) -> None:
    await client.call("register_system_shared_memory", "region", f"/{PREFIX}a", 4096)
    make, message = WRONG[what]
    given, outputs = make(client)
    with pytest.raises(InferenceServerException, match=message) as refused:
        await client.call("infer", "double", [given], outputs=outputs)
    assert str(refused.value.status()) in ("400", "StatusCode.INVALID_ARGUMENT")
    told = await client.call("infer", "double", [client.input()])
    np.testing.assert_array_equal(told.as_numpy("y"), X * 2)


async def test_a_region_that_is_not_registered_is_refused(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="no region 'region' is registered"):
        await client.call("infer", "double", [client.input()])


async def test_memory_of_another_prefix_is_not_opened(client: Client) -> None:
    made = shm.create_shared_memory_region("other", f"/other_{PREFIX}", 64, create_only=True)
    try:
        with pytest.raises(InferenceServerException, match="begins with another prefix"):
            await client.call("register_system_shared_memory", "r", f"/other_{PREFIX}", 64)
    finally:
        shm.destroy_shared_memory_region(made)


async def test_memory_that_shrinks_or_vanishes_does_not_end_the_server(
    client: Client, region: Any
) -> None:
    await client.call("register_system_shared_memory", "region", f"/{PREFIX}a", 4096)
    os.truncate(Path("/dev/shm") / f"{PREFIX}a", 0)
    for outputs in (None, [client.output(0, 24)]):
        with pytest.raises(InferenceServerException, match="not there any more"):
            await client.call("infer", "double", [client.input()], outputs=outputs)
    os.truncate(Path("/dev/shm") / f"{PREFIX}a", 4096)
    (Path("/dev/shm") / f"{PREFIX}a").rename(Path("/dev/shm") / f"{PREFIX}b")
    try:
        shm.set_shared_memory_region(region, [X])
        told = await client.call("infer", "double", [client.input()])
        np.testing.assert_array_equal(told.as_numpy("y"), X * 2)
        await client.call("unregister_system_shared_memory")
        with pytest.raises(InferenceServerException, match="cannot be opened"):
            await client.call("register_system_shared_memory", "region", f"/{PREFIX}a", 4096)
    finally:
        (Path("/dev/shm") / f"{PREFIX}b").rename(Path("/dev/shm") / f"{PREFIX}a")


async def test_more_than_a_body_may_have_is_refused_before_it_is_read(client: Client) -> None:
    size = 1 << 20
    made = shm.create_shared_memory_region("region", f"/{PREFIX}big", size, create_only=True)
    try:
        await client.call("register_system_shared_memory", "region", f"/{PREFIX}big", size)
        both = [
            client.input(0, size, name=name, shape=(1, size // 4), datatype=datatype)
            for name, datatype in (("in_1", "FP32"), ("in_8", "BYTES"))
        ]
        with pytest.raises(InferenceServerException, match="2097152 bytes of shared memory"):
            await client.call("infer", "echo", both)
        rows = size // 12
        told = await client.call(
            "infer",
            "double",
            [client.input(0, rows * 12, shape=(rows, 3))],
            outputs=[client.output(0, size)],
        )
        assert told is not None
    finally:
        shm.destroy_shared_memory_region(made)


@pytest.mark.parametrize("kind", ["grpc"])
def test_answers_of_a_stream_are_written_too(serving: Serving, region: Any, kind: str) -> None:
    answers: list[tuple[Any, Any]] = []
    client = Client(kind, serving)
    asyncio.run(client.call("register_system_shared_memory", "region", f"/{PREFIX}a", 4096))
    client.raw.start_stream(lambda result, error: answers.append((result, error)))
    client.raw.async_stream_infer(
        "double", [client.input()], outputs=[client.output(128, X.nbytes)]
    )
    client.raw.stop_stream()  # returns when all is answered
    assert [error for _, error in answers] == [None]
    made = shm.get_contents_as_numpy(region, np.float32, X.shape, 128)
    np.testing.assert_array_equal(made, X * 2)
    asyncio.run(client.call("unregister_system_shared_memory"))
    client.raw.close()


@pytest.mark.parametrize("is_on", [False, True])
async def test_an_application_has_it_only_where_it_is_switched_on(
    tmp_path: Path, region: Any, *, is_on: bool
) -> None:
    place = {"shared_memory_region": "region", "shared_memory_byte_size": X.nbytes}
    entry = {"name": "x", "datatype": "FP32", "shape": [2, 3], "parameters": place}
    with aioinfer.Core() as core:
        network = core.load_network(scaled(tmp_path / "m.onnx", 2.0), "REFERENCE", name="m")
        prefix = {"shared_memory_prefixes": ["q", PREFIX]} if is_on else {}
        client = AsgiClient(app(network, limits=Limits(), **prefix))
        told = await client.get("/v2")
        assert ("system_shared_memory" in told.json()["extensions"]) is is_on
        registered = await client.post(
            "/v2/systemsharedmemory/region/region/register",
            {"key": f"/{PREFIX}a", "offset": 0, "byte_size": 4096},
        )
        assert registered.status == (200 if is_on else 404)
        reply = await client.post("/v2/models/m/infer", {"inputs": [entry]})
        if is_on:
            assert reply.json()["outputs"][0]["data"] == (X * 2).ravel().tolist()
        else:
            assert (reply.status, reply.json()["error"]) == (
                400,
                "inputs[0].parameters.shared_memory_region: is not served here",
            )
