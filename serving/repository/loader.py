"""Loading one version's file on its device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runtime.devices.core import Core
from ..functions import AllowedFunctions
from .fixed import check_can_be_served
from .models import ServedVersion
from .settings import ModelSettings

__all__ = ["Loader"]


class Loader:
    """Loads files with the server's options, where a model's settings say nothing."""

    def __init__(
        self,
        core: Core,
        device: str,
        properties: Mapping[str, Any],
        functions: AllowedFunctions | None = None,
    ) -> None:
        self._core, self._device, self._properties = core, device, dict(properties)
        self._functions = functions or AllowedFunctions()

    async def load(
        self, file: Path, name: str, version: str, settings: ModelSettings
    ) -> ServedVersion:
        """Return a version that can be served; raises what reading, compiling and checking raise.

        Cancelled, or failing after it was compiled, it closes the network.
        """
        functions = self._functions.find(name, settings.preprocess, settings.postprocess)
        before, behind = functions.preprocess, functions.behind(name)
        config = {**self._properties, **settings.properties}
        if file.suffix == ".blob":
            network = await self._core.import_network_async(
                file,
                settings.device,
                dict(settings.properties),
                name=name,
                preprocess=before,
                postprocess=behind,
            )
        else:
            device = settings.device or self._device
            network = await self._core.load_network_async(
                file, device, config, name=name, preprocess=before, postprocess=behind
            )
        try:
            served = ServedVersion(name, version, network, settings.generation, functions)
            check_can_be_served(served)
            if settings.warm_up:
                await network.warm_up_async()
        except BaseException:
            network.abort()
            await network.aclose()
            raise
        return served
