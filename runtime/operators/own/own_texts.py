"""Normalised texts; onnx.reference takes accents off, drops what is empty and sets the locale.

Case is changed letter by letter, as onnxruntime does, so no text gets longer: "ß" is its own upper
case. The locale says nothing here: that of a process belongs to all of its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ..plain_operators import Array
from .own_operators import own

__all__ = ["normalize_texts"]


@own("StringNormalizer", since=10)
def normalize_texts(
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: Sequence[str] = (),
) -> Array:
    """Leave stop words out of the texts (C,) or (1, C), and change the case of the others.

    If all are left out there is one text, which is empty. Raises ValueError for another shape, or
    an action that is none.
    """
    if x.ndim not in (1, 2) or (x.ndim == 2 and len(x) != 1):
        raise ValueError(f"x of shape {x.shape} is neither texts nor one row of them")
    if case_change_action not in _CASES:
        raise ValueError(f"case_change_action {case_change_action!r} is not LOWER, UPPER or NONE")
    change = _CASES[case_change_action]
    compared = _unchanged if is_case_sensitive else _lower
    left_out = {compared(word) for word in stopwords}
    texts = [str(text) for text in x.reshape(-1).tolist()]
    kept = [change(text) for text in texts if compared(text) not in left_out] or [""]
    made = np.array(kept, object)
    return made if x.ndim == 1 else made[None]


def _lower(text: str) -> str:
    return text.lower() if text.isascii() else "".join(letter.lower()[0] for letter in text)


def _upper(text: str) -> str:
    if text.isascii():
        return text.upper()
    changed = ((letter, letter.upper()) for letter in text)
    return "".join(upper if len(upper) == 1 else letter for letter, upper in changed)


def _unchanged(text: str) -> str:
    return text


_CASES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"LOWER": _lower, "UPPER": _upper, "NONE": _unchanged}
)
