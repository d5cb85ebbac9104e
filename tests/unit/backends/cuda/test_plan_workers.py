"""Processes that build plans: that they answer, and every way in which they may end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aioinfer.backends.cuda import plan_worker_program, worker_process
from aioinfer.backends.cuda.libraries.cudnn_conv import describe_conv
from aioinfer.backends.cuda.libraries.cudnn_graph import PlanCandidate
from aioinfer.backends.cuda.plan_workers import PlanWorkers, WorkerError
from aioinfer.backends.cuda.worker_process import WorkerProcess
from aioinfer.errors import ClosedError
from child_process import HAS_FORK, run_script
from unit.backends.cuda.libraries.conv_operation import conv_operation

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes cannot be waited for here")

CONV = describe_conv(conv_operation())
PROGRAM = Path(plan_worker_program.__file__)

PROLOGUE = """
import json, os, signal, struct, sys
requests, answers = sys.stdin.buffer, sys.stdout.buffer
def read():
    head = requests.read(16)
    if len(head) < 16:
        sys.exit(0)
    return json.loads(requests.read(sum(struct.unpack("<QQ", head))))
def answer():
    plan = dict(name=str(os.getpid()), engine=0, knobs=[["TILE", 3]], workspace_bytes=7, blob=4)
    content = json.dumps({"candidates": [plan]}).encode()
    answers.write(struct.pack("<QQ", len(content), 4) + content + b"blob")
    answers.flush()
"""

CUDNN = """
import sys, os
from unit.backends.cuda.libraries.fake_cudnn import FakeFrontend
print("what a library prints")
os.write(1, b"is no answer")
loaded = [name for name in ("aioinfer", "numpy", "cupy") if name in sys.modules]
frontend = FakeFrontend("loads " + ",".join(loaded), "eng1", "eng2")
frontend.refusal = os.environ.get("FAKE_CUDNN_REFUSAL", "")
end = os.environ.get("FAKE_CUDNN_END")
kept = open(end, "w") if end else None
Handle = backend_version = lambda: 0
def __getattr__(name):
    return getattr(frontend, name)
