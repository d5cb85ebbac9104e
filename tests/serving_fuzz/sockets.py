"""Cases at sockets of the command: requests, attacks beside a good client, and a soak."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from unit.serving.models import DIGITS, OF_DATATYPE, echo, scaled
from unit.serving.serve_process import Serving, serve

from .mutations import good_message, mutated_body, mutated_bytes, mutated_head

__all__ = ["attack", "send_to_sockets", "soak"]

Report = Callable[[str], None]
_TYPES = [int(OF_DATATYPE["FP32"]), int(OF_DATATYPE["BYTES"])]
_INFER = "/inference.GRPCInferenceService/ModelInfer"
_PATIENCE_S = 30.0
_CROWD_COUNT = 200
_CROWDS = ("none", "honest", "attack")
_ROUNDS = 3


def send_to_sockets(count: int, seed: int, report: Report) -> Counter[str]:
    """Send requests with wrong heads and bodies, and messages by gRPC; the server must live on."""
    with tempfile.TemporaryDirectory() as folder:
        model = echo(Path(folder) / "echo.onnx", _TYPES)
        with serve(model, "-d", "REFERENCE", "--grpc-port", "0") as serving:
            told = asyncio.run(_send_all(serving, count, seed, report))
            if serving.process.poll() is not None:
                report(f"the server has ended with {serving.process.returncode}")
            elif serving.end(signal.SIGTERM) != 0:
                report("the server did not end with 0")
            for line in serving.said:
                if "Traceback" in line or "request failed" in line:
                    report(f"the server says: {line}")
    return told


async def _send_all(serving: Serving, count: int, seed: int, report: Report) -> Counter[str]:
    told: Counter[str] = Counter()
    host, port = serving.host.split(":")
    address = serving.addresses[1].removeprefix("grpc://")
    async with grpc.aio.insecure_channel(address) as channel:
        for number in range(count):
            chance = random.Random(f"{seed} {number}")
            if number % 4 == 3:
                data = mutated_bytes(good_message(), chance, (b"\x2a\x00", b"\xff"))
                try:
                    await channel.unary_unary(_INFER)(data, timeout=_PATIENCE_S)
                    told["grpc OK"] += 1
                except grpc.aio.AioRpcError as error:
                    told[f"grpc {error.code().name}"] += 1
                    if error.code().name in ("UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED"):
                        report(f"message {number} of seed {seed}: {error.code()}: {data!r}")
                continue
            sent = mutated_head(chance, mutated_body(chance))
            try:
                status = await _status_of(host, int(port), sent, chance)
            except TimeoutError:
                report(f"request {number} of seed {seed}: no end: {sent!r}")
                continue
            told[f"http {status}"] += 1
            if status.startswith("5"):
                report(f"request {number} of seed {seed}: {status}: {sent!r}")
    return told


async def _status_of(host: str, port: int, sent: bytes, chance: random.Random) -> str:
    """Send a request, and say that nothing follows it; return the answer's status, or "none"."""
    async with asyncio.timeout(_PATIENCE_S):
        reader, writer = await asyncio.open_connection(host, port)
        told = b""
        with contextlib.suppress(OSError):
            if chance.random() < 0.3:
                cut = chance.randrange(len(sent) + 1)
                writer.write(sent[:cut])
                await writer.drain()
                writer.write(sent[cut:])
            else:
                writer.write(sent)
            if chance.random() < 0.3:
                writer.write_eof()
                told = await reader.read()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        told = await reader.read(64)
        writer.close()
        return told[9:12].decode("latin-1") or "none"


def attack(seconds: float, report: Report) -> Counter[str]:
    """Measure a good client alone, beside as many that are honest, and beside attackers.

    These are in a process of their own: what they cost themselves is not the server's. The three
    are measured in turns, and the medians of the rounds are compared.
    """
    found: dict[str, list[float]] = {}
    with serve(DIGITS, "-d", "CPU") as serving:
        host, port = serving.host.split(":")
        asyncio.run(_latencies_ms(serving, 1.0))
        for _ in range(_ROUNDS):
            for kind in _CROWDS:
                with _crowd(kind, host, int(port)):
                    took = asyncio.run(_latencies_ms(serving, seconds / _ROUNDS))
                found.setdefault(kind, []).append(_percentile(took, 99))
    alone, honest, under = (statistics.median(found[kind]) for kind in _CROWDS)
    if under > 3 * max(alone, honest):
        report(
            f"p99 of a good client {under:.2f} ms under attack, {alone:.2f} ms alone, {honest:.2f} "
            f"ms beside honest clients"
        )
    told = {"alone": alone, "beside honest ones": honest, "under attack": under}
    return Counter({f"p99 {name}, us": round(took * 1e3) for name, took in told.items()})


