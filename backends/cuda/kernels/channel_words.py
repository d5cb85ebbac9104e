"""Neighbouring channels of a place in one work-item, read and written as a word of eight bytes.

A map with channels last has them side by side. A work-item has a block of them in an array of what
is computed with. Blocks begin where words do, because buffers do and channels are whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....runtime.graph import DType
from ...accelerator.elementwise.c_types import C_TYPES, FLOATS

__all__ = ["ChannelWords", "channel_words"]

_WORD_BYTES = 8
_FROM_BITS = {
    DType.FLOAT32: "{array}[{j}] = float_of_bits((uint)({word} >> {shift}));",
    DType.BFLOAT16: "{array}[{j}] = float_of_bfloat16((bfloat16)({word} >> {shift}));",
    DType.FLOAT16: (
        "{{ const ushort bits = (ushort)({word} >> {shift});"
        " {array}[{j}] = vload_half(0, (const half *)&bits); }}"
    ),
}
_TO_BITS = {
    DType.FLOAT32: "{word} |= (ulong)bits_of_float({array}[{j}]) << {shift};",
    DType.BFLOAT16: "{word} |= (ulong)bfloat16_of_float({array}[{j}]) << {shift};",
    DType.FLOAT16: (
        "{{ ushort bits; vstore_half({array}[{j}], 0, (half *)&bits);"
        " {word} |= (ulong)bits << {shift}; }}"
    ),
}


@dataclass(frozen=True)
class ChannelWords:
    """How a block of ``count`` channels moves; 1 where they do not fill words, and for integers."""

    dtype: DType
    count: int

    def load(self, array: str, pointer: str, index: str) -> str:
        """Declare ``array`` and fill it with the block number ``index``."""
        if self.count == 1:
            value = C_TYPES[self.dtype].load(pointer, index)
            return f"{self._register} {array}[1]; {array}[0] = {value};"
        word = f"{array}_word"
        start = f"{self._register} {array}[{self.count}]; "
        start += f"const ulong {word} = ((__global const ulong *){pointer})[{index}]; "
        return start + self._each(_FROM_BITS[self.dtype], array, word)

    def store(self, array: str, pointer: str, index: str) -> str:
        """Write ``array`` to the block number ``index``."""
        if self.count == 1:
            return C_TYPES[self.dtype].store(f"{array}[0]", pointer, index)
        word = f"{array}_word"
        parts = self._each(_TO_BITS[self.dtype], array, word)
        return f"{{ ulong {word} = 0; {parts} ((__global ulong *){pointer})[{index}] = {word}; }}"

    def each(self, statement: str) -> str:
        """Do a statement for every channel ``j`` of the block."""
        return f"for (int j = 0; j < {self.count}; j++) {{ {statement} }}"

    def filled(self, array: str, value: str) -> str:
        """Declare ``array`` with the same value for every channel."""
        return f"{self._register} {array}[{self.count}]; " + self.each(f"{array}[j] = {value};")

    @property
    def _register(self) -> str:
        return C_TYPES[self.dtype].register

    def _each(self, form: str, array: str, word: str) -> str:
        bits = 8 * self.dtype.item_bytes
        return " ".join(
            form.format(array=array, word=word, j=j, shift=j * bits) for j in range(self.count)
        )


def channel_words(dtype: DType, channels: int) -> ChannelWords:
    """Choose the block for maps of this many channels."""
    count = _WORD_BYTES // dtype.item_bytes
    return ChannelWords(dtype, count if dtype in FLOATS and channels % count == 0 else 1)