"""


@pytest.fixture
def pools() -> Iterator[list[PlanWorkers]]:
    """Collect pools to be closed."""
    made: list[PlanWorkers] = []
    yield made
    for pool in made:
        pool.close()


@pytest.fixture
def pool_of(pools: list[PlanWorkers], tmp_path: Path) -> Callable[..., PlanWorkers]:
    """Make pools of processes that run a program of a test."""

    def make(body: str, **settings: float) -> PlanWorkers:
        program = tmp_path / "program.py"
        program.write_text(PROLOGUE + textwrap.dedent(body), encoding="utf-8")
        given = {"most_workers": 1, "idle_s": 20.0, "limit_s": 20.0, **settings}
        pools.append(PlanWorkers(program=program, **given))  # type: ignore[arg-type]
        return pools[-1]

    return make


@pytest.fixture
def fake_cudnn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give processes a fake frontend."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "cudnn.py").write_text(CUDNN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def build(pool: PlanWorkers, most: int = 1) -> list[PlanCandidate]:
    return pool.build(CONV, "{}", most, 20.0)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class Caller(threading.Thread):
    """A thread that builds, and keeps what came of it."""

    def __init__(self, pool: PlanWorkers) -> None:
        super().__init__(daemon=True)
        self.pool, self.made, self.error = pool, list[PlanCandidate](), None
        self.start()

    def run(self) -> None:
        try:
            self.made = build(self.pool)
        except BaseException as error:
            self.error = error

    def ended(self) -> Caller:
        self.join(20.0)
        assert not self.is_alive()
        return self


@pytest.mark.parametrize(("level", "shown"), [("INFO", True), ("WARNING", False)])
def test_what_a_process_prints_as_it_crashes_is_shown_where_the_log_is_at_info(
    level: str,
    shown: bool,
    pool_of: Callable[..., PlanWorkers],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(level, "aioinfer")
    pool = pool_of("""
        print("a library's last words", file=sys.stderr, flush=True)
        os.abort()
    """)
    with pytest.raises(WorkerError, match="SIGABRT"):
        build(pool)
    said = capfd.readouterr().err
    assert ("last words" in said) is shown
    assert ("Fatal Python error: Aborted" in said) is shown


def test_plans_are_built_without_loading_aioinfer(
    fake_cudnn: Path, pools: list[PlanWorkers]
) -> None:
    pools.append(PlanWorkers(1))
    made = build(pools[0], most=2)
    assert [plan.name for plan in made] == ["loads ", "eng1"]
    assert [plan.blob for plan in made] == [b"plan loads ", b"plan eng1"]
    assert made[1].knobs == (("TILE_SIZE", 1),)
    assert len(build(pools[0], most=3)) == 3
    assert repr(pools[0]) == "<PlanWorkers 0 busy, 1 idle>"


def test_what_cudnn_says_is_the_error(
    fake_cudnn: Path, pools: list[PlanWorkers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CUDNN_REFUSAL", "it has no such engine")
    pools.append(PlanWorkers(1))
    with pytest.raises(WorkerError, match=r"^the graph is refused: it has no such engine$"):
        build(pools[0])


def test_without_cudnn_the_error_says_so(fake_cudnn: Path, pools: list[PlanWorkers]) -> None:
    (fake_cudnn / "cudnn.py").write_text("raise ImportError('no libcudnn')", encoding="utf-8")
    pools.append(PlanWorkers(1))
    with pytest.raises(WorkerError, match="ImportError: no libcudnn"):
        build(pools[0])


def test_a_process_ends_with_the_one_that_started_it(fake_cudnn: Path, tmp_path: Path) -> None:
    end = tmp_path / "end"
    os.mkfifo(end)
    program = """
        import json, os, sys
        sys.path[:] = json.loads(sys.argv[1])
        from unit.backends.cuda.test_plan_workers import PlanWorkers, build
        pool = PlanWorkers(1)
        build(pool)
        os._exit(0)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), json.dumps(sys.path)]
    environment = {**os.environ, "FAKE_CUDNN_END": str(end)}
    with subprocess.Popen(command, env=environment) as parent, end.open() as kept:
        assert kept.read() == ""  # the process that has it open for writing has ended
        assert parent.wait(20.0) == 0


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        ("sys.exit(3)", "ended with code 3"),
        ("answers.write(bytes(16)); answers.flush()", "gave an answer that is none"),
    ],
)
def test_a_process_that_fails_is_replaced(
    pool_of: Callable[..., PlanWorkers], tmp_path: Path, end: str, said: str
) -> None:
    first = tmp_path / "first"
    first.touch()
    pool = pool_of(
        f"""
        read()
        if os.path.exists({str(first)!r}):
            os.unlink({str(first)!r})
            {end}
        answer()
        read()
        """
    )
    with pytest.raises(WorkerError, match=said):
        build(pool)
    assert repr(pool) == "<PlanWorkers 0 busy, 0 idle>"
    (made,) = build(pool)
    assert (made.knobs, made.workspace_bytes, made.blob) == ((("TILE", 3),), 7, b"blob")


