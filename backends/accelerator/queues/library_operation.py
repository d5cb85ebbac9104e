"""An operation of a vendor's library, such as a convolution of cuDNN, in the place of a kernel."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

__all__ = ["LibraryOperation"]


@dataclass(frozen=True)
class LibraryOperation:
    """All that a library's plan depends on; equal operations are built once for a device.

    ``library`` is one of ``DeviceFacts.libraries``, ``label`` says in a word what is computed.
    ``parameters`` are shapes, types and numbers by name, hashable; addresses are arguments of the
    launch, in an order that ``label`` stands for. Workspace is an argument like the others.
    """

    library: str
    label: str
    parameters: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, library: str, label: str, **parameters: Any) -> LibraryOperation:
        """Name an operation by its parameters."""
        return cls(library, label, tuple(sorted(parameters.items())))

    @property
    def name(self) -> str:
        """A name of its own for every operation, the same in all processes."""
        said = f"{self.library} {self.label} {self.parameters!r}"
        return f"{self.label}_{hashlib.sha256(said.encode()).hexdigest()[:16]}"

    def __getitem__(self, name: str) -> Any:
        return dict(self.parameters)[name]
