"""Answers of onnxruntime about single nodes, which cost a session each: the latest are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["RememberedAnswers"]

REMEMBERED_COUNT = 4096  # a digest, and a text or some types, each

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class RememberedAnswers(Generic[Key, Answer]):
    """What was answered last, by key; those that were wanted longest ago go first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[Key, Answer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: Key, ask: Callable[[], Answer]) -> Answer:
        """Return the answer to a key, which ``ask`` gives if it is not known, without a lock."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        answer = ask()
        with self._lock:
            self._answers[key] = answer
            while len(self._answers) > REMEMBERED_COUNT:
                self._answers.popitem(last=False)
        return answer
