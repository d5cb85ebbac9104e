"""What the calls that describe primitives take, so that no blob makes them with anything else.

One letter an argument: ``e`` the engine, ``i`` int, ``u`` unsigned, ``l`` int64, ``f`` float, ``D``
a memory descriptor, ``d`` one or none, ``S`` an array of them, ``N`` an array of lengths, one for
each axis behind the second, ``A`` attributes. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from ctypes import c_float, c_int, c_int64, c_uint
from typing import Any

from ..onednn.bindings import Attributes, Desc, Descs, Engine, Numbers

__all__ = ["CALLS", "NUMBERS", "find_misfit", "letter_of"]

CALLS: Mapping[str, str] = {
    "batch_normalization_forward": "eiDDfuA",
    "binary": "eiDDDA",
    "concat": "ediiSA",
    "convolution_forward": "eiiDDdDNNNNA",
    "deconvolution_forward": "eiiDDdDNNNNA",
    "eltwise_forward": "eiiDDffA",
    "gru_forward": "eiiDdDDDDduA",
    "inner_product_forward": "eiDDdDA",
    "layer_normalization_forward": "eiDDdfuA",
    "lbr_gru_forward": "eiiDdDDDDduA",
    "lrn_forward": "eiiDDlfffA",
    "lstm_forward": "eiiDddDDddDDdduA",
    "matmul": "eDDdDA",
    "pooling_forward": "eiiDDNNNNNA",
    "reorder": "DeDeA",
    "vanilla_rnn_forward": "eiiiDdDDDDduffA",
}
"""The end of ``dnnl_<call>_primitive_desc_create`` -> its arguments behind the result."""

NUMBERS: Mapping[str, type[Any]] = {"i": c_int, "u": c_uint, "l": c_int64, "f": c_float}

_KINDS: Mapping[type[Any], str] = {
    **{kind: letter for letter, kind in NUMBERS.items()},
    Attributes: "A",
    Descs: "S",
    Numbers: "N",
}


def letter_of(argument: Any) -> str:
    """Return the letter of an argument; "" for what no call takes."""
    if argument is None:
        return "d"
    if isinstance(argument, Engine):
        return "e"
    if isinstance(argument, Desc):
        return "D"
    return _KINDS.get(type(argument), "")


def find_misfit(call: str, arguments: Sequence[Any]) -> str | None:
    """Return why a call cannot be made with these arguments, or None."""
    wanted = CALLS.get(call)
    if wanted is None:
        return f"there is no primitive {call!r:.40}"
    found = "".join(map(letter_of, arguments))
    if len(found) != len(wanted) or any(
        have != want and (have, want) != ("D", "d")
        for have, want in zip(found, wanted, strict=True)
    ):
        return f"{call} takes {wanted}, not {found}"
    descs = [argument for argument in arguments if isinstance(argument, Desc)]
    for argument in arguments:
        if isinstance(argument, Numbers) and len(argument.numbers) != descs[0].rank - 2:
            return f"{call} takes a number for each of {descs[0].rank - 2} axes"
    for argument in arguments:
        if isinstance(argument, Attributes) and argument.scale_count:
            count = _scales_read(call, descs, argument.scale_mask)
            if argument.scale_count != count:
                return f"{call} reads {count} scales of weights, not {argument.scale_count}"
    if call == "concat" and arguments[2].value != len(arguments[4].descs):
        return f"{call} joins {len(arguments[4].descs)} parts, not {arguments[2].value}"
    return None


def _scales_read(call: str, descs: Sequence[Desc], mask: int) -> int:
    """Count the scales that a primitive reads: one for each place along the axes of the mask."""
    if call not in ("convolution_forward", "matmul"):
        return 0
    dims = descs[1].dims
    return math.prod(length for axis, length in enumerate(dims) if mask >> axis & 1)
