"""Start the image service, load it, exchange its model meanwhile, and stop it.

python examples/05_image_service/picture_demo.py
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

import uvloop
from picture_load import Client, Outcome, load
from rich.console import Console

SERVICE = Path(__file__).with_name("picture_service.py")
SECONDS = 3.0
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


async def port_of(service: asyncio.subprocess.Process) -> int:
    """Read what the service logs until it says where it listens."""
    assert service.stderr is not None
    async with asyncio.timeout(START_TIMEOUT_S):
        async for line in service.stderr:
            found = re.search(rb"running on http://[^:]+:(\d+)", line)
            if found is not None:
                return int(found[1])
    raise RuntimeError("the service has not started; run picture_service.py by itself to see why")


async def exchange(port: int) -> bytes:
    """Have the model loaded anew in the midst of the load."""
    await asyncio.sleep(SECONDS / 3)
    client = Client("127.0.0.1", port)
    try:
        return (await client.post("/reload"))[1]
    finally:
        client.close()


async def main() -> int:
    console = Console()
    service = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVICE), "--port", "0", stderr=asyncio.subprocess.PIPE
    )
    try:
        port = await port_of(service)
        outcome, told = await asyncio.gather(
            load(port, clients=8, seconds=SECONDS, leaving=0.1), exchange(port)
        )
        console.print(outcome.table())
        console.print(f"exchanged meanwhile: {told.decode().strip()}")
        service.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_TIMEOUT_S):
            _, log = await service.communicate()
    finally:
        if service.returncode is None:
            service.kill()
    is_graceful = b"Application shutdown complete" in log
    console.print(f"stopped: {'gracefully' if is_graceful else log.decode()}")
    return 0 if is_graceful and is_well(outcome) else 1


def is_well(outcome: Outcome) -> bool:
    """True if some were answered, and others only refused, late or gone."""
    return bool(outcome.counts[200]) and not set(outcome.counts) - {200, 503, 504, "left"}


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
