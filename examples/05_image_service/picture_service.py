"""A service that says what is in a picture: bytes of a JPEG in, the five likeliest classes out.

    python examples/05_image_service/picture_service.py --port 8000
    curl --data-binary @cat.jpg http://127.0.0.1:8000/classify

``POST /classify`` answers 200; 400 for what is no picture, 413 for too large a body, 503 when too
many wait already, 504 when the deadline has passed (header ``x-deadline-ms``), and no answer when
the client has gone: its run is cancelled. ``POST /reload`` exchanges the model under load,
``GET /health`` says which one answers. After SIGTERM the requests under way end first.

Decoding, resizing and the five classes are stages of the network's runs, on threads of their own;
the event loop does HTTP and nothing else. The model is MobileNetV2 with random weights unless
``--model`` names a file with one input of pictures and one output of logits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aioinfer
from aioinfer.errors import (
    AioInferError,
    ClosedError,
    DeadlineExceededError,
    OverloadedError,
    TensorError,
)
from aioinfer.images import ImageDecoder
from pictures.mobilenet import mobilenet_v2

MAX_BODY_BYTES = 8 << 20
CONFIG = {"PERFORMANCE_HINT": "THROUGHPUT", "MAX_QUEUED_REQUESTS": 64, "DEFAULT_DEADLINE_S": 2.0}
MEAN, SCALE = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
BEST_COUNT = 5

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Answer = tuple[int, Mapping[str, Any]]


def likeliest(outputs: Mapping[str, np.ndarray]) -> list[dict[str, float]]:
    """Return the likeliest classes of one picture, the first one first."""
    (logits,) = outputs.values()
    scores = np.exp(logits[0] - logits[0].max())
    best = np.argsort(scores)[: -BEST_COUNT - 1 : -1]
    return [{"class": int(k), "score": round(float(scores[k] / scores.sum()), 4)} for k in best]


class Classifier:
    """The latest network of a model; ``classify`` may be awaited while ``reload`` runs."""

    def __init__(
        self, core: aioinfer.Core, path: str | None, device: str, config: Mapping[str, Any]
    ) -> None:
        self._core, self._path, self._device, self._config = core, path, device, config
        self._network: aioinfer.ExecutableNetwork | None = None
        self._reloading = asyncio.Lock()
        self.version = 0

    async def reload(self) -> None:
        """Load the model again beside the old one, and let that finish what it has begun."""
        async with self._reloading:
            network = await asyncio.to_thread(self._load, self.version)
            await network.warm_up_async()
            old, self._network = self._network, network
            self.version += 1
        if old is not None:
            await old.aclose()

    def _load(self, seed: int) -> aioinfer.ExecutableNetwork:
        model = self._core.read_model(self._path or mobilenet_v2(seed))
        port = model.inputs[0]
        size = port.type.shape[-1]
        model.reshape({port.name: (1, *port.type.shape[1:])})
        ppp = aioinfer.PrePostProcessor(model)
        ppp.input().tensor().set_element_type("u8").set_layout("NHWC")
        ppp.input().preprocess().convert_element_type("f32").mean(MEAN).scale(SCALE)
        ppp.input().model().set_layout("NCHW")
        decoder = ImageDecoder(size, size, fit="cover")
        return self._core.load_network(
            ppp.build(),
            self._device,
            self._config,
            name="classifier",
            preprocess={port.name: decoder},
            postprocess=likeliest,
        )

    async def classify(self, picture: bytes, deadline_s: float | None) -> list[dict[str, float]]:
        while True:
            network = self._network
            assert network is not None
            try:
                return await network.infer(picture, deadline_s=deadline_s)
            except ClosedError:
                if network is self._network:  # closed for good, and not exchanged
                    raise

    def statistics(self) -> Mapping[str, int]:
        assert self._network is not None
        counts = self._network.statistics()
        return {
            "finished": counts.finished_request_count,
            "cancelled": counts.cancelled_request_count,
        }


class ImageService:
    """The ASGI application; any ASGI server runs it."""

    def __init__(
        self,
        model: str | None = None,
        device: str = "AUTO",
        config: Mapping[str, Any] = CONFIG,
    ) -> None:
        self._model, self._device, self._config = model, device, config
        self.classifier: Classifier
        self.left_count = 0
        """How many clients went away before they had an answer."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        handlers = {
            ("POST", "/classify"): self._classify,
            ("POST", "/reload"): self._reload,
            ("GET", "/health"): self._health,
        }
        handler = handlers.get((scope["method"], scope["path"]))
        if handler is None:
            await _send(send, 404, {"error": f"there is {', '.join(p for _, p in handlers)}"})
            return
        answer = await handler(scope, receive)
        if answer is not None:
            await _send(send, *answer)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        async with aioinfer.Core() as core:
            self.classifier = Classifier(core, self._model, self._device, self._config)
            try:
                await self.classifier.reload()
            except AioInferError as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()  # lifespan.shutdown, when no request is left
        await send({"type": "lifespan.shutdown.complete"})

    async def _classify(self, scope: Mapping[str, Any], receive: Receive) -> Answer | None:
        """Answer one client; None if it has gone."""
        try:
            picture = await _read_body(receive)
            deadline_s = _deadline_of(scope)
        except ValueError as error:
            return 400, {"error": str(error)}
        if picture is None:
            return None
        if len(picture) > MAX_BODY_BYTES:
            return 413, {"error": f"a picture has {MAX_BODY_BYTES} bytes at most"}
        run = asyncio.ensure_future(self.classifier.classify(picture, deadline_s))
        gone = asyncio.ensure_future(receive())  # comes when the client goes
        try:
            await asyncio.wait((run, gone), return_when=asyncio.FIRST_COMPLETED)
            if not run.done():
                self.left_count += 1
                return None
            return await _told(run)
        finally:
            gone.cancel()
            run.cancel()  # without effect on one that is done

    async def _reload(self, scope: Mapping[str, Any], receive: Receive) -> Answer:
        try:
            await self.classifier.reload()
        except AioInferError as error:  # the old model goes on
            return 500, {"error": str(error)}
        return 200, {"version": self.classifier.version}

    async def _health(self, scope: Mapping[str, Any], receive: Receive) -> Answer:
        facts = {"version": self.classifier.version, "left": self.left_count}
        return 200, {**facts, **self.classifier.statistics()}


