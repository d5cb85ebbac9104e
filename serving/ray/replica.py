"""What one replica does: its models, and the requests that reach it by a handle. Without Ray.

Errors of ours hold more than a text and do not survive the way between processes, so a refusal
travels as a value.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...runtime.devices.core import Core
from ...runtime.tensors.tensor import Port
from ...runtime.tracing.statistics import NetworkStatistics
from ..failures import refusal_of
from ..functions import AllowedFunctions
from ..inference import Inference
from ..protocol.call import Answer, InferCall
from ..protocol.generation import Generation
from ..protocol.limits import Limits
from ..protocol.refusal import RefusedError
from ..repository.directory import FolderRepository, poll
from ..repository.loader import Loader
from ..repository.models import LoadingRepository, VersionState
from ..repository.single import FileRepository
from ..spans import NO_SPANS

__all__ = ["ModelFacts", "Refusal", "Replica", "ReplicaSpec"]


@dataclass(frozen=True)
class ReplicaSpec:
    """What a replica serves; every machine that may run one reads ``source``.

    ``source``: a file or a model directory. ``functions``: modules, as ``--functions`` names them.
    ``poll_s``: how often it looks for changed models; None: never.
    """

    source: Path
    device: str = "AUTO"
    properties: Mapping[str, Any] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    poll_s: float | None = None


@dataclass(frozen=True)
class Refusal:
    """A request that was refused, as it is answered."""

    message: str
    status: int
    retry_after_s: int | None = None

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """Return what the answer says of an error; the server's own faults are logged here."""
        refused = refusal_of(error)
        return cls(str(refused), refused.status, refused.retry_after_s)

    def error(self) -> RefusedError:
        """Return the error again."""
        return RefusedError(self.message, status=self.status, retry_after_s=self.retry_after_s)


@dataclass(frozen=True)
class ModelFacts:
    """What is known of one version without asking its network."""

    state: VersionState
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    keeps_bytes: bool = False
    device: str = ""
    execution_devices: tuple[str, ...] = ()
    generation: Generation | None = None


class Replica:
    """Models of a spec, all or ``only`` one. Used on one event loop; end it with ``aclose``."""

    def __init__(self, core: Core, spec: ReplicaSpec, only: str | None = None) -> None:
        self._spec = spec
        functions = AllowedFunctions(spec.functions)
        loader = Loader(core, spec.device, spec.properties, functions)
        self._repository: LoadingRepository = (
            FolderRepository(spec.source, loader, only=only)
            if spec.source.is_dir()
            else FileRepository(spec.source, loader)
        )
        self._inference = Inference(self._repository, spec.limits, spans=NO_SPANS)
        self._polling: asyncio.Task[None] | None = None
        self.is_closed = False

    async def begin(self) -> None:
        """Load the models; raises what loading one file, and reading a directory, raise."""
        await self._repository.refresh()
        poll_s = self._spec.poll_s
        if poll_s is not None and self._polling is None:
            refresh = self._repository.refresh
            self._polling = asyncio.create_task(poll(refresh, lambda: asyncio.sleep(poll_s)))

    async def run(
        self, model: str, version: str, call: InferCall, deadline_s: float | None
    ) -> Answer | Refusal:
        """Run a request; cancelling it cancels the run."""
        try:
            return await self._inference.run(model, version, call, deadline_s)
        except Exception as error:
            return Refusal.of(error)

    async def stream(
        self, model: str, version: str, call: InferCall, deadline_s: float | None
    ) -> AsyncGenerator[Answer | Refusal, None]:
        """Yield each answer to a request; a refusal is the last."""
        try:
            async with aclosing(
                self._inference.stream(model, version, call, deadline_s)
            ) as answers:
                async for answer in answers:
                    yield answer
        except Exception as error:
            yield Refusal.of(error)

    def facts(self) -> Sequence[ModelFacts]:
        """List every version that is known."""
        served = {(each.model, each.version): each for each in self._repository.served()}
        told = []
        for state in self._repository.states():
            each = served.get((state.model, state.version))
            if each is None:
                told.append(ModelFacts(state))
                continue
            told.append(
                ModelFacts(
                    state,
                    tuple(each.inputs),
                    tuple(each.outputs),
                    each.keeps_bytes,
                    each.network.device,
                    tuple(each.network.execution_devices),
                    each.generation,
                )
            )
        return told

    def statistics(self) -> Mapping[str, NetworkStatistics]:
        """Picture what serves, by ``model/version``."""
        return {
            f"{each.model}/{each.version}": each.network.statistics()
            for each in self._repository.served()
        }

    async def aclose(self) -> None:
        """Close every network when its requests have ended."""
        self.is_closed = True
        if self._polling is not None:
            self._polling.cancel()
            with suppress(asyncio.CancelledError):
                await self._polling
        await self._repository.aclose()
