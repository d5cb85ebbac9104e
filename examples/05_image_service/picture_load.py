"""Load for the image service: clients that post pictures one after the other, and what they got.

    python examples/05_image_service/picture_load.py --port 8000 --clients 32 --seconds 5

Each client keeps one connection. With ``--leaving 0.1`` every tenth request is given up by its
client before the answer is there.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import uvloop
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pictures.drawing import jpeg

LEFT = "left"
TIMEOUT_S = 30.0


@dataclass
class Outcome:
    """What the clients have seen; latencies are those of status 200."""

    seconds: float = 0.0
    counts: Counter[int | str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Pictures that were classified in a second."""
        return self.counts[200] / self.seconds

    def percentile_ms(self, percent: float) -> float:
        """Return how long that part of the answered requests took at most."""
        return float(np.percentile(self.latencies_s, percent)) * 1e3 if self.latencies_s else 0.0

    def table(self) -> Table:
        table = Table(box=SIMPLE, title=f"{self.rate:.0f} pictures/s", title_justify="left")
        for heading in ("status", "requests"):
            table.add_column(heading, justify="right")
        for status, count in sorted(self.counts.items(), key=str):
            table.add_row(str(status), str(count))
        table.add_row("p50", f"{self.percentile_ms(50):.1f} ms")
        table.add_row("p99", f"{self.percentile_ms(99):.1f} ms")
        return table


class Client:
    """One connection to the service, opened again when it is gone."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(
        self, path: str, body: bytes = b"", deadline_ms: float | None = None
    ) -> tuple[int, bytes]:
        """Post a body; gives the status and the answer. Cancelled, it drops the connection."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        deadline = "" if deadline_ms is None else f"x-deadline-ms: {deadline_ms}\r\n"
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\n{deadline}"
            f"content-length: {len(body)}\r\n\r\n"
        )
        try:
            writer.write(head.encode() + body)
            answer_head = await reader.readuntil(b"\r\n\r\n")
            lines = answer_head.decode().split("\r\n")
            status = int(lines[0].split()[1])
            lengths = [line.split(":")[1] for line in lines if line.startswith("content-length")]
            content = await reader.readexactly(int(lengths[0])) if lengths else b""
        except BaseException:
            self.close()
            raise
        if "connection: close" in lines:
            self.close()
        return status, content

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
        self._streams = None


async def load(
    port: int,
    *,
    host: str = "127.0.0.1",
    clients: int = 8,
    seconds: float = 2.0,
    deadline_ms: float | None = None,
    leaving: float = 0.0,
) -> Outcome:
    """Have clients post pictures for this long, and count what comes back."""
    outcome, pictures = Outcome(), [jpeg(seed) for seed in range(8)]
    began = time.perf_counter()

    async def work(number: int) -> None:
        client, chance = Client(host, port), random.Random(number)
        try:
            while time.perf_counter() - began < seconds:
                patience_s = 0.002 if chance.random() < leaving else TIMEOUT_S
                sent = time.perf_counter()
                try:
                    async with asyncio.timeout(patience_s):
                        post = client.post("/classify", chance.choice(pictures), deadline_ms)
                        status, _ = await post
                except TimeoutError:
                    outcome.counts[LEFT if patience_s < TIMEOUT_S else "no answer"] += 1
                    continue
                except (OSError, EOFError) as error:
                    outcome.counts[type(error).__name__] += 1
                    return
                outcome.counts[status] += 1
                if status == 200:
                    outcome.latencies_s.append(time.perf_counter() - sent)
        finally:
            client.close()

    async with asyncio.TaskGroup() as tasks:
        for number in range(clients):
            tasks.create_task(work(number))
    outcome.seconds = time.perf_counter() - began
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description="Post pictures to the image service.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--deadline-ms", type=float)
    parser.add_argument("--leaving", type=float, default=0.0, help="part of requests given up")
    Console().print(uvloop.run(load(**vars(parser.parse_args()))).table())


if __name__ == "__main__":
    main()
