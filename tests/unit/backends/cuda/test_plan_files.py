"""Plans on disk: what is kept, what is not believed, what goes first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioinfer.backends.cuda.plan_files import (
    PlanFiles,
    StoredPlan,
    cache_folder,
    own_cache_folder,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners here")

ENVIRONMENT = {"deviceName": "a GPU", "cudnn": "9.19.0"}
LIBRARIES = ("cudnn", "cublaslt")


def stored(name: str = "eng0", blob: bytes = b"a blob\nof lines") -> StoredPlan:
    return StoredPlan(name, 64, blob, 1e-5, True)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def the_file(folder: Path) -> Path:
    (found,) = files_in(folder)
    return found


def test_a_plan_comes_back_as_it_was(tmp_path: Path) -> None:
    PlanFiles(tmp_path, "cudnn", ENVIRONMENT).write("conv_1", stored())
    untimed = StoredPlan("eng0", 64, b"", None, False)
    PlanFiles(tmp_path, "cudnn", ENVIRONMENT).write("conv_2", untimed)
    again = PlanFiles(tmp_path, "cudnn", ENVIRONMENT)
    assert again.read("conv_1") == stored()
    assert again.read("conv_2") == untimed
    assert again.read("conv_3") is None


def test_a_later_plan_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path, "cudnn", ENVIRONMENT)
    files.write("conv_1", stored())
    files.write("conv_1", stored("eng1"))
    assert files.read("conv_1") == stored("eng1")
    assert len(files_in(tmp_path)) == 1
    files.forget("conv_1")
    assert files.read("conv_1") is None


def test_each_environment_has_its_own(tmp_path: Path) -> None:
    PlanFiles(tmp_path, "cudnn", ENVIRONMENT).write("conv_1", stored())
    assert PlanFiles(tmp_path, "cudnn", {**ENVIRONMENT, "cudnn": "9.20.0"}).read("conv_1") is None


def test_libraries_do_not_mix(tmp_path: Path) -> None:
    cudnn, cublaslt = (PlanFiles(tmp_path, name, ENVIRONMENT, 1000) for name in LIBRARIES)
    cudnn.write("conv_1", stored())
    assert cublaslt.read("conv_1") is None
    cublaslt.write("matmul_1", stored(blob=b"x" * 2000))  # beyond the bound of its own folder
    assert cudnn.read("conv_1") == stored()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cublaslt-plans", "cudnn-plans"]


def test_a_file_of_another_environment_or_operation_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = PlanFiles(tmp_path, "cudnn", ENVIRONMENT)
    files.write("conv_1", stored())
    mine = the_file(tmp_path)
    mine.rename(mine.with_name("conv_2.plan"))
    assert files.read("conv_2") is None
    assert "for another operation" in caplog.text


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:-1],
        lambda content: content + b"!",
        lambda content: content.replace(b"a blob", b"A blob"),
        lambda content: b"",
        lambda content: b"[]\n" + content,
        lambda content: b"\xff" + content,
        lambda content: content.replace(b'"format": 1', b'"format": 2'),
        lambda content: content.replace(b'"workspace_bytes": 64', b'"workspace_bytes": null'),
        lambda content: content.replace(b'"median_s": 1e-05', b'"median_s": [5]'),
    ],
)
def test_a_damaged_file_is_as_if_it_were_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: object
) -> None:
    assert callable(spoil)
    files = PlanFiles(tmp_path, "cudnn", ENVIRONMENT)
    files.write("conv_1", stored())
    path = the_file(tmp_path)
    path.write_bytes(spoil(path.read_bytes()))
    assert files.read("conv_1") is None
    assert f"ignoring the cached plan {path}" in caplog.text
    files.write("conv_1", stored())
    assert files.read("conv_1") == stored()


def test_a_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = PlanFiles(tmp_path, "cudnn", ENVIRONMENT)
    files.write("conv_1", stored())
    path = the_file(tmp_path)
    elsewhere = path.rename(tmp_path / "elsewhere")
    path.symlink_to(elsewhere)
    assert files.read("conv_1") is None
    assert "ignoring" in caplog.text


def test_only_a_folder_that_nobody_else_can_open_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = PlanFiles(tmp_path, "cudnn", ENVIRONMENT)
    files.write("conv_1", stored())
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o750)
    assert files.read("conv_1") is None
    files.write("conv_2", stored())
    assert len(files_in(tmp_path)) == 1
    assert caplog.text.count("others can get at it") == 1
    folder.chmod(0o700)
    assert files.read("conv_1") == stored()


def test_a_folder_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = PlanFiles(tmp_path, "cudnn", ENVIRONMENT)
    files.write("conv_1", stored())
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert files.read("conv_1") is None
    assert "not this user's folder" in caplog.text


def test_the_plans_that_were_not_read_for_longest_go_first(tmp_path: Path) -> None:
    blob = b"x" * 10_000
    files = PlanFiles(tmp_path, "cudnn", ENVIRONMENT, limit_bytes=35_000)
    for age, name in enumerate(("conv_3", "conv_2", "conv_1")):
        files.write(name, stored(blob=blob))
        (path,) = tmp_path.rglob(f"{name}.plan")
        os.utime(path, ns=(10**9 * age, 10**9 * age))
    assert files.read("conv_3") is not None
    files.write("conv_4", stored(blob=blob))
    assert [path.stem for path in files_in(tmp_path)] == ["conv_1", "conv_3", "conv_4"]


def test_where_nothing_can_be_written_it_is_said_and_nothing_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    files = PlanFiles(tmp_path / "file", "cudnn", ENVIRONMENT)
    files.write("conv_1", stored())
    assert files.read("conv_1") is None
    files.forget("conv_1")
    assert "cannot keep a plan of cudnn" in caplog.text


def test_without_a_folder_nothing_is_kept() -> None:
    files = PlanFiles(None, "cudnn", ENVIRONMENT)
    files.write("conv_1", stored())
    assert files.read("conv_1") is None


def test_the_folder_is_the_users_choice_or_the_systems_or_at_home() -> None:
    home = Path("/home/someone")
    shared = {"XDG_CACHE_HOME": "/caches"}
    assert cache_folder({**shared, "AIOINFER_CACHE_DIR": "/mine"}, home) == Path("/mine")
    assert cache_folder(shared, home) == Path("/caches/aioinfer")
    assert cache_folder({"XDG_CACHE_HOME": "here"}, home) == home / ".cache" / "aioinfer"
    assert cache_folder({"AIOINFER_CACHE_DIR": ""}, home) == home / ".cache" / "aioinfer"


def test_a_user_without_a_home_has_no_folder_unless_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert own_cache_folder() is None
