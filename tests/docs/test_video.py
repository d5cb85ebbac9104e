"""The film's example: order, frames that are dropped, late or damaged, and Ctrl-C."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from aioinfer.errors import DeadlineExceededError, DeviceError, TensorError
from docs.example_files import EXAMPLES, example

pytest.importorskip("PIL", reason="the example needs Pillow, which is not installed")

FRAME = np.zeros((1, 4, 4, 3), np.uint8)


class FakeRequest:
    """Ends when the test says so."""

    latency_s = 0.01

    def __init__(self, refusal: Exception | None = None) -> None:
        self.userdata: Any = None
        self.results: dict[str, np.ndarray] = {"logits": np.array([[0.0, 1.0]])}
        self._refusal = refusal
        self._callback: Any = None

    def set_callback(self, callback: Any) -> None:
        self._callback = callback

    def start_async(self, frame: np.ndarray, *, userdata: int, deadline_s: float) -> None:
        if self._refusal is not None:
            raise self._refusal
        self.userdata = userdata

    def end(self, error: Exception | None = None) -> None:
        self._callback(self, error)


class FakeNetwork:
    def __init__(self, *requests: FakeRequest) -> None:
        self._requests = list(requests)

    def get_metric(self, _key: str) -> int:
        return len(self._requests)

    def create_infer_request(self) -> FakeRequest:
        return self._requests.pop(0)


@pytest.fixture(scope="module")
def video() -> ModuleType:
    return example("06_video.py")


def watcher_of(video: ModuleType, *requests: FakeRequest) -> tuple[Any, list[Any]]:
    shown: list[Any] = []
    return video.Watcher(FakeNetwork(*requests), video.InOrder(shown.append)), shown


def test_frames_are_shown_in_their_order(video: ModuleType) -> None:
    requests = [FakeRequest() for _ in range(8)]
    watcher, shown = watcher_of(video, *requests)
    for number in range(8):
        watcher.give(number, FRAME)
    random.Random(3).shuffle(requests)
    for request in requests:
        request.end()
    assert [(seen.number, seen.outcome) for seen in shown] == [(k, "shown") for k in range(8)]
    assert shown[0].text == "class 1, after 10 ms"


def test_a_frame_without_an_idle_request_is_dropped_and_the_next_is_taken(
    video: ModuleType,
) -> None:
    only = FakeRequest()
    watcher, shown = watcher_of(video, only)
    watcher.give(0, FRAME)
    watcher.give(1, FRAME)
    assert shown == []
    only.end()
    watcher.give(2, FRAME)
    only.end()
    assert [(seen.number, seen.outcome) for seen in shown] == [
        (0, "shown"),
        (1, "dropped"),
        (2, "shown"),
    ]


def test_late_and_failed_frames_cost_nothing_but_themselves(video: ModuleType) -> None:
    only = FakeRequest()
    watcher, shown = watcher_of(video, only)
    for number, error in enumerate(
        (DeadlineExceededError("too late"), DeviceError("it is lost"), None)
    ):
        watcher.give(number, FRAME)
        only.end(error)
    assert [seen.outcome for seen in shown] == ["late", "failed", "shown"]
    assert shown[1].text == "it is lost"


def test_a_frame_that_the_network_refuses_gives_its_request_back(video: ModuleType) -> None:
    only = FakeRequest(TensorError("of another shape"))
    watcher, shown = watcher_of(video, only)
    watcher.give(0, FRAME)
    watcher.give(1, FRAME)
    assert [(seen.outcome, seen.text) for seen in shown] == [("failed", "of another shape")] * 2


def test_control_c_ends_the_film_after_the_frames_under_way() -> None:
    command = [sys.executable, str(EXAMPLES / "06_video.py"), "--seconds", "600"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line.startswith("frame ")
        program.send_signal(signal.SIGINT)
        printed, errors = program.communicate(timeout=120)
    assert (program.returncode, errors) == (130, "")
    assert "shown" in printed.splitlines()[-1]
