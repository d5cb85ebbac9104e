"""Triton's four clients, blocking and asyncio, over HTTP and gRPC, for all that the server has."""

from __future__ import annotations

import asyncio
import queue
import warnings
from collections.abc import Iterator
from inspect import isawaitable
from typing import Any

import numpy as np
import pytest

from unit.serving.datatypes import assert_echoed, every_datatype
from unit.serving.models import OF_DATATYPE, counter, echo, running_sum, scaled
from unit.serving.serve_process import Serving, serve

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its messages are older than the runtime
    http = pytest.importorskip("tritonclient.http")
    http_aio = pytest.importorskip("tritonclient.http.aio")
    grpc = pytest.importorskip("tritonclient.grpc")
    grpc_aio = pytest.importorskip("tritonclient.grpc.aio")
    from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::pytest.PytestWarning"
)

CLIENTS = {"http": http, "http aio": http_aio, "grpc": grpc, "grpc aio": grpc_aio}
X = np.float32([[1, 2, 3]])
STATE = '[properties]\nSTATE = { past = "present" }\n'
GENERATE = '[generate]\nfeed = { next = "token" }\nsteps = 3\n'


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    root = tmp_path_factory.mktemp("models")
    for name in ("double", "other"):
        scaled(root / name / "1" / "model.onnx", 2.0)
    scaled(root / "double" / "3" / "model.onnx", 3.0)
    (root / "double" / "model.toml").write_text('versions = "all"\n')
    echo(root / "echo" / "1" / "model.onnx")
    running_sum(root / "sum" / "1" / "model.onnx")
    (root / "sum" / "model.toml").write_text(STATE)
    counter(root / "counter" / "1" / "model.onnx")
    (root / "counter" / "model.toml").write_text(f"{STATE}{GENERATE}")
    with serve(root, "-d", "REFERENCE", "--grpc-port", "0", "--allow-management") as started:
        yield started


class Client:
    """One of the four, whose calls are awaited whether or not it blocks."""

    def __init__(self, kind: str, serving: Serving) -> None:
        self.module, self.is_grpc, self.is_aio = CLIENTS[kind], "grpc" in kind, "aio" in kind
        place = serving.addresses[self.is_grpc].partition("://")[2]
        options = {} if self.is_grpc or self.is_aio else {"concurrency": 8}
        self.raw = self.module.InferenceServerClient(place, **options)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.of(self.raw.close())

    async def of(self, told: Any) -> Any:
        return await told if isawaitable(told) else told

    async def call(self, name: str, *given: Any, **named: Any) -> Any:
        return await self.of(getattr(self.raw, name)(*given, **named))

    async def document(self, name: str, *given: Any) -> Any:
        """Return what a call tells as JSON has it."""
        return await self.call(name, *given, **({"as_json": True} if self.is_grpc else {}))

    def input(self, name: str, array: np.ndarray[Any, Any], datatype: str) -> Any:
        made = self.module.InferInput(name, list(array.shape), datatype)
        made.set_data_from_numpy(array)
        return made

    async def infer(self, model: str, array: np.ndarray[Any, Any] = X, **named: Any) -> Any:
        return await self.call("infer", model, [self.input("x", array, "FP32")], **named)


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest, serving: Serving) -> Any:
    async with Client(request.param, serving) as opened:
        yield opened


async def test_health_and_metadata(client: Client) -> None:
    assert await client.call("is_server_live")
    assert await client.call("is_server_ready")
    for version, expected in (("", True), ("3", True), ("2", False)):
        assert await client.call("is_model_ready", "double", version) is expected
    server = await client.document("get_server_metadata")
    assert server["name"] == "aioinfer"
    assert {"sequence", "statistics", "model_repository"} <= set(server["extensions"])
    model = await client.document("get_model_metadata", "double", "3")
    assert (model["name"], model["versions"]) == ("double", ["1", "3"])
    (given,) = model["inputs"]
    assert (given["name"], given["datatype"], [int(each) for each in given["shape"]]) == (
        "x",
        "FP32",
        [-1, 3],
    )


async def test_configurations(client: Client) -> None:
    told = await client.document("get_model_config", "counter")
    made = told["config"] if client.is_grpc else told
    assert (made["name"], made["backend"]) == ("counter", "aioinfer")
    assert made["model_transaction_policy"] == {"decoupled": True}
    told = await client.document("get_model_config", "echo", "1")
    made = told["config"] if client.is_grpc else told
    kinds = [each["data_type"].removeprefix("TYPE_") for each in made["input"]]
    assert kinds == [*list(OF_DATATYPE)[:-1], "STRING"]
    assert [[int(each) for each in entry["dims"]] for entry in made["output"]] == [[-1, -1]] * 14
    assert int(made.get("max_batch_size", 0)) == 0
    with pytest.raises(InferenceServerException, match="there is no model 'nothing'"):
        await client.document("get_model_config", "nothing")


