"""``aioinfer compile``: a network in a file, which ``benchmark`` measures without the model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aioinfer as ai

Run = Callable[..., Any]


def test_a_compiled_network_is_imported_and_measured(
    aioinfer: Run, digits: str, tmp_path: Path
) -> None:
    blob, report = tmp_path / "digits.blob", tmp_path / "report.json"
    given = ["-d", "REFERENCE", "--config", "EXPORTABLE=YES", "-o", str(blob)]
    finished = aioinfer("compile", "-m", digits, *given)
    assert (finished.code, finished.err) == (0, "")
    assert f"wrote {blob}" in finished.out
    with ai.Core() as core, core.import_network(blob) as network:
        assert network.name == Path(digits).stem
    finished = aioinfer("benchmark", "-m", str(blob), "-niter", "8", "-report", str(report))
    assert (finished.code, finished.err) == (0, "")
    assert "[Step 4/8] Importing the network" in finished.out
    assert "REFERENCE" in report.read_text()
    assert json.loads(report.read_text())["error"] is None


def test_shapes_are_pinned(aioinfer: Run, digits: str, tmp_path: Path) -> None:
    blob = tmp_path / "digits.blob"
    given = ["-d", "REFERENCE", "--config", "EXPORTABLE=YES", "-b", "3", "-o", str(blob)]
    assert aioinfer("compile", "-m", digits, *given).code == 0
    with ai.Core() as core, core.import_network(blob) as network:
        assert network.inputs[0].shape[0] == 3


def test_what_cannot_be_exported_says_how_it_can(
    aioinfer: Run, digits: str, tmp_path: Path
) -> None:
    blob = tmp_path / "digits.blob"
    finished = aioinfer("compile", "-m", digits, "-d", "REFERENCE", "-b", "1", "-o", str(blob))
    assert finished.code == 1
    assert "EXPORTABLE=True" in finished.err
    assert not blob.exists()
