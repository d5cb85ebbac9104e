"""CACHE_DIR: found by content and by file, made again when bad, bounded, of one user alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import aioinfer
from aioinfer.runtime.blobs.cache_folder import CacheFolder
from aioinfer.runtime.blobs.reader import Blob
from aioinfer.runtime.blobs.writer import BlobWriter
from aioinfer.runtime.devices import network_loader
from unit.runtime.models import expected, tiny_model

X = np.array([[-1, 2, 3]], np.float32)
LONG_AGO_NS = 10**18


@pytest.fixture
def core() -> Any:
    with aioinfer.Core() as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "tiny.onnx", tiny_model())


def written(path: Path, model: onnx.ModelProto, *, ns: int = LONG_AGO_NS) -> Path:
    """Save a model in a file that looks old enough to be known by its times."""
    path.write_bytes(model.SerializeToString())
    os.utime(path, ns=(ns, ns))
    return path


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's change time cannot be set: take each file to have been written long ago."""
    monkeypatch.setattr("aioinfer.runtime.devices.model_cache._SETTLED_NS", -(10**18))


def load(core: aioinfer.Core, model: Any, folder: Path, **config: Any) -> tuple[bool, np.ndarray]:
    """Load from the cache or anew; return whether it was there, and what it computes."""
    config = {"CACHE_DIR": str(folder), **config}
    with core.load_network(model, "REFERENCE", config) as network:
        results = network.create_infer_request().infer_sync(X)
        return network.get_metric("LOADED_FROM_CACHE"), results["y"]


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "networks").glob("*.blob"))


