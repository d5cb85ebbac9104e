"""Model files that are cut short or written to while they are loaded, and later."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.ort.executable_network import OrtNetwork
from aioinfer.backends.reference.executable_network import ReferenceNetwork
from aioinfer.errors import ModelError
from aioinfer.runtime.graph.mapped_file import mapped_files, may_map
from aioinfer.runtime.graph.stand_ins import RELEASED_BYTES
from aioinfer.runtime.onnx_reader import read_model
from exhaustive import all_but

WIDTH = 256
CHANCE = np.random.default_rng(0)
WEIGHTS = [CHANCE.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(12)]

needs_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="files are mapped on Linux only"
)


def save(folder: Path, rows: int | str, *, is_external: bool = False) -> Path:
    """A model of products, each with large weights of its own; the path of its file."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(len(WEIGHTS))],
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, WIDTH])],
        [
            helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [rows, WIDTH])
            for i in range(len(WEIGHTS))
        ],
        [numpy_helper.from_array(weights, f"w{i}") for i, weights in enumerate(WEIGHTS)],
    )
    opset = helper.make_opsetid("", 21)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=is_external, location="weights.bin")
    return path


def data_file(path: Path) -> Path:
    external = path.with_name("weights.bin")
    return external if external.exists() else path


def assert_right(network: aioinfer.ExecutableNetwork, rows: int) -> None:
    x = np.ones((rows, WIDTH), np.float32)
    results = network.create_infer_request().infer_sync(x)
    for i, weights in enumerate(WEIGHTS):
        np.testing.assert_allclose(results[f"y{i}"], x @ weights, rtol=1e-3, atol=1e-3)


