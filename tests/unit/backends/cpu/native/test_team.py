"""Teams: every part is computed once, by whoever is there, and helpers end with their caller."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import resource
import shutil
import struct
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper

import aioinfer.backends.cpu.native as room
from aioinfer import Core
from aioinfer.backends.cpu.native import extension
from aioinfer.backends.cpu.native.extension import native_extension, start_team
from aioinfer.errors import DeviceError
from unit.backends.cpu.comparing import assert_same_as_reference, missing_reason, model_of

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="there is no CPU device here")
COMPILER = shutil.which("cc")
CHECKS = ["parts", "threads", "forked", "forked_amid", "nested", "waiting", "loops"]
CHECKS += ["last_regions", "no_key", "wrapped", "patient"]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program team_check, made of the extension's own sources."""
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    program = tmp_path_factory.mktemp("team") / "team_check"
    (folder,) = map(Path, room.__path__)
    sources = folder / "teams"
    files = [Path(__file__).with_name("team_check.c")]
    files += [sources / "openmp_calls.c", sources / "placement.c"]
    options = ["-std=gnu11", "-O2", "-pthread", f"-I{sources}", "-o", str(program)]
    subprocess.run([COMPILER, *options, *map(str, files)], check=True, timeout=100)
    return program


def run(program: Path, name: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a check by itself: a sanitizer that is loaded into Python is not for it."""
    return subprocess.run(
        [program, name], env={}, capture_output=True, text=True, timeout=100, check=False, **how
    )


@pytest.mark.parametrize("name", CHECKS)
def test_teams_by_themselves(check: Path, name: str) -> None:
    ended = run(check, name)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU here")
def test_a_helper_does_not_wake_on_its_callers_cpu(check: Path) -> None:
    ended = run(check, "placed")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_without_memory_for_threads_regions_go_on(check: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))

    ended = run(check, "scarce", preexec_fn=limit)
    assert (ended.returncode, ended.stderr) == (0, "")


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def test_mates_are_started_once_and_end_with_their_thread() -> None:
    seen: list[int] = []

    def work() -> None:
        before = tasks()
        for count in (1, 3, 2, 4):
            start_team(count)
            seen.append(tasks() - before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert seen == [0, 2, 2, 3]


def test_a_team_that_cannot_be_had_is_an_error_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, tries = native_extension(), []

    def scarce(count: int) -> None:
        tries.append(count)
        if len(tries) == 1:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        real.start_team(count)

    monkeypatch.setattr(extension, "native_extension", lambda: SimpleNamespace(start_team=scarce))
    with pytest.raises(DeviceError, match="team of 2 threads: no thread or process can be started"):
        start_team(2)
    start_team(2)
    assert tries == [2, 2]


GOMP = ctypes.util.find_library("gomp")


@pytest.mark.skipif(GOMP is None, reason="libgomp is not here")
def test_others_keep_their_own_openmp() -> None:
    libgomp = ctypes.CDLL(GOMP)
    before = libgomp.omp_get_max_threads()
    native_extension().set_team_threads(before + 5)
    try:
        assert native_extension().team_threads() == before + 5
        assert libgomp.omp_get_max_threads() == before
    finally:
        native_extension().set_team_threads(before)


TURNED = """
int omp_get_max_threads(void);
static int kept = 1;
int ask(void) { return omp_get_max_threads(); }
int keep(int value) { return kept += value; }
"""

TURNS = """
import ctypes, sys
from aioinfer.backends.cpu.native.extension import native_extension
library = ctypes.CDLL(sys.argv[1])
assert native_extension().adopt_library(library._handle) is None
native_extension().set_team_threads(77)
print(library.ask(), library.keep(2))
"""


def cover_data_in_part(path: Path) -> None:
    """Have the pages that the loader seals end amid the one of the data, as pages of 64 KiB do."""
    content = bytearray(path.read_bytes())
    (table,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    headers = [table + index * size for index in range(count)]
    kinds = [struct.unpack_from("<IIQQQQQ", content, header) for header in headers]
    (data_end,) = [kind[3] + kind[6] for kind in kinds if kind[0] == 1 and kind[1] & 2]
    for header, kind in zip(headers, kinds, strict=True):
        if kind[0] == 0x6474E552:  # PT_GNU_RELRO
            struct.pack_into("<Q", content, header + 40, data_end - kind[3])
    path.write_bytes(content)


@pytest.mark.skipif(COMPILER is None or GOMP is None, reason="there is no compiler or libgomp")
def test_what_the_loader_has_left_writable_stays_so(tmp_path: Path) -> None:
    source, library = tmp_path / "turned.c", tmp_path / "turned.so"
    source.write_text(TURNED)
    options = ["-shared", "-fPIC", "-fopenmp", "-Wl,-z,lazy", "-o", str(library), str(source)]
    subprocess.run([str(COMPILER), *options], check=True, timeout=100)
    cover_data_in_part(library)
    ended = subprocess.run(
        [sys.executable, "-P", "-c", TURNS, str(library)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["77", "3"]), ended.stderr


COMPUTES = """
import os, numpy as np, onnx, aioinfer
from onnx import TensorProto, helper, numpy_helper
weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 256])
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [port("x")],
                          [port("y")], [numpy_helper.from_array(weights, "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
x = np.ones((64, 256), np.float32)
with aioinfer.Core() as core:
    before = len(os.listdir("/proc/self/task"))
    with core.load_network(model, "CPU", {"INFERENCE_NUM_THREADS": 3}) as network:
        found = network.create_infer_request().infer_sync(x)["y"]
        np.testing.assert_allclose(found, x @ weights, rtol=1e-4, atol=1e-4)
        tasks = os.listdir("/proc/self/task")
        names = [open(f"/proc/self/task/{task}/comm").read() for task in tasks]
print(sum(name.startswith("aioinfer.team") for name in names))
"""


def test_onednn_computes_with_our_threads() -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(COMPUTES)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["2"]


@pytest.mark.parametrize("threads", [2, 5])
def test_layers_whose_parts_wait_for_each_other(core: Core, threads: int) -> None:
    chance = np.random.default_rng(3)
    hidden = 96
    arrays = {
        "w": chance.standard_normal((1, 4 * hidden, 64)) / 8,
        "r": chance.standard_normal((1, 4 * hidden, hidden)) / 10,
    }
    inputs = {"x": chance.standard_normal((12, 4, 64)).astype(np.float32)}
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)]
    constants = {name: array.astype(np.float32) for name, array in arrays.items()}
    model = model_of(nodes, inputs, constants=constants)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=threads)
