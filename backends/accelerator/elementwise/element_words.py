"""Neighbouring elements in one work-item, read and written as a word of up to 16 bytes.

A work-item has a block of them in an array of what is computed with. Blocks begin where words do:
buffers do, and what is counted in blocks has whole ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....runtime.graph import DType
from .c_types import C_TYPES, ELEMENT_WORDS

__all__ = ["WORD_BYTES", "ElementWords"]

WORD_BYTES = 16
"""The most that a word has: ``ulong2``, in kernel C as in CUDA C++."""
_PAIR, _HALF_BYTES = "ulong2", 8
_WORDS = {**ELEMENT_WORDS, WORD_BYTES: _PAIR}

_FROM_BITS = {
    DType.FLOAT32: "{element} = float_of_bits((uint)({word} >> {shift}));",
    DType.BFLOAT16: "{element} = float_of_bfloat16((bfloat16)({word} >> {shift}));",
    DType.FLOAT16: (
        "{{ const ushort bits = (ushort)({word} >> {shift});"
        " {element} = vload_half(0, (const half *)&bits); }}"
    ),
}
_TO_BITS = {
    DType.FLOAT32: "{word} |= ({kind})bits_of_float({element}) << {shift};",
    DType.BFLOAT16: "{word} |= ({kind})bfloat16_of_float({element}) << {shift};",
    DType.FLOAT16: (
        "{{ ushort bits; vstore_half({element}, 0, (half *)&bits);"
        " {word} |= ({kind})bits << {shift}; }}"
    ),
}
_INTEGER_FROM_BITS = "{element} = ({memory})({word} >> {shift});"
_INTEGER_TO_BITS = "{word} |= ({kind})({unsigned}){element} << {shift};"


@dataclass(frozen=True)
class ElementWords:
    """How a block of ``count`` elements moves; a power of two, of at most WORD_BYTES."""

    dtype: DType
    count: int

    def load(self, array: str, pointer: str, index: str) -> str:
        """Declare ``array`` and fill it with the block number ``index``."""
        declared = f"{self._register} {array}[{self.count}];"
        if self.count == 1:
            return f"{declared} {array}[0] = {C_TYPES[self.dtype].load(pointer, index)};"
        word = f"{array}_word"
        read = f"const {self._word} {word} = ((__global const {self._word} *){pointer})[{index}];"
        form = _FROM_BITS.get(self.dtype, _INTEGER_FROM_BITS)
        return f"{declared} {read} {self._each(form, array, word)}"

    def store(self, array: str, pointer: str, index: str) -> str:
        """Write ``array`` to the block number ``index``."""
        if self.count == 1:
            return C_TYPES[self.dtype].store(f"{array}[0]", pointer, index)
        word = f"{array}_word"
        clear = f"{word}.x = 0; {word}.y = 0;" if self._word == _PAIR else f"{word} = 0;"
        parts = self._each(_TO_BITS.get(self.dtype, _INTEGER_TO_BITS), array, word)
        write = f"((__global {self._word} *){pointer})[{index}] = {word};"
        return f"{{ {self._word} {word}; {clear} {parts} {write} }}"

    def each(self, statement: str) -> str:
        """Do a statement for every element ``j`` of the block."""
        return f"for (int j = 0; j < {self.count}; j++) {{ {statement} }}"

    def filled(self, array: str, value: str) -> str:
        """Declare ``array`` with the same value for every element."""
        return f"{self._register} {array}[{self.count}]; " + self.each(f"{array}[j] = {value};")

    @property
    def _register(self) -> str:
        return C_TYPES[self.dtype].register

    @property
    def _word(self) -> str:
        return _WORDS[self.count * self.dtype.item_bytes]

    def _each(self, form: str, array: str, word: str) -> str:
        item_bytes = self.dtype.item_bytes
        is_pair = self._word == _PAIR
        parts = []
        for j in range(self.count):
            half, byte = divmod(j * item_bytes, _HALF_BYTES)
            parts.append(
                form.format(
                    element=f"{array}[{j}]",
                    word=f"{word}.{'xy'[half]}" if is_pair else word,
                    kind="ulong" if is_pair else self._word,
                    shift=8 * byte,
                    memory=C_TYPES[self.dtype].memory,
                    unsigned=ELEMENT_WORDS[item_bytes],
                )
            )
        return " ".join(parts)
