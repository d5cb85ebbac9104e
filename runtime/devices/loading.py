"""Around a load or an import: the border that errors leave it by, and the thread that it is on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import AioInferError, ModelError
from ...executors import shortage_as_error, undone_on_error
from ...executors.late_imports import late_imports

if TYPE_CHECKING:
    from ..network.executable_network import ExecutableNetwork

__all__ = ["loading", "loading_failures_named", "made_on_thread"]


async def made_on_thread(make: Callable[[], ExecutableNetwork]) -> ExecutableNetwork:
    """Make a network on a thread; if the task is cancelled, close it as soon as it is there."""
    with late_imports:
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
