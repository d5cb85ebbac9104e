"""Functions that tell where a request was answered, and take as long as a test says."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from aioinfer.serving import postprocess, preprocess


@preprocess(takes={"x": ("FP32", [-1, 3]), "seconds": ("FP32", [1])})
def slowly(given: dict[str, Any]) -> dict[str, Any]:
    time.sleep(float(given["seconds"][0]))
    return {"x": given["x"]}


@postprocess(gives={"y": ("FP32", [-1, 3]), "pid": ("INT64", [1]), "node": ("BYTES", [1])})
def place(outputs: dict[str, Any]) -> dict[str, Any]:
    import ray

    node = ray.get_runtime_context().get_node_id()
    return {"y": outputs["y"], "pid": np.array([os.getpid()]), "node": [node]}
