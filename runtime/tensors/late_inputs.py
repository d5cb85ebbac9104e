"""LateInputs: inputs of a run of which some lie in another device's memory, and have to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .kept_array import KeptArray

__all__ = ["Late", "LateInputs"]


class Late:
    """An input that its network's device cannot read where it is."""

    __slots__ = ("kept",)

    def __init__(self, kept: KeptArray) -> None:
        self.kept = kept


class LateInputs(dict[str, Any]):
    """Inputs by name, checked, with KeptArrays among them that their network cannot read.

    ``late`` names those. To download one blocks, so that a run does it on an executor, and its
    caller's thread goes on.
    """

    def __init__(self, inputs: Mapping[str, Any], late: tuple[str, ...]) -> None:
        super().__init__(inputs)
        self.late = late

    @staticmethod
    def joined(inputs: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        """Put both together; what comes out is late where one of them is."""
        made, both = {**inputs, **more}, (inputs, more)
        late = tuple(name for part in both if isinstance(part, LateInputs) for name in part.late)
        return LateInputs(made, late) if late else made

    def read_in_place(self, reads: Callable[[str, KeptArray], bool]) -> dict[str, Any]:
        """Return the inputs without those that ``reads`` says are read where they are."""
        late = tuple(name for name in self.late if not reads(name, self[name]))
        return LateInputs(self, late) if late else dict(self)

    def downloaded(self, may_go_on: Callable[[], None]) -> dict[str, Any]:
        """Return the inputs with the host's copies of what is late. Blocks.

        ``may_go_on`` is asked before each, and raises if not. Raises DeviceError and ClosedError.
        """
        made = dict(self)
        for name in self.late:
            value = made[name]
            if isinstance(value, KeptArray):
                may_go_on()
                made[name] = value.host()
        return made
