"""The serving benchmark goes on where a peer does not answer, and never waits for one for ever."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvloop")
pytest.importorskip("google.protobuf")
serving = importlib.import_module("beside_servers.serving")
client = importlib.import_module("beside_servers.client")
TOLD = {"requests_per_s": 1.0, "p50_ms": 1.0, "p99_ms": 1.0, "processor_us": 1.0}


def test_a_client_gives_up_on_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", 0.05)

    async def silent() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        asyncio.run(client.measure([silent], 0.05))


def test_a_client_that_fails_or_does_not_end_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    request = tmp_path / "request"
    request.write_bytes(b"")
    server = serving.Started({"json": "127.0.0.1:1"}, 0)
    with pytest.raises(serving.NoAnswerError, match=r"refused|Connect"):
        serving.asker("json", server, request)(1, 0.1)
    monkeypatch.setattr(serving, "ANSWERS_WITHIN_S", 0.0)
    with pytest.raises(serving.NoAnswerError, match="no end within"):
        serving.asker("json", server, request)(1, 0.0)


def test_a_server_that_says_nothing_is_ended() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        pytest.raises(serving.NoAnswerError, match="has ended"),
    ):
        serving.first_line(process, 0.05)


def test_a_peer_that_does_not_answer_is_left_out_and_ours_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def silent(connections: int, seconds: float) -> dict[str, float]:
        raise serving.NoAnswerError("silence")

    def answering(connections: int, seconds: float) -> dict[str, float]:
        return dict(TOLD)

    options = argparse.Namespace(connections=[1, 8], rounds=2, seconds=0.1)
    asks = {("aioinfer", "json"): answering, ("bentoml", "json"): silent}
    rows = serving.rows_of("tiny", asks, options)
    assert [(row.server, row.connections) for row in rows] == [("aioinfer", 1), ("aioinfer", 8)]
    assert capsys.readouterr().err.count("bentoml by json is left out: silence") == 1
    with pytest.raises(serving.NoAnswerError):
        serving.rows_of("tiny", {("aioinfer", "json"): silent}, options)
