"""A process that has run out of threads, files or memory: what is said, and what goes on after."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import DeviceError, TensorError
from aioinfer.runtime.type_inference import find_rule, type_rule
from child_process import run_script
from unit.runtime.models import tiny_model

X = {"x": np.ones((2, 3), np.float32)}

FILES = """
import os, resource
import numpy as np
import onnx, onnx.parser
import aioinfer
from aioinfer.errors import DeviceError

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
IF = HEAD + '''g (float[2] x, bool c) => (float[2] y) {
    y = If (c) <then_branch = t () => (float[2] o) { o = Relu(x) },
                else_branch = e () => (float[2] p) { p = Neg(x) }>
}'''
onnx.save(onnx.parser.parse_model(IF), "if.onnx")
PLAIN = HEAD + 'g (float[2] x) => (float[2] y) { y = Relu(x) }'
onnx.save(onnx.parser.parse_model(PLAIN), "plain.onnx")
del onnx

def limited(left, call):
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    holes = []
    while True:
        descriptor = os.dup(0)
        if descriptor >= used:
            os.close(descriptor)
            break
        holes.append(descriptor)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + left - 1, hard))
    try:
        call()
    except DeviceError as error:
        assert "ulimit -n" in str(error), error
        return "lacks"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in holes:
            os.close(descriptor)
    return "done"

assert limited(0, lambda: aioinfer.Core().close()) == "lacks"
core = aioinfer.Core()
assert {"CPU", "REFERENCE", "HETERO"} <= set(core.plugin_names), core.plugin_names
for path, device in (("plain.onnx", "REFERENCE"), ("if.onnx", "REFERENCE"), ("plain.onnx", "CPU")):
    if device == "CPU" and core.why_missing("CPU") is not None:
        continue
    seen = []
    for left in range(0, 12, 2):
        seen.append(limited(left, lambda: core.load_network(path, device).close()))
    assert seen[0] == "lacks", (path, device, seen)
    core.load_network(path, device).close()
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux for open files")
def test_a_process_that_may_open_no_files_is_told_so_and_goes_on_later(tmp_path: Path) -> None:
    run_script(FILES, tmp_path)


@pytest.mark.parametrize("device", ["CPU", "REFERENCE", "HETERO:REFERENCE"])
def test_a_network_without_threads_refuses_and_works_later(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with aioinfer.Core() as core:
        reason = core.why_missing("CPU") if device == "CPU" else None
        if reason is not None:
            pytest.skip(reason)
        config = {} if device.startswith("HETERO") else {"INLINE_THRESHOLD_US": 0}
        with core.load_network(tiny_model(), device, config) as network:
            request = network.create_infer_request()
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                for _ in range(2):
                    with pytest.raises(DeviceError, match="no thread or process can be started"):
                        request.infer_sync(X)
                with pytest.raises(DeviceError, match="no thread or process can be started"):
                    request.infer_sync(X, deadline_s=60.0)
            assert network.admission.run_count == 0
            assert request.infer_sync(X, deadline_s=60.0)["y"].sum() == 12


def test_a_callback_without_a_thread_is_an_error_of_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("callbacks."):
            raise RuntimeError("can't start new thread")
        start(thread)

    with aioinfer.Core() as core, core.load_network(tiny_model(), "REFERENCE") as network:
        request = network.create_infer_request()
        called: list[object] = []
        request.set_callback(lambda request, error: called.append(error))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            request.start_async(X)
            with pytest.raises(DeviceError, match=r"starting thread 'callbacks\."):
                request.wait(20.0)
        request.start_async(X)
        assert request.wait(20.0)
        assert called == [None]


def test_results_without_memory_are_an_error_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError("Unable to allocate 24 B")

    with aioinfer.Core() as core:
        reason = core.why_missing("CPU")
        if reason is not None:
            pytest.skip(reason)
        with core.load_network(tiny_model(), "CPU") as network:
            request = network.create_infer_request()
            for threshold in range(2):
                with monkeypatch.context() as patch:
                    patch.setattr("aioinfer.backends.cpu.programs.program.Program.run", refuse)
                    with pytest.raises(DeviceError, match=r"running .* \(Unable to allocate 24 B"):
                        request.infer_sync(X)
                assert request.infer_sync(X)["y"].sum() == 12, threshold


class Huge:
    """An input that cannot be made an array."""

    def __array__(self, *_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 1 EiB")


def test_an_input_without_memory_is_named() -> None:
    with aioinfer.Core() as core:
        request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
        with pytest.raises(DeviceError, match=r"making an array of 'x'.*Unable to allocate 1 EiB"):
            request.infer_sync({"x": Huge()})


def test_an_array_of_too_many_axes_is_refused() -> None:
    with aioinfer.Core() as core:
        request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
        with pytest.raises(TensorError, match="'x'"):
            request.infer_sync({"x": np.ones((1,) * 62, np.float32)})


def test_reading_without_memory_is_a_device_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    onnx.save(tiny_model(), tmp_path / "tiny.onnx")

    def refuse(*_: object) -> None:
        raise MemoryError("1 TiB")

    monkeypatch.setattr("aioinfer.runtime.onnx_reader.plain.plain_reader.decode_model", refuse)
    with aioinfer.Core() as core, pytest.raises(DeviceError, match=r"^reading the model.*1 TiB"):
        core.load_network(tmp_path / "tiny.onnx", "REFERENCE")


def test_a_type_rule_that_stumbles_is_an_error_that_names_the_node() -> None:
    from aioinfer.errors import ModelError
    from aioinfer.runtime.graph import Node, Value
    from aioinfer.runtime.type_inference import ShapeContent

    @type_rule("Stumble", domain="tests.want")
    def stumble(node: Node, contents: ShapeContent) -> None:
        raise ZeroDivisionError("by zero")

    node = Node("Stumble", [], [Value("y")], name="it", domain="tests.want")
    rule = find_rule(node)
    assert rule is not None
    with pytest.raises(ModelError, match=r"tests.want::Stumble \(node 'it'\) .*ZeroDivisionError"):
        rule(node, ShapeContent())
