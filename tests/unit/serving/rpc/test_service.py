"""gRPC with Triton's own client, on a loopback socket in the same process and loop."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from anyio.lowlevel import checkpoint
from google.protobuf import descriptor_pb2

import aioinfer
from aioinfer.serving import Generation
from aioinfer.serving.inference import Inference
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.repository.fixed import FixedRepository
from aioinfer.serving.rpc.proto_text import message_classes, methods
from aioinfer.serving.rpc.service import make_server
from aioinfer.testing import MockDevices
from unit.serving.datatypes import assert_echoed, every_datatype
from unit.serving.models import STATE, counter, echo, running_sum, scaled

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its messages are older than the runtime
    aio = pytest.importorskip("tritonclient.grpc.aio")
    pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")
    model_config_pb2 = pytest.importorskip("tritonclient.grpc.model_config_pb2")

from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Started:
    def __init__(
        self,
        repository: FixedRepository,
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.inference = Inference(repository, limits or Limits())
        self.server = make_server(self.inference, token)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    async def __aenter__(self) -> Any:
        await self.server.start()
        self.client = aio.InferenceServerClient(f"127.0.0.1:{self.port}")
        return self.client

    async def __aexit__(self, *error: object) -> None:
        await self.client.close()
        await self.server.stop(None)


@pytest.fixture
async def started(core: aioinfer.Core, tmp_path: Path) -> AsyncIterator[Started]:
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        made = Started(FixedRepository(network))
        async with made:
            yield made


@pytest.fixture
def client(started: Started) -> Any:
    return started.client


@pytest.fixture
def port(started: Started) -> int:
    return started.port


def x_of(array: np.ndarray) -> Any:
    given = aio.InferInput("x", list(array.shape), "FP32")
    given.set_data_from_numpy(array)
    return given


def test_the_messages_are_the_protocols() -> None:
    """Each field has the number, type and label that it has in the client's messages."""
    nested = {
        "TensorMetadata": pb2.ModelMetadataResponse.TensorMetadata,
        "InferInputTensor": pb2.ModelInferRequest.InferInputTensor,
        "InferRequestedOutputTensor": pb2.ModelInferRequest.InferRequestedOutputTensor,
        "InferOutputTensor": pb2.ModelInferResponse.InferOutputTensor,
        "ModelIndex": pb2.RepositoryIndexResponse.ModelIndex,
        "RegionStatus": pb2.SystemSharedMemoryStatusResponse.RegionStatus,
    }
    classes = message_classes()
    for name, made in classes.items():
        client = pb2 if hasattr(pb2, name) else model_config_pb2
        theirs = (nested.get(name) or getattr(client, name)).DESCRIPTOR.fields_by_name
        for field in made.DESCRIPTOR.fields:
            other = theirs[field.name]
            assert (field.number, field.type) == (other.number, other.type), (name, field.name)
            assert field.is_repeated == other.is_repeated
    service = pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    proto = pb2.DESCRIPTOR.serialized_pb
    streams = {
        method.name: (method.client_streaming, method.server_streaming)
        for method in descriptor_pb2.FileDescriptorProto.FromString(proto).service[0].method
    }
    for call, request, response, is_stream in methods():
        assert service[call].input_type.name == request
        assert service[call].output_type.name == response
        assert streams[call] == (is_stream, is_stream)


async def test_server_and_models_are_described(client: Any) -> None:
    assert await client.is_server_live()
    assert await client.is_server_ready()
    assert await client.is_model_ready("double", "1")
    told = await client.get_server_metadata()
    assert told.name == "aioinfer"
    assert "statistics" in told.extensions
    model = await client.get_model_metadata("double")
    assert (model.name, list(model.versions)) == ("double", ["1"])
    assert (model.inputs[0].datatype, list(model.inputs[0].shape)) == ("FP32", [-1, 3])
    index = await client.get_model_repository_index()
    assert [(item.name, item.state) for item in index.models] == [("double", "READY")]


async def test_many_infer_at_once(client: Any) -> None:
    arrays = [np.full((1, 3), number, np.float32) for number in range(50)]
    told = await asyncio.gather(
        *(client.infer("double", [x_of(array)], request_id=str(array[0, 0])) for array in arrays)
    )
    for array, answer in zip(arrays, told, strict=True):
        np.testing.assert_array_equal(answer.as_numpy("y"), array * 2)
        assert answer.get_response().id == str(array[0, 0])
    stats = await client.get_inference_statistics("double")
    assert stats.model_stats[0].inference_count == 50
    assert stats.model_stats[0].inference_stats.success.count == 50
    assert stats.model_stats[0].last_inference > 0


async def test_every_datatype_goes_there_and_back(core: aioinfer.Core, tmp_path: Path) -> None:
    arrays, inputs = every_datatype(aio.InferInput)
    with core.load_network(echo(tmp_path / "echo.onnx"), "REFERENCE") as network:
        async with Started(FixedRepository(network)) as client:
            told = await client.infer("echo", inputs)
    assert_echoed(told, arrays)


