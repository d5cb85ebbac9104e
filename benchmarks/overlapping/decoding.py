"""Decoding beside computing: requests of JPEG bytes, decoded in one stage and computed in the next.

    python benchmarks decoding
    python benchmarks decoding --model resnet50 --rounds 5

A network takes pictures of 224 x 224; its ``preprocess`` decodes a JPEG of 1280 x 960 and resizes
it. Decoder and network have one thread each. Turns of decoding alone, computing alone and both take
turns; the bound is the slower of the first two, and ``overlap`` the rate of both over that bound.
Beside it the usual way: decoding and computing in one thread pool of two threads.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import uvloop
from models import MODELS
from PIL import Image
from row_file import write_rows

import aioinfer
from aioinfer.images import ImageDecoder

ONE_THREAD = {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": 1, "PREPROCESS_STREAMS": 1}
WANTED = 0.95


def jpeg() -> bytes:
    """Draw a picture that is as dear to decode as a photograph, about."""
    chance = np.random.default_rng(1)
    small = chance.integers(0, 255, (60, 80, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((1280, 960), Image.Resampling.BICUBIC).save(
        file, "JPEG", quality=88
    )
    return file.getvalue()


async def rate(call: Callable[[], Awaitable[Any]], in_flight: int, seconds: float) -> float:
    """Return requests a second of this many tasks that call one after the other."""
    end, count = time.perf_counter() + seconds, 0

    async def work() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await call()
            count += 1

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    return count / (time.perf_counter() - began)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    picture, decoder = jpeg(), ImageDecoder(224, 224)
    rates: dict[str, list[float]] = {"decode": [], "compute": [], "stages": [], "pool": []}
    async with aioinfer.Core() as core:
        model = core.read_model(MODELS[options.model].build())
        ppp = aioinfer.PrePostProcessor(model)
        ppp.input().tensor().set_element_type("u8").set_layout("NHWC")
        ppp.input().preprocess().convert_element_type("f32").mean(127.5).scale(64.0)
        ppp.input().model().set_layout("NCHW")
        built = ppp.build()
        name = built.inputs[0].name
        plain = core.load_network(built, "CPU", ONE_THREAD)
        staged = core.load_network(built, "CPU", ONE_THREAD, preprocess={name: decoder})
        decoded = {name: decoder(picture)}
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(2) as two:
            free = [plain.create_infer_request() for _ in range(2)]

            def both() -> Any:
                mine = free.pop()
                try:
                    return mine.infer_sync({name: decoder(picture)})
                finally:
                    free.append(mine)

            ways: dict[str, Callable[[], Awaitable[Any]]] = {
                "decode": lambda: loop.run_in_executor(one, decoder, picture),
                "compute": lambda: plain.infer(decoded),
                "stages": lambda: staged.infer({name: picture}),
                "pool": lambda: loop.run_in_executor(two, both),
            }
            for round_number in range(options.rounds + 1):
                for way, call in ways.items():
                    in_flight = 2 if way == "pool" else staged.optimal_request_count
                    found = await rate(call, in_flight, options.seconds)
                    if round_number:
                        rates[way].append(found)
    bounds = [min(pair) for pair in zip(rates["decode"], rates["compute"], strict=True)]
    overlaps = [got / bound for got, bound in zip(rates["stages"], bounds, strict=True)]
    return {
        "model": options.model,
        **{f"{way}_per_s": round(median(found), 1) for way, found in rates.items()},
        "overlap": round(median(overlaps), 3),
        "wanted": WANTED,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=("mobilenet_v2", "resnet50"), default="mobilenet_v2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path, help="write the row to a file")
    options = parser.parse_args()
    row = uvloop.run(measure(options))
    print(row)
    write_rows(options.json, "decoding", [row])
