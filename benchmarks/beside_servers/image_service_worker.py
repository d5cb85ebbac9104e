"""One image service of ``image_service.py``: the example's application over one of three engines.

All read the same file, whose input is the bytes of a picture, and use the same decoder, threads for
it and postprocessing. onnxruntime decodes and computes in one call on a pool of threads, which is
what ``run_in_executor`` is for; with OpenVINO pictures are decoded on such a pool, and go through
an AsyncInferQueue, whose callbacks answer.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from beside_servers import example_path  # noqa: F401

# isort: split
import uvicorn
from picture_service import ImageService, likeliest

import aioinfer
from aioinfer.executors import allowed_cpus
from aioinfer.images import ImageDecoder
from pictures.mobilenet import SIZE

ENGINES = ("aioinfer", "onnxruntime", "openvino")
DECODER = ImageDecoder(SIZE, SIZE, fit="cover")
INPUT = "picture"

Classes = list[dict[str, float]]


class Classifier(Protocol):
    """What the service asks for."""

    version: int

    async def classify(self, picture: bytes, deadline_s: float | None) -> Classes: ...

    def statistics(self) -> Mapping[str, int]: ...

    async def aclose(self) -> None: ...


class _Peer:
    """A pool of threads, and no deadlines: these engines have none."""

    version = 1

    def __init__(self, thread_count: int) -> None:
        self._pool = ThreadPoolExecutor(thread_count)

    def statistics(self) -> Mapping[str, int]:
        return {}

    async def aclose(self) -> None:
        self._pool.shutdown()


class OnnxRuntimeClassifier(_Peer):
    def __init__(self, model: str, hint: str) -> None:
        import onnxruntime

        cpus = allowed_cpus().count
        workers, threads = (cpus, 1) if hint == "THROUGHPUT" else (1, cpus)
        super().__init__(workers)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(model, options, providers=providers)

    async def classify(self, picture: bytes, deadline_s: float | None) -> Classes:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._classify_here, picture)

    def _classify_here(self, picture: bytes) -> Classes:
        return likeliest({"logits": self._session.run(None, {INPUT: DECODER(picture)})[0]})


class OpenVinoClassifier(_Peer):
    def __init__(self, model: str, hint: str) -> None:
        import openvino

        super().__init__(allowed_cpus().count)
        core = openvino.Core()
        config = {"PERFORMANCE_HINT": hint, "INFERENCE_PRECISION_HINT": "f32"}
        self._queue = openvino.AsyncInferQueue(core.compile_model(model, "CPU", config))
        self._queue.set_callback(self._on_end)
        self._free = asyncio.Semaphore(len(self._queue))

    async def classify(self, picture: bytes, deadline_s: float | None) -> Classes:
        loop = asyncio.get_running_loop()
        decoded = await loop.run_in_executor(self._pool, DECODER, picture)
        async with self._free:  # so that starting does not block the loop
            answer: asyncio.Future[Classes] = loop.create_future()
            self._queue.start_async({INPUT: decoded}, (loop, answer), share_inputs=True)
            return await answer

    @staticmethod
    def _on_end(request: Any, userdata: Any) -> None:
        loop, answer = userdata
        classes = likeliest({"logits": request.get_output_tensor(0).data})
        loop.call_soon_threadsafe(_tell, answer, classes)

    async def aclose(self) -> None:
        self._queue.wait_all()
        await super().aclose()


def _tell(answer: asyncio.Future[Classes], classes: Classes) -> None:
    if not answer.done():  # its client may have gone
        answer.set_result(classes)


class OurClassifier:
    version = 1

    def __init__(self, model: str, hint: str) -> None:
        self._core = aioinfer.Core()
        self._network = self._core.load_network(
            model,
            "CPU",
            {"PERFORMANCE_HINT": hint},
            preprocess={INPUT: DECODER},
            postprocess=likeliest,
        )

    async def classify(self, picture: bytes, deadline_s: float | None) -> Classes:
        classes: Classes = await self._network.infer(picture, deadline_s=deadline_s)
        return classes

    def statistics(self) -> Mapping[str, int]:
        return {"finished": self._network.statistics().finished_request_count}

    async def aclose(self) -> None:
        await self._core.aclose()


class MeasuredService(ImageService):
    """The example's HTTP over one of the engines."""

    def __init__(self, engine: str, model: str, hint: str) -> None:
        super().__init__(model)
        self._engine, self._hint = engine, hint

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        made: Classifier
        match self._engine:
            case "onnxruntime":
                made = OnnxRuntimeClassifier(str(self._model), self._hint)
            case "openvino":
                made = OpenVinoClassifier(str(self._model), self._hint)
            case _:
                made = OurClassifier(str(self._model), self._hint)
        self.classifier = made  # type: ignore[assignment]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await made.aclose()
        await send({"type": "lifespan.shutdown.complete"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--hint", required=True)
    options = parser.parse_args()
    service = MeasuredService(options.engine, options.model, options.hint)
    uvicorn.run(service, port=0, loop="uvloop", http="httptools", lifespan="on", access_log=False)


if __name__ == "__main__":
    main()
