"""What each native kernel touches of its operands, computed from its parameters alone. Pure.

A step is emitted only if every byte that it will touch lies in its operand's buffer. Lowering may
be misled by shapes that contradict each other; the parameters are what is run. The rules (in
``native_bounds``) follow native_*.c word by word: a kernel that gets another parameter gets another
rule.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module

from ....executors.late_imports import late_imports
from ....runtime.graph.sym_int import has_sym_ints
from .native_bounds.reach import Reach, Rule

__all__ = ["FAMILIES", "INT8_KERNELS", "reaches_of"]

FAMILIES = {
    "elementwise_bounds": "float_elementwise integer_elementwise where",
    "int8_bounds": "int8_depthwise int8_product int8_squares int8_taps",
    "matrix_bounds": "pair_distances small_matmul thin_matmul",
    "ml_bounds": "tree_ensemble vote_by_pairs",
    "movement_bounds": "copy fill gather resample sample_grid",
    "packed_bounds": (
        "half_matmul order_rows packed_matmul packed_matmul_int8 quantize_rows unpack_weights"
    ),
    "recurrent_bounds": "recurrent",
    "row_bounds": (
        "attention_probabilities dynamic_quantize find_extremes layer_norm look_up reduce "
        "rms_norm select_top softmax turn_pairs"
    ),
    "window_bounds": "align_regions fold_columns pool pool_regions sample_points",
}
"""The kernels that each module of ``native_bounds`` has rules for; it is imported for the first."""
INT8_KERNELS = frozenset(FAMILIES["int8_bounds"].split())

_FAMILY_OF = {kernel: family for family, kernels in FAMILIES.items() for kernel in kernels.split()}


def reaches_of(kernel: str, parameters: tuple[int, ...]) -> list[Reach]:
    """Return the reach of each operand, in order.

    Raises ValueError for parameters that the kernel does not take, whatever its operands are.
    """
    if has_sym_ints(parameters):
        return _reaches_of(kernel, parameters)
    return _known_reaches_of(kernel, parameters)


def _reaches_of(kernel: str, parameters: tuple[int, ...]) -> list[Reach]:
    family = _FAMILY_OF.get(kernel)
    if family is None:
        raise ValueError(f"there is no native kernel {kernel!r}")
    if not all(-(1 << 63) <= number < 1 << 63 for number in parameters):
        raise ValueError(f"{kernel!r} takes numbers of 64 bits")
    return _rules_of(family)[kernel](parameters)


@functools.cache
def _rules_of(family: str) -> Mapping[str, Rule]:
    with late_imports:
        rules: Mapping[str, Rule] = import_module(f".native_bounds.{family}", __package__).RULES
    return rules


_known_reaches_of = functools.lru_cache(maxsize=1024)(_reaches_of)
"""A network's layers ask the same again and again."""
