"""A helper is alive and in step with who holds it, or gone: whatever happens, and whenever."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from aioinfer.errors import DeviceError, OverloadedError
from aioinfer.runtime.onnx_native import calls as native
from aioinfer.runtime.onnx_native import helper_pool, helper_process
from aioinfer.runtime.onnx_native.helper_pool import HelperPool
from aioinfer.runtime.onnx_native.helper_process import EndedError, Helper
from unit.runtime.onnx_native.helper_programs import ECHO, write_program

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes cannot be waited for")
LIMIT_S = 20.0


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HelperPool]:
    monkeypatch.setattr(helper_process, "PROGRAM", write_program(tmp_path, ECHO))
    pool = HelperPool()
    monkeypatch.setattr(native, "_pool", pool)
    yield pool
    for helper in pool.helpers():
        helper.end()


def ask(content: bytes, limit_s: float = LIMIT_S) -> bytes:
    """What ``native`` does for one call."""
    native.LIMIT_S, before = limit_s, native.LIMIT_S
    try:
        return native._ask(0, 0, content)
    finally:
        native.LIMIT_S = before


def lent(pool: HelperPool) -> Helper:
    helper = pool.take()
    helper.wait_until_loaded()
    return helper


def test_one_helper_serves_one_call_after_another(pool: HelperPool) -> None:
    large = bytes(range(256)) * 4096  # more than pipes hold
    helper = lent(pool)
    pool.give_back(helper)
    for content in (b"", b"first", large, b"last"):
        assert ask(content) == content
    assert lent(pool) is helper
    assert len(pool.helpers()) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"half", "ended its process with code 1"),
        (b"huge", "gave an answer of 1152921504606846976 bytes"),
    ],
)
def test_a_helper_that_fails_is_ended_and_the_next_call_has_another(
    content: bytes, message: str, pool: HelperPool
) -> None:
    helper = lent(pool)
    with pytest.raises(EndedError, match=message):
        helper.exchange(0, 0, content, LIMIT_S)
    helper.end()
    assert helper._process.returncode is not None
    assert ask(b"next") == b"next"
    assert len(pool.helpers()) == 1


def test_a_call_that_computes_for_too_long_is_ended_by_the_kernel(pool: HelperPool) -> None:
    helper = lent(pool)
    deadline = time.monotonic() + LIMIT_S
    helper._send(helper_process._REQUEST.pack(0, 0, 0, 4) + b"spin", deadline)
    with pytest.raises(EndedError, match=r"by SIGXCPU \(it has used up its time\)"):
        helper._receive(deadline)


def test_a_helper_that_stands_still_is_waited_for_until_the_deadline(pool: HelperPool) -> None:
    helper = lent(pool)
    with pytest.raises(EndedError, match="did not come to an end in time"):
        helper.exchange(0, 0, b"stop", 0.05)
    with pytest.raises(EndedError, match="did not come to an end in time"):
        helper.exchange(0, 0, bytes(1 << 22), 0.05)  # which it does not read, either
    helper.end()
    assert helper._process.returncode == -signal.SIGKILL


def test_a_helper_that_ended_while_it_was_idle_is_no_error(pool: HelperPool) -> None:
    pool.give_back(lent(pool))
    for helper in pool.helpers():
        helper._process.kill()
        helper._process.wait()
    assert ask(b"next") == b"next"
    started = lent(pool)
    pool.give_back(started)
    script = iter([EndedError("ended its process with code 0", 0)])

    def end_once(*_: Any) -> tuple[bool, bytes]:
        raise next(script)

    started.exchange = end_once  # type: ignore[method-assign]
    assert ask(b"again") == b"again"


def test_a_helper_that_always_ends_quietly_is_an_error(pool: HelperPool) -> None:
    with pytest.raises(native.ModelError, match="ended its process with code 0"):
        ask(b"idle end")


def test_a_helper_that_says_more_than_it_was_asked_is_not_used_again(pool: HelperPool) -> None:
    helper = lent(pool)
    assert helper.exchange(0, 0, b"chatty", LIMIT_S) == (True, b"chatty")
    give_up_at = time.monotonic() + LIMIT_S
    while helper.is_usable():
        assert time.monotonic() < give_up_at
    pool.give_back(helper)
    assert ask(b"next") == b"next"
    assert helper.is_ended


def test_other_calls_go_on_while_one_takes_long(pool: HelperPool) -> None:
    busy = lent(pool)
    assert [ask(b"other") for _ in range(3)] == [b"other"] * 3
    assert busy.exchange(0, 0, b"late", LIMIT_S) == (True, b"late")
    assert len(pool.helpers()) == 2


def test_who_waits_for_a_helper_gets_the_first_that_is_free_or_an_error(
    pool: HelperPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_pool, "MOST_HELPERS", 1)
    monkeypatch.setattr(helper_pool, "WAIT_LIMIT_S", 0.0)
    monkeypatch.setattr(helper_pool, "_LOOK_AGAIN_S", 0.01)
    busy = lent(pool)
    with pytest.raises(OverloadedError, match="busy with other models") as refused:
        ask(b"impatient")
    assert (refused.value.waiting_count, refused.value.limit) == (1, 1)
    monkeypatch.setattr(helper_pool, "WAIT_LIMIT_S", LIMIT_S)
    answers: list[bytes] = []
    waiting = threading.Thread(target=lambda: answers.append(ask(b"patient")))
    waiting.start()
    pool.give_back(busy)
    waiting.join(LIMIT_S)
    assert answers == [b"patient"]
    lost = lent(pool)
    waiting = threading.Thread(target=lambda: answers.append(ask(b"after a loss")))
    waiting.start()
    lost.end()  # as an interrupt does: it is never given back
    waiting.join(LIMIT_S)
    assert answers == [b"patient", b"after a loss"]


def test_a_helper_outlives_the_thread_that_started_it(pool: HelperPool) -> None:
    starting = threading.Thread(target=lambda: pool.give_back(lent(pool)))
    starting.start()
    starting.join(LIMIT_S)
    (helper,) = pool.helpers()
    assert ask(b"here") == b"here"
    assert lent(pool) is helper


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the signal of pipes is Linux's")
@pytest.mark.parametrize("content", ["spin", "stop"])
def test_a_helper_at_work_dies_with_its_parent(content: str, tmp_path: Path) -> None:
    script = f"""
