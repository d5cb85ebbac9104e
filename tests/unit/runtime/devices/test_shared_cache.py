"""One cache of many processes: at once, killed while they write, on a full disk, too small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import aioinfer
from aioinfer.runtime.blobs.cache_folder import CacheFolder
from unit.runtime.models import expected, tiny_model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such processes here")

X = np.array([[-1, 2, 3]], np.float32)
LOAD = """
import sys
import numpy as np
import aioinfer
with aioinfer.Core() as core:
    for _ in range(int(sys.argv[3])):
        with core.load_network(sys.argv[1], "REFERENCE", {"CACHE_DIR": sys.argv[2]}) as network:
            y = network.create_infer_request().infer_sync(np.array([[-1, 2, 3]], np.float32))["y"]
            assert np.array_equal(y, np.load(sys.argv[4])), y
"""
WRITE = """
import itertools, sys
from pathlib import Path
from aioinfer.runtime.blobs.cache_folder import CacheFolder
folder = CacheFolder(Path(sys.argv[1]), ".blob", 1 << 30)
for turn in itertools.count():
    folder.write("a", [bytes([turn % 256]) * 1000] * 200)
    print(turn, flush=True)
"""


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        said = process.communicate(timeout=170)[1]
        assert process.returncode == 0, said


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_many_processes_share_a_cache(tmp_path: Path) -> None:
    model, answer, folder = tmp_path / "tiny.onnx", tmp_path / "y.npy", tmp_path / "cache"
    model.write_bytes(tiny_model().SerializeToString())
    np.save(answer, expected(X))
    ended([started(LOAD, model, folder, 4, answer) for _ in range(4)])
    assert len(list((folder / "networks").iterdir())) == 1


@pytest.mark.timeout(300)
def test_a_writer_that_is_killed_leaves_the_file_whole(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "c", ".blob", 1 << 30)
    for _ in range(3):
        writer = started(WRITE, tmp_path / "c")
        assert writer.stdout is not None
        for _ in range(3):
            assert writer.stdout.readline()
        place = folder.find("a")
        writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=170)
        assert place is not None
        content = place.read_bytes()
        assert len(content) == 200_000
        assert len(set(content)) == 1


def test_what_does_not_fit_on_the_disk_is_not_kept_and_leaves_nothing(tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
from aioinfer.runtime.blobs.cache_folder import CacheFolder
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
folder = CacheFolder(Path(sys.argv[1]), ".blob", 1 << 30)
assert folder.write("small", [bytes(1000)])
assert not folder.write("large", [bytes(50_000)] * 4)
assert folder.find("large") is None and folder.find("small") is not None
"""
    ended([started(program, tmp_path / "c")])
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["small.blob"]


def test_a_limit_smaller_than_one_network_keeps_none_and_loads_all(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    config = {"CACHE_DIR": str(tmp_path / "cache"), "CACHE_LIMIT_BYTES": 100}
    for _ in range(2):
        with core.load_network(tiny_model(), "REFERENCE", config) as network:
            assert not network.get_metric("LOADED_FROM_CACHE")
            assert np.array_equal(network.create_infer_request().infer_sync(X)["y"], expected(X))
    assert not list((tmp_path / "cache" / "networks").iterdir())


def test_a_folder_that_is_read_only_still_serves(
    core: aioinfer.Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"CACHE_DIR": str(tmp_path / "cache")}
    core.load_network(tiny_model(), "REFERENCE", config).close()

    def read_only(*_args: object, **_kwargs: object) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("utime", "unlink", "replace"):
        monkeypatch.setattr(os, name, read_only)
    with core.load_network(tiny_model(), "REFERENCE", config) as network:
        assert network.get_metric("LOADED_FROM_CACHE")


def test_a_network_goes_on_when_its_entry_makes_room(core: aioinfer.Core, tmp_path: Path) -> None:
    config = {"CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        network = core.load_network(tiny_model(), "REFERENCE", config)
    (entry,) = (tmp_path / "cache" / "networks").iterdir()
    CacheFolder(entry.parent, ".blob", 10_000).write("other", [bytes(10_000)])
    assert not entry.exists()
    assert np.array_equal(network.create_infer_request().infer_sync(X)["y"], expected(X))
    network.close()


@pytest.mark.parametrize("place", ["networks", "entry"])
def test_what_belongs_to_another_user_is_not_used(
    core: aioinfer.Core, tmp_path: Path, place: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    config = {"CACHE_DIR": str(tmp_path / "cache")}
    core.load_network(tiny_model(), "REFERENCE", config).close()
    folder = tmp_path / "cache" / "networks"
    os.chown(folder if place == "networks" else next(folder.iterdir()), 12_345, 12_345)
    with core.load_network(tiny_model(), "REFERENCE", config) as network:
        assert not network.get_metric("LOADED_FROM_CACHE")


def test_a_link_is_no_entry(core: aioinfer.Core, tmp_path: Path) -> None:
    config = {"CACHE_DIR": str(tmp_path / "cache")}
    core.load_network(tiny_model(), "REFERENCE", config).close()
    (entry,) = (tmp_path / "cache" / "networks").iterdir()
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    with core.load_network(tiny_model(), "REFERENCE", config) as network:
        assert not network.get_metric("LOADED_FROM_CACHE")
