"""Rows that work-items sum up together: a work group takes one long row, or several short ones.

In the text, ``row`` is the row's number and ``item`` that of a work-item among those of its row; it
takes every ``items``-th element ``k``, up to ``end``. Rows beyond the last have no elements, and
all work-items meet at the barriers. Where rows are short and of whole blocks, a work-item may take
every ``items``-th block instead, and keep what it has read (``block``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["RowGroups", "block_of_rows"]

_GROUP = 64
_LEAST_WORK = 4
"""Elements of a work-item, at least: a barrier costs more than summing so few."""
_MANY_ROWS = 256
_SHORT_LENGTH = 4096
"""Up to which one work-item may sum up in float32, one after the other, without losing digits."""
_LEAST_ITEMS, _MOST_BLOCKS = 8, 4
"""Of a row in blocks: work-items that share it, and blocks that one of them keeps in registers."""


def block_of_rows(length: int, longest: int) -> int:
    """Choose how many neighbouring elements of a row a work-item takes at once; 1: none. Pure.

    Rows of ``length`` have whole blocks of ``longest``, few of them for each work-item, or none.
    """
    blocks = length // longest
    items = math.gcd(blocks, _GROUP) if length % longest == 0 else 0
    return longest if items >= _LEAST_ITEMS and blocks // items <= _MOST_BLOCKS else 1


@dataclass(frozen=True)
class RowGroups:
    """The grid of a kernel over rows, each of a number of elements.

    Where ``is_across``, the elements of a row lie apart in memory, and those of neighbouring rows
    side by side. ``block`` is what ``block_of_rows`` gives, or 1.
    """

    rows: int
    length: int
    is_across: bool = False
    block: int = 1

    @property
    def items(self) -> int:
        """How many work-items share a row: a power of two.

        Rows across memory get one if there are many, so that neighbours read side by side.
        """
        if self.block > 1:
            return math.gcd(self.length // self.block, _GROUP)
        if self.is_across and self.rows >= _MANY_ROWS and self.length <= _SHORT_LENGTH:
            return 1
        return 1 << (min(_GROUP, max(1, self.length // _LEAST_WORK)).bit_length() - 1)

    @property
    def blocks(self) -> list[str]:
        """Where the blocks of a work-item lie in its row."""
        count = self.length // self.block // self.items
        return [f"item + {number * self.items}" for number in range(count)]

    @property
    def sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The global and the local size to launch with."""
        return (self.items, self.rows), (self.items, _GROUP // self.items)

    @property
    def parameters(self) -> str:
        """What the kernel takes for ``rows`` and ``length``."""
        return "const int rows, const int length"

    @property
    def start(self) -> str:
        """The first line of the kernel."""
        return (
            "const int item = get_local_id(0), slot = get_local_id(1), row = get_global_id(1); "
            "const int end = row < rows ? length : 0;"
        )

    @property
    def writes(self) -> str:
        """True on the one work-item that writes what its row has come to."""
        return "item == 0 && row < rows"

    @property
    def loop(self) -> str:
        """Open the loop over the elements ``k`` of a work-item."""
        return f"for (int k = item; k < end; k += {self.items}) {{"

    def fold(
        self, name: str, lines: str, value: str, start: str, join: str, kind: str = "float"
    ) -> str:
        """Join ``value`` over all elements ``k`` to the variable ``name``, on every work-item.

        ``lines`` come before the value, ``join`` is a pattern like ``{a} + {b}``, ``start`` what
        nothing is joined to, and ``kind`` the C type.
        """
        text = (
            f"{kind} {name} = {start};\n    {self.loop} {lines} "
            f"{name} = {join.format(a=name, b=f'({value})')}; }}\n"
        )
        return text + self.joined(name, join, kind)

    def joined(self, name: str, join: str, kind: str = "float") -> str:
        """Join what each work-item of a row has in ``name``; see ``fold``."""
        if self.items == 1:
            return ""
        parts = f"{name}_parts"
        both = join.format(a=f"{parts}[slot][item]", b=f"{parts}[slot][item + apart]")
        return (
            f"    __local {kind} {parts}[{_GROUP // self.items}][{self.items}];\n"
            f"    {parts}[slot][item] = {name};\n"
            "    barrier(CLK_LOCAL_MEM_FENCE);\n"
            f"    for (int apart = {self.items // 2}; apart > 0; apart /= 2) {{\n"
            f"        if (item < apart) {parts}[slot][item] = {both};\n"
            "        barrier(CLK_LOCAL_MEM_FENCE);\n"
            "    }\n"
            f"    {name} = {parts}[slot][0];\n"
        )
