from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioinfer.runtime.runs.error_frames import empty_own_frames


def functions_of(package: str) -> dict[str, Any]:
    """Make functions that belong to a module of this package."""
    names: dict[str, Any] = {"__name__": f"{package}.planted"}
    code = """
def fail(kept):
    raise ValueError("planted")

async def fail_and_wait(kept, wait):
    try:
        fail(kept)
    except ValueError:
        await wait()
        return kept
"""
    exec(code, names)
    return names


def kept_by(error: BaseException) -> list[Any]:
    frame, found = error.__traceback__, []
    while frame is not None:
        found += [frame.tb_frame.f_locals["kept"]] if "kept" in frame.tb_frame.f_locals else []
        frame = frame.tb_next
    return found


@pytest.mark.parametrize(("package", "left"), [("aioinfer", []), ("users", ["array"])])
def test_frames_of_this_package_keep_nothing(package: str, left: list[str]) -> None:
    with pytest.raises(ValueError, match="planted") as caught:
        functions_of(package)["fail"]("array")
    assert kept_by(caught.value) == ["array"]
    empty_own_frames(caught.value)
    assert kept_by(caught.value) == left


async def test_a_coroutine_that_waits_with_the_error_goes_on() -> None:
    fail_and_wait: Callable[..., Awaitable[str]] = functions_of("aioinfer")["fail_and_wait"]
    errors: list[BaseException | None] = []
    waits, may_go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        errors.append(sys.exception())
        waits.set()
        await may_go_on.wait()

    task = asyncio.ensure_future(fail_and_wait("array", wait))
    await waits.wait()
    (error,) = errors
    assert error is not None
    empty_own_frames(error)
    may_go_on.set()
    assert await task == "array"