async def test_what_is_wrong_has_its_code(client: Any) -> None:
    short = x_of(np.zeros((1, 2), np.float32))
    for model, given, code, told in (
        ("double", short, "INVALID_ARGUMENT", r"inputs\[0\]\.shape"),
        ("triple", short, "NOT_FOUND", "no model 'triple'"),
    ):
        with pytest.raises(InferenceServerException, match=told) as refused:
            await client.infer(model, [given])
        assert refused.value.status() == f"StatusCode.{code}"
    with pytest.raises(InferenceServerException) as refused:
        await client.load_model("double")
    assert refused.value.status() == "StatusCode.PERMISSION_DENIED"


async def test_a_token_is_wanted(core: aioinfer.Core, tmp_path: Path) -> None:
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        async with Started(FixedRepository(network), "secret") as client:
            assert await client.is_server_live()
            with pytest.raises(InferenceServerException, match="token"):
                await client.get_server_metadata()
            headers = {"authorization": "Bearer secret"}
            assert (await client.get_server_metadata(headers=headers)).name == "aioinfer"


INFER = "/inference.GRPCInferenceService/ModelInfer"


async def sent(
    port: int, data: bytes, headers: tuple[tuple[str, str], ...] = ()
) -> tuple[str, str]:
    """Send bytes as a message; return the code and the text of the answer."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            await channel.unary_unary(INFER)(data, metadata=headers)
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""
        return "OK", ""


async def test_a_message_that_is_none_is_an_invalid_argument(client: Any, port: int) -> None:
    for data in (b"\xff" * 20, b"\x2a\x05a", b"\x0a\x02\xff\xff"):
        code, told = await sent(port, data)
        assert (code, told.startswith("the message is no ")) == ("INVALID_ARGUMENT", True)
    code, told = await sent(port, b"\x2a\x00" * 5000)
    assert (code, "more fields" in told) == ("RESOURCE_EXHAUSTED", True)
    assert (await sent(port, b""))[0] == "NOT_FOUND"  # a message without a model's name


async def test_a_message_that_is_too_long_is_refused(core: aioinfer.Core, tmp_path: Path) -> None:
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        made = Started(FixedRepository(network), limits=Limits(body_bytes=1000))
        async with made:
            assert (await sent(made.port, bytes(1001)))[0] == "RESOURCE_EXHAUSTED"


async def test_without_the_token_no_message_is_received(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    """The refusal does not wait for it, and it takes no memory."""
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        made = Started(FixedRepository(network), "secret", Limits(bodies_bytes=0))
        async with made, grpc.aio.insecure_channel(f"127.0.0.1:{made.port}") as channel:
            call = channel.stream_unary(INFER)()  # its one message never comes
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code().name == "UNAUTHENTICATED"
            good = (("authorization", "Bearer secret"),)
            assert (await sent(made.port, bytes(9), good))[0] == "RESOURCE_EXHAUSTED"
            assert (await sent(made.port, bytes(9), (*good, *good)))[0] == "UNAUTHENTICATED"


async def test_a_message_that_does_not_come_ends_its_call(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        made = Started(FixedRepository(network), limits=Limits(body_s=0.01))
        async with made, grpc.aio.insecure_channel(f"127.0.0.1:{made.port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="did not come within"):
                await channel.stream_unary(INFER)()


async def test_a_stream_whose_answers_are_not_read_ends(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    with core.load_network(scaled(tmp_path / "same.onnx", 1.0), "REFERENCE") as network:
        repository = FixedRepository(network, {"same": Generation({"y": "x"}, 100)})
        made = Started(repository, limits=Limits(body_s=0.05))
        async with made, grpc.aio.insecure_channel(f"127.0.0.1:{made.port}") as channel:
            array = np.ones((100_000, 3), np.float32)  # as an answer 1.2 MB, a hundred times
            request = pb2.ModelInferRequest(model_name="same", raw_input_contents=[bytes(array)])
            request.inputs.add(name="x", datatype="FP32", shape=array.shape)
            call = channel.stream_stream(INFER.replace("ModelInfer", "ModelStreamInfer"))()
            await call.write(request.SerializeToString())
            await until(lambda: network.statistics().finished_request_count > 0)
            held = made.inference
            await until(lambda: not held.sequences.open_count and not held.bodies.taken_bytes)
            with pytest.raises(grpc.aio.AioRpcError, match="was not read within") as ended:
                async for _ in call:
                    pass
            assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert network.statistics().finished_request_count < 100


async def test_a_stream_that_asks_nothing_gives_its_place_back(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        limits = Limits(stream_idle_s=0.01, call_count=1)
        made = Started(FixedRepository(network), limits=limits)
        async with made, grpc.aio.insecure_channel(f"127.0.0.1:{made.port}") as channel:
            call = channel.stream_stream(INFER.replace("ModelInfer", "ModelStreamInfer"))()
            with pytest.raises(grpc.aio.AioRpcError, match="no request came within") as ended:
                await call.read()
            assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_stream_that_ends_while_it_is_idle_has_succeeded(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as network:
        made = Started(FixedRepository(network))
        async with made, grpc.aio.insecure_channel(f"127.0.0.1:{made.port}") as channel:
            call = channel.stream_stream(INFER.replace("ModelInfer", "ModelStreamInfer"))()
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK


async def test_more_calls_than_are_taken_are_refused_at_once(tmp_path: Path) -> None:
    devices = MockDevices(1)
    with aioinfer.Core() as core:
        core.register_plugin("MOCK", devices.make_plugin)
        with core.load_network(scaled(tmp_path / "held.onnx", 2.0), "MOCK") as network:
            made = Started(FixedRepository(network), limits=Limits(call_count=1))
            async with made as client:
                given = x_of(np.ones((1, 3), np.float32))
                call = asyncio.ensure_future(client.infer("held", [given]))
                await until(lambda: network.statistics().running_run_count == 1)
                assert (await sent(made.port, b""))[0] == "RESOURCE_EXHAUSTED"
                devices[0].held.release()
                np.testing.assert_array_equal((await call).as_numpy("y"), [[2, 2, 2]])


async def test_deadlines_overload_and_cancels_reach_the_network(tmp_path: Path) -> None:
    devices = MockDevices(1)
    with aioinfer.Core() as core:
        core.register_plugin("MOCK", devices.make_plugin)
        path = scaled(tmp_path / "held.onnx", 2.0)
        device = devices[0]
        device.slot_count = 1
        with core.load_network(path, "MOCK", {"MAX_QUEUED_REQUESTS": 0}) as network:
            async with Started(FixedRepository(network)) as client:
                array = np.ones((1, 3), np.float32)
                with pytest.raises(InferenceServerException) as late:
                    await client.infer("held", [x_of(array)], timeout=200_000)
                assert late.value.status() == "StatusCode.DEADLINE_EXCEEDED"
                device.held.release()  # what was stopped leaves its slot
                call = asyncio.ensure_future(client.infer("held", [x_of(array)]))
                await until(lambda: network.statistics().running_run_count == 1)
                with pytest.raises(InferenceServerException) as refused:
                    await client.infer("held", [x_of(array)])
                assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
                call.cancel()
                await until(lambda: network.statistics().cancelled_request_count == 1)
                device.held.release()


async def until(condition: Any) -> None:
    """Turn the loop until it is so; the test's own timeout is the bound."""
    while not condition():
        await checkpoint()


