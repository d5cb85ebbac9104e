"""Tasks that a test leaves pending on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["expect_pending"]


def expect_pending(tasks: Iterable[Any]) -> None:
    """Have asyncio log nothing of tasks that go before they have ended."""
    for task in tasks:
        task._log_destroy_pending = False
