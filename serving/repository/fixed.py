"""Networks that somebody else has loaded, and will close."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...errors import NotSupportedError, PropertyError
from ...runtime.network.executable_network import ExecutableNetwork
from ..protocol.describing import unserved_port
from ..protocol.generation import Generation, check_generation
from .models import Repository, ServedVersion, VersionState

__all__ = ["FixedRepository", "check_can_be_served", "check_network_generates"]

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
            check_can_be_served(name, network)
            generation = generations.pop(name, None)
            if generation is not None:
                check_network_generates(name, network, generation)
            self._models[name] = ServedVersion(name, _VERSION, network, generation)
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


def check_can_be_served(name: str, network: ExecutableNetwork) -> None:
    """Raise NotSupportedError for an input or output that the protocol cannot carry."""
    if why := unserved_port([*network.inputs, *network.outputs]):
        raise NotSupportedError(
            f"{name!r} cannot be served: {why}; wrap it in a network whose inputs and outputs are "
            f"tensors of the protocol's datatypes",
            network=network.name,
            device=network.device,
        )


def check_network_generates(name: str, network: ExecutableNetwork, generation: Generation) -> None:
    """Raise PropertyError for a generation with names that the network does not have."""
    inputs = [port.name for port in network.inputs]
    check_generation(generation, inputs, [port.name for port in network.outputs], name)
