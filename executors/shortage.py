"""What a process runs out of, memory, threads and file descriptors, as errors that say so."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from ..errors import AioInferError, DeviceError
from .late_imports import late_imports

__all__ = [
    "as_shortage",
    "check_files",
    "check_memory",
    "find_shortage",
    "is_shortage",
    "shortage_as_error",
    "start_thread",
]

Resource = Literal["memory", "files", "threads"]

_BY_NUMBER: dict[int, Resource] = {
    errno.ENOMEM: "memory",
    errno.EMFILE: "files",
    errno.ENFILE: "files",
    errno.EAGAIN: "threads",  # of fork and of pthread_create
}
_BY_TEXT: dict[str, Resource] = {
    **{os.strerror(number): lacks for number, lacks in _BY_NUMBER.items()},
    "can't start new thread": "threads",
    "can't allocate lock": "memory",
    "bad_alloc": "memory",
    "failed to map segment from shared object": "memory",
    "cannot map zero-fill pages": "memory",
}
_NO_WANT = os.strerror(errno.EPERM)
"""What the loader adds where a library's folder may run no code."""
_LOADING = (OSError, ImportError, RuntimeError)
"""What the loader of libraries, and Python, raise with nothing but a text."""

_STACK_BYTES = 8 << 20  # where no limit says how large a thread's stack is
_THREAD_BYTES = 1 << 20  # what a thread takes beside its stack until its function runs


def as_shortage(error: BaseException, doing: str) -> BaseException:
    """Return the error of ours for one that want of a resource has caused, or any other as it is.

    ``doing`` is as in ``find_shortage``; what was given is the cause of what comes back.
    """
    found = find_shortage(error, doing)
    if found is None:
        return error
    if found is not error:
        found.__cause__ = error
        found.__traceback__ = error.__traceback__
    return found


def find_shortage(error: BaseException | None, doing: str) -> DeviceError | None:
    """Make the error for one that want of a resource has caused; None if none has.

    ``doing`` begins the message: what needed the resource. A DeviceError of ours is given back as
    it is. An interrupt is none, nor another error of ours, whatever its caller was handling.
    """
    if not isinstance(error, Exception):
        return None
    if isinstance(error, AioInferError) and not isinstance(error, DeviceError):
        return None
    lacks = _lacking(error)
    if error is None or lacks is None:
        return None
    if isinstance(error, DeviceError):
        return error
    text = f" ({error})" if str(error) else ""
    if lacks == "memory":
        return DeviceError(
            f"{doing}: there is not enough memory{text}; use a smaller model or inputs, fewer "
            f"requests or streams at a time, or raise the limit (ulimit -v, or the container's)",
            resource=lacks,
        )
    if lacks == "files":
        return DeviceError(
            f"{doing}: the process may open no more files{text}; close files and connections, or "
            f"raise the limit{_file_limit()} with 'ulimit -n'",
            resource=lacks,
        )
    return DeviceError(
        f"{doing}: no thread or process can be started{text}; this one has "
        f"{threading.active_count()} Python threads: end some, or raise the limit (ulimit -u, or "
        f"that of the container), or that of memory, since each needs a stack",
        resource=lacks,
    )


def is_shortage(error: BaseException | None) -> bool:
    """True if an error, or what it came from, is the want of a resource: a later try may do."""
    return _lacking(error) is not None


@contextmanager
def shortage_as_error(doing: str) -> Iterator[None]:
    """Raise DeviceError, with the cause chained, for want of a resource inside."""
    try:
        yield
    except AioInferError:
        raise
    except Exception as error:
        found = find_shortage(error, doing)
        if found is None:
            raise
        raise found from error


def check_files(doing: str) -> None:
    """Raise DeviceError where the process may open no more files.

    For what is about to look for files by means that take a folder they cannot open for an empty
    one, and that remember it: importlib.metadata.
    """
    with shortage_as_error(doing):
        os.close(os.open(os.devnull, os.O_RDONLY))


def check_memory(size_bytes: int) -> None:
    """Raise MemoryError if that much address space cannot be had; none is kept."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return  # Windows has no limit of it
    try:
        mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError(f"{size_bytes >> 20} MiB cannot be had: {error}") from error


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; DeviceError where the system has none left, and then it can be tried again.

    A thread that was not started cannot be tried twice: make a new one.
    """
    with shortage_as_error(f"starting thread {thread.name!r}"):
        # Python waits for ever for a thread that has a stack, and no memory to say that it runs.
        check_memory(_stack_bytes() + _THREAD_BYTES)
        thread.start()


def _stack_bytes() -> int:
    if threading.stack_size():
        return threading.stack_size()
    try:
        with late_imports:
            import resource
    except ImportError:  # not there on Windows
        return _STACK_BYTES
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return limit if 0 <= limit != resource.RLIM_INFINITY else _STACK_BYTES


def _lacking(error: BaseException | None) -> Resource | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError):
            return "memory"
        if isinstance(error, OSError) and error.errno in _BY_NUMBER:
            return _BY_NUMBER[error.errno]
        if isinstance(error, _LOADING):
            text = str(error)
            found = next((lacks for part, lacks in _BY_TEXT.items() if part in text), None)
            if found is not None and _NO_WANT not in text:
                return found
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def _file_limit() -> str:
    try:
        with late_imports:
            import resource
    except ImportError:  # not there on Windows
        return ""
    return f" of {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"
