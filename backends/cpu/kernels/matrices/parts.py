"""Primitives that are made for one row of their operands, and run for each row in turn.

Theory of operation. oneDNN compiles most primitives for their lengths. One that is compiled for a
single row serves any number of them if the rows of each operand lie one behind the other: it is
executed for each (steps.c), with addresses that move on. With one thread that takes as long as a
primitive for all rows, which would go through them in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from ...onednn.bindings import Desc, Engine, PrimitiveDesc
from ...plans.operand_layout import Layout, Operand

__all__ = ["Operands", "is_part", "joined", "parts_of"]

Operands = dict[int, Operand]


def is_part(desc: Desc) -> bool:
    """True if memory of such rows, one behind the other, is that of an array without gaps."""
    if desc.strides is None or desc.offset:
        return False
    return desc.size_bytes == math.prod(desc.dims) * desc.dtype.item_bytes


def joined(desc: Desc, count: int, engine: Engine) -> Desc:
    """Describe that many rows, one behind the other, of which ``desc`` is one."""
    if count == 1:
        return desc
    assert desc.strides is not None
    row = math.prod(desc.dims)
    return engine.desc((count, *desc.dims[1:]), desc.dtype, (row, *desc.strides[1:]))


def parts_of(
    pd: PrimitiveDesc, operands: Mapping[int, Operand], whole_roles: Collection[int]
) -> tuple[Operands, dict[int, int]]:
    """Return the first part of each operand as ``pd`` sees it, and the bytes to its next one.

    Those of ``whole_roles``, and those with a single row, are the same for all parts.
    """
    parts, moves = dict(operands), {}
    for role, operand in operands.items():
        if role in whole_roles or operand.shape[0] == 1:
            continue
        desc = pd.desc("exec_arg", role)
        parts[role] = operand.viewed(Layout.of(desc))
        moves[role] = desc.size_bytes
    return parts, moves