@contextlib.contextmanager
def _crowd(kind: str, host: str, port: int) -> Iterator[None]:
    if kind == "none":
        yield
        return
    spawning = multiprocessing.get_context("spawn")
    has_begun = spawning.Event()
    process = spawning.Process(target=_be_crowd, args=(kind, host, port, has_begun), daemon=True)
    process.start()
    try:
        assert has_begun.wait(_PATIENCE_S)
        yield
    finally:
        process.kill()
        process.join()


def _be_crowd(kind: str, host: str, port: int, has_begun: Any) -> None:
    async def run() -> None:
        one = _loris if kind == "attack" else _honest
        crowd = [asyncio.create_task(one(host, port, place)) for place in range(_CROWD_COUNT)]
        await asyncio.sleep(0.5)
        has_begun.set()
        await asyncio.gather(*crowd)

    asyncio.run(run())


async def _honest(host: str, port: int, place: int) -> None:
    """Ask once a second and read the answer."""
    await asyncio.sleep(place / _CROWD_COUNT)
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(host, port)
            while True:
                writer.write(b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n")
                await _read_answer(reader)
                await asyncio.sleep(1.0)


async def _loris(host: str, port: int, place: int) -> None:
    """Open connections and send a byte at a time, or half close, or never read."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            kind = place % 3
            if kind == 0:
                for byte in b"POST /v2/models/digits/infer HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 99:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.2)
            elif kind == 1:
                writer.write(b"GET /v2 HTTP/1.1\r\nhost: x\r\n")
                writer.write_eof()
                await asyncio.sleep(1.0)
            else:
                writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n" * 8)
                await asyncio.sleep(1.0)
            writer.close()


_BODY = json.dumps(
    {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.0] * 64}]}
).encode()
_GOOD = (
    b"POST /v2/models/digits/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(_BODY)
) + _BODY


async def _latencies_ms(serving: Serving, seconds: float) -> list[float]:
    host, port = serving.host.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    found = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        began_s = time.perf_counter()
        writer.write(_GOOD)
        assert await _read_answer(reader) == 200
        found.append((time.perf_counter() - began_s) * 1e3)
    writer.close()
    return found


async def _read_answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")
    )
    await reader.readexactly(length)
    return int(head[9:12])


def _percentile(values: list[float], number: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * number // 100)]


def soak(seconds: float, seed: int, report: Report) -> Counter[str]:
    """Load mixed with reloads and clients that leave: no lost request, and flat memory."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        scaled(root / "m" / "1" / "model.onnx", 2.0)
        with serve(root, "-d", "CPU", "--poll", "0.5", "--max-connections", "64") as serving:
            told = asyncio.run(_soak(serving, root, seconds, random.Random(seed), report))
            if serving.end(signal.SIGTERM) != 0:
                report("the server did not end with 0")
    return told


async def _soak(
    serving: Serving, root: Path, seconds: float, chance: random.Random, report: Report
) -> Counter[str]:
    told: Counter[str] = Counter()
    host, port = serving.host.split(":")
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    body = json.dumps({"inputs": [entry]}).encode()
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    request = head % len(body) + body
    end_s = time.perf_counter() + seconds
    memory: list[int] = []

    async def good() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.perf_counter() < end_s:
            writer.write(request)
            status = await _read_answer(reader)
            told[f"status {status}"] += 1
            if status != 200:
                report(f"a good client was answered {status}")
        writer.close()

    async def leaving() -> None:
        while time.perf_counter() < end_s:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(request[: chance.randrange(1, len(request) + 1)])
                await writer.drain()
                writer.transport.abort()
                told["left"] += 1
            await asyncio.sleep(0.005)

    async def reloading() -> None:
        version = 1
        while time.perf_counter() < end_s:
            await asyncio.sleep(1.0)
            version += 1
            scaled(root / "new" / "model.onnx.new", float(version))
            made = root / "m" / str(version)
            made.mkdir()
            os.replace(root / "new" / "model.onnx.new", made / "model.onnx")
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(root / "m" / str(version - 3))
            told["reloads"] += 1
            memory.append(_resident_bytes(serving.process.pid))

    await asyncio.gather(*(good() for _ in range(4)), leaving(), leaving(), reloading())
    settled, last = memory[len(memory) // 3 :][:1], memory[-1:]
    if settled and last[0] > settled[0] * 1.1 + (16 << 20):
        report(f"memory grew from {settled[0] >> 20} to {last[0] >> 20} MiB")
    told["MiB"] = last[0] >> 20 if last else 0
    return told


def _resident_bytes(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
