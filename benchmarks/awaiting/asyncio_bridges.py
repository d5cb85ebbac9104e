"""The peers of overhead.py, each bridged to asyncio as cheaply as can be.

- ``run_in_executor``: the call returns a future, which is awaited as it is; on the loop's default
  threads, and on one thread, which is cheaper with many tasks, since threads that finish at once
  wait for each other's GIL. The session computes with one thread, so no team has to wake.
- ``run_async``: onnxruntime calls back on a thread of its own pool. The pool has a thread for each
  CPU and does not spin, which takes the CPU from the loop. Answers go through a mailbox: one
  ``call_soon_threadsafe`` brings all that came since the last.
- ``AsyncInferQueue``: OpenVINO calls back on a stream's thread, and the same mailbox follows. One
  stream of one thread, inputs shared, outputs copied because the next run overwrites them, and a
  request more than there are tasks, so that starting never blocks the loop.

Where two settings were close, the one that is better with 64 tasks on uvloop is here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from aioinfer.executors import allowed_cpus

Call = Callable[[], Awaitable[object]]

EXECUTOR = "run_in_executor"
POOL = "run_in_executor, one thread"
RUN_ASYNC = "onnxruntime run_async"
QUEUE = "OpenVINO AsyncInferQueue"
PEERS = (EXECUTOR, POOL, RUN_ASYNC, QUEUE)


@dataclass(frozen=True)
class Job:
    """What every peer does: this model, from these inputs, for a number of tasks at once.

    ``session`` is the onnxruntime session of one thread.
    """

    model: bytes
    inputs: dict[str, npt.NDArray[Any]]
    output: str
    task_count: int
    session: Any


def peer_calls(job: Job, stack: ExitStack) -> tuple[dict[str, Call], dict[str, str]]:
    """Start the peers on the running loop; give their calls, and why a peer is left out.

    What they hold is released with the stack.
    """
    loop = asyncio.get_running_loop()
    pool = stack.enter_context(ThreadPoolExecutor(max_workers=1))
    run = job.session.run
    calls: dict[str, Call] = {
        EXECUTOR: partial(loop.run_in_executor, None, run, [job.output], job.inputs),
        POOL: partial(loop.run_in_executor, pool, run, [job.output], job.inputs),
        RUN_ASYNC: run_async_call(job),
    }
    try:
        calls[QUEUE] = queue_call(job)
    except ImportError as error:
        return calls, {QUEUE: f"{error}; install the extra 'bench'"}
    return calls, {}


class Mailbox:
    """Brings answers from any thread to a loop, all that came meanwhile by one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[asyncio.Future[object], object]] = deque()
        self._is_awake = False

    def post(self, future: asyncio.Future[object], answer: object) -> None:
        self._posted.append((future, answer))
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_awake = False
        while self._posted:
            future, answer = self._posted.popleft()
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def run_async_call(job: Job) -> Call:
    """Bridge ``InferenceSession.run_async``."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = allowed_cpus().count + 1  # the caller counts as one
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(job.model, options, ["CPUExecutionProvider"])
    loop = asyncio.get_running_loop()
    post, run_async, names, inputs = Mailbox(loop).post, session.run_async, [job.output], job.inputs

    def answer(outputs: object, future: asyncio.Future[object], error: str) -> None:
        post(future, RuntimeError(error) if error else outputs)

    def call() -> Awaitable[object]:
        future = loop.create_future()
        run_async(names, inputs, answer, future)
        return future

    return call


def queue_call(job: Job) -> Call:
    """Bridge ``AsyncInferQueue``; raises ImportError without OpenVINO."""
    import openvino

    core = openvino.Core()
    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": 1,
        "INFERENCE_PRECISION_HINT": "f32",  # what the others compute in
    }
    compiled = core.compile_model(core.read_model(job.model), "CPU", config)
    queue = openvino.AsyncInferQueue(compiled, job.task_count + 1)
    loop = asyncio.get_running_loop()
    post, start, inputs = Mailbox(loop).post, queue.start_async, job.inputs

    def answer(request: Any, future: asyncio.Future[object]) -> None:
        post(future, request.get_output_tensor(0).data.copy())

    queue.set_callback(answer)

    def call() -> Awaitable[object]:
        future = loop.create_future()
        start(inputs, future, share_inputs=True)
        return future

    return call


def output_of(answer: Any) -> npt.NDArray[np.float32]:
    """Find the one output in what a way answers: a mapping, a list or the array itself."""
    if isinstance(answer, dict):
        (answer,) = answer.values()
    if isinstance(answer, list):
        (answer,) = answer
    return np.asarray(answer)
