"""Collected by .ci/run only: the suite beside this test tests the installed wheel."""

import importlib
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import aioinfer

PARTS = ["aioinfer", "aioinfer.backends", "aioinfer.executors", "aioinfer.runtime"]


@pytest.mark.parametrize("name", PARTS)
def test_the_package_is_imported_from_site_packages(name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file is not None
    assert Path(file).resolve().is_relative_to(Path(sysconfig.get_path("purelib")).resolve())


@pytest.mark.skipif(sys.platform != "linux", reason="CPU runs on Linux alone")
def test_the_installed_cpu_device_runs_by_native_calls() -> None:
    relu = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    model = helper.make_model(relu, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with aioinfer.Core() as core, core.load_network(model, "CPU") as network:
        x = np.array([-1, 0, 1, 2], np.float32)
        y = network.create_infer_request().infer_sync({"x": x})["y"]
        np.testing.assert_array_equal(y, [0, 0, 1, 2])
