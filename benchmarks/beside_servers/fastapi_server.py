"""A model behind minimal FastAPI and onnxruntime: what ``serving.py`` stands beside.

It takes and gives JSON as people write it first: ``{"input": nested lists}`` and back. The session
runs in the framework's thread pool, so that the loop goes on, with as many threads as CPUs. Beside
it ``/raw`` takes and gives the bytes of one float32 input and output, for models of one of each.
"""

from __future__ import annotations

from typing import Any

import uvicorn
from fastapi import Body, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from session_runner import Runner, read_options


def serve_fastapi(file: str, port: int) -> None:
    service, runner = FastAPI(), Runner(file)

    @service.post("/predict")
    def predict(document: dict[str, Any] = Body()) -> JSONResponse:  # noqa: B008  # FastAPI's way
        return JSONResponse(runner.run(document))

    @service.post("/raw")
    async def raw(request: Request) -> Response:
        body = await request.body()
        return Response(await run_in_threadpool(runner.run_raw, body))

    uvicorn.run(service, port=port, log_level="warning")


def main() -> None:
    options = read_options(__doc__)
    serve_fastapi(options.model, options.port)


if __name__ == "__main__":
    main()
