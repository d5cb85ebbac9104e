"""The gRPC service: the protocol's calls, each a few lines around what is pure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
from anyio import CapacityLimiter, to_thread
from google.protobuf.message import DecodeError

from ... import __version__
from ...runtime.loops.inline_turn import begin_turn
from ..failures import CLIENT_GONE, refusal_of
from ..inference import Inference
from ..protocol.call import Answer, InferCall
from ..protocol.describing import model_configuration, model_metadata
from ..protocol.in_flight import BodyShare
from ..protocol.limits import AT_ONCE_BYTES, VIEWED_BYTES
from ..protocol.refusal import RefusedError
from ..protocol.statistics import counts_of, statistics_entry
from .admission import Admission
from .infer_messages import INFER_DEPTH, read_infer_message, write_infer_message
from .proto_text import message_classes, methods
from .shared_memory import region_calls
from .time_limit import TimeLimit
from .watch import CallFacts, RpcWatch
from .wire import is_short, refuse_too_many_fields

__all__ = ["make_server", "status_code"]

Context = Any  # grpc.aio has no types of its own
Call = Callable[[Any, Any, Context], Awaitable[None]]

SERVICE = "inference.GRPCInferenceService"
_IDLE_MS = 300_000  # clients connect anew by themselves
_READER_COUNT = 2

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    CLIENT_GONE: grpc.StatusCode.CANCELLED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


def status_code(error: RefusedError) -> grpc.StatusCode:
    """Return gRPC's code for a refusal; what may be tried again soon is RESOURCE_EXHAUSTED."""
    if error.retry_after_s is not None:
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    return _CODES.get(error.status, grpc.StatusCode.INTERNAL)


