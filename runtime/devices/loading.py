"""What loading and importing a network have in common: names, failures, threads, the cache."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AioInferError, ModelError, NotSupportedError, PropertyError
from ...executors import shortage_as_error, undone_on_error
from ..graph import Model
from ..graph.mapped_file import read_constants
from ..properties.properties import CACHE_DIR, INPUT_SHAPES, Configuration
from .importing import FileStatus, file_status
from .plugin import Plugin

if TYPE_CHECKING:
    from ..network.executable_network import ExecutableNetwork
    from .model_cache import ModelCache

__all__ = [
    "cache_of",
    "check_network_name",
    "in_memory",
    "loading",
    "loading_failures_named",
    "made_on_thread",
    "path_of",
    "reading_again",
    "warm_up_if_asked",
]

_log = logging.getLogger("aioinfer")


async def made_on_thread(make: Callable[[], ExecutableNetwork]) -> ExecutableNetwork:
    """Make a network on a thread; if the task is cancelled, close it as soon as it is there."""
    from anyio import lowlevel, to_thread

    lock = threading.Lock()
    loaded: list[ExecutableNetwork] = []
    is_wanted = True

    def load() -> None:
        network = make()
        with lock:
            if is_wanted:
                loaded.append(network)
                return
        network.close()

    try:
        await to_thread.run_sync(load)
        await lowlevel.checkpoint_if_cancelled()
    except BaseException:  # a task of asyncio is cancelled at once, others after the thread
        with lock:
            is_wanted = False
        for network in loaded:
            await network.aclose()
        raise
    return loaded[0]


@contextmanager
def loading(device: str) -> Iterator[None]:
    """Give back what was taken by then, and close what was loaded, where an error leaves the load.

    Errors are named as by ``loading_failures_named``.
    """
    with undone_on_error(), loading_failures_named(device):
        yield


@contextmanager
def loading_failures_named(device: str) -> Iterator[None]:
    """Raise errors of ours for want of a resource, and for a model that Python cannot walk."""
    try:
        with shortage_as_error(f"loading a model for {device}" if device else "importing"):
            yield
    except AioInferError as error:
        error.within(device=device)
        raise
    except RecursionError as error:
        raise ModelError("the model is nested, or its nodes follow each other, too deep") from error
    except Exception as error:
        if type(error).__name__ != "EncodeError":  # protobuf's, which is not imported for it
            raise
        raise ModelError(
            f"a part of the model cannot be written for {device} ({error}): it is over 2 GiB "
            f"without its weights, nested too deep, or there is not enough memory"
        ) from error


def in_memory(model: Model) -> Model:
    """Bring mapped constants into memory, in the model itself where no caller holds it."""
    made = model if model.is_disposable else model.copy()
    made.read_again = model.read_again
    read_constants(made.graph)
    made.is_mapped, made.is_disposable = False, True
    return made


def reading_again(
    read: Callable[[Path], Model], path: Path, was: FileStatus
) -> Callable[[], Model]:
    """Return what reads a model once more from a file that has not changed since.

    It raises NotSupportedError where the file has, and ModelError.
    """
    place = Path(os.path.abspath(path))

    def read_again() -> Model:
        now = file_status(place)
        if now is None or now.mark != was.mark:
            raise NotSupportedError(
                f"the weights of a network are in its model's file alone, and {str(place)!r} is "
                f"not what it was when it was loaded; load the network with EXPORTABLE=True, which "
                f"keeps them"
            )
        return read(place)

    return read_again


def warm_up_if_asked(network: ExecutableNetwork, config: Configuration) -> None:
    """Run a network once of each shape that was asked for."""
    if config.value_or_default(INPUT_SHAPES):
        network.warm_up()


def cache_of(plugin: Plugin, config: Configuration) -> ModelCache | None:
    """Return the cache that a configuration names, or AIOINFER_CACHE_DIR; None without one.

    A device made of devices has those keep their parts, and functions of users are in no blob.
    """
    named = config.value_or_default(CACHE_DIR) or os.environ.get("AIOINFER_CACHE_DIR", "")
    if not named or not plugin.is_cached or plugin.extensions:
        return None
    from .model_cache import ModelCache

    try:
        folder = Path(named).expanduser()
    except RuntimeError as error:  # there is no such user
        _log.warning("CACHE_DIR %r is not used: %s", named, error)
        return None
    return ModelCache(folder, plugin, config)


def path_of(source: Any) -> Path | None:
    """Return the file that a model comes from; None for bytes, open files and models."""
    return Path(os.fsdecode(source)) if isinstance(source, str | os.PathLike) else None


def check_network_name(name: Any, device: str) -> None:
    """Raise PropertyError unless a name is None or a printable text of one line."""
    if name is None:
        return
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise PropertyError(
            f"a network cannot be called {name!r}; give a text of one line that can be printed, "
            f"or None for its file's name",
            "name",
            device,
            value=name,
        )