def test_a_process_that_closes_its_pipes_and_lives_on_is_ended(
    pool_of: Callable[..., PlanWorkers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_ENDING_S", 0.0)
    with pytest.raises(WorkerError, match="closed its pipes"):
        build(pool_of("read(); answers.close(); os.close(1); requests.read()"))


def test_a_process_that_hangs_is_ended(pool_of: Callable[..., PlanWorkers]) -> None:
    pool = pool_of("read(); read()", limit_s=0.0)
    with pytest.raises(WorkerError, match="gave no answer in time"):
        build(pool)
    assert repr(pool) == "<PlanWorkers 0 busy, 0 idle>"


def test_a_process_that_ended_by_itself_while_idle_is_no_failure(
    pool_of: Callable[..., PlanWorkers],
) -> None:
    pool = pool_of("read(); answer()")
    names = {build(pool)[0].name for _ in range(3)}
    assert len(names) == 3


def test_a_program_that_never_answers_is_not_started_for_ever(
    pool_of: Callable[..., PlanWorkers],
) -> None:
    with pytest.raises(WorkerError, match="had nothing to do"):
        build(pool_of("sys.exit(0)"))


def test_the_program_ends_by_itself_when_idle() -> None:
    command = [sys.executable, "-I", str(PROGRAM), json.dumps([sys.path, 0.0])]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(20.0) == 0


def test_who_finds_all_processes_busy_waits_for_one(
    pool_of: Callable[..., PlanWorkers], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pool = pool_of(
        f"""
        read()
        open({str(gate)!r}).read()
        answer()
        while True:
            read()
            answer()
        """
    )
    callers = [Caller(pool) for _ in range(3)]
    gate.write_text("")  # waits for the first one; a second one would wait for ever
    names = {caller.ended().made[0].name for caller in callers}
    assert len(names) == 1


def test_closing_ends_processes_at_work_and_who_waits(
    pool_of: Callable[..., PlanWorkers], tmp_path: Path
) -> None:
    at_work = tmp_path / "at work"
    os.mkfifo(at_work)
    pool = pool_of(f"read(); open({str(at_work)!r}, 'w').write(str(os.getpid())); read()")
    callers = [Caller(pool) for _ in range(3)]
    pid = int(at_work.read_text())
    pool.close()
    assert {type(caller.ended().error) for caller in callers} == {ClosedError}
    assert is_gone(pid)
    pool.close()
    with pytest.raises(ClosedError):
        build(pool)
    assert repr(pool) == "<PlanWorkers closed>"


def test_closing_ends_idle_processes(pool_of: Callable[..., PlanWorkers]) -> None:
    pool = pool_of("while True: read(); answer()")
    pid = int(build(pool)[0].name)
    assert not is_gone(pid)
    pool.close()
    assert is_gone(pid)


def test_a_pool_that_is_closed_while_a_process_starts_ends_it(
    pool_of: Callable[..., PlanWorkers], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of("while True: read(); answer()")
    pids: list[int] = []
    start = WorkerProcess.__init__

    def start_and_close(self: WorkerProcess, program: Path, idle_s: float) -> None:
        start(self, program, idle_s)
        pids.append(self.pid)
        pool.close()

    monkeypatch.setattr(WorkerProcess, "__init__", start_and_close)
    with pytest.raises(ClosedError):
        build(pool)
    assert is_gone(pids[0])


def test_an_interrupt_ends_the_process_whose_answer_nobody_waits_for(
    pool_of: Callable[..., PlanWorkers], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of("while True: read(); answer()")
    pid = int(build(pool)[0].name)

    def interrupted(self: WorkerProcess, timeout_s: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(WorkerProcess, "_wait_readable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(pool)
    assert is_gone(pid)
    assert int(build(pool)[0].name) != pid


@pytest.mark.parametrize("executable", ["/nowhere/python", ""])
def test_where_no_process_can_be_started_the_error_says_so(
    pool_of: Callable[..., PlanWorkers], monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    pool = pool_of("read()")
    monkeypatch.setattr(sys, "executable", executable)
    for _ in range(2):  # a failed start takes nobody's place
        with pytest.raises(WorkerError, match=r"no process .* can be started|cannot start Python"):
            build(pool)


@pytest.mark.skipif(not HAS_FORK, reason="this platform has no fork")
def test_after_a_fork_the_processes_are_the_parents(fake_cudnn: Path, tmp_path: Path) -> None:
    script = """
        import json
        sys.path[:] = json.loads(sys.argv[1])
        from aioinfer.errors import ClosedError
        from unit.backends.cuda.test_plan_workers import PlanWorkers, build
        warnings.simplefilter("error", ResourceWarning)
        pool = PlanWorkers(1)
        build(pool)
        in_child(lambda: refuses(lambda: build(pool), kind=ClosedError, text="closed"))
        build(pool)
        assert repr(pool) == "<PlanWorkers 0 busy, 1 idle>"
    """
    assert run_script(script, tmp_path, json.dumps(sys.path)).stderr == ""
