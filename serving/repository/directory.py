"""FolderRepository: the models of a directory, loaded, exchanged and unloaded while they serve.

A new network is loaded beside the old one and takes its place between two requests; the old one is
closed in a task of its own when its last run has ended. What fails to load is noted with the
fingerprint of its files, so that it is tried again only when they change, or when somebody asks for
it, and whatever served before goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anyio import to_thread

from ...errors import AioInferError
from ...runtime.network.executable_network import ExecutableNetwork
from ..failures import load_failure
from ..protocol.refusal import RefusedError
from .folder import Fingerprint, ModelFolder, VersionFolder, scan
from .loader import Loader
from .models import LoadingRepository, ServedVersion, VersionState
from .settings import ModelSettings, read_settings, wanted_versions

__all__ = ["FolderRepository", "poll"]

_log = logging.getLogger("aioinfer.serving")


@dataclass
class _Version:
    """What is known of one version. ``tried``: the files that were loaded, or failed to."""

    served: ServedVersion | None = None
    tried: Fingerprint | None = None
    is_loading: bool = False
    reason: str = ""

    def state(self, model: str, version: str, problem: str) -> VersionState:
        reason = self.reason or problem
        if self.served is not None:
            return VersionState(model, version, "READY", reason)
        if self.is_loading:
            return VersionState(model, version, "LOADING")
        return VersionState(model, version, "UNAVAILABLE", reason)


@dataclass
class _Model:
    """What is known of one model. ``problem``: why none of its versions could be looked at."""

    versions: dict[str, _Version] = field(default_factory=dict)
    is_unloaded: bool = False
    problem: str = ""


class FolderRepository(LoadingRepository):
    """Serves what lies in a directory, in Triton's layout.

    Nothing is loaded before the first ``refresh``. ``can_manage``: clients may load and unload.
    ``limit_bytes``: of the files of all versions that are loaded, also while one takes the place of
    another; None: any. ``only``: the one model that is served; None: all. Used on one event loop;
    close it there with ``aclose``.
    """

    def __init__(
        self,
        root: Path,
        loader: Loader,
        *,
        can_manage: bool = False,
        limit_bytes: int | None = None,
        only: str | None = None,
    ) -> None:
        self._only = only
        self._root, self._loader, self.can_manage = root, loader, can_manage
        self._limit_bytes = limit_bytes
        self._loaded_bytes: dict[ExecutableNetwork, int] = {}
        self._models: dict[str, _Model] = {}
        self._change = asyncio.Lock()
        self._closing: dict[asyncio.Task[None], ExecutableNetwork] = {}
        self._is_known = False

    def versions(self, model: str) -> Mapping[str, ServedVersion] | None:
        known = self._models.get(model)
        if known is None:
            return None
        return {
            number: version.served
            for number, version in known.versions.items()
            if version.served is not None
        }

    def states(self) -> Sequence[VersionState]:
        states = []
        for name, model in self._models.items():
            states += [
                version.state(name, number, model.problem)
                for number, version in model.versions.items()
            ]
            if not model.versions:
                reason = "unloaded" if model.is_unloaded else model.problem
                states.append(VersionState(name, "", "UNAVAILABLE", reason))
        return states

    def names(self) -> Sequence[str]:
        return list(self._models)

    @property
    def is_ready(self) -> bool:
        """True once the directory was looked at, if each model that was not unloaded serves."""
        return self._is_known and all(
            self.versions(name) for name, model in self._models.items() if not model.is_unloaded
        )

    @property
    def loaded_bytes(self) -> int:
        """How long the files of all loaded versions are, of those that are being closed, too."""
        return sum(self._loaded_bytes.values())

    async def refresh(self) -> None:
        """Load what is new or has changed, and unload what is gone. Raises OSError.

        A model that fails is left to ``states``.
        """
        async with self._change:
            found = await to_thread.run_sync(scan, self._root)
            if self._only is not None:
                found = {name: folder for name, folder in found.items() if name == self._only}
            for name in self._models.keys() - found.keys():
                self._retire(self._models.pop(name).versions.values())
            for name in found:
                self._models.setdefault(name, _Model())
            for name, folder in found.items():
                if not self._models[name].is_unloaded:
                    await self._bring_up(name, folder)
            self._is_known = True

    async def load(self, model: str) -> None:
        """Load or reload a model, whether or not it was tried before. Raises RefusedError."""
        self._refuse_unless_managed()
        async with self._change:
            found = await to_thread.run_sync(scan, self._root)
            folder = found.get(model)
            if folder is None:
                raise RefusedError(f"there is no model {model!r}", status=404)
            known = self._models.setdefault(model, _Model())
            for version in known.versions.values():
                if version.served is None or version.reason:
                    version.tried = None
            known.is_unloaded = False
            await self._bring_up(model, folder)
            failed = [
                f"version {number}: {version.reason}"
                for number, version in known.versions.items()
                if version.reason
            ]
            if known.problem or failed:
                text = known.problem or "; ".join(failed)
                raise RefusedError(f"model {model!r} could not be loaded: {text}")

    async def unload(self, model: str) -> None:
        """Unload a model; its requests finish. Raises RefusedError."""
        self._refuse_unless_managed()
        async with self._change:
            known = self._models.get(model)
            if known is None:
                raise RefusedError(f"there is no model {model!r}", status=404)
            known.is_unloaded = True
            self._retire(known.versions.values())
            known.versions.clear()

    def abort(self) -> None:
        """End every request under way, those of networks that are being closed, too."""
        for network in [*(served.network for served in self.served()), *self._closing.values()]:
            network.abort()

    async def aclose(self) -> None:
        """Close every network when its requests have ended."""
        async with self._change:
            for model in self._models.values():
                self._retire(model.versions.values())
            self._models.clear()
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    def _refuse_unless_managed(self) -> None:
        if not self.can_manage:
            raise RefusedError("model management is switched off", status=403)

    async def _bring_up(self, name: str, folder: ModelFolder) -> None:
        model = self._models[name]
        model.problem = folder.problem
        if folder.problem:
            return
        try:
            settings = read_settings(folder.settings)
        except AioInferError as error:
            model.problem = str(error)
            return
        wanted = {
            str(number): folder.versions[number]
            for number in wanted_versions(settings.versions, list(folder.versions))
        }
        if not wanted:
            model.problem = f"it has none of the versions {settings.versions}"
        for number, files in wanted.items():
            version = model.versions.setdefault(number, _Version())
            if version.tried != files.fingerprint:
                await self._load_version(name, number, version, files, settings)
        if all(model.versions[number].served for number in wanted):
            gone = [model.versions.pop(number) for number in model.versions.keys() - wanted.keys()]
            self._retire(gone)

    async def _load_version(
        self,
        name: str,
        number: str,
        version: _Version,
        files: VersionFolder,
        settings: ModelSettings,
    ) -> None:
        if files.file is None:
            version.tried, version.reason = files.fingerprint, files.problem
            return
        no_room = self._no_room(files.size_bytes)
        if no_room:  # it is tried again, as others may go
            version.reason = no_room
            return
        version.is_loading = True
        try:
            served = await self._loader.load(files.file, name, number, settings)
        except Exception as error:
            _log.warning("model %r, version %s: not loaded", name, number, exc_info=error)
            version.tried = files.fingerprint
            folders = (str(files.file.parent), str(self._root.resolve()), str(self._root))
            version.reason = load_failure(error, folders)
            return
        finally:
            version.is_loading = False
        self._loaded_bytes[served.network] = files.size_bytes
        old, version.served = version.served, served
        version.tried, version.reason = files.fingerprint, ""
        _log.info("model %r, version %s: serves on %s", name, number, served.network.device)
        if old is not None:
            self._close(old.network)

    def _no_room(self, size: int) -> str:
        """Return why a version of this size cannot be loaded beside the others; "" if it can."""
        taken = self.loaded_bytes
        if self._limit_bytes is None or taken + size <= self._limit_bytes:
            return ""
        return (
            f"its files of {size} bytes do not fit beside those of others, {taken} of "
            f"{self._limit_bytes} bytes; unload a model or raise --memory-limit"
        )

    def _retire(self, versions: Iterable[_Version]) -> None:
        for version in versions:
            if version.served is not None:
                self._close(version.served.network)
                version.served = None

    def _close(self, network: ExecutableNetwork) -> None:
        task = asyncio.get_running_loop().create_task(_closed(network))
        self._closing[task] = network
        task.add_done_callback(self._has_closed)

    def _has_closed(self, task: asyncio.Task[None]) -> None:
        self._loaded_bytes.pop(self._closing.pop(task), None)


async def _closed(network: ExecutableNetwork) -> None:
    await network.aclose()


async def poll(
    refresh: Callable[[], Awaitable[None]], wait: Callable[[], Awaitable[object]]
) -> None:
    """Refresh again and again, with a wait before each time; until it is cancelled."""
    while True:
        await wait()
        try:
            await refresh()
        except OSError as error:
            _log.warning("the model directory cannot be read: %s", error.strerror)
        except Exception as error:
            _log.error("looking at the model directory failed", exc_info=error)
