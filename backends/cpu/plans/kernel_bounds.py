"""What each native kernel touches of its operands, computed from its parameters alone. Pure.

A step is emitted only if every byte that it will touch lies in its operand's buffer. Lowering may
be misled by shapes that contradict each other; the parameters are what is run. The rules (in
``native_bounds``) follow native_*.c word by word: a kernel that gets another parameter gets another
rule.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ....runtime.graph.sym_int import has_sym_ints
from .native_bounds.elementwise_bounds import ELEMENTWISE_RULES
from .native_bounds.int8_bounds import INT8_RULES
from .native_bounds.matrix_bounds import MATRIX_RULES
from .native_bounds.ml_bounds import ML_RULES
from .native_bounds.movement_bounds import MOVEMENT_RULES
from .native_bounds.packed_bounds import PACKED_RULES
from .native_bounds.reach import Reach, Rule
from .native_bounds.recurrent_bounds import RECURRENT_RULES
from .native_bounds.row_bounds import ROW_RULES
from .native_bounds.window_bounds import WINDOW_RULES

__all__ = ["reaches_of"]


def reaches_of(kernel: str, parameters: tuple[int, ...]) -> list[Reach]:
    """Return the reach of each operand, in order.

    Raises ValueError for parameters that the kernel does not take, whatever its operands are.
    """
    if has_sym_ints(parameters):
        return _reaches_of(kernel, parameters)
    return _known_reaches_of(kernel, parameters)


def _reaches_of(kernel: str, parameters: tuple[int, ...]) -> list[Reach]:
    if kernel not in _REACHES:
        raise ValueError(f"there is no native kernel {kernel!r}")
    if not all(-(1 << 63) <= number < 1 << 63 for number in parameters):
        raise ValueError(f"{kernel!r} takes numbers of 64 bits")
    return _REACHES[kernel](parameters)


_known_reaches_of = functools.lru_cache(maxsize=1024)(_reaches_of)
"""A network's layers ask the same again and again."""


_REACHES: Mapping[str, Rule] = {
    **ELEMENTWISE_RULES,
    **INT8_RULES,
    **MATRIX_RULES,
    **ML_RULES,
    **MOVEMENT_RULES,
    **PACKED_RULES,
    **RECURRENT_RULES,
    **ROW_RULES,
    **WINDOW_RULES,
}
