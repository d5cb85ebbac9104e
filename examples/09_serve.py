"""Serve digits by the Open Inference Protocol from a service of one's own, beside its other pages.

Run python examples/09_serve.py; then docs/serving.md's curl lines
with /inference before /v2.
"""

from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import aioinfer
import aioinfer.serving

MODEL = Path(__file__).parent / "digits" / "digits.onnx"


async def hello(request: object) -> PlainTextResponse:
    return PlainTextResponse("the models are below /inference/v2\n")


def make_service(core: aioinfer.Core) -> Starlette:
    network = core.load_network(MODEL, "AUTO", {"MAX_QUEUED_REQUESTS": 64})
    models = aioinfer.serving.app([network])
    return Starlette(routes=[Route("/", hello), Mount("/inference", models)])


if __name__ == "__main__":
    with aioinfer.Core() as core:
        uvicorn.run(make_service(core), port=8000)
