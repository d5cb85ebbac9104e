"""The text of one kernel, named by what it says, so that equal ones are built once.

Kernel C is what OpenCL C 1.2 and CUDA C++ have in common under OpenCL's names: ``__kernel``,
``__global``, ``__local``, ``get_global_id`` and its like, ``barrier``, ``vload_half``, the types
``uchar`` to ``ulong``. A driver compiles it behind a header of its own, which says what the names
mean there that its language lacks; ``DEVICE_FUNCTION`` is one for each, and so are
``bits_of_float`` and ``float_of_bits``, which see the 32 bits of a float as a ``uint`` and back. A
``bfloat16`` is the upper half of a float's bits, rounded to the nearest, to even on a tie.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["KernelSource", "program_text"]


@dataclass(frozen=True)
class KernelSource:
    """One ``__kernel`` function in kernel C; ``label`` says in a word what it computes."""

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
DEVICE_FUNCTION float greatest(float a, float b) { return a > b || a != a ? a : b; }
DEVICE_FUNCTION float least(float a, float b) { return a < b || a != a ? a : b; }
typedef ushort bfloat16;
DEVICE_FUNCTION float float_of_bfloat16(bfloat16 bits) { return float_of_bits((uint)bits << 16); }
DEVICE_FUNCTION bfloat16 bfloat16_of_float(float value) {
    const uint bits = bits_of_float(value);
    const int is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const uint rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (bfloat16)((is_nan ? bits | 0x400000u : rounded) >> 16);
}
"""


def program_text(sources: list[KernelSource]) -> str:
    """Join kernels to one program, in an order of its own so that equal sets are equal."""
    texts = [source.text for source in sorted(sources, key=lambda item: item.name)]
    return "\n".join([_PRELUDE, *texts])
