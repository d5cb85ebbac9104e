"""A small file that remembers how fast models are; a damaged one is ignored and written anew."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest

from aioinfer.backends.auto.speed_memory import MOST_MODELS, SpeedMemory, model_key
from unit.backends.hetero.small_graphs import model


def file_in(folder: Path) -> Path:
    return folder / "aioinfer-auto" / "speeds.json"


def test_times_are_remembered_between_processes(tmp_path: Path) -> None:
    SpeedMemory(str(tmp_path)).note("m", {"CPU": 0.5})
    SpeedMemory(str(tmp_path)).note("m", {"CUDA": 0.1})
    SpeedMemory(str(tmp_path)).note("other", {"CPU": 2.0})
    assert SpeedMemory(str(tmp_path)).times_s("m") == {"CPU": 0.5, "CUDA": 0.1}
    assert SpeedMemory(str(tmp_path)).times_s("unknown") == {}
    assert stat.S_IMODE(file_in(tmp_path).parent.stat().st_mode) == 0o700
    assert [path.name for path in file_in(tmp_path).parent.iterdir()] == ["speeds.json"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": 99, "times_s": {}}',
        '{"format": 1}',
        '{"format": 1, "times_s": {"m": 3}}',
        '{"format": 1, "times_s": {"m": {"CPU": "fast"}}}',
        '{"format": 1, "times_s": {"m": {"CPU": -1}}}',
        '{"format": 1, "times_s": {"m": {"CPU": true}}}',
        "[" * 100_000,
        " " * (5 << 20),
    ],
    ids=range(11),
)
def test_a_damaged_file_is_ignored_and_written_anew(
    content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = SpeedMemory(str(tmp_path))
    memory.note("m", {"CPU": 0.5})
    file_in(tmp_path).write_text(content)
    with caplog.at_level(logging.WARNING, "aioinfer.AUTO"):
        assert memory.times_s("m") == {}
    assert "will be written anew" in caplog.text
    memory.note("m", {"CPU": 0.25})
    assert memory.times_s("m") == {"CPU": 0.25}


def test_what_others_can_get_at_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = SpeedMemory(str(tmp_path))
    memory.note("m", {"CPU": 0.5})
    file_in(tmp_path).parent.chmod(0o755)
    with caplog.at_level(logging.WARNING, "aioinfer.AUTO"):
        assert memory.times_s("m") == {}
        memory.note("m", {"CPU": 0.25})
    assert "mode has to be 700" in caplog.text
    assert json.loads(file_in(tmp_path).read_text())["times_s"] == {"m": {"CPU": 0.5}}


def test_a_folder_that_cannot_be_made_is_said_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "aioinfer.AUTO"):
        SpeedMemory(str(tmp_path / "file")).note("m", {"CPU": 0.5})
    assert "cannot remember" in caplog.text


def test_the_oldest_models_are_forgotten(tmp_path: Path) -> None:
    memory = SpeedMemory(str(tmp_path))
    full = {f"m{number}": {"CPU": 1.0} for number in range(MOST_MODELS)}
    memory.note("m0", {"CPU": 1.0})
    file_in(tmp_path).write_text(json.dumps({"format": 1, "times_s": full}))
    memory.note("new", {"CPU": 2.0})
    assert memory.times_s("m0") == {}
    assert memory.times_s("m1") == {"CPU": 1.0}
    assert memory.times_s("new") == {"CPU": 2.0}


def test_models_are_told_apart_by_nodes_types_and_what_is_asked() -> None:
    texts = ["a@0 = Relu(p)", "a@0 = Neg(p)", "a@0 = Add(p, k)"]
    keys = {model_key(model(text, "a"), {"INPUT_SHAPES": "()"}) for text in texts}
    keys.add(model_key(model(texts[0], "a"), {"INPUT_SHAPES": "({'p': (4, 3)},)"}))
    assert len(keys) == 4
    assert model_key(model(texts[0], "a"), {"INPUT_SHAPES": "()"}) in keys
