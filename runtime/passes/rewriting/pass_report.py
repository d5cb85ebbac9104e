"""What a run of passes did, as data and as text."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PassReport", "PassResult"]

_SHOWN_PATCHES = 5
"""Descriptions of one pass that the text shows; models yield thousands."""


class PassResult(NamedTuple):
    """One pass of a run: what it rewrote, what went with it, and how long it took."""

    name: str
    patches: tuple[str, ...]
    """Descriptions, in the order in which the patches were applied."""
    removed_names: tuple[str, ...]
    """Names of nodes of the file that no node stood for when this pass had ended."""
    round_count: int
    time_s: float

    @property
    def patch_count(self) -> int:
        """How many patches were applied."""
        return len(self.patches)


class PassReport(NamedTuple):
    """All passes of a run, in order."""

    results: tuple[PassResult, ...] = ()
    removed_names: tuple[str, ...] = ()
    """Names of nodes of the file that no node stands for any more: a pass made them needless."""
    stopped: bool = False
    """True if ``stop_after`` ended the run."""

    @property
    def patch_count(self) -> int:
        """How many patches were applied by all passes."""
        return sum([len(result.patches) for result in self.results])

    @property
    def time_s(self) -> float:
        """How long all passes took."""
        return sum(result.time_s for result in self.results)

    def then(self, later: PassReport) -> PassReport:
        """Join it with the report of a run that came after it, over the same model."""
        return PassReport(
            self.results + later.results,
            tuple(dict.fromkeys(self.removed_names + later.removed_names)),
            self.stopped or later.stopped,
        )

    def describe_patch(self, number: int) -> str:
        """Return the names of the n-th patch, counted from 1, and its pass; raises IndexError."""
        left = number
        for result in self.results:
            if 0 < left <= result.patch_count:
                return f"{result.name}: {result.patches[left - 1]}"
            left -= result.patch_count
        raise IndexError(f"the run had {self.patch_count} patches, there is no number {number}")

    def __str__(self) -> str:
        ran = len(self.results)
        head = f"{ran} passes, {self.patch_count} patches, {self.time_s * 1e3:.1f} ms"
        lines = [head + (" (stopped early)" if self.stopped else "")]
        for result in self.results:
            lines.append(
                f"  {result.name}: {result.patch_count} patches, {result.round_count} rounds, "
                f"{result.time_s * 1e3:.1f} ms"
            )
            lines += [f"    {text}" for text in result.patches[:_SHOWN_PATCHES]]
            if result.patch_count > _SHOWN_PATCHES:
                lines.append(f"    and {result.patch_count - _SHOWN_PATCHES} more")
        if self.removed_names:
            lines.append(f"  removed: {', '.join(self.removed_names)}")
        return "\n".join(lines)
