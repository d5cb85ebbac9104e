"""What computes beside an inference in the same process: a counting thread, decoders of images."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

DECODE_PERIOD_S = 0.02  # each decoder begins 50 images a second, and makes up for none that is late
IMAGE_SIZE = (1024, 768)  # decodes in 4 to 10 ms


@contextmanager
def busy_thread() -> Iterator[None]:
    """Keep another Python thread counting."""
    is_over = False

    def count() -> None:
        number = 0
        while not is_over:
            number += 1

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over = True
        thread.join()


@contextmanager
def decoder_threads(count: int) -> Iterator[Callable[[], int]]:
    """Keep threads decoding a JPEG, which holds no GIL; yields what tells how many are done."""
    from PIL import Image

    jpeg = _jpeg()
    over = threading.Event()
    done = [0] * count

    def decode(index: int) -> None:
        next_s = time.perf_counter()
        while not over.wait(max(0.0, next_s - time.perf_counter())):
            Image.open(io.BytesIO(jpeg)).load()
            done[index] += 1
            next_s = max(next_s + DECODE_PERIOD_S, time.perf_counter())

    with ThreadPoolExecutor(max(1, count)) as pool:
        futures = [pool.submit(decode, index) for index in range(count)]
        try:
            yield lambda: sum(done)
        finally:
            over.set()
        for future in futures:
            future.result()


def _jpeg() -> bytes:
    """Encode an image that is neither flat nor noise, the same every time."""
    import numpy as np
    from PIL import Image

    chance = np.random.default_rng(0)
    coarse = chance.integers(0, 256, (48, 64, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize(IMAGE_SIZE, Image.Resampling.BICUBIC))
    grain = chance.integers(-8, 9, smooth.shape)
    image = Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()
