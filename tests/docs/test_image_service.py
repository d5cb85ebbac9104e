"""The image service: every status, clients that go, another model under load, and its end."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from docs.example_files import example, run_example, small_classifier

for _package in ("uvicorn", "httptools", "simplejpeg", "PIL"):
    pytest.importorskip(_package, reason=f"the example needs {_package}, which is not installed")

CONFIG = {"NUM_STREAMS": 1, "POSTPROCESS_STREAMS": 1, "DEFAULT_DEADLINE_S": 60.0}
Answer = tuple[int, Any]


@pytest.fixture(scope="module")
def module() -> ModuleType:
    return example("05_image_service/picture_service.py")


@pytest.fixture
def model(tmp_path: Path) -> str:
    return small_classifier(tmp_path / "colours.onnx")


@pytest.fixture(scope="module")
def picture() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    red = np.zeros((16, 16, 3), np.uint8)
    red[:, :, 0] = 255
    Image.fromarray(red).save(file, "JPEG")
    return file.getvalue()


class Gate:
    """Stands before the last stage, so that a test says when requests go on."""

    def __init__(self, module: ModuleType, patch: pytest.MonkeyPatch) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()
        behind = module.likeliest
        patch.setattr(module, "likeliest", lambda outputs: self._pass(behind, outputs))

    def _pass(self, behind: Any, outputs: Any) -> Any:
        self.reached.set()
        assert self.opened.wait(60)
        return behind(outputs)


@pytest.fixture
def gate(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(module, monkeypatch)


@asynccontextmanager
async def living(service: Any) -> AsyncIterator[Any]:
    """Start a service as a server does, and shut it down."""
    told: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
    asked: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
    life = asyncio.create_task(service({"type": "lifespan"}, asked.get, told.put))
    asked.put_nowait({"type": "lifespan.startup"})
    started = await told.get()
    assert started["type"] == "lifespan.startup.complete", started
    try:
        yield service
    finally:
        asked.put_nowait({"type": "lifespan.shutdown"})
        await life
    assert (await told.get())["type"] == "lifespan.shutdown.complete"


async def ask(
    service: Any,
    method: str,
    path: str,
    *bodies: bytes,
    leaves: asyncio.Event | None = None,
    **headers: str,
) -> Answer | None:
    """Return status and content; None if the service has sent nothing, as the client has gone."""
    sent: list[Mapping[str, Any]] = []
    parts = [
        {"type": "http.request", "body": body, "more_body": index < len(bodies) - 1}
        for index, body in enumerate(bodies or (b"",))
    ]

    async def receive() -> Mapping[str, Any]:
        if parts:
            return parts.pop(0)
        await (leaves or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    named = [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()]
    await service({"type": "http", "method": method, "path": path, "headers": named}, receive, send)
    if not sent:
        return None
    return sent[0]["status"], json.loads(b"".join(item.get("body", b"") for item in sent[1:]))


async def test_a_picture_gets_its_classes_whole_or_in_parts(
    module: ModuleType, model: str, picture: bytes
) -> None:
    async with living(module.ImageService(model, "REFERENCE", CONFIG)) as service:
        for bodies in ((picture,), (picture[:100], picture[100:])):
            status, content = await ask(service, "POST", "/classify", *bodies) or (0, None)
            assert status == 200
            assert content["classes"][0]["class"] == 0
            assert sum(item["score"] for item in content["classes"]) == pytest.approx(1, abs=1e-3)
        status, content = await ask(service, "GET", "/health") or (0, None)
        assert (status, content) == (200, {"version": 1, "left": 0, "finished": 2, "cancelled": 0})


async def test_what_cannot_be_answered_is_told(
    module: ModuleType, model: str, picture: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BODY_BYTES", len(picture))
    async with living(module.ImageService(model, "REFERENCE", CONFIG)) as service:
        for given, status, text in (
            (b"nonsense", 400, "no JPEG, PNG or WebP"),
            (picture[: len(picture) // 4], 400, "damaged"),
            (b"", 400, "no JPEG"),
            (picture + b"more", 413, "bytes at most"),
        ):
            found = await ask(service, "POST", "/classify", given)
            assert found is not None
            assert (found[0], text in found[1]["error"]) == (status, True), found
        for deadline in ("soon", "-1", "nan", "0"):
            found = await ask(service, "POST", "/classify", picture, x_deadline_ms=deadline)
            assert found is not None
            assert found[0] == 400
        assert (await ask(service, "GET", "/classify") or (0,))[0] == 404
        assert (await ask(service, "POST", "/classify", picture) or (0,))[0] == 200


async def test_a_deadline_that_passes_is_504(
    module: ModuleType, model: str, picture: bytes, gate: Gate
) -> None:
    async with living(module.ImageService(model, "REFERENCE", CONFIG)) as service:
        found = await ask(service, "POST", "/classify", picture, x_deadline_ms="30")
        gate.opened.set()
        assert found is not None
        assert (found[0], "not ready after" in found[1]["error"]) == (504, True)
        assert (await ask(service, "POST", "/classify", picture) or (0,))[0] == 200


async def test_more_than_may_wait_are_503_and_the_others_are_answered(
    module: ModuleType, model: str, picture: bytes, gate: Gate
) -> None:
    config = {**CONFIG, "MAX_QUEUED_REQUESTS": 1}
    async with living(module.ImageService(model, "REFERENCE", config)) as service:
        asking = [
            asyncio.create_task(ask(service, "POST", "/classify", picture)) for _ in range(64)
        ]
        done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        assert {found[0] for task in done if (found := task.result())} == {503}
        gate.opened.set()
        statuses = [found[0] for found in await asyncio.gather(*asking) if found]
        assert set(statuses) == {200, 503}


async def test_a_client_that_goes_away_cancels_its_run(
    module: ModuleType, model: str, picture: bytes, gate: Gate
) -> None:
    async with living(module.ImageService(model, "REFERENCE", CONFIG)) as service:
        leaves = asyncio.Event()
        asking = asyncio.create_task(ask(service, "POST", "/classify", picture, leaves=leaves))
        await asyncio.to_thread(gate.reached.wait, 60)
        leaves.set()
        assert await asking is None
        gate.opened.set()
        assert service.left_count == 1
        found = await ask(service, "POST", "/classify", picture)
        assert found is not None
        assert found[0] == 200
        _, health = await ask(service, "GET", "/health") or (0, {})
        assert (health["finished"], health["cancelled"], health["left"]) == (1, 1, 1)


async def test_a_handler_that_is_cancelled_cancels_its_run(
    module: ModuleType, model: str, picture: bytes, gate: Gate
) -> None:
    async with living(module.ImageService(model, "REFERENCE", CONFIG)) as service:
        asking = asyncio.create_task(ask(service, "POST", "/classify", picture))
        await asyncio.to_thread(gate.reached.wait, 60)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        gate.opened.set()
        assert (await ask(service, "POST", "/classify", picture) or (0,))[0] == 200


async def test_the_model_is_exchanged_while_requests_are_under_way(
    module: ModuleType, tmp_path: Path, model: str, picture: bytes
) -> None:
    async with living(module.ImageService(model, "REFERENCE", CONFIG)) as service:
        asking = [
            asyncio.create_task(ask(service, "POST", "/classify", picture)) for _ in range(20)
        ]
        await asyncio.sleep(0)
        small_classifier(tmp_path / "new", factor=0.0)
        (tmp_path / "new").replace(model)
        assert await ask(service, "POST", "/reload") == (200, {"version": 2})
        assert {found[0] for found in await asyncio.gather(*asking) if found} == {200}
        _, content = await ask(service, "POST", "/classify", picture) or (0, {})
        assert {item["score"] for item in content["classes"]} == {0.3333}
        await asyncio.to_thread(Path(model).unlink)
        found = await ask(service, "POST", "/reload")
        assert found is not None
        assert found[0] == 500
        assert (await ask(service, "POST", "/classify", picture) or (0,))[0] == 200


async def test_a_model_that_cannot_be_loaded_is_told_to_the_server(module: ModuleType) -> None:
    service = module.ImageService("missing.onnx", "REFERENCE", CONFIG)
    told: list[Mapping[str, Any]] = []

    async def receive() -> Mapping[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Mapping[str, Any]) -> None:
        told.append(message)

    await service({"type": "lifespan"}, receive, send)
    assert told[0]["type"] == "lifespan.startup.failed"
    assert "missing.onnx" in told[0]["message"]


def test_the_demonstration_ends_well() -> None:
    printed = run_example("05_image_service/picture_demo.py")
    assert '"version": 2' in printed
    assert "stopped: gracefully" in printed
