"""Every fenced example of README.md and docs/ runs.

Each page runs in a process and a folder of its own, which holds `model.onnx`. Its `python` blocks
share one namespace and one event loop, and may await at top level. Of its `sh` blocks the lines
with `aioinfer` or `python -m aioinfer` run; installing, `make` and the like are skipped by rule,
and any other command is an error. Blocks in another language, such as `text`, are not run.

Run as a program, with pages as its arguments, this file runs these in the current folder.
"""

import ast
import asyncio
import inspect
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples" / "digits" / "digits.onnx"

FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<language>[\w+-]*)")
PYTHON = {"py", "python", "python3"}
SHELL = {"bash", "console", "sh", "shell"}
RUN = re.compile(r"(\w+=\S* )*(aioinfer|python3? -m aioinfer)\b")
SKIP = re.compile(r"(pip|python3? -m (pip|venv)|make|git|cd|source|\.ci/run)\b|\. ")

PAGE_TIMEOUT_S = 240


@dataclass(frozen=True)
class Block:
    """One fenced example. line: the number of its first line, under the fence."""

    language: str
    line: int
    text: str


def blocks_of(page: str) -> Iterator[Block]:
    """Yield a page's fenced blocks in order. Raises ValueError for one that is never closed."""
    lines = iter(enumerate(page.splitlines(), start=1))
    for number, line in lines:
        opening = FENCE.match(line)
        if not opening:
            continue
        fence, inside = opening["fence"], []
        for _, text in lines:
            closing = text.strip()
            if closing.startswith(fence) and not closing.strip(fence[0]):
                break
            inside.append(text)
        else:
            raise ValueError(f"line {number}: the fence is never closed")
        yield Block(opening["language"].lower(), number + 1, textwrap.dedent("\n".join(inside)))


def commands_of(block: Block) -> list[tuple[int, str]]:
    """List a shell block's commands that run, each with its line in the page.

    Raises ValueError for a command that is neither run nor skipped by rule.
    """
    commands = []
    parts: list[str] = []
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        parts.append(line.strip().removeprefix("$ ").removesuffix("\\").strip())
        if line.endswith("\\"):
            continue
        first, command, parts = number - len(parts) + 1, " ".join(parts), []
        if RUN.match(command):
            commands.append((first, command))
        elif command and not command.startswith("#") and not SKIP.match(command):
            raise ValueError(
                f"line {first}: {command!r} is neither run nor skipped by rule; "
                "show it in a ```text block, or extend RUN or SKIP in tests/docs/test_examples.py"
            )
    return commands


def has_examples(page: Path) -> bool:
    """Whether anything of a page runs. Raises ValueError for a fence that is never closed."""
    languages = {block.language for block in blocks_of(page.read_text(encoding="utf-8"))}
    return not languages.isdisjoint(PYTHON | SHELL)


def run_python(block: Block, page: Path, names: dict[str, Any], loop: asyncio.Runner) -> None:
    """Run a block in the page's namespace; tracebacks show the page and its line."""
    text = "\n" * (block.line - 1) + block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(text, str(page), "exec", flags=flags, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        loop.run(eval(code, names))
    else:
        exec(code, names)


def run_shell(block: Block, page: Path) -> None:
    """Run a block's commands with bash, with this interpreter's programs first on the path."""
    here = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": here + os.pathsep + os.environ["PATH"]}
    for number, command in commands_of(block):
        print(f"$ {command}", flush=True)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], env=environment)
        if done.returncode != 0:
            raise SystemExit(f"{page}, line {number}: exit status {done.returncode}: {command}")


def run_page(page: Path) -> None:
    """Run all of a page's examples, in order, in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as loop:
        for block in blocks_of(page.read_text(encoding="utf-8")):
            if block.language in PYTHON:
                run_python(block, page, names, loop)
            elif block.language in SHELL:
                run_shell(block, page)


def run_page_alone(page: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    return run_pages_alone([page], folder)


def run_pages_alone(pages: Sequence[Path], folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", __file__, *map(str, pages)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PAGE_TIMEOUT_S
    )


PAGES = [
    page
    for page in sorted([*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md")])
    if has_examples(page)
]


@pytest.mark.timeout(PAGE_TIMEOUT_S + 30)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "model.onnx")
    done = run_page_alone(page, tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Exception ignored" not in done.stderr, done.stderr  # a warning in a destructor


def write_page(folder: Path, *blocks: tuple[str, str]) -> Path:
    page = folder / "page.md"
    page.write_text(
        "# A page\n\n" + "\n".join(f"```{name}\n{text}\n```\n" for name, text in blocks)
    )
    return page


def test_python_blocks_share_names_and_a_loop(tmp_path: Path) -> None:
    page = write_page(
        tmp_path,
        (
            "python",
            "import asyncio\nevent = asyncio.Event()\nasync def wait():\n    await event.wait()",
        ),
        (
            "python",
            "waiter = asyncio.create_task(wait()) if False else None\nawait asyncio.sleep(0)",
        ),
        (
            "python",
            "task = asyncio.get_running_loop().create_task(wait())\nevent.set()\nawait task",
        ),
        ("python", "asyncio.run(asyncio.sleep(0))\nprint('done')"),
        ("text", "1 / 0"),
        ("", "1 / 0"),
    )
    done = run_page_alone(page, tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_failing_python_block_names_the_page_and_the_line(tmp_path: Path) -> None:
    page = write_page(tmp_path, ("python", "x = 1"), ("python", "x = 2\nx / 0"))
    done = run_page_alone(page, tmp_path)
    assert done.returncode == 1
    assert f'page.md", line {page.read_text().splitlines().index("x / 0") + 1}' in done.stderr
    assert "x / 0" in done.stderr


def test_a_warning_in_an_example_is_an_error(tmp_path: Path) -> None:
    page = write_page(tmp_path, ("python", "import warnings\nwarnings.warn('old')"))
    assert run_page_alone(page, tmp_path).returncode == 1


def test_a_failing_command_names_its_line(tmp_path: Path) -> None:
    page = write_page(tmp_path, ("sh", "pip install aioinfer\naioinfer --no-such-option"))
    done = run_page_alone(page, tmp_path)
    assert done.returncode == 1
    assert "page.md, line 5: exit status" in done.stderr


def test_commands_run_or_are_skipped_by_rule() -> None:
    text = (
        "# a comment\n$ make demo\npip install -e .\npython3 -m venv .venv\n. .venv/bin/activate\n"
        "\n"
        "$ aioinfer devices\nAIOINFER_X=1 python -m aioinfer \\\n    explain model.onnx | head"
    )
    assert commands_of(Block("sh", 10, text)) == [
        (16, "aioinfer devices"),
        (17, "AIOINFER_X=1 python -m aioinfer explain model.onnx | head"),
    ]


@pytest.mark.parametrize("command", ["rm -rf x", "aioinfers", "python example.py", "makefile"])
def test_a_command_without_a_rule_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match=r"line 3: .* neither run nor skipped"):
        commands_of(Block("sh", 3, command))


def test_a_block_ends_at_a_fence_like_its_own() -> None:
    page = "````python\n```\n````\n~~~sh\nmake\n~~~\n- item\n  ```python\n  x = 1\n  ```\n"
    assert list(blocks_of(page)) == [
        Block("python", 2, "```"),
        Block("sh", 5, "make"),
        Block("python", 9, "x = 1"),
    ]


def test_a_block_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match=r"line 2: .* never closed"):
        list(blocks_of("text\n```python\nx = 1\n"))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        run_page(Path(argument))
