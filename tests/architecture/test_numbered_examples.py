"""Examples are numbered without gaps, and README names each."""

import re

from architecture.tree import ROOT

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("[0-9]*"))


def test_numbers_have_no_gaps() -> None:
    assert [int(name[:2]) for name in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))


def test_programs_beside_them_are_numbered() -> None:
    programs = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert all(re.fullmatch(r"\d\d_\w+\.py", name) for name in programs), programs


def test_readme_has_a_line_for_each() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^- `examples/(\d\d_[\w.]+)`", readme, re.MULTILINE)
    assert sorted(lines) == EXAMPLES
