"""Watch a film as it comes, with callbacks and no event loop: what comes late is left out.

A camera's thread gives a frame every 40 ms, whatever the network takes. Each goes to an idle
request; where none is idle, the frame is dropped, and so is one whose answer is not there in time.
Answers come in any order and are shown in the order of the frames. One frame is damaged, and costs
nothing but itself. Ctrl-C ends the camera, lets the frames under way finish, and ends.

    python examples/06_video.py --seconds 3 --fps 25
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console

import aioinfer
from aioinfer.errors import AioInferError, DeadlineExceededError
from pictures.drawing import video_frame
from pictures.mobilenet import SIZE, mobilenet_v2

LATE_S = 0.5
"""After this long it is of no use any more what was in a frame."""
DAMAGED_FRAME = 2
EXIT_INTERRUPTED = 130

SHOWN, DROPPED, LATE, FAILED = "shown", "dropped", "late", "failed"


@dataclass(frozen=True)
class Seen:
    """What became of a frame; ``text`` is what is to be shown of it, if anything."""

    number: int
    outcome: str
    text: str = ""


class InOrder:
    """Hands on what became of the frames, by their numbers from 0 on, whatever order it comes in.

    Thread-safe. ``show`` is called by one thread at a time.
    """

    def __init__(self, show: Callable[[Seen], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._early: dict[int, Seen] = {}
        self._next = 0

    def put(self, seen: Seen) -> None:
        with self._lock:
            self._early[seen.number] = seen
            while self._next in self._early:
                self._show(self._early.pop(self._next))
                self._next += 1


class Watcher:
    """A network's requests, each with a frame or idle."""

    def __init__(self, network: aioinfer.ExecutableNetwork, screen: InOrder) -> None:
        self._screen = screen
        count = network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        self._requests = [network.create_infer_request() for _ in range(count)]
        self._idle = deque(self._requests)  # its ends may be used by several threads
        for request in self._requests:
            request.set_callback(self._on_end)

    def give(self, number: int, frame: np.ndarray) -> None:
        """Take a frame, or drop it where all requests are busy; never blocks."""
        try:
            request = self._idle.popleft()
        except IndexError:
            self._screen.put(Seen(number, DROPPED))
            return
        try:
            request.start_async(frame, userdata=number, deadline_s=LATE_S)
        except AioInferError as error:  # the frame is not what the network takes
            self._idle.append(request)
            self._screen.put(Seen(number, FAILED, str(error)))

    def finish(self) -> None:
        """Wait for the frames under way."""
        for request in self._requests:
            try:
                request.wait()
            except AioInferError:
                pass  # its callback has told

    def _on_end(self, request: aioinfer.InferRequest, error: BaseException | None) -> None:
        number: int = request.userdata
        if error is None:
            best = int(request.results["logits"].argmax())
            text = f"class {best}, after {request.latency_s * 1e3:.0f} ms"
            seen = Seen(number, SHOWN, text)
        elif isinstance(error, DeadlineExceededError):
            seen = Seen(number, LATE)
        else:
            seen = Seen(number, FAILED, str(error))
        self._idle.append(request)
        self._screen.put(seen)


class Camera(threading.Thread):
    """Gives frames to a function at their times, until it is told to stop or the film ends."""

    def __init__(self, give: Callable[[int, np.ndarray], None], count: int, fps: float) -> None:
        super().__init__(name="camera")
        self._give, self._count, self._period_s = give, count, 1 / fps
        self.stopping = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        for number in range(self._count):
            wait_s = began + number * self._period_s - time.monotonic()
            if self.stopping.wait(max(0.0, wait_s)):
                return
            frame = video_frame(number, SIZE)
            self._give(number, frame[:, : SIZE // 2] if number == DAMAGED_FRAME else frame)


def load(core: aioinfer.Core, device: str) -> aioinfer.ExecutableNetwork:
    """Load a network that takes frames as they come: bytes, one colour after the other."""
    model = core.read_model(mobilenet_v2())
    model.reshape({"image": (1, 3, SIZE, SIZE)})
    ppp = aioinfer.PrePostProcessor(model)
    ppp.input().tensor().set_element_type("u8").set_layout("NHWC")
    ppp.input().preprocess().convert_element_type("f32").mean(127.5).scale(64.0)
    ppp.input().model().set_layout("NCHW")
    return core.load_network(ppp.build(), device, {"PERFORMANCE_HINT": "THROUGHPUT"})


def main() -> int:
    parser = argparse.ArgumentParser(description="Say what is in the frames of a film.")
    parser.add_argument("--device", default="AUTO")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--fps", type=float, default=25.0)
    options = parser.parse_args()
    console, counts = Console(highlight=False), Counter[str]()

    def show(seen: Seen) -> None:
        counts[seen.outcome] += 1
        if seen.text:
            console.print(f"frame {seen.number:3}: {seen.outcome}: {seen.text}", soft_wrap=True)

    with aioinfer.Core() as core, load(core, options.device) as network:
        watcher = Watcher(network, InOrder(show))
        camera = Camera(watcher.give, round(options.seconds * options.fps), options.fps)
        is_interrupted = False
        camera.start()
        try:
            camera.join()
        except KeyboardInterrupt:
            is_interrupted = True
            camera.stopping.set()
            camera.join()
        watcher.finish()
    console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return EXIT_INTERRUPTED if is_interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
