"""A fork waits for imports that calls have under way, so that no child waits for a dead thread."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aioinfer.executors import late_imports as module
from aioinfer.executors.late_imports import LateImports
from child_process import HAS_FORK, run_script

WAIT_S = 20
FORK = pytest.mark.skipif(not HAS_FORK, reason="this system has no fork")

START = """
    import os, signal, sys, threading, types
    sys.path.insert(0, os.getcwd())
    import aioinfer
    from aioinfer.executors import late_imports as module
    from aioinfer.executors.late_imports import late_imports

    gate = sys.modules["gate"] = types.ModuleType("gate")
    gate.is_under_way, gate.may_end, ended = threading.Event(), threading.Event(), []

    def fork_beside(load, check):
        '''Fork while load() is within a module's body, and call check() in the child.'''
        def fork():
            def limited():
                signal.alarm(15)
                check()
            in_child(limited)
            ended.append("fork")

        importing = threading.Thread(target=lambda: (load(), ended.append("import")))
        importing.start()
        assert gate.is_under_way.wait(20)
        forking = threading.Thread(target=fork)
        forking.start()
        while forking.is_alive() and not late_imports.waiting_count:
            os.sched_yield()
        gate.may_end.set()
        importing.join()
        forking.join()
        assert sorted(ended) == ["fork", "import"], ended
"""
SLOW = """
import gate
gate.is_under_way.set()
assert gate.may_end.wait(20)
class Found: pass
"""


def run(script: str, folder: Path) -> str:
    (folder / "late").mkdir()
    (folder / "late" / "__init__.py").touch()
    (folder / "late" / "slow.py").write_text(SLOW)
    return run_script(textwrap.dedent(START) + textwrap.dedent(script), folder).stderr


@FORK
@pytest.mark.parametrize(
    "load",
    [
        "OperatorFamilies('late', {'slow': 'Relu'}).load('', 'Relu')",
        "OperatorFamilies('late', {'slow': 'Relu'}).load_all()",
        "LatePass('late', 'slow:Found', 'found', 'Relu').made()",
        "InstalledDevice('SLOW', 'late.slow:Found').load()",
    ],
)
def test_a_child_imports_what_its_parent_had_under_way(load: str, tmp_path: Path) -> None:
    run(
        f"""
        from aioinfer.runtime.devices.installed_devices import InstalledDevice
        from aioinfer.runtime.graph.operator_families import OperatorFamilies
        from aioinfer.runtime.passes.rewriting.late_pass import LatePass

        fork_beside(lambda: {load}, lambda: {load})
        """,
        tmp_path,
    )


@FORK
def test_a_child_may_import_and_fork_in_its_turn(tmp_path: Path) -> None:
    run(
        """
        import importlib
        def load():
            with late_imports:
                importlib.import_module("late.slow")

        def check():
            load()
            in_child(load)

        fork_beside(load, check)
        """,
        tmp_path,
    )


@FORK
def test_a_child_starts_a_device_that_its_parent_had_under_way(tmp_path: Path) -> None:
    run(
        """
        from aioinfer.backends.reference.plugin import ReferencePlugin
        lock = threading.Lock()  # of what there is once in the process

        class Slow(ReferencePlugin):
            def __init__(self, core, name):
                with lock:
                    gate.is_under_way.set()
                    assert gate.may_end.wait(20)
                super().__init__(core, name)

        def load():
            with aioinfer.Core() as core:
                core.register_plugin("SLOW", Slow)
                core.plugin_of("SLOW")

        fork_beside(load, load)
        """,
        tmp_path,
    )


@FORK
def test_an_import_that_forks_itself_goes_on_in_the_child(tmp_path: Path) -> None:
    run(
        """
        with late_imports:
            with late_imports:
                def check():
                    import wave
                in_child(check)
            forked = os.fork()
        assert late_imports.waiting_count == 0
        if forked:
            assert os.waitpid(forked, 0)[1] == 0
        else:
            in_child(lambda: None)
            os._exit(0)
        """,
        tmp_path,
    )


@FORK
def test_an_import_may_wait_for_the_lock_of_logging_which_a_fork_holds(tmp_path: Path) -> None:
    run(
        """
        import logging
        module.PATIENCE_S = 1e6

        def load():
            with late_imports:
                gate.is_under_way.set()
                while not late_imports.waiting_count:
                    os.sched_yield()
                logging.getLogger("new.one").setLevel(10)

        fork_beside(load, lambda: logging.getLogger("new.other").setLevel(10))
        """,
        tmp_path,
    )


@FORK
def test_a_fork_waits_for_no_import_that_does_not_end(tmp_path: Path) -> None:
    told = run(
        """
        module.PATIENCE_S = 0.05

        def load():
            with late_imports:
                gate.is_under_way.set()
                gate.may_end.wait(20)

        def check():
            with late_imports:
                import wave

        importing = threading.Thread(target=load)
        importing.start()
        assert gate.is_under_way.wait(20)
        in_child(check)
        gate.may_end.set()
        importing.join()
        in_child(check)
        """,
        tmp_path,
    )
    assert told.count("a fork goes on after 0.05 s amid an import, or a device's start, that") == 1


def test_threads_that_import_do_not_wait_for_each_other() -> None:
    imports, both = LateImports(), threading.Barrier(2)

    def load() -> None:
        with imports, imports:
            both.wait(WAIT_S)

    other = threading.Thread(target=load)
    other.start()
    load()
    other.join()
    imports.before_fork()  # waits for nobody
    imports.after_in_parent()


def test_an_import_that_fails_has_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    imports, told = LateImports(), list[Callable[[], None]]()

    def load() -> None:
        try:
            with imports:
                raise ImportError("there is none")
        except ImportError:
            told.append(load)

    other = threading.Thread(target=load)
    other.start()
    other.join()
    assert told == [load]
    with imports:
        imports.before_fork()
        imports.after_in_child()
        imports.before_fork()
        imports.after_in_parent()
    assert not caplog.records
