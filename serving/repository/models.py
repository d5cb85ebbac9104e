"""Models by name and version, as requests find them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import nearest
from ...runtime.network.executable_network import ExecutableNetwork
from ..functions import NO_FUNCTIONS, ModelFunctions
from ..protocol.call import Signature
from ..protocol.generation import Generation
from ..protocol.refusal import RefusedError

__all__ = [
    "LoadState",
    "LoadingRepository",
    "Repository",
    "ServedVersion",
    "VersionState",
    "newest",
]

LoadState = str
"""READY, LOADING or UNAVAILABLE, as the protocol names them."""


class ServedVersion:
    """A network under a model's name and version. ``last_inference_ms``: since 1970, 0: none.

    ``generation``: how it generates; None: a request is one run. ``functions``: what stands before
    and behind the network; ``inputs`` and ``outputs`` are those that clients give and get.
    """

    def __init__(
        self,
        model: str,
        version: str,
        network: ExecutableNetwork,
        generation: Generation | None = None,
        functions: ModelFunctions = NO_FUNCTIONS,
    ) -> None:
        self.model, self.version, self.network = model, version, network
        self.generation = generation
        before, behind = functions.preprocess, functions.postprocess
        self.inputs = network.inputs if before is None else before.ports
        self.outputs = network.outputs if behind is None else behind.ports
        self.keeps_bytes = before is not None
        """True if elements of BYTES need not be texts, as a function takes them."""
        self.signature = Signature(model, self.inputs, self.outputs)
        self.last_inference_ms = 0

    def __repr__(self) -> str:
        return f"<ServedVersion {self.model!r} {self.version}: {self.network!r}>"


@dataclass(frozen=True)
class VersionState:
    """What is known of one version: its state, and why it is not READY or not the newest."""

    model: str
    version: str
    state: LoadState
    reason: str = ""


class Repository(ABC):
    """The models that are served. Used on one event loop."""

    can_manage = False
    """True if ``load`` and ``unload`` are there for clients."""

    retried_count: int | None = None
    """How many requests went to another replica as theirs had ended; None: there are none."""

    @abstractmethod
    def versions(self, model: str) -> Mapping[str, ServedVersion] | None:
        """Return what serves a model, by version; {} if nothing does, None if it is unknown."""

    @abstractmethod
    def states(self) -> Sequence[VersionState]:
        """List every version that is known, whatever its state."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """List the models that are known."""

    @property
    def is_ready(self) -> bool:
        """True if each model has a version that serves."""
        return all(self.versions(name) for name in self.names())

    def served(self) -> Iterable[ServedVersion]:
        """Yield every version that serves."""
        for name in self.names():
            yield from (self.versions(name) or {}).values()

    def selected(self, model: str = "", version: str = "") -> Iterable[ServedVersion]:
        """Return what serves of one model, of one version of it, or of all models.

        Raises RefusedError for what is unknown or does not serve.
        """
        if not model:
            return list(self.served())
        found = self.find(model, version)
        return [found] if version else list((self.versions(model) or {}).values())

    def find(self, model: str, version: str = "") -> ServedVersion:
        """Return what serves a model; without a version, its newest.

        Raises RefusedError: 404 for what is unknown, 503 for what does not serve now.
        """
        served = self.versions(model)
        if served is None:
            hint = nearest(model, self.names())
            raise RefusedError(f"there is no model {model!r}{hint}", status=404)
        found = served.get(version) if version else newest(served)
        if found is not None:
            return found
        reasons = [
            state.reason or state.state.lower()
            for state in self.states()
            if state.model == model and version in ("", state.version)
        ]
        if not reasons and version:
            known = ", ".join(served) or "none"
            raise RefusedError(
                f"model {model!r} has no version {version!r}; it serves {known}", status=404
            )
        text = "; ".join(reasons) or "it has no version"
        raise RefusedError(f"model {model!r} is not ready: {text}", status=503)

    async def load(self, model: str) -> None:
        """(optional) Load or reload a model. Raises RefusedError."""
        raise RefusedError("model management is switched off", status=403)

    async def unload(self, model: str) -> None:
        """(optional) Unload a model when its requests have ended. Raises RefusedError."""
        raise RefusedError("model management is switched off", status=403)


class LoadingRepository(Repository):
    """One that loads its models itself."""

    @abstractmethod
    async def refresh(self) -> None:
        """Load what is new or has changed."""

    @abstractmethod
    def abort(self) -> None:
        """End every request under way; does not wait for it."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every network when its requests have ended."""


def newest(served: Mapping[str, ServedVersion]) -> ServedVersion | None:
    """Return the one with the highest number."""
    if len(served) == 1:
        return next(iter(served.values()))
    return served[max(served, key=int)] if served else None
