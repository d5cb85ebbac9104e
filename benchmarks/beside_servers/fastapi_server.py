"""A model behind minimal FastAPI and onnxruntime: what ``serving.py`` stands beside.

It takes and gives JSON as people write it first: ``{"input": nested lists}`` and back. The session
runs in the framework's thread pool, so that the loop goes on, with as many threads as CPUs.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import onnxruntime


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


def serve_fastapi(file: str, port: int) -> None:
    import uvicorn
    from fastapi import Body, FastAPI
    from fastapi.responses import JSONResponse

    service, runner = FastAPI(), Runner(file)

    @service.post("/predict")
    def predict(document: dict[str, Any] = Body()) -> JSONResponse:  # noqa: B008  # FastAPI's way
        return JSONResponse(runner.run(document))

    uvicorn.run(service, port=port, log_level="warning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    serve_fastapi(options.model, options.port)


if __name__ == "__main__":
    main()
