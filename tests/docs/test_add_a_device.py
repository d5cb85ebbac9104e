"""The page on adding a device shows the toy device as it is."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "examples" / "03_custom_device"


def blocks(language: str) -> list[str]:
    page = (ROOT / "docs" / "add-a-device.md").read_text(encoding="utf-8")
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return found


def without_blank_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_the_blocks_of_the_page_are_the_module() -> None:
    module = (TOY / "aioinfer_toy.py").read_text(encoding="utf-8")
    code = module.partition('"""\n\n')[2]  # what comes after the docstring
    *shown, _trial = blocks("python")
    assert without_blank_lines("\n".join(shown)) == without_blank_lines(code)


def test_the_page_shows_the_packaging() -> None:
    (shown,) = blocks("toml")
    assert shown == (TOY / "pyproject.toml").read_text(encoding="utf-8")
