"""With whatever little memory the process may have, it gets an error of ours and lives."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

WIDTH = 512
CHANCE = np.random.default_rng(0)


def save(path: Path, rows: int | str) -> Path:
    """A model whose primitives are of several kinds, and large enough for a team of threads."""
    arrays = {f"w{i}": CHANCE.standard_normal((WIDTH, WIDTH)) / WIDTH for i in range(3)}
    arrays["filters"] = CHANCE.standard_normal((64, 16, 3, 3)) / 100
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w0"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("MatMul", ["b", "w1"], ["c"]),
            helper.make_node("Softmax", ["c"], ["d"]),
            helper.make_node("MatMul", ["d", "w2"], ["y"]),
            helper.make_node("Conv", ["image", "filters"], ["maps"], pads=[1, 1, 1, 1]),
            helper.make_node("ReduceMean", ["maps"], ["z"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, WIDTH]),
            helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 16, 64, 64]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")],
        [numpy_helper.from_array(item.astype(np.float32), name) for name, item in arrays.items()],
    )
    opset = helper.make_opsetid("", 21)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    return path


@pytest.mark.exhaustive
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS is Linux's")
@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,REFERENCE"])
def test_a_process_short_of_memory_gets_errors_and_no_signal(device: str, tmp_path: Path) -> None:
    paths = [str(save(tmp_path / "static.onnx", 64)), str(save(tmp_path / "open.onnx", "n"))]
    script = f"""
        import resource
        import numpy as np
        import aioinfer

        core = aioinfer.Core()
        core.set_config("CPU", {{"INFERENCE_NUM_THREADS": 2}})
        inputs = {{
            "x": np.ones((64, {WIDTH}), np.float32),
            "image": np.ones((1, 16, 64, 64), np.float32),
        }}

        def run(path):
            with core.load_network(path, {device!r}) as network:
                return network.create_infer_request().infer_sync(inputs)

        wanted = [run(path) for path in {paths}]
        outcomes = set()
        for more_kib in (*range(0, 60_000, 1500), *range(60_000, 150_000, 10_000)):
            for path, right in zip({paths}, wanted):
                with open("/proc/self/statm") as file:
                    now = int(file.read().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (now + more_kib * 1024, -1))
                results = None
                try:
                    results = run(path)
                except aioinfer.errors.AioInferError:
                    outcomes.add("refused")
                finally:
                    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
                if results is not None:
                    outcomes.add("done")
                    for name in right:
                        np.testing.assert_allclose(results[name], right[name], rtol=1e-4, atol=1e-6)
                del results
        for path, right in zip({paths}, wanted):
            for name, array in run(path).items():
                np.testing.assert_allclose(array, right[name], rtol=1e-4, atol=1e-6)
        print(sorted(outcomes))
    """
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.strip() == "['done', 'refused']"