async def streamed(client: Any, *requests: dict[str, Any]) -> list[Any]:
    """Send requests over one stream, and return what comes until it ends."""

    async def given() -> AsyncIterator[dict[str, Any]]:
        for request in requests:
            yield request

    return [told async for told in client.stream_infer(given())]


def token_of(value: int) -> Any:
    given = aio.InferInput("token", [1, 1], "INT64")
    given.set_data_from_numpy(np.int64([[value]]))
    return given


async def test_a_stream_answers_each_step(core: aioinfer.Core, tmp_path: Path) -> None:
    generation = Generation({"next": "token"}, 3)
    with core.load_network(counter(tmp_path / "counter.onnx"), "REFERENCE", STATE) as network:
        async with Started(FixedRepository(network, {"counter": generation})) as client:
            one = {"model_name": "counter", "inputs": [token_of(1)], "request_id": "a"}
            two = {"model_name": "counter", "inputs": [token_of(7)], "request_id": "b"}
            wrong = {"model_name": "other", "inputs": [token_of(7)], "request_id": "c"}
            told = await streamed(client, one, wrong, two)
    finals = []
    values = []
    for result, error in told:
        if error is not None:
            assert "no model 'other'" in str(error)
            values.append(-1)
            continue
        response = result.get_response()
        values.append(int(result.as_numpy("next")[0, 0]))
        finals.append((response.id, response.parameters["triton_final_response"].bool_param))
    assert values == [2, 3, 4, -1, 8, 9, 10]
    last = [False, False, True]
    assert finals == [*(("a", end) for end in last), *(("b", end) for end in last)]


async def test_a_sequence_over_a_stream_and_over_calls(core: aioinfer.Core, tmp_path: Path) -> None:
    path = running_sum(tmp_path / "sums.onnx")
    with core.load_network(path, "REFERENCE", STATE) as network:
        async with Started(FixedRepository(network)) as client:
            one = {"model_name": "sums", "inputs": [x_of(np.ones((1, 3), np.float32))]}
            begin = {**one, "sequence_id": 5, "sequence_start": True}
            told = await streamed(client, begin, {**one, "sequence_id": 5})
            assert [result.as_numpy("y")[0, 0] for result, _ in told] == [1, 2]
            last = await client.infer(
                "sums", [x_of(np.ones((1, 3), np.float32))], sequence_id=5, sequence_end=True
            )
            assert last.as_numpy("y")[0, 0] == 3
            ((_, error),) = await streamed(client, {**one, "sequence_id": 5})
            assert "sequence 5 is not open" in str(error)
