"""One way to a first result in a process of its own, step by step, as the parent asks for it.

    python -c "..." WAY MODEL FOLDER INPUTS

Says "ready" when the network is there and "ran" after its first result; waits for a line before
each step if it is asked to.
"""

from __future__ import annotations

import sys

from .starts import STARTS, Files

__all__ = ["main"]


def main(way: str, model: str, folder: str, inputs: str, *, waits: bool = False) -> None:
    started = STARTS[way](Files(model, folder))
    _say("ready", waits)
    import numpy as np

    with np.load(inputs) as arrays:
        given = dict(arrays)
    started.infer(given)
    _say("ran", waits)


def _say(word: str, waits: bool) -> None:
    print(word, flush=True)
    if waits:
        sys.stdin.readline()