@needs_linux
@pytest.mark.parametrize(
    ("device", "rows", "is_external"),
    all_but(
        [("CPU", "n", True)],
        [
            ("CPU", 3, False),
            ("CPU", "n", False),
            ("CPU", "n", True),
            ("REFERENCE", "n", False),
            ("HETERO:CPU,REFERENCE", "n", True),
        ],
    ),
)
def test_a_file_that_is_cut_short_again_and_again_never_ends_the_process(
    device: str, is_external: bool, rows: int | str, tmp_path: Path
) -> None:
    path = save(tmp_path, rows, is_external=is_external)
    script = f"""
        import os, random, threading
        import aioinfer

        content = open({str(data_file(path))!r}, "rb").read()
        is_over = threading.Event()

        def cut():
            chance = random.Random(1)
            while not is_over.is_set():
                is_over.wait(chance.random() * 0.004)
                os.truncate({str(data_file(path))!r}, chance.randrange(len(content)))
                is_over.wait(0.001)
                with open({str(data_file(path))!r}, "r+b") as file:
                    file.write(content)

        cutting = threading.Thread(target=cut)
        cutting.start()
        for _ in range(15):
            try:
                with aioinfer.Core() as core, core.load_network({str(path)!r}, {device!r}):
                    pass
            except aioinfer.errors.AioInferError:
                pass
        is_over.set()
        cutting.join()
    """
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def change(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "truncated":
        os.truncate(path, len(content) // 7)
    elif how == "emptied":
        os.truncate(path, 0)
    elif how == "written":
        with path.open("r+b") as file:
            file.seek(len(content) // 2)
            file.write(bytes(1000))
        os.utime(path, ns=(1, 1))  # whatever the clock's steps
    else:
        other = path.with_name("other")
        other.write_bytes(content[::-1])
        other.replace(path)


@needs_linux
@pytest.mark.parametrize("how", ["truncated", "emptied", "written", "replaced"])
@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,REFERENCE", "REFERENCE"])
def test_what_becomes_of_the_file_of_a_static_network_does_not_matter(
    core: aioinfer.Core, device: str, is_external: bool, how: str, tmp_path: Path
) -> None:
    path = save(tmp_path, 3, is_external=is_external)
    with core.load_network(path, device) as network:
        change(data_file(path), how)
        assert_right(network, 3)


@needs_linux
@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize("how", ["truncated", "emptied", "written"])
def test_a_network_of_open_shapes_says_that_its_file_was_written_to(
    core: aioinfer.Core, is_external: bool, how: str, tmp_path: Path
) -> None:
    path = save(tmp_path, "n", is_external=is_external)
    with core.load_network(path, "CPU") as network:
        assert_right(network, 3)
        change(data_file(path), how)
        assert_right(network, 3)
        with pytest.raises(ModelError, match=r"was written to .* by a rename, .*ENABLE_MMAP"):
            assert_right(network, 70)
        assert_right(network, 3)


@needs_linux
@pytest.mark.parametrize("is_external", [False, True])
def test_a_file_may_be_replaced_by_a_rename(
    core: aioinfer.Core, is_external: bool, tmp_path: Path
) -> None:
    path = save(tmp_path, "n", is_external=is_external)
    with core.load_network(path, "CPU") as network:
        assert_right(network, 3)
        change(data_file(path), "replaced")
        data_file(path).unlink()
        assert_right(network, 70)


@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,REFERENCE", "AUTO:CPU"])
def test_a_network_that_maps_nothing_has_all_it_needs(
    core: aioinfer.Core, device: str, is_external: bool, tmp_path: Path
) -> None:
    path = save(tmp_path, "n", is_external=is_external)
    with core.load_network(path, device, {"ENABLE_MMAP": False}) as network:
        change(data_file(path), "truncated")
        assert_right(network, 3)
        assert_right(network, 70)


@needs_linux
@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_to_is_read(
    core: aioinfer.Core, is_external: bool, mode: int, tmp_path: Path
) -> None:
    path = save(tmp_path, "n", is_external=is_external)
    with data_file(path).open("rb") as file:
        assert may_map(file.fileno())
    assert mapped_files(read_model(path, is_mapped=True).graph)
    data_file(path).chmod(mode)
    with data_file(path).open("rb") as file:
        assert not may_map(file.fileno())
    assert not mapped_files(read_model(path, is_mapped=True).graph)
    with core.load_network(path, "CPU") as network:
        change(data_file(path), "truncated")
        assert_right(network, 3)


@needs_linux
def test_a_file_of_another_machine_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, "n")
    device = path.stat().st_dev
    lines = [
        f"26 1 {os.major(device)}:{os.minor(device)} / /mnt rw - {{}} somewhere rw",
        "27 1 0:4242 / /mnt rw - nfs4 somewhere rw",
    ]
    for kind, is_far in [("ext4", False), ("nfs4", True), ("fuse.sshfs", True), ("9p", True)]:
        text = "\n".join(lines).format(kind)
        monkeypatch.setattr(Path, "read_text", lambda _, text=text: text)
        with path.open("rb") as file:
            assert may_map(file.fileno()) is not is_far, kind


@needs_linux
@pytest.mark.parametrize("is_external", [False, True])
def test_a_closed_network_keeps_no_file_whoever_holds_it(
    core: aioinfer.Core, is_external: bool, tmp_path: Path
) -> None:
    path = save(tmp_path, "n", is_external=is_external)
    core.load_network(path, "CPU").close()
    gc.collect()
    gc.disable()
    try:
        networks = [core.load_network(path, "CPU") for _ in range(3)]
        for network in networks:
            assert_right(network, 3)
            network.close()
        assert not open_files(tmp_path)
        assert "weights.bin" not in Path("/proc/self/maps").read_text()
        assert "model.onnx" not in Path("/proc/self/maps").read_text()
    finally:
        gc.enable()


def open_files(folder: Path) -> list[str]:
    """List the files of a folder that this process has open."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
    return [name for name in found if name.startswith(str(folder))]


@pytest.mark.parametrize("device", ["CPU", "REFERENCE", "ONNXRUNTIME"])
@pytest.mark.parametrize("rows", [3, "n"])
def test_a_closed_network_keeps_no_weights_whoever_holds_it(
    core: aioinfer.Core, device: str, rows: int | str, tmp_path: Path
) -> None:
    if device == "ONNXRUNTIME":
        pytest.importorskip("onnxruntime")
    path = save(tmp_path, rows)
    gc.collect()
    gc.disable()
    try:
        network = core.load_network(path, device, {"ENABLE_MMAP": False})
        assert_right(network, 3)
        network.close()
        for value in network.runtime_graph().initializers.values():
            assert value.constant is not None
            is_small = value.constant.nbytes < RELEASED_BYTES
            assert is_small or not any(value.constant.strides), "a stand-in takes no memory"
        if device == "ONNXRUNTIME":
            assert isinstance(network, OrtNetwork)
            assert network.session is None
        elif device == "REFERENCE":
            assert isinstance(network, ReferenceNetwork)
            assert len(network._plans) == 0
    finally:
        gc.enable()
    network.close()
