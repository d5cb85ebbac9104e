"""Which oneDNN is opened, and what is said where there is none."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aioinfer.backends.cpu.onednn import library
from aioinfer.backends.cpu.onednn.library import (
    LIBRARY_VARIABLE,
    SYSTEM_NAME,
    adopt_threads,
    find_library,
    open_library,
)
from aioinfer.errors import DeviceError

pytestmark = pytest.mark.needs_no_library


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)


def fake_library(major: int, runtime: int) -> Any:
    """Stand in for a CDLL of some version and threading runtime."""
    version = library._VersionStruct(major, 6, 3, b"", runtime, 0)

    class DnnlVersion:
        restype: Any = None

        def __call__(self) -> Any:
            return ctypes.pointer(version)

    return SimpleNamespace(dnnl_version=DnnlVersion())


def test_the_variable_comes_first_and_is_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mine.so").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LIBRARY_VARIABLE, "mine.so")
    assert find_library() == str((tmp_path / "mine.so").resolve())


def test_a_missing_file_in_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, "/nowhere/libdnnl.so")
    with pytest.raises(DeviceError) as refused:
        find_library()
    assert str(refused.value) == f"{LIBRARY_VARIABLE}='/nowhere/libdnnl.so': there is no such file"


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "aarch64")]
)
def test_elsewhere_it_says_where_it_runs_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(DeviceError) as refused:
        find_library()
    assert str(refused.value) == (
        f"CPU runs on Linux x86-64 (this is {system} on {machine.lower()}); load on ONNXRUNTIME or "
        f"REFERENCE, or name your own build of oneDNN 3 in AIOINFER_ONEDNN_LIBRARY"
    )


def test_elsewhere_an_own_build_is_taken_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "libdnnl.dylib"
    own.write_bytes(b"")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv(LIBRARY_VARIABLE, str(own))
    assert find_library() == str(own.resolve())


@pytest.mark.parametrize("files", [None, [], ["other.so"]])
def test_without_the_wheel_the_systems_library_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: list[str] | None
) -> None:
    if files is not None:
        info = tmp_path / "onednn_cpu_gomp-2023.2.0.dist-info"
        info.mkdir()
        (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert find_library() == SYSTEM_NAME


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    path.write_text("not a library")
    with pytest.raises(DeviceError) as refused:
        open_library(str(path))
    text = str(refused.value)
    assert text.startswith(f"oneDNN cannot be loaded ({path}: ")
    assert "pip install aioinfer[cpu]" in text
    assert "libgomp1" in text
    assert LIBRARY_VARIABLE in text


def test_another_library_is_no_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda path: SimpleNamespace())
    with pytest.raises(DeviceError) as refused:
        open_library("libm.so.6")
    assert str(refused.value) == "'libm.so.6' is no oneDNN library: it has no dnnl_version"


@pytest.mark.parametrize("major", [1, 2, 4])
def test_another_major_version_is_refused(monkeypatch: pytest.MonkeyPatch, major: int) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda path: fake_library(major, 2))
    with pytest.raises(DeviceError) as refused:
        open_library("old.so")
    assert str(refused.value) == (
        f"'old.so' is oneDNN {major}.6.3; 3.x is needed: install it with 'pip install "
        f"aioinfer[cpu]', or name another build in AIOINFER_ONEDNN_LIBRARY"
    )


@pytest.mark.parametrize("runtime", [0, 1, 4, 8])
def test_another_threading_runtime_is_refused(
    monkeypatch: pytest.MonkeyPatch, runtime: int
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda path: fake_library(3, runtime))
    with pytest.raises(DeviceError) as refused:
        open_library("tbb.so")
    assert str(refused.value) == (
        "'tbb.so' is oneDNN 3.6.3 without OpenMP, so its threads cannot be divided among streams; "
        "use the build in onednn-cpu-gomp"
    )


def test_a_fitting_library_is_returned_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    made = fake_library(3, 2)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: made)
    assert open_library("good.so") == (made, (3, 6, 3))


def refuse(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def test_a_library_whose_openmp_calls_are_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = SimpleNamespace(adopt_library=lambda handle: "__kmpc_fork_call")
    monkeypatch.setattr(library, "native_extension", lambda: other)
    with pytest.raises(DeviceError, match=r"'intel.so' .*\(__kmpc_fork_call\); use the build in"):
        adopt_threads(cast(Any, SimpleNamespace(_handle=1)), "intel.so")


def test_a_library_that_may_not_be_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(library, "native_extension", lambda: SimpleNamespace(adopt_library=refuse))
    with pytest.raises(DeviceError, match=r"'sealed.so' cannot be given our own threads .*denied"):
        adopt_threads(cast(Any, SimpleNamespace(_handle=1)), "sealed.so")


def test_a_library_without_openmp_is_left_alone() -> None:
    path = ctypes.util.find_library("m")
    with pytest.raises(DeviceError, match="no call of OpenMP"):
        adopt_threads(ctypes.CDLL(path), str(path))


WITHOUT_CPU = """
import numpy as np, aioinfer
from onnx import TensorProto, helper
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
with aioinfer.Core() as core:
    print([name for name in core.available_devices if name.startswith("CPU")])
    try:
        core.load_network(model, "CPU")
    except aioinfer.errors.DeviceError as error:
        print(error)
    with core.load_network(model, "REFERENCE") as network:
        print(network.create_infer_request().infer_sync(np.ones(2, np.float32))["y"].tolist())
"""


def test_without_a_library_the_package_works_on_reference(tmp_path: Path) -> None:
    bogus = tmp_path / "libdnnl.so.3"
    bogus.write_bytes(b"\x7fELF is not enough")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_CPU],
        env={"PATH": "", LIBRARY_VARIABLE: str(bogus)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    devices, reason, answer = done.stdout.splitlines()
    assert devices == "[]"
    assert reason.startswith(f"device CPU cannot start: oneDNN cannot be loaded ({bogus}: ")
    assert answer == "[-1.0, -1.0]"
