"""The examples as modules and as programs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import onnx
from onnx import TensorProto, helper, numpy_helper

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAM_TIMEOUT_S = 240


def example(path: str) -> ModuleType:
    """Import an example's file, with its own folder and ``examples`` on the path."""
    file = EXAMPLES / path
    for folder in (EXAMPLES, file.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    name = file.stem if file.stem.isidentifier() else f"example_{file.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def run_example(path: str, *arguments: str) -> str:
    """Run an example to its end, and return what it has printed."""
    command = [sys.executable, str(EXAMPLES / path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def small_classifier(path: Path, *, factor: float = 1.0) -> str:
    """Write a model of pictures of 8 x 8, whose logits are the means of their three colours."""
    import numpy as np

    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["mean"], "pool"),
            helper.make_node("Flatten", ["mean"], ["flat"], "flatten"),
            helper.make_node("Mul", ["flat", "factor"], ["logits"], "scale"),
        ],
        "colours",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(np.float32(factor), "factor")],
    )
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return str(path)
