"""Trace: the latest spans of a network, and how to look at them."""

from __future__ import annotations

import os
from pathlib import Path

from ....errors import PropertyError
from ....executors.late_imports import late_imports
from .span_sequence import SpanSequence

__all__ = ["Trace", "check_trace_file"]

SUFFIXES = (".html", ".json")


class Trace(SpanSequence):
    """Spans of one network and its sub-networks, which can be saved to be looked at; immutable."""

    def chrome_json(self) -> str:
        """Return it in the format of Chrome's trace viewer, for chrome://tracing and Perfetto."""
        with late_imports:
            from .chrome import chrome_json

        return chrome_json(self)

    def html(self) -> str:
        """Return it as one page that needs nothing from elsewhere."""
        with late_imports:
            from .page import trace_page

        return trace_page(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``html`` or ``chrome_json``, as the suffix says; PropertyError for another one.

        Raises OSError if the file cannot be written. Blocks, up to seconds for a full ring; on an
        event loop use ``save_async``.
        """
        suffix = check_trace_file(path)
        text = self.html() if suffix == ".html" else self.chrome_json()
        Path(path).write_text(text, encoding="utf-8")

    async def save_async(self, path: str | os.PathLike[str]) -> None:
        """Save it on a thread, so that the event loop goes on; otherwise as ``save``."""
        with late_imports:
            from anyio import to_thread

        check_trace_file(path)
        await to_thread.run_sync(self.save, path)

    def __repr__(self) -> str:
        return f"<Trace of {self.network!r} on {self.device}: {len(self)} spans>"


def check_trace_file(path: str | os.PathLike[str]) -> str:
    """Return the suffix that says how a trace is saved there; raises PropertyError."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise PropertyError(
            f"a trace cannot be saved as {os.fspath(path)!r}: the suffix says the format; .html is "
            f"a page, .json is for Perfetto and chrome://tracing",
            "path",
            value=os.fspath(path),
        )
    return suffix
