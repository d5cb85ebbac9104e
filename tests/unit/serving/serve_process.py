"""``aioinfer serve`` in a process of its own, on a port that is free."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ENDS_WITHIN_S = 100


@dataclass
class Serving:
    process: subprocess.Popen[str]
    ready: str
    addresses: list[str]
    said: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.addresses[0]

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]

    def end(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(ENDS_WITHIN_S)


@contextmanager
def serve(
    model: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[Serving]:
    """Start the command, wait for its ready line, and end it however the block ends."""
    command = [sys.executable, "-P", "-m", "aioinfer", "serve", str(model), "--port", "0", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    said: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    errors = process.stderr
    listener = threading.Thread(target=lambda: said.extend(errors), daemon=True)
    listener.start()
    try:
        ready = process.stdout.readline()
        if not ready:
            process.wait(ENDS_WITHIN_S)
            listener.join(ENDS_WITHIN_S)
            raise AssertionError(f"ended with {process.returncode}: {''.join(said)}")
        addresses = [word for word in ready.split() if "://" in word]
        yield Serving(process, ready, addresses, said)
    finally:
        process.kill()
        process.wait(ENDS_WITHIN_S)
        listener.join(ENDS_WITHIN_S)
        process.stdout.close()
        process.stderr.close()
