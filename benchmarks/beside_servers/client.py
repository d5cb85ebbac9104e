"""A client of ``serving.py`` in a process of its own: some connections, for some seconds.

Each connection sends one request, waits for its answer, and sends the next. HTTP is written and
read by hand, as little as it takes, so that the client costs less than what it measures; its own
cost, asked of a server that only echoes a fixed answer, is a row of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

Ask = Callable[[], Awaitable[None]]
PATIENCE_S = 30.0
"""How long a server may take to be connected to, and for its last answers."""
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


async def http_asker(host: str, port: int, request: bytes) -> Ask:
    """Open a connection; the function sends the request and reads its answer."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)

    async def ask() -> None:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        lengths = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
        body = await reader.readexactly(lengths[0])
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"refused: {body[:500]!r}")

    return ask


async def grpc_asker(host: str, port: int, request: bytes) -> Ask:
    """Open a channel; messages are bytes, as the client's work is not what is measured."""
    import grpc

    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channel = grpc.aio.insecure_channel(f"{host}:{port}", options=options)
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

    async def ask() -> None:
        await call(request)

    return ask


async def measure(asks: list[Ask], seconds: float) -> dict[str, float]:
    """Have all ask at once; the first part of the time counts in ``request_count`` only.

    Raises TimeoutError where a server does not answer.
    """
    took: list[float] = []
    request_count = 0
    begin_s = time.perf_counter() + seconds / 5
    end_s = begin_s + seconds

    async def one(ask: Ask) -> None:
        nonlocal request_count
        while True:
            sent_s = time.perf_counter()
            if sent_s >= end_s and took:
                return
            await ask()
            request_count += 1
            if sent_s >= begin_s:
                took.append(time.perf_counter() - sent_s)

    async with asyncio.timeout(end_s - time.perf_counter() + PATIENCE_S):
        await asyncio.gather(*(one(ask) for ask in asks))
    elapsed_s = time.perf_counter() - begin_s
    took.sort()
    return {
        "request_count": request_count,
        "requests_per_s": len(took) / elapsed_s,
        "p50_ms": 1e3 * took[len(took) // 2],
        "p99_ms": 1e3 * took[min(len(took) - 1, len(took) * 99 // 100)],
    }


async def echo() -> tuple[asyncio.Server, int]:
    """Serve a fixed answer, for what the client itself costs."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            length = 0
            while (line := await reader.readline()) not in (b"\r\n", b""):
                if line.startswith(b"content-length:"):
                    length = int(line[15:])
            await reader.readexactly(length)
            writer.write(ANSWER)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def run(options: argparse.Namespace) -> dict[str, float]:
    if options.wire == "echo":
        _, port = await echo()
        print(json.dumps({"port": port}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        return {}
    request = options.request.read_bytes()
    host, port = options.address.rsplit(":", 1)
    make = grpc_asker if options.wire == "grpc" else http_asker
    async with asyncio.timeout(PATIENCE_S):
        asks = [await make(host, int(port), request) for _ in range(options.connections)]
    return await measure(asks, options.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wire", choices=("http", "grpc", "echo"))
    parser.add_argument("--address", default="")
    parser.add_argument("--request", type=Path)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    told = uvloop.run(run(parser.parse_args()))
    if told:
        print(json.dumps(told))


if __name__ == "__main__":
    main()
