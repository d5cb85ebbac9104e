"""Scripts in processes of their own, and what they share: forked children and refusals there.

Imported by the scripts as well, so it needs the standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

__all__ = ["HAS_FORK", "in_child", "refuses", "run_script"]

HAS_FORK = hasattr(os, "fork")
_START = f"""
import sys, warnings
warnings.simplefilter("ignore")  # newer Pythons warn of fork beside threads
sys.path.append({str(Path(__file__).parent)!r})
from child_process import in_child, refuses
"""


def run_script(
    script: str, folder: Path, *arguments: str, exit_code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder and return its end; a hang fails the test."""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", _START + textwrap.dedent(script), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ended.returncode == exit_code, ended.stderr
    return ended


def in_child(check: Callable[[], object]) -> None:
    """Fork, and call ``check`` in the child; its failure is shown, and fails the parent."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            check()
            code = 0
        except BaseException as error:
            print("child:", repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def refuses(call: Callable[[], object], *, kind: type[Exception], text: str) -> None:
    """Check that a call raises an error of a kind that says this."""
    try:
        returned = call()
    except kind as error:
        if text not in str(error):
            raise AssertionError(f"the error says something else: {error}") from error
    else:
        raise AssertionError(f"was not refused, and returned {returned!r}")