async def _told(run: Awaitable[list[dict[str, float]]]) -> Answer:
    try:
        return 200, {"classes": await run}
    except TensorError as error:
        return 400, {"error": str(error)}
    except OverloadedError as error:
        return 503, {"error": f"{error.waiting_count} wait already; try again later"}
    except DeadlineExceededError as error:
        return 504, {"error": f"not ready after {error.elapsed_s:.3f} s"}
    except AioInferError as error:
        return 500, {"error": str(error)}


async def _read_body(receive: Receive) -> bytes | None:
    """Read a body, and of one that is too large a little more than allowed; None: they are gone."""
    parts: list[bytes] = []
    left, has_more = MAX_BODY_BYTES, True
    while has_more and left >= 0:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        left -= len(parts[-1])
        has_more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _deadline_of(scope: Mapping[str, Any]) -> float | None:
    for name, value in scope["headers"]:
        if name == b"x-deadline-ms":
            milliseconds = float(value)
            if not milliseconds > 0:
                raise ValueError("x-deadline-ms is a number of milliseconds above 0")
            return milliseconds / 1e3
    return None


async def _send(send: Send, status: int, content: Mapping[str, Any]) -> None:
    body = json.dumps(content).encode() + b"\n"
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a classifier of pictures.")
    parser.add_argument("--model", help="an ONNX file; by default random weights")
    parser.add_argument("--device", default="AUTO")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    options = parser.parse_args()
    uvicorn.run(
        ImageService(options.model, options.device),
        host=options.host,
        port=options.port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        timeout_graceful_shutdown=10,
    )


if __name__ == "__main__":
    main()