import sys, pathlib
from aioinfer.runtime.onnx_native import helper_process
helper_process.PROGRAM = pathlib.Path({str(write_program(tmp_path, ECHO))!r})
helper = helper_process.Helper()
helper.start()
helper.wait_until_loaded()
helper._send(helper_process._REQUEST.pack(0, 0, 1000, {len(content)}) + b"{content}", 1e9)
print(helper._process.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        watched = os.pidfd_open(pid)
        try:
            parent.kill()
            assert select.select([watched], [], [], LIMIT_S)[0], "it lives on"
        finally:
            os.close(watched)


Line = tuple[str, int]


def lines_of_a_call(interrupt_at: Line | None) -> set[Line]:
    """Make a call, with an interrupt before this line is run; the lines that were."""
    files = {native.__file__, helper_pool.__file__, helper_process.__file__}
    seen: set[Line] = set()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in files:
            return None
        if event == "line":
            line = code.co_filename, frame.f_lineno
            seen.add(line)
            if line == interrupt_at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ask(b"interrupted")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return seen


def children() -> set[int]:
    return {
        int(pid)
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    }


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc lists children on Linux")
def test_an_interrupt_at_any_line_leaves_the_next_call_a_helper_in_step(pool: HelperPool) -> None:
    others = children()
    first, later = lines_of_a_call(None), lines_of_a_call(None)
    assert len(first) > 60
    interrupted_count = 0
    for line in sorted(first | later):
        if line not in later:  # a line of starting
            for helper in pool.helpers():
                helper.end()
        interrupted_count += line in lines_of_a_call(line)  # some are for who has to wait
        assert ask(b"next") == b"next"
        assert len(pool.helpers()) == 1, f"after an interrupt at {line}"
    assert interrupted_count > 60
    (helper,) = pool.helpers()
    for pid in children() - others - {helper._process.pid}:  # they end as their pipes are closed
        watched = os.pidfd_open(pid)
        assert select.select([watched], [], [], LIMIT_S)[0]
        os.close(watched)


def test_without_descriptors_a_call_is_refused_and_leaves_none_behind(pool: HelperPool) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = len(os.listdir("/proc/self/fd"))
    refusals: list[str] = []
    for extra in range(12):  # the pipes of a process take eight, while it is started
        resource.setrlimit(resource.RLIMIT_NOFILE, (count - 1 + extra, before[1]))
        try:
            native._ask(0, 0, b"x")
        except DeviceError as error:
            refusals.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for helper in pool.helpers():
            helper.end()
        assert len(os.listdir("/proc/self/fd")) == count
    assert 0 < len(refusals) < 12
    assert all("Too many open files" in refusal for refusal in refusals)
    assert all("ulimit -n" in refusal for refusal in refusals)
    assert ask(b"next") == b"next"
