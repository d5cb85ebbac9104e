"""What a program without any logging set-up sees on stderr."""

from __future__ import annotations

import textwrap
from pathlib import Path

from child_process import run_script

COMMON = """
import numpy as np
import aioinfer
from aioinfer.errors import DeviceError
from onnx import TensorProto, helper

info = helper.make_tensor_value_info
model = helper.make_model(
    helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], "relu")],
        "tiny",
        [info("x", TensorProto.FLOAT, ["n"])],
        [info("y", TensorProto.FLOAT, ["n"])],
    ),
    opset_imports=[helper.make_opsetid("", 17)],
    ir_version=8,
)
"""


def test_an_exception_in_a_callback_is_shown_with_its_traceback_once(tmp_path: Path) -> None:
    script = """
    def callback_of_the_user(request, error):
        raise ValueError("in the callback")

    with aioinfer.Core() as core:
        request = core.load_network(model, "REFERENCE").create_infer_request()
        request.set_callback(callback_of_the_user)
        request.start_async(np.ones(3, np.float32))
    del request
    """
    said = run_script(COMMON + _plain(script), tmp_path).stderr
    assert "the callback of request 0 of" in said
    assert "Traceback (most recent call last):" in said
    assert "in callback_of_the_user" in said
    assert said.count("Traceback") == said.count("\nValueError: in the callback") == 1


def test_a_slow_device_for_want_of_packages_is_shown(tmp_path: Path) -> None:
    script = """
    def not_installed(core, name):
        raise DeviceError("no oneDNN", install="pip install aioinfer[cpu]")

    with aioinfer.Core() as core:
        for name in {"CPU", "CUDA", "ONNXRUNTIME", "OPENCL"} & set(core.plugin_names):
            core.unregister_plugin(name)
        core.register_plugin("CPU", not_installed)
        for _ in range(2):
            core.load_network(model)
    """
    said = run_script(COMMON + _plain(script), tmp_path).stderr
    assert said.count("pip install aioinfer[cpu]") == 1


def test_a_program_without_mistakes_is_told_nothing(tmp_path: Path) -> None:
    script = """
    with aioinfer.Core() as core:
        core.load_network(model, "REFERENCE").create_infer_request().infer_sync(np.ones(3, "f"))
    """
    assert run_script(COMMON + _plain(script), tmp_path).stderr == ""


def _plain(script: str) -> str:
    return textwrap.dedent(script)
