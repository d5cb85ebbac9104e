"""What a comparison says while it runs, and what it goes on without."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from against_peers.process import WorkerError


@dataclass(kw_only=True)
class Notes:
    """What was left out, with its reason; each is said once."""

    say: Callable[[str], None]
    left_out: dict[str, str] = field(default_factory=dict)

    def leave_out(self, what: str, reason: str) -> None:
        if self.left_out.get(what) != reason:
            self.left_out[what] = reason
            self.say(f"left out: {what}: {reason}")

    @contextlib.contextmanager
    def leaving_out(self, what: str) -> Iterator[None]:
        """Go on without an engine that cannot do what is in the block."""
        try:
            yield
        except WorkerError as error:
            self.leave_out(what, str(error))

    def installed(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Give those of the engines that are installed."""
        found = {name: importlib.util.find_spec(name) is not None for name in wanted}
        for name in wanted:
            if not found[name]:
                self.leave_out(name, f"it is not installed; pip install {name}")
        return tuple(name for name in wanted if found[name])
