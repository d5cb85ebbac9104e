"""What ``request.profiling()`` tells of a run: its nodes' times, and what its stages copied."""

from __future__ import annotations

from dataclasses import dataclass

from ..tracing.copied_bytes import CopiedBytes

__all__ = ["NodeProfile", "RunProfile"]


@dataclass(frozen=True)
class NodeProfile:
    """The time of one executed node; ``original_nodes`` are the file's nodes it stands for.

    ``implementation`` and ``layout`` are the device's own words for what computed it and how its
    result lies in memory; empty where the device has none.
    """

    name: str
    op: str
    original_nodes: tuple[str, ...]
    start_ns: int
    end_ns: int
    implementation: str = ""
    layout: str = ""

    @property
    def real_time_s(self) -> float:
        """Wall-clock time of the node."""
        return (self.end_ns - self.start_ns) / 1e9


class RunProfile(list[NodeProfile]):
    """The nodes of a run in order of execution, and what was copied for it.

    ``copies`` has an entry for each stage that has copied something, and each kind of copy; that an
    output which stayed on its device was downloaded later is added when it happens. The times are
    those of the run, which ``request_count`` requests have shared (BATCH).
    """

    def __init__(self, nodes: list[NodeProfile] | None = None) -> None:
        super().__init__(nodes or ())
        self.copies: list[CopiedBytes] = []
        self.request_count = 1

    @property
    def copied_bytes(self) -> dict[str, int]:
        """How many bytes were copied, by kind: upload, download, device, host, later_download."""
        total: dict[str, int] = {}
        for copied in self.copies:
            total[copied.kind] = total.get(copied.kind, 0) + copied.size_bytes
        return total

    def copy(self) -> RunProfile:
        """Return what is known now."""
        made = RunProfile(self)
        made.copies = list(self.copies)
        made.request_count = self.request_count
        return made