def make_server(inference: Inference, token: str | None) -> Any:
    """Make a ``grpc.aio`` server that answers the protocol's calls; it has no port yet."""
    service, limits = _Service(inference), inference.limits
    server = grpc.aio.server(
        interceptors=[] if token is None else [Admission(token, service.watch)],
        maximum_concurrent_rpcs=limits.call_count,
        options=[
            ("grpc.max_receive_message_length", limits.body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", limits.head_bytes),
            ("grpc.max_concurrent_streams", limits.call_count),
            ("grpc.max_allowed_incoming_connections", limits.connection_count),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
            ("grpc.server_handshake_timeout_ms", round(limits.head_s * 1000)),
            ("grpc.so_reuseport", 0),
        ],
    )
    handler = grpc.method_handlers_generic_handler(SERVICE, service.handlers())
    server.add_generic_rpc_handlers((handler,))
    return server


class _StillError(Exception):
    """A stream whose client neither asks nor reads: it ends, and nothing is held for it."""


class _Service:
    """What is done for each call: fill a response from a request."""

    def __init__(self, inference: Inference) -> None:
        self._inference, self._repository = inference, inference.repository
        self._limits, self._bodies = inference.limits, inference.bodies
        self.watch = RpcWatch(inference.access_log, inference.spans)
        self._readers = CapacityLimiter(_READER_COUNT)
        self._receiving = TimeLimit(self._limits.body_s)
        self._calls: dict[str, Call] = {
            "ServerLive": self.server_live,
            "ServerReady": self.server_ready,
            "ModelReady": self.model_ready,
            "ServerMetadata": self.server_metadata,
            "ModelMetadata": self.model_metadata,
            "ModelConfig": self.model_config,
            "ModelInfer": self.model_infer,
            "ModelStatistics": self.model_statistics,
            "RepositoryIndex": self.repository_index,
            "RepositoryModelLoad": self.repository_model_load,
            "RepositoryModelUnload": self.repository_model_unload,
        }
        if inference.regions is not None:
            self._calls |= region_calls(inference.regions)

    def handlers(self) -> dict[str, Any]:
        """Return grpc's handler of each call, by name."""
        classes = message_classes()
        handlers: dict[str, Any] = {}
        for name, request, response, is_stream in methods():
            made, told = classes[request], classes[response]
            if is_stream:
                handlers[name] = grpc.stream_stream_rpc_method_handler(
                    self._streaming(name, made, told), response_serializer=told.SerializeToString
                )
            elif name in self._calls:
                handlers[name] = grpc.stream_unary_rpc_method_handler(
                    self._answering(name, made, told)
                )
        return handlers

    def _streaming(self, name: str, request: Any, response: Any) -> Any:
        """Make the handler of ModelStreamInfer: the requests of a stream run one after another."""

        async def streaming(messages: Any, context: Context) -> None:
            with self.watch.around(name, context) as facts:
                try:
                    async for data in self._asked(messages):
                        facts.received_bytes += len(data)
                        await self._answer_one(data, request, response, context, facts)
                    facts.code = "OK"
                except _StillError as error:
                    facts.code = grpc.StatusCode.DEADLINE_EXCEEDED.name
                    await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error))

        return streaming

    async def _asked(self, messages: Any) -> AsyncIterator[bytes]:
        """Yield the messages of a stream, which is one of the calls under way while it is idle."""
        while True:
            try:
                async with asyncio.timeout(self._limits.stream_idle_s):
                    data = await anext(aiter(messages), None)
            except TimeoutError:
                text = f"no request came within {self._limits.stream_idle_s:g} s"
                raise _StillError(text) from None
            if data is None:
                return
            yield data

    async def _answer_one(
        self, data: bytes, request: Any, response: Any, context: Context, facts: CallFacts
    ) -> None:
        """Send the answers to one message of a stream, the last of which may be an error."""
        identity = ""
        try:
            with self._bodies.share() as share:
                message = await self._parsed(data, request, share)
                identity = message.id
                facts.model, facts.version = message.model_name, message.model_version
                call = await self._read_call(message)
                limit_s = context.time_remaining()
                answers = self._inference.stream(facts.model, facts.version, call, limit_s)
                async with aclosing(answers):
                    async for told in answers:
                        answer = response()
                        await self._write(told, answer.infer_response)
                        await self._send(answer, context, facts)
        except _StillError:
            raise
        except Exception as error:
            answer = response(error_message=str(refusal_of(error)))
            answer.infer_response.id = identity
            await self._send(answer, context, facts)

    async def _send(self, answer: Any, context: Context, facts: CallFacts) -> None:
        """Send one answer of a stream; raises _StillError where its client reads too slowly."""
        facts.sent_bytes += answer.ByteSize()
        try:
            async with asyncio.timeout(self._limits.body_s):
                await context.write(answer)
        except TimeoutError:
            raise _StillError(f"an answer was not read within {self._limits.body_s:g} s") from None

    def _answering(self, name: str, request: Any, response: Any) -> Any:
        """Make a handler that receives its message itself: under bounds of time and memory."""
        call, named = self._calls[name], _model_fields(request)

        async def answering(messages: Any, context: Context) -> bytes:
            begin_turn()
            with self.watch.around(name, context) as facts:
                try:
                    with self._bodies.share() as share:
                        answer = response()
                        message = await self._read(context, request, share, facts)
                        facts.model, facts.version = (
                            getattr(message, field) if field else "" for field in named
                        )
                        await call(message, answer, context)
                        written: bytes = answer.SerializeToString()
                        facts.sent_bytes = len(written)
                        facts.code = "OK"
                except Exception as error:
                    refused = refusal_of(error)
                    code = status_code(refused)
                    facts.code = code.name
                    await context.abort(code, str(refused))
            return written

        return answering

    async def _read(
        self, context: Context, request: Any, share: BodyShare, facts: CallFacts
    ) -> Any:
        try:
            with self._receiving.stay():
                data = await context.read()
        except TimeoutError:
            text = f"the message did not come within {self._limits.body_s:g} s"
            raise RefusedError(text, status=408) from None
        if data is grpc.aio.EOF:
            raise RefusedError("the call has no message")
        facts.received_bytes = len(data)
        return await self._parsed(data, request, share)

    async def _parsed(self, data: bytes, request: Any, share: BodyShare) -> Any:
        share.take(len(data))
        size = len(data)
        if not is_short(data, self._limits):
            depth = INFER_DEPTH if request.DESCRIPTOR.name == "ModelInferRequest" else {}
            element_bytes = refuse_too_many_fields(data, depth, self._limits)
            if size <= VIEWED_BYTES:  # raw contents are copied, and there is little else
                size = element_bytes
        try:
            return await self._off_the_loop(size, partial(request.FromString, data))
        except DecodeError:
            text = f"the message is no {request.DESCRIPTOR.name}"
            raise RefusedError(text) from None

    async def _off_the_loop(self, size: int, work: Callable[[], Any]) -> Any:
        if size <= AT_ONCE_BYTES:
            return work()
        return await to_thread.run_sync(work, limiter=self._readers)

    async def server_live(self, request: Any, answer: Any, context: Context) -> None:
        answer.live = True

    async def server_ready(self, request: Any, answer: Any, context: Context) -> None:
        answer.ready = self._repository.is_ready

    async def model_ready(self, request: Any, answer: Any, context: Context) -> None:
        try:
            self._repository.find(request.name, request.version)
        except RefusedError:  # also one that is unknown, as Triton's clients expect it
            answer.ready = False
        else:
            answer.ready = True

    async def server_metadata(self, request: Any, answer: Any, context: Context) -> None:
        answer.name, answer.version = "aioinfer", __version__
        answer.extensions.extend(self._inference.extensions)

    async def model_metadata(self, request: Any, answer: Any, context: Context) -> None:
        served = self._repository.find(request.name, request.version)
        versions = sorted(self._repository.versions(request.name) or {}, key=int)
        told = model_metadata(request.name, versions, served.inputs, served.outputs)
        _fill(answer, told)

    async def model_config(self, request: Any, answer: Any, context: Context) -> None:
        served = self._repository.find(request.name, request.version)
        is_decoupled = served.generation is not None
        told = model_configuration(
            request.name, served.inputs, served.outputs, is_decoupled=is_decoupled
        )
        _fill(answer.config, told)

    async def model_infer(self, request: Any, answer: Any, context: Context) -> None:
        told = await self._inference.run(
            request.model_name,
            request.model_version,
            await self._read_call(request),
            context.time_remaining(),
        )
        await self._write(told, answer)

    async def _read_call(self, request: Any) -> InferCall:
        served = self._repository.find(request.model_name, request.model_version)
        read = partial(
            read_infer_message,
            request,
            self._limits,
            keeps_bytes=served.keeps_bytes,
            regions=self._inference.regions,
        )
        size = request.ByteSize()
        if size <= VIEWED_BYTES and all(map(_is_raw_numbers, request.inputs)):
            size = 0
        call: InferCall = await self._off_the_loop(size, read)
        return call

    async def _write(self, told: Answer, answer: Any) -> None:
        size = sum(array.nbytes for _, array in told.outputs)
        await self._off_the_loop(size, partial(write_infer_message, told, answer))

    async def model_statistics(self, request: Any, answer: Any, context: Context) -> None:
        for served in self._repository.selected(request.name, request.version):
            counts = counts_of(served.network.statistics())
            entry = statistics_entry(served.model, served.version, served.last_inference_ms, counts)
            _fill(answer.model_stats.add(), {**entry, "batch_stats": None})

    async def repository_index(self, request: Any, answer: Any, context: Context) -> None:
        for state in self._repository.states():
            if state.state == "READY" or not request.ready:
                answer.models.add(
                    name=state.model,
                    version=state.version,
                    state=state.state,
                    reason=state.reason,
                )

    async def repository_model_load(self, request: Any, answer: Any, context: Context) -> None:
        if request.parameters:
            raise RefusedError("are not taken", field="parameters")
        await self._repository.load(request.model_name)

    async def repository_model_unload(self, request: Any, answer: Any, context: Context) -> None:
        await self._repository.unload(request.model_name)


def _is_raw_numbers(entry: Any) -> bool:
    """Return whether an input is viewed, and not read element by element."""
    return entry.datatype != "BYTES" and not entry.HasField("contents")


def _model_fields(request: Any) -> tuple[str, str]:
    """Return which fields of a request name its model and version; "" where none does."""
    known = request.DESCRIPTOR.fields_by_name
    model = next((name for name in ("model_name", "name") if name in known), "")
    return model, next((name for name in ("model_version", "version") if name in known), "")


def _fill(message: Any, values: Any) -> None:
    """Set a message's fields from a document of the same names; None is passed over."""
    for name, value in values.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for item in value:
                _fill(getattr(message, name).add(), item)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        elif isinstance(value, dict):
            _fill(getattr(message, name), value)
        elif value is not None:
            setattr(message, name, value)