async def test_statistics(client: Client) -> None:
    async def inferred() -> int:
        told = await client.document("get_inference_statistics", "double", "1")
        (entry,) = told["model_stats"]
        return int(entry.get("inference_count", 0))

    before = await inferred()
    await client.infer("double", model_version="1")
    assert await inferred() == before + 1
    (entry,) = (await client.document("get_inference_statistics", "double", "1"))["model_stats"]
    for part in ("success", "compute_input", "compute_infer", "compute_output"):
        assert int(entry["inference_stats"][part]["count"]) == before + 1, part
    everything = await client.document("get_inference_statistics")
    assert len(everything["model_stats"]) == 6


async def test_models_come_and_go(client: Client) -> None:
    async def state() -> str:
        index = await client.document("get_model_repository_index")
        entries = index["models"] if client.is_grpc else index
        (found,) = [each for each in entries if each["name"] == "other"]
        told: str = found["state"]
        return told

    assert await state() == "READY"
    await client.call("unload_model", "other")
    assert await state() == "UNAVAILABLE"
    with pytest.raises(InferenceServerException, match="not ready"):
        await client.infer("other")
    await client.call("load_model", "other")
    assert (await state(), (await client.infer("other")).as_numpy("y").tolist()) == (
        "READY",
        [[2, 4, 6]],
    )


async def test_every_datatype(client: Client) -> None:
    arrays, inputs = every_datatype(client.module.InferInput)
    assert_echoed(await client.call("infer", "echo", inputs), arrays)


async def test_ids_versions_outputs_parameters_and_classes(client: Client) -> None:
    wanted = client.module.InferRequestedOutput("y")
    told = await client.infer(
        "double",
        model_version="1",
        outputs=[wanted],
        request_id="r",
        priority=1,
        timeout=60_000_000,
        parameters={"anything": "goes"},
    )
    np.testing.assert_array_equal(told.as_numpy("y"), X * 2)
    response = told.get_response()
    assert (response.id if client.is_grpc else response["id"]) == "r"
    classes = client.module.InferRequestedOutput("y", class_count=1)
    told = await client.infer("double", model_version="1", outputs=[classes])
    assert told.as_numpy("y").ravel().tolist() == [b"6.000000:2"]


async def test_many_at_once(client: Client) -> None:
    async def one(number: int) -> Any:
        return await client.infer("double", X * number, model_version="1")

    numbers = range(32)
    if client.is_aio:
        told = await asyncio.gather(*map(one, numbers))
    elif client.is_grpc:
        answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        for number in numbers:
            client.raw.async_infer(
                "double",
                [client.input("x", X * number, "FP32")],
                lambda result, error: answers.put((result, error)),
                model_version="1",
                request_id=str(number),
            )
        found = [answers.get(timeout=60) for _ in numbers]
        assert not any(error for _, error in found)
        told = [each for each, _ in sorted(found, key=lambda it: int(it[0].get_response().id))]
    else:
        waiting = [
            client.raw.async_infer(
                "double", [client.input("x", X * number, "FP32")], model_version="1"
            )
            for number in numbers
        ]
        told = [each.get_result() for each in waiting]
    for number, each in zip(numbers, told, strict=True):
        np.testing.assert_array_equal(each.as_numpy("y"), X * number * 2)


async def test_a_sequence_keeps_its_state(client: Client) -> None:
    names = range(1, 4)
    for step in range(3):
        for name in names:
            told = await client.infer(
                "sum", X * name, sequence_id=name, sequence_start=not step, sequence_end=step == 2
            )
            np.testing.assert_array_equal(told.as_numpy("y"), X * name * (step + 1))
    with pytest.raises(InferenceServerException, match="is not open"):
        await client.infer("sum", sequence_id=1)


async def test_what_is_wrong_is_told_with_its_field(client: Client) -> None:
    with pytest.raises(InferenceServerException, match=r"inputs\[0\]\.shape"):
        await client.infer("double", X[:, :2])
    with pytest.raises(InferenceServerException, match="there is no model 'nothing'"):
        await client.infer("nothing")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("get_trace_settings", ()),
        ("get_log_settings", ()),
        ("get_system_shared_memory_status", ()),
        ("register_system_shared_memory", ("region", "/region", 64)),
        ("get_cuda_shared_memory_status", ()),
    ],
)
async def test_what_is_no_extension_of_the_server_is_refused(
    client: Client, name: str, given: tuple[Any, ...]
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        await client.call(name, *given)
    assert str(caught.value.status()) in ("404", "405", "StatusCode.UNIMPLEMENTED")


@pytest.mark.parametrize("steps", [1, 3])
def test_a_blocking_stream_answers_each_step(serving: Serving, steps: int) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    place = serving.addresses[1].partition("://")[2]
    with grpc.InferenceServerClient(place) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        given = grpc.InferInput("token", [1, 1], "INT64")
        given.set_data_from_numpy(np.int64([[5]]))
        client.async_stream_infer("counter", [given], parameters={"max_steps": steps})
        told = [answers.get(timeout=60) for _ in range(steps)]
        client.stop_stream()
    assert [int(each.as_numpy("next")[0, 0]) for each, _ in told] == [6, 7, 8][:steps]
    lasts = [each.get_response().parameters["triton_final_response"].bool_param for each, _ in told]
    assert lasts == [False] * (steps - 1) + [True]
