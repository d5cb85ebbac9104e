"""The models of a deployment as a server sees them: requests go to replicas by a handle."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from ...errors import ClosedError, DeadlineExceededError
from ...runtime.tracing.durations import DurationCounts
from ...runtime.tracing.statistics import NetworkStatistics
from ..inference import Inference
from ..protocol.call import Answer, InferCall
from ..protocol.refusal import RefusedError
from ..repository.models import LoadingRepository, ServedVersion, VersionState
from .failures import failure_of
from .replica import ModelFacts, Refusal

__all__ = ["RemoteInference", "RemoteRepository"]

_RETRY_AFTER_S = 1
_log = logging.getLogger("aioinfer.serving")


class _RemoteNetwork:
    """What is known of a version's networks here: what its requests through this server did."""

    def __init__(self, facts: ModelFacts) -> None:
        self.name, self.device = facts.state.model, facts.device
        self.execution_devices = facts.execution_devices
        self.inputs, self.outputs = facts.inputs, facts.outputs
        self.is_closed = False
        self._finished, self._failed = DurationCounts(), DurationCounts()
        self._cancelled_count = 0
        self._running_count = 0
        self._lock = threading.Lock()  # pictures are made on threads, too

    def trace(self) -> tuple[()]:
        """Return no spans: they stay in the replicas."""
        return ()

    def statistics(self) -> NetworkStatistics:
        """Picture its requests through this server."""
        with self._lock:
            finished, failed = self._finished.picture(), self._failed.picture()
        return NetworkStatistics(
            self.name,
            self.device,
            finished_request_count=finished.count,
            failed_request_count=failed.count,
            cancelled_request_count=self._cancelled_count,
            latencies={"finished": finished, "failed": failed},
            running_run_count=self._running_count,
        )

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is done inside as a request."""
        began_ns = time.perf_counter_ns()
        self._running_count += 1
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            self._cancelled_count += 1
            raise
        except BaseException:
            self._note(self._failed, began_ns)
            raise
        else:
            self._note(self._finished, began_ns)
        finally:
            self._running_count -= 1

    def _note(self, counts: DurationCounts, began_ns: int) -> None:
        with self._lock:
            counts.note(time.perf_counter_ns() - began_ns)


class RemoteRepository(LoadingRepository):
    """The models that the replicas of a deployment have. Used on one event loop.

    ``retried_count``: requests that went to another replica as theirs had ended.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._facts: dict[tuple[str, str], ModelFacts] = {}
        self._served: dict[tuple[str, str], ServedVersion] = {}
        self._under_way: set[Any] = set()
        self._is_known = False
        self.retried_count: int = 0

    def versions(self, model: str) -> Mapping[str, ServedVersion] | None:
        if model not in self.names():
            return None
        return {number: each for (name, number), each in self._served.items() if name == model}

    def states(self) -> Sequence[VersionState]:
        return [facts.state for facts in self._facts.values()]

    def names(self) -> Sequence[str]:
        return list(dict.fromkeys(model for model, _ in self._facts))

    @property
    def is_ready(self) -> bool:
        return self._is_known and super().is_ready

    async def refresh(self) -> None:
        """Ask a replica for its models."""
        told: Sequence[ModelFacts] = await self._handle.facts.remote()
        facts = {(each.state.model, each.state.version): each for each in told}
        for place, each in facts.items():
            if each.state.state != "READY":
                self._served.pop(place, None)
            elif place not in self._served or self._facts[place] != each:
                network: Any = _RemoteNetwork(each)
                made = ServedVersion(*place, network, each.generation)
                made.keeps_bytes = each.keeps_bytes
                self._served[place] = made
        for place in self._served.keys() - facts.keys():
            del self._served[place]
        self._facts, self._is_known = facts, True

    def abort(self) -> None:
        for response in list(self._under_way):
            response.cancel()

    async def aclose(self) -> None:
        """Forget the models; the replicas stay, for other servers."""
        self._served.clear()

    @contextmanager
    def under_way(self, response: Any) -> Iterator[None]:
        """Have ``abort`` end a response of the handle meanwhile; end it if it is left early."""
        self._under_way.add(response)
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            response.cancel()
            raise
        finally:
            self._under_way.discard(response)


