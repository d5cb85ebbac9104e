"""What onnx's own code says in its helper process, asked once a case: each device reads it anew.

Its answers depend on nothing but the question, and take a third of a case's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aioinfer.runtime.onnx_native.helper_process import Helper

__all__ = ["asked_once"]

_Question = tuple[int, int, bytes]


@contextmanager
def asked_once() -> Iterator[Callable[[], None]]:
    """Remember the answers of helpers; gives what forgets them, for the next case."""
    exchange = Helper.exchange
    answers: dict[_Question, tuple[bool, bytes]] = {}

    def remembered(
        self: Helper, call: int, argument: int, content: bytes, limit_s: float
    ) -> tuple[bool, bytes]:
        question = call, argument, content
        if question not in answers:
            answers[question] = exchange(self, call, argument, content, limit_s)
        return answers[question]

    Helper.exchange = remembered  # type: ignore[method-assign]
    try:
        yield answers.clear
    finally:
        Helper.exchange = exchange  # type: ignore[method-assign]
