"""What is read and written as JSON is what Python's json reads and writes, with msgspec or not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinfer.serving.protocol import json_text
from aioinfer.serving.protocol.json_text import read_json, write_json
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.protocol.refusal import RefusedError

LIMITS = Limits()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
TAKEN = [
    b"[1e999]",
    b"[-0, -0.0, 1E5, 5e-324]",
    b"[NaN, -Infinity]",
    b'"\\ud800"',
    b"\xef\xbb\xbf[1]",
]
REFUSED = [b"", b"[1,]", b"[01]", b'"\x01"', b"[1]x", b'"\xff"', b"\xff\xfe[\0", b"1" * 5000]


@given(VALUES)
def test_a_text_is_read_as_json_reads_it(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        wanted = json.loads(str(text, "utf-8"))
    except UnicodeDecodeError:
        with pytest.raises(RefusedError, match="UTF-8"):
            read_json(text, LIMITS)
    else:
        assert repr(read_json(text, LIMITS)) == repr(wanted)


@pytest.mark.parametrize("has_msgspec", [True, False])
@pytest.mark.parametrize("text", TAKEN)
def test_what_only_json_takes_is_taken(
    monkeypatch: pytest.MonkeyPatch, text: bytes, has_msgspec: bool
) -> None:
    if not has_msgspec:
        monkeypatch.setattr(json_text, "_read", None)
    assert repr(read_json(text, LIMITS)) == repr(json.loads(str(text, "utf-8-sig")))


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_json_is_refused_and_says_where(text: bytes) -> None:
    with pytest.raises(RefusedError, match="the body is not"):
        read_json(text, LIMITS)


@pytest.mark.parametrize("has_msgspec", [True, False])
def test_numbers_are_written_to_the_bit(monkeypatch: pytest.MonkeyPatch, has_msgspec: bool) -> None:
    if not has_msgspec:
        monkeypatch.setattr(json_text, "_write", None)
    bits = np.random.default_rng(0).integers(0, 1 << 64, 20_000, dtype=np.uint64)
    double, single = bits.view(np.float64), bits.view(np.float32)
    for numbers in (double, single):
        flat = numbers[np.isfinite(numbers)].tolist()
        again = json.loads(write_json({"data": flat}))["data"]
        assert again == flat


def test_a_text_without_utf_8_is_written_with_escapes() -> None:
    assert json.loads(write_json({"text": "\udcff"})) == {"text": "\udcff"}


def test_what_is_too_deep_for_the_readers_is_refused_where_limits_allow_it() -> None:
    depth = 200_000
    limits = Limits(json_depth=depth, json_list_count=depth)
    with pytest.raises(RefusedError, match="can be read"):
        read_json(b"[" * depth + b"]" * depth, limits)
