"""The deployment: replicas of models on a Ray cluster. Everything that imports ray is here.

A handle's round trip costs milliseconds, so all stages of a request stay inside one replica, and so
does batching, by BATCH: Ray would gather requests of one replica, too, and they would wait twice.
Without ``model_count`` each replica has all models. With it they come when they are asked for, by
Ray's multiplexing: requests of one model go where it is already, and the model that was not asked
for longest goes when there are too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from anyio import to_thread

from ...errors import NotSupportedError
from ...runtime.devices.core import Core
from ...runtime.tracing.statistics import NetworkStatistics
from ..protocol.call import Answer, InferCall
from ..repository.folder import scan
from .options import RayOptions, deployment_options
from .replica import ModelFacts, Refusal, Replica, ReplicaSpec

__all__ = ["deploy", "undeploy"]


def deploy(spec: ReplicaSpec, options: RayOptions) -> Any:
    """Start replicas, or exchange those of the same name under load, and return their handle.

    Blocks until they serve. Raises NotSupportedError where ray is not installed, and where they do
    not come up; they are gone then.
    """
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise NotSupportedError(f"--ray wants {error.name}; pip install 'aioinfer[ray]'") from error
    if not ray.is_initialized():
        ray.init(address=options.address or "local", include_dashboard=False, log_to_driver=False)
    serve.start(proxy_location="Disabled")
    make = _multiplexed if options.model_count else _whole
    deployment = serve.deployment(make(options), **deployment_options(options))
    try:
        return serve.run(deployment.bind(spec), name=options.name, route_prefix=None)
    except RuntimeError as error:
        undeploy(options)
        text = str(error).partition("Traceback")[0]
        raise NotSupportedError(f"the replicas did not come up: {text}") from error


def undeploy(options: RayOptions) -> None:
    """End the replicas, and Ray where it was started for them. Blocks."""
    import ray
    from ray import serve

    serve.delete(options.name)
    if not options.address:
        serve.shutdown()
        ray.shutdown()


def _whole(options: RayOptions) -> type:
    class Models:
        """A replica with all models."""

        async def __init__(self, spec: ReplicaSpec) -> None:  # type: ignore[misc]  # Ray's way
            self._core = Core()
            self._replica = Replica(self._core, spec)
            await self._replica.begin()

        async def run(
            self, model: str, version: str, call: InferCall, deadline_s: float | None
        ) -> Answer | Refusal:
            return await self._replica.run(model, version, call, deadline_s)

        async def stream(
            self, model: str, version: str, call: InferCall, deadline_s: float | None
        ) -> AsyncGenerator[Answer | Refusal, None]:
            async for told in self._replica.stream(model, version, call, deadline_s):
                yield told

        async def facts(self) -> Sequence[ModelFacts]:
            return self._replica.facts()

        async def statistics(self) -> Mapping[str, NetworkStatistics]:
            return self._replica.statistics()

        async def __del__(self) -> None:
            await self._replica.aclose()
            await self._core.aclose()

    return Models


def _multiplexed(options: RayOptions) -> type:
    from ray import serve

    class KeptModel:
        """One model of a replica; Ray ends it by ``__del__``, on a thread, for others."""

        def __init__(self, replica: Replica) -> None:
            self.replica = replica
            self._loop = asyncio.get_running_loop()

        def __del__(self) -> None:
            if not (self.replica.is_closed or self._loop.is_closed()):
                asyncio.run_coroutine_threadsafe(self.replica.aclose(), self._loop)

    class Models:
        """A replica with the models that were asked for last."""

        async def __init__(self, spec: ReplicaSpec) -> None:  # type: ignore[misc]  # Ray's way
            self._core, self._spec = Core(), spec
            self._facts: dict[str, Sequence[ModelFacts]] = {}

        @serve.multiplexed(max_num_models_per_replica=options.model_count)  # type: ignore[untyped-decorator]
        async def kept(self, model: str) -> KeptModel:
            replica = Replica(self._core, self._spec, model)
            await replica.begin()
            self._facts[model] = replica.facts()
            return KeptModel(replica)

        async def run(
            self, model: str, version: str, call: InferCall, deadline_s: float | None
        ) -> Answer | Refusal:
            while True:
                kept: KeptModel = await self.kept(model)
                told = await kept.replica.run(model, version, call, deadline_s)
                if not (kept.replica.is_closed and isinstance(told, Refusal)):
                    return told  # else it went between the two, and comes again

        async def stream(
            self, model: str, version: str, call: InferCall, deadline_s: float | None
        ) -> AsyncGenerator[Answer | Refusal, None]:
            kept = await self.kept(model)
            async for told in kept.replica.stream(model, version, call, deadline_s):
                yield told

        async def facts(self) -> Sequence[ModelFacts]:
            """Load each model once, one after the other, as its types are in its file."""
            names = list(await to_thread.run_sync(scan, self._spec.source))
            for name in names:
                if name not in self._facts:
                    await self.kept(name)
            return [fact for name in names for fact in self._facts[name]]

        async def __del__(self) -> None:
            await asyncio.shield(self._core.aclose())

    return Models
