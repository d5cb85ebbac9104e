"""The text of one kernel, named by what it says, so that equal ones are built once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["KernelSource", "program_text"]


@dataclass(frozen=True)
class KernelSource:
    """One ``__kernel`` function in OpenCL C; ``label`` says in a word what it computes."""

    label: str
    name: str
    text: str

    @classmethod
    def of(cls, label: str, text: str) -> KernelSource:
        """Name a kernel; ``text`` has ``$name`` where its function's name belongs."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        name = f"{label}_{digest}"
        return cls(label, name, text.replace("$name", name))


_PRELUDE = """
static float greatest(float a, float b) { return a > b || a != a ? a : b; }
static float least(float a, float b) { return a < b || a != a ? a : b; }
"""


def program_text(sources: list[KernelSource]) -> str:
    """Join kernels to one program, in an order of its own so that equal sets are equal."""
    texts = [source.text for source in sorted(sources, key=lambda item: item.name)]
    return "\n".join([_PRELUDE, *texts])
