"""The curl lines of docs/serving.md run as they stand, and so does its example."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import aioinfer
from docs.example_files import example
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import DIGITS
from unit.serving.serve_process import serve

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_lines_run_unmodified(tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "model.onnx")
    lines = re.findall(r"^curl .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 7
    with serve(tmp_path / "model.onnx", "-d", "REFERENCE", "--grpc-port", "0") as started:
        assert len(started.addresses) == 2
        assert started.addresses[1].startswith("grpc://127.0.0.1:")
        (tmp_path / ".curlrc").write_text(f'connect-to = "localhost:8000:{started.host}"\n')
        environment = {**os.environ, "CURL_HOME": str(tmp_path)}
        told = [
            subprocess.run(
                ["bash", "-c", line], env=environment, capture_output=True, text=True, check=True
            ).stdout
            for line in lines
        ]
    ready, server, model, stats, metrics, small, other = told
    assert ready == ""
    assert json.loads(server)["name"] == "aioinfer"
    assert json.loads(model)["inputs"][0]["shape"] == [-1, 1, 8, 8]
    assert json.loads(stats)["model_stats"][0]["inference_count"] == 0
    assert 'nv_inference_count{model="model",version="1"} 0.0' in metrics
    assert json.loads(small)["error"].startswith("inputs[0].shape: ")
    assert json.loads(other)["error"].startswith("inputs[0].name: ")


def test_the_example_answers_beside_its_own_page() -> None:
    with aioinfer.Core() as core:
        client = AsgiClient(example("09_serve.py").make_service(core))

        async def ask() -> tuple[int, str]:
            page = await client.get("/")
            model = await client.get("/inference/v2/models/digits")
            return page.status, model.json()["name"]

        assert asyncio.run(ask()) == (200, "digits")
