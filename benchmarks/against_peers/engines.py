"""The engines that are compared, each as its documentation says it is used best.

Imports stand in the functions: a process has only the engine that it measures.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, cast

Arrays = Mapping[str, Any]

THREADS_WITH_STREAMS = 2  # two streams of one thread each
TASKS = 4  # two a stream: one computes, one waits


class Setting(NamedTuple):
    """How an engine is to run: one request at a time, or streams; precision "f32" or "bf16".

    A thread_count of None leaves the number of threads to the engine.
    """

    has_streams: bool
    thread_count: int | None
    precision: str
    device: str


class Engine(Protocol):
    """A network loaded from a file for a setting."""

    def infer(self, inputs: Arrays) -> dict[str, Any]:
        """Infer once, in the caller's thread; gives the outputs by name."""

    async def infer_awaited(self, inputs: Arrays) -> object:
        """Infer once for the loop that awaits it."""

    def fill(self, inputs: Arrays, until_s: float) -> int:
        """Keep all streams busy until the clock shows that; gives the count, at least 1."""

    def close(self) -> None:
        """Release what is held."""


def threads_of(setting: Setting) -> dict[str, Any]:
    """Give the property that OpenVINO and aioinfer share."""
    count = setting.thread_count
    return {} if count is None else {"INFERENCE_NUM_THREADS": count}


class InExecutor:
    """Awaits an engine that only blocks, by a thread of its own: the cheapest bridge."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)

    def infer(self, inputs: Arrays) -> dict[str, Any]:
        raise NotImplementedError

    async def infer_awaited(self, inputs: Arrays) -> object:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self.infer, inputs)

    def close(self) -> None:
        self._pool.shutdown()


class OnnxRuntime(InExecutor):
    """One session; a stream is a thread that calls it, as its runs are thread-safe."""

    def __init__(self, file: str, setting: Setting) -> None:
        super().__init__()
        import onnxruntime

        if setting.precision != "f32":
            raise ValueError(f"it computes float32 models in f32 only, not in {setting.precision}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1 if setting.has_streams else setting.thread_count or 0
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(file, options, providers)
        self._names = [output.name for output in self._session.get_outputs()]

    def infer(self, inputs: Arrays) -> dict[str, Any]:
        return dict(zip(self._names, self._session.run(None, inputs), strict=True))

    def fill(self, inputs: Arrays, until_s: float) -> int:
        counts = [0] * THREADS_WITH_STREAMS

        def work(index: int) -> None:
            while counts[index] == 0 or time.perf_counter() < until_s:
                self._session.run(None, inputs)
                counts[index] += 1

        threads = [threading.Thread(target=work, args=[index]) for index in range(len(counts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts)

    def close(self) -> None:
        super().close()
        del self._session


class OpenVino(InExecutor):
    """A compiled model; its streams are filled by its own queue of requests."""

    def __init__(self, file: str, setting: Setting) -> None:
        super().__init__()
        modules = cast("dict[str, object]", sys.modules)
        modules.setdefault("openvino_telemetry", None)  # it forks a child, which may hang
        import openvino

        hint = "THROUGHPUT" if setting.has_streams else "LATENCY"
        config: dict[str, Any] = {
            "PERFORMANCE_HINT": hint,
            "NUM_STREAMS": THREADS_WITH_STREAMS if setting.has_streams else 1,
            "INFERENCE_PRECISION_HINT": setting.precision,  # bf16 by default, where CPUs have it
        } | threads_of(setting)
        core = openvino.Core()
        if setting.precision == "bf16" and "BF16" not in core.get_property(
            "CPU", "OPTIMIZATION_CAPABILITIES"
        ):
            raise ValueError("its CPU device has no BF16 among its capabilities here")
        compiled = core.compile_model(file, "CPU", config)
        self._names = [output.get_any_name() for output in compiled.outputs]
        self._request = compiled.create_infer_request()
        if setting.has_streams:
            self._queue = openvino.AsyncInferQueue(compiled, 0)  # 0: as many as it thinks best

    def infer(self, inputs: Arrays) -> dict[str, Any]:
        results = self._request.infer(inputs, share_inputs=True, share_outputs=True)
        return {name: results[index] for index, name in enumerate(self._names)}

    def fill(self, inputs: Arrays, until_s: float) -> int:
        count = 0
        while count == 0 or time.perf_counter() < until_s:
            self._queue.start_async(inputs, share_inputs=True)
            count += 1
        self._queue.wait_all()
        return count

    def close(self) -> None:
        super().close()
        del self._request


class AioInfer:
    """A network; its streams are filled by tasks that await it."""

    def __init__(self, file: str, setting: Setting) -> None:
        import aioinfer

        self._core = aioinfer.Core()
        config = {
            "PERFORMANCE_HINT": "THROUGHPUT" if setting.has_streams else "LATENCY",
            "NUM_STREAMS": THREADS_WITH_STREAMS if setting.has_streams else 1,
            "INFERENCE_PRECISION_HINT": setting.precision,
        } | threads_of(setting)
        self._network = self._core.load_network(file, setting.device, config)
        self._request = self._network.create_infer_request()
        self._runner: asyncio.Runner | None = None
        if setting.has_streams:
            import uvloop

            self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def infer(self, inputs: Arrays) -> dict[str, Any]:
        outputs: dict[str, Any] = self._request.infer_sync(inputs)
        return outputs

    async def infer_awaited(self, inputs: Arrays) -> object:
        return await self._network.infer(inputs)

    def fill(self, inputs: Arrays, until_s: float) -> int:
        assert self._runner is not None
        return self._runner.run(self._fill(inputs, until_s))

    async def _fill(self, inputs: Arrays, until_s: float) -> int:
        async def work() -> int:
            count = 0
            while count == 0 or time.perf_counter() < until_s:
                await self._network.infer(inputs)
                count += 1
            return count

        return sum(await asyncio.gather(*(work() for _ in range(TASKS))))

    def close(self) -> None:
        self._core.close()
        if self._runner is not None:
            self._runner.close()


ENGINES: dict[str, Callable[[str, Setting], Engine]] = {
    "aioinfer": AioInfer,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
}
