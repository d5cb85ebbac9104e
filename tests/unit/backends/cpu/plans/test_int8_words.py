"""The words of the native kernels for int8 have the same names and places on both sides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_type_hints

import pytest

from aioinfer.backends.cpu.native import int8_sizes
from aioinfer.backends.cpu.plans.int8_words import WORD_COUNT, Int8Words

HEADER = Path(__file__).parents[5] / "backends/cpu/native/int8/product.h"


def test_sizes_are_those_that_kernels_are_compiled_with() -> None:
    text = HEADER.read_text(encoding="utf-8")
    defined = dict(re.findall(r"^#define (\w+) (\d+)\b", text, flags=re.MULTILINE))
    found = {name: getattr(int8_sizes, name) for name in int8_sizes.__all__}
    assert found == {name: int(defined[name]) for name in found}


def test_words_have_the_order_of_the_struct_that_they_become() -> None:
    text = HEADER.read_text(encoding="utf-8")
    text = text.partition("struct product {")[2].partition("What follows")[0]
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    fields = [
        name.strip() for line in re.findall(r"int64_t ([^;]*);", text) for name in line.split(",")
    ]
    kinds = get_type_hints(Int8Words)
    assert fields == [
        f"{name}[2]" if kinds[name] is not int else name for name in Int8Words._fields
    ]


def test_what_is_read_is_what_was_written() -> None:
    numbers = list(range(WORD_COUNT))
    words = Int8Words.read([*numbers, 77])
    assert words.window == (5, 6)
    assert words.step_count == WORD_COUNT - 1
    assert list(words.flat()) == numbers


def test_too_few_words_are_refused() -> None:
    with pytest.raises(ValueError, match="26 are needed"):
        Int8Words.read([1] * (WORD_COUNT - 1))
