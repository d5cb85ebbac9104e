"""States, shared runs and users' kernels where allocations fail, wherever that is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from child_process import run_script

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS is Linux's")

BEGIN = """
    import resource
    import numpy as np
    import onnx.parser
    import aioinfer
    from aioinfer.errors import AioInferError

    WAIT_S = 20

    def model(text):
        header = '<ir_version: 10, opset_import: ["": 21, "c": 1]> g'
        return onnx.parser.parse_model(header + text).SerializeToString()

    def limited(more_kib, attempt):
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more_kib * 1024, -1))
        try:
            result = attempt()
        except (AioInferError, MemoryError):
            result = None
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        outcomes.add("refused" if result is None else "done")
        return result

    ROOMS = (*range(0, 4_000, 100), *range(4_000, 60_000, 2_000))
    outcomes = set()
    core = aioinfer.Core()
    core.set_config("CPU", {"INFERENCE_NUM_THREADS": 2})
"""

STATE = """
    network = core.load_network(model('''
        (float[b, n, 4096] x, float[b, p, 4096] past)
        => (float[b, t, 4096] present, float[b, t, 4096] y) <int64[2] rows = {0, 1}> {
            present = Concat <axis = 1> (past, x)
            scale = ReduceMean <keepdims = 0> (x, rows)
            y = LayerNormalization (present, scale)
        }
    '''), "CPU", {"STATE": {"past": "present"}})
    request, length = network.create_infer_request(), 0
    for room in ROOMS:
        x = np.random.default_rng(room).normal(size=(1, 1 + room % 3, 4096)).astype(np.float32)
        results = limited(room, lambda: request.infer_sync({"x": x}, deadline_s=WAIT_S))
        before = length
        if results is not None:
            length += x.shape[1]
            assert results["y"].shape == (1, length, 4096)
            assert np.isfinite(results["y"]).all()
        (state,) = request.query_state()
        assert state.state.shape[1] == length, (state.state.shape, length)
        if results is not None:
            np.testing.assert_array_equal(state.state[:, before:], x)
        del results
        if length > 60:
            request.reset_state()
            length = 0
    request.reset_state()
    assert request.infer_sync({"x": x})["y"].shape == x.shape
"""

BATCH = """
    network = core.load_network(model('''
        (float[b, 65536] x) => (float[b, 65536] y) { y = Neg (x) }
    '''), "BATCH:CPU(4)")
    requests = [network.create_infer_request() for _ in range(6)]
    inputs = [np.full((1, 65536), number, np.float32) for number in range(6)]

    def all_at_once():
        errors, started = [], []
        for request, x in zip(requests, inputs):
            try:
                request.start_async({"x": x})
            except (AioInferError, MemoryError) as error:
                errors.append(error)
            else:
                started.append((request, x))
        for request, x in started:
            try:
                assert request.wait(WAIT_S), "it never ended"
            except (AioInferError, MemoryError) as error:
                errors.append(error)
            else:
                assert (request.results["y"] == -x).all()
        if errors:
            raise errors[0]
        return True

    for room in ROOMS:
        limited(room, all_at_once)
    assert all_at_once()
"""

KERNEL = """
    core.add_extension(
        aioinfer.Extension("Twice", lambda x: x * 2, "c", lambda types, _: [types[0]]), "CPU"
    )
    network = core.load_network(model('''
        (float[n, 1024] x) => (float[n, 1024] y) { a = Relu (x)
            b = c.Twice (a)
            y = Neg (b) }
    '''), "CPU")
    request = network.create_infer_request()
    for room in ROOMS:
        x = np.full((1 + room // 100 % 50, 1024), 3, np.float32)
        results = limited(room, lambda: request.infer_sync({"x": x}, deadline_s=WAIT_S))
        assert results is None or (results["y"] == -6).all()
        del results
    assert (request.infer_sync({"x": x})["y"] == -6).all()
"""

END = """
    network.close()
    core.close()
    assert outcomes == {"done", "refused"}, outcomes
"""


@pytest.mark.parametrize("what", [STATE, BATCH, KERNEL], ids=["state", "batch", "kernel"])
def test_a_process_short_of_memory_is_answered_and_goes_on(what: str, tmp_path: Path) -> None:
    run_script(BEGIN + what + END, tmp_path)