def test_the_second_load_finds_what_the_first_has_kept(
    core: aioinfer.Core, file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    for source in (file, file.read_bytes(), tiny_model(), core.read_model(file)):
        shutil.rmtree(folder, ignore_errors=True)
        assert not load(core, source, folder)[0]
        was_there, y = load(core, source, folder)
        assert was_there
        assert np.array_equal(y, expected(X))
        assert len(entries(folder)) == 1


def test_a_known_file_is_not_read_again(
    core: aioinfer.Core, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    load(core, file, folder)
    monkeypatch.setattr(network_loader, "read_source", lambda *_, **__: pytest.fail("it is read"))
    with core.load_network(file, "REFERENCE", {"CACHE_DIR": str(folder)}) as network:
        assert network.name == "tiny"
    with core.load_network(file, "REFERENCE", {"CACHE_DIR": str(folder)}, name="mine") as network:
        assert network.name == "mine"


def test_equal_content_is_one_entry_whatever_it_is_called(
    core: aioinfer.Core, file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    load(core, file, folder)
    other = written(tmp_path / "other.onnx", tiny_model())
    with core.load_network(other, "REFERENCE", {"CACHE_DIR": str(folder)}) as network:
        assert network.get_metric("LOADED_FROM_CACHE")
        assert network.name == "other"


def test_a_file_that_was_written_again_is_read_again(
    core: aioinfer.Core, file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    load(core, file, folder)
    changed = tiny_model()
    changed.graph.node[0].op_type = "Neg "[:3]
    written(file, changed)  # of the same length and time, but for the time of the change
    was_there, y = load(core, file, folder)
    assert not was_there
    assert np.array_equal(y, -X + X)


def test_what_changes_the_result_is_another_entry(
    core: aioinfer.Core, file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    load(core, file, folder)
    assert not load(core, file, folder, NUM_STREAMS=2)[0]
    assert load(core, file, folder, MAX_QUEUED_REQUESTS=3)[0]
    assert not load(core, file, folder, EXPORTABLE=True)[0]
    assert len(entries(folder)) == 3


def test_a_value_that_was_given_is_another_entry_than_an_equal_default(
    core: aioinfer.Core, file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    load(core, file, folder)
    default = core.get_config("REFERENCE", "PERFORMANCE_HINT")
    assert not load(core, file, folder, PERFORMANCE_HINT=default)[0]
    assert load(core, file, folder, PERFORMANCE_HINT=default)[0]


@pytest.mark.parametrize("size", [0, 10, 64, 1000])
def test_a_damaged_entry_is_made_again(
    core: aioinfer.Core, file: Path, tmp_path: Path, size: int
) -> None:
    folder = tmp_path / "cache"
    load(core, file, folder)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    entry.write_bytes(whole[:size])
    assert not load(core, file, folder)[0]
    assert entry.read_bytes() == whole
    assert load(core, file, folder)[0]


def test_a_damaged_index_is_made_again(core: aioinfer.Core, file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    load(core, file, folder)
    (index,) = (folder / "digests").iterdir()
    for content in (b"", b"[]", b"{}", b"\xff", b'{"file": 1, "digest": 2}'):
        index.write_bytes(content)
        assert load(core, file, folder)[0]


def test_a_file_that_changes_while_it_is_read_is_not_known(
    core: aioinfer.Core, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = network_loader.read_source

    def read_and_write(*args: Any, **kwargs: Any) -> Any:
        made = read(*args, **kwargs)
        written(file, tiny_model(), ns=LONG_AGO_NS + 1)
        return made

    monkeypatch.setattr(network_loader, "read_source", read_and_write)
    load(core, file, tmp_path / "cache")
    assert not list((tmp_path / "cache" / "digests").glob("*"))


@pytest.mark.parametrize("age_s", [29, 31])
def test_a_file_is_known_once_it_is_settled(
    core: aioinfer.Core,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    age_s: int,
) -> None:
    monkeypatch.undo()
    now_ns = file.stat().st_ctime_ns + age_s * 10**9
    monkeypatch.setattr("aioinfer.runtime.devices.file_status.time.time_ns", lambda: now_ns)
    load(core, file, tmp_path / "cache")
    assert len(list((tmp_path / "cache" / "digests").glob("*"))) == (age_s > 30)


def test_extensions_are_not_cached(core: aioinfer.Core, file: Path, tmp_path: Path) -> None:
    core.add_extension(aioinfer.Extension("Relu", lambda x: x * 0, domain="com.acme"))
    for _ in range(2):
        assert not load(core, file, tmp_path / "cache")[0]
    assert not (tmp_path / "cache").exists()


def test_the_environment_names_a_folder_too(
    core: aioinfer.Core, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOINFER_CACHE_DIR", str(tmp_path / "cache"))
    for was_there in (False, True):
        with core.load_network(file, "HETERO:REFERENCE") as network:
            assert network.networks[0].get_metric("LOADED_FROM_CACHE") is was_there


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners here")
@pytest.mark.parametrize("place", ["networks", "entry"])
def test_what_others_can_get_at_is_not_used(
    core: aioinfer.Core, file: Path, tmp_path: Path, place: str
) -> None:
    folder = tmp_path / "cache"
    load(core, file, folder)
    (entry,) = entries(folder)
    assert (folder / "networks").stat().st_mode & 0o777 == 0o700
    changed = folder / "networks" if place == "networks" else entry
    changed.chmod(0o777)
    assert not load(core, file, folder)[0]


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_cache(
    core: aioinfer.Core, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    for _ in range(2):
        was_there, y = load(core, file, tmp_path / "cache")
        assert not was_there
        assert np.array_equal(y, expected(X))


@pytest.mark.parametrize(
    "folder",
    ["x/" * 2500, "nul\0nul", "~nosuchuserofthismachine/cache"],
    ids=["long", "NUL", "no user"],
)
def test_a_folder_that_cannot_be_is_no_cache(
    core: aioinfer.Core, file: Path, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    was_there, y = load(core, file, Path(folder))
    assert not was_there
    assert np.array_equal(y, expected(X))
    assert caplog.records


def test_a_folder_that_may_not_be_entered_is_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CacheFolder(tmp_path, ".blob", 100)
    monkeypatch.setattr(Path, "exists", raiser(PermissionError(13, "Permission denied")))
    assert folder.find("a") is None


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()], ids=repr)
def test_an_entry_that_cannot_be_opened_now_is_kept(
    core: aioinfer.Core,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    folder = tmp_path / "cache"
    load(core, file, folder)
    (entry,) = entries(folder)
    was = entry.stat().st_ino
    with monkeypatch.context() as patched:
        patched.setattr("aioinfer.runtime.blobs.reader.may_map", raiser(error))
        patched.setattr(CacheFolder, "write", lambda *_args: False)
        assert not load(core, file, folder)[0]
    assert entry.stat().st_ino == was
    assert load(core, file, folder)[0]


def raiser(error: Exception) -> Callable[..., Any]:
    def fail(*_args: Any) -> Any:
        raise error

    return fail


def test_many_threads_load_at_once(core: aioinfer.Core, file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        loads = [pool.submit(load, core, file, folder) for _ in range(40)]
        for each in loads:
            assert np.array_equal(each.result(60)[1], expected(X))
    assert load(core, file, folder)[0]
    assert [path.suffix for path in (folder / "networks").iterdir()] == [".blob"]


def test_the_files_that_were_not_used_for_longest_go_first(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "c", ".blob", 250)
    for age, name in enumerate("abcd"):
        assert folder.write(name, [bytes(100)])
        path = folder.find(name)
        assert path is not None
        os.utime(path, (age, age))
    assert folder.find("b") is None
    assert folder.find("c") is not None
    assert folder.find("d") is not None
    assert folder.write("e", [bytes(200)])
    assert [path.stem for path in (tmp_path / "c").iterdir()] == ["e"]


def test_what_a_dead_writer_has_left_is_not_taken_for_whole_and_goes(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "c", ".blob", 1000)
    folder.write("a", [b"1"])
    left = tmp_path / "c" / ".b.blob.x1y2"
    left.write_bytes(b"half")
    assert folder.find("b") is None
    folder.write("a", [b"2"])
    assert left.exists()  # its writer may be at work
    os.utime(left, (0, 0))
    folder.write("a", [b"3"])
    assert not left.exists()


def test_an_entry_that_another_process_finds_is_not_taken_for_written_to(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "c", ".blob", 1 << 20)
    writer = BlobWriter()
    writer.add_bytes("large", np.arange(10_000))
    assert folder.write("a", writer.chunks())
    place = folder.find("a")
    assert place is not None
    blob = Blob.open(place)
    assert blob.is_mapped
    os.utime(place, ns=(0, place.stat().st_mtime_ns))
    assert folder.find("a") == place
    assert place.stat().st_atime_ns > 0
    blob.check_frames()
