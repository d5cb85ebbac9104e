"""Every source file and folder that README.md, docs/, Makefile and CI name is in the tree.

A name may be the end of a path (`plan_cache.py`, `graph/slabs.py`), have `*` in it, and list
alternatives in braces.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from architecture.tree import ROOT

PARTS = [
    "aioinfer",
    "backends",
    "benchmarks",
    "docs",
    "examples",
    "executors",
    "runtime",
    "serving",
    "tests",
]
PAGES = [
    *(ROOT / name for name in ("README.md", "Makefile", ".ci/run")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

NAME = r"[\w{},*.<>-]+"
FILE = re.compile(rf"(?:{NAME}/)*{NAME}\.(?:py|c|h)\b(?![\w.]*\()")
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(PARTS)})/(?:{NAME}/?)*")
BRACES = re.compile(r"\{([^{}]*)\}")


def expanded(name: str) -> Iterator[str]:
    """Yield the names that braces stand for; ``<name>`` stands for anything."""
    found = BRACES.search(name)
    if found is None:
        yield re.sub("<[^<>]*>", "*", name)
        return
    for choice in found[1].split(","):
        yield from expanded(name[: found.start()] + choice + name[found.end() :])


def paths_in_tree() -> list[str]:
    found = [f"/{path.name}" for path in ROOT.glob("*.py")]
    for part in [*PARTS, ".ci"]:
        for path in [ROOT / part, *(ROOT / part).rglob("*")]:
            if "__pycache__" not in path.parts:
                found.append("/" + path.relative_to(ROOT).as_posix())
    return found


def missing_names(text: str, paths: list[str]) -> list[str]:
    """List what a page names as a file or a folder and no path ends with."""
    named = {name for found in FILE.findall(text) for name in expanded(found)}
    ends = {f"*/{name}" for name in named}
    for found in PATH.findall(text):
        ends |= {f"/{name.rstrip('/.,')}" for name in expanded(found)}
    return sorted(end for end in ends if not any(fnmatchcase(path, end) for path in paths))


@pytest.fixture(scope="module")
def paths() -> list[str]:
    return paths_in_tree()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_in_the_tree(page: Path, paths: list[str]) -> None:
    assert missing_names(page.read_text(encoding="utf-8"), paths) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`plan.py` and `cpu/plan.py`", ["*/cpu/plan.py"]),
        ("`cpu/plans/{plan,plans}.py`", ["*/cpu/plans/plans.py"]),
        ("`plans/pl*.py`, `old_*.py`", ["*/old_*.py"]),
        ("`backends/cpu/plans/` over `backends/gpu`", ["/backends/gpu"]),
        ("`backends/<device>/plans/<family>.py`", []),
    ],
)
def test_missing_names_are_found(text: str, missing: list[str]) -> None:
    paths = ["/backends", "/backends/cpu", "/backends/cpu/plans", "/backends/cpu/plans/plan.py"]
    assert missing_names(text, paths) == missing
