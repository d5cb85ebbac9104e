"""One file, served under its stem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .loader import Loader
from .models import LoadingRepository, ServedVersion, VersionState
from .settings import ModelSettings

__all__ = ["FileRepository"]

_VERSION = "1"


class FileRepository(LoadingRepository):
    """Serves one file as version 1 of a model that is called like the file.

    ``refresh`` loads it, and does nothing once it is there. Used on one event loop.
    """

    def __init__(self, file: Path, loader: Loader, *, warm_up: bool = False) -> None:
        self._file, self._name, self._loader = file, file.stem, loader
        self._settings = ModelSettings(warm_up=warm_up)
        self._served: ServedVersion | None = None

    def versions(self, model: str) -> Mapping[str, ServedVersion] | None:
        if model != self._name:
            return None
        return {} if self._served is None else {_VERSION: self._served}

    def states(self) -> Sequence[VersionState]:
        state = "LOADING" if self._served is None else "READY"
        return [VersionState(self._name, _VERSION, state)]

    def names(self) -> Sequence[str]:
        return [self._name]

    async def refresh(self) -> None:
        """Load the file, the first time. Raises what loading raises."""
        if self._served is None:
            file, name = self._file, self._name
            self._served = await self._loader.load(file, name, _VERSION, self._settings)

    def abort(self) -> None:
        """End every request under way; does not wait for it."""
        if self._served is not None:
            self._served.network.abort()

    async def aclose(self) -> None:
        """Close the network when its requests have ended."""
        if self._served is not None:
            await self._served.network.aclose()
