"""Loading one version's file on its device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runtime.devices.core import Core
from ...runtime.network.executable_network import ExecutableNetwork
from .fixed import check_can_be_served, check_network_generates
from .settings import ModelSettings

__all__ = ["Loader"]


class Loader:
    """Loads files with what the server was told, where a model's settings say nothing."""

    def __init__(self, core: Core, device: str, properties: Mapping[str, Any]) -> None:
        self._core, self._device, self._properties = core, device, dict(properties)

    async def load(self, file: Path, name: str, settings: ModelSettings) -> ExecutableNetwork:
        """Return a network that can be served; raises what reading, compiling and checking raise.

        Cancelled, or failing after it was compiled, it closes the network.
        """
        config = {**self._properties, **settings.properties}
        if file.suffix == ".blob":
            network = await self._core.import_network_async(
                file, settings.device, dict(settings.properties), name=name
            )
        else:
            device = settings.device or self._device
            network = await self._core.load_network_async(file, device, config, name=name)
        try:
            check_can_be_served(name, network)
            if settings.generation is not None:
                check_network_generates(name, network, settings.generation)
            if settings.warm_up:
                await network.warm_up_async()
        except BaseException:
            network.abort()
            await network.aclose()
            raise
        return network
