"""Networks that somebody else has loaded, and will close."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...errors import NotSupportedError, PropertyError
from ...runtime.network.executable_network import ExecutableNetwork
from ..protocol.describing import unserved_port
from ..protocol.generation import Generation, check_generation
from .models import Repository, ServedVersion, VersionState

__all__ = ["FixedRepository", "check_can_be_served"]

_VERSION = "1"


class FixedRepository(Repository):
    """Serves these networks as version 1 under their names, or those of a mapping.

    Raises PropertyError for two of one name, and NotSupportedError for a network with an input or
    output that the protocol cannot carry.
    """

    def __init__(
        self,
        networks: Mapping[str, ExecutableNetwork] | Iterable[ExecutableNetwork] | ExecutableNetwork,
        generations: Mapping[str, Generation] | None = None,
    ) -> None:
        generations = dict(generations or {})
        self._models: dict[str, ServedVersion] = {}
        for name, network in _named(networks):
            if name in self._models:
                raise PropertyError(
                    f"two networks are called {name!r}; give a mapping name -> network", "networks"
                )
            served = ServedVersion(name, _VERSION, network, generations.pop(name, None))
            check_can_be_served(served)
            self._models[name] = served
        if generations:
            raise PropertyError(
                f"generations name {sorted(generations)}, which are no networks", "generations"
            )

    def versions(self, model: str) -> Mapping[str, ServedVersion] | None:
        served = self._models.get(model)
        if served is None:
            return None
        return {} if served.network.is_closed else {_VERSION: served}

    def states(self) -> Sequence[VersionState]:
        return [
            VersionState(name, _VERSION, "UNAVAILABLE", "closed")
            if served.network.is_closed
            else VersionState(name, _VERSION, "READY")
            for name, served in self._models.items()
        ]

    def names(self) -> Sequence[str]:
        return list(self._models)


def _named(
    networks: Mapping[str, ExecutableNetwork] | Iterable[ExecutableNetwork] | ExecutableNetwork,
) -> Iterable[tuple[str, ExecutableNetwork]]:
    if isinstance(networks, ExecutableNetwork):
        return [(networks.name, networks)]
    if isinstance(networks, Mapping):
        return networks.items()
    return [(network.name, network) for network in networks]


def check_can_be_served(served: ServedVersion) -> None:
    """Raise NotSupportedError for an input or output that the protocol cannot carry.

    Raises PropertyError for a generation with names that are not there.
    """
    name, inputs, outputs = served.model, served.inputs, served.outputs
    if why := unserved_port([*inputs, *outputs]):
        raise NotSupportedError(
            f"{name!r} cannot be served: {why}; wrap it in a network whose inputs and outputs are "
            f"tensors of the protocol's datatypes",
            network=served.network.name,
            device=served.network.device,
        )
    if served.generation is not None:
        names = [port.name for port in inputs]
        check_generation(served.generation, names, [port.name for port in outputs], name)
