"""How much memory this process has, by the kernel."""

from __future__ import annotations

from pathlib import Path

__all__ = ["resident_bytes"]


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not say how much memory this process has")