class RemoteInference(Inference):
    """Runs requests in the replicas of a deployment.

    retry_count: how often a request goes to another replica when its own has ended; it may then
    have run twice, which changes nothing, as requests without a sequence keep no state. Requests of
    sequences are refused: their state is in one replica.
    """

    def __init__(
        self,
        repository: RemoteRepository,
        *given: Any,
        handle: Any,
        retry_count: int,
        is_multiplexed: bool = False,
        **named: Any,
    ) -> None:
        super().__init__(repository, *given, **named)
        self.has_sequences = False
        self._remote, self._handle = repository, handle
        self._retry_count, self._is_multiplexed = retry_count, is_multiplexed

    async def run(
        self, model: str, version: str, call: InferCall, deadline_s: float | None = None
    ) -> Answer:
        served = self._checked(model, version, call)
        network = cast(_RemoteNetwork, served.network)
        with network.counted():
            method = self._options(model).run

            async def once(left_s: float | None) -> Answer:
                response = method.remote(model, version, call, left_s)
                with self._remote.under_way(response):
                    return _answer(await response)

            return self._noted(served, await self._tried(once, call, deadline_s))

    async def stream(
        self, model: str, version: str, call: InferCall, deadline_s: float | None = None
    ) -> AsyncGenerator[Answer, None]:
        served = self._checked(model, version, call)
        network = cast(_RemoteNetwork, served.network)
        with network.counted():
            method = self._options(model, stream=True).stream
            opened: list[Any] = []

            async def first(left_s: float | None) -> Answer:
                response = method.remote(model, version, call, left_s)
                opened[:] = [response]
                with self._remote.under_way(response):
                    return _answer(await anext(response))

            answer = await self._tried(first, call, deadline_s)
            (response,) = opened
            with self._remote.under_way(response):
                while True:
                    yield self._noted(served, answer)
                    try:
                        answer = _answer(await anext(response))
                    except StopAsyncIteration:
                        return
                    except Exception as error:
                        raise _told(error, 0) from error

    def _checked(self, model: str, version: str, call: InferCall) -> ServedVersion:
        if call.sequence is not None:
            raise RefusedError(
                "the models are in several processes, which keep no state between requests",
                field="parameters.sequence_id",
            )
        return self._remote.find(model, version)

    def _options(self, model: str, *, stream: bool = False) -> Any:
        named = {"multiplexed_model_id": model} if self._is_multiplexed else {}
        return self._handle.options(stream=stream, **named) if stream or named else self._handle

    async def _tried(
        self,
        once: Callable[[float | None], Awaitable[Answer]],
        call: InferCall,
        deadline_s: float | None,
    ) -> Answer:
        """Ask a replica, and another one when it has ended; within the deadline, all of it."""
        limits = [limit for limit in (deadline_s, call.deadline_s) if limit is not None]
        limit_s = min(limits, default=None)
        began_s = self._clock()
        for tried in range(self._retry_count + 1):
            left_s = None if limit_s is None else max(0.0, limit_s - (self._clock() - began_s))
            try:
                async with asyncio.timeout(left_s):
                    return await once(left_s)
            except TimeoutError as error:
                raise DeadlineExceededError(f"no replica answered within {limit_s} s") from error
            except Exception as error:
                if failure_of(error) != "lost" or tried == self._retry_count:
                    raise _told(error, tried) from error
                self._remote.retried_count += 1
                _log.warning("a replica has ended; its request goes to another one")
        raise AssertionError("unreachable: the last try returns or raises")

    def _noted(self, served: ServedVersion, answer: Answer) -> Answer:
        served.last_inference_ms = int(self._wall_clock() * 1000)
        return answer


def _answer(told: Answer | Refusal) -> Answer:
    if isinstance(told, Refusal):
        raise told.error()
    return told


def _told(error: Exception, retried: int) -> Exception:
    """Return the error of ours that is sent to a client."""
    failure = failure_of(error)
    if failure == "busy":
        text = "too many requests wait for a replica"
        return RefusedError(text, status=503, retry_after_s=_RETRY_AFTER_S)
    if failure == "lost":
        text = f"the replica that ran it has ended, after {retried} retries"
        return RefusedError(text, status=503, retry_after_s=_RETRY_AFTER_S)
    if failure == "cancelled":
        return ClosedError("the server ends")
    return error
