from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioinfer.errors import DeadlineExceededError, TensorError
from aioinfer.runtime.runs.error_frames import empty_frames, empty_own_frames, parting_copy


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


@pytest.mark.parametrize("package", ["aioinfer", "users"])
def test_frames_of_all_keep_nothing(package: str) -> None:
    with pytest.raises(ValueError, match="planted") as caught:
        functions_of(package)["fail"]("array")
    empty_frames(caught.value)
    assert kept_by(caught.value) == []


class OfOneArgumentError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"no {name}")


class OfTwoArgumentsError(Exception):
    def __init__(self, name: str, place: str) -> None:
        super().__init__(f"no {name} in {place}")


NOTED = ValueError("with a note")
NOTED.add_note("of item 3")
COPIED = [
    ValueError("planted"),
    KeyError("x"),
    OSError(2, "not there", "file"),
    ExceptionGroup("two", [ValueError("one"), KeyError("two")]),
    TensorError("does not fit", tensor="x", shape=(1, 3), network="digits"),
    DeadlineExceededError("too late", deadline_s=1.0, elapsed_s=1.5, stage="compute"),
    NOTED,
]


@pytest.mark.parametrize("error", COPIED, ids=lambda error: type(error).__name__)
def test_a_copy_says_the_same_and_holds_no_frames(error: Exception) -> None:
    cause = OSError("below")
    try:
        raise error from cause
    except Exception as raised:
        copied = parting_copy(raised)
    assert copied is not error
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))
    assert copied.__cause__ is cause
    assert copied.__suppress_context__
    assert copied.__traceback__ is None


@pytest.mark.parametrize("error", [OfOneArgumentError("x"), OfTwoArgumentsError("x", "y")])
def test_what_would_come_out_as_another_error_is_not_copied(error: Exception) -> None:
    assert parting_copy(error) is error


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
