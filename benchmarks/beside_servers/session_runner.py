"""A model of onnxruntime, and the options of a server, as the peers of ``serving.py`` have them."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import onnxruntime


def read_options(description: str | None) -> argparse.Namespace:
    """Read a peer's command line: ``model``, a file, and ``port``."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_args()


class Runner:
    """A session, and its inputs' types by name."""

    def __init__(self, file: str) -> None:
        self._session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
        self._dtypes = {each.name: kinds[each.type] for each in self._session.get_inputs()}
        self._names = [each.name for each in self._session.get_outputs()]

    def run(self, document: dict[str, Any]) -> dict[str, Any]:
        feed = {name: np.asarray(document[name], dtype) for name, dtype in self._dtypes.items()}
        results = self._session.run(None, feed)
        return {name: array.tolist() for name, array in zip(self._names, results, strict=True)}

    def run_raw(self, data: bytes) -> bytes:
        given = self._session.get_inputs()[0]
        shape = [length if isinstance(length, int) else 1 for length in given.shape]
        array = np.frombuffer(data, np.float32).reshape(shape)
        result: bytes = self._session.run(None, {given.name: array})[0].tobytes()
        return result
