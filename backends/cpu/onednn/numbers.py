"""The numbers of oneDNN's C API: types, statuses, roles, algorithms, queries.

Source: dnnl_types.h of oneDNN 3.2, stable within 3.x.
"""

from __future__ import annotations

from ....runtime.graph import DType

MAX_RANK = 12
MAX_LENGTH = (1 << 31) - 1  # of one axis: beyond it oneDNN's int wraps around, to 0 for a divisor
MAX_COUNT = 1 << 48  # elements: their bytes stay far from the end of 64 bits, padding included

DTYPE_NUMBERS = {
    DType.FLOAT16: 1,
    DType.BFLOAT16: 2,
    DType.FLOAT32: 3,
    DType.INT32: 4,
    DType.INT8: 5,
    DType.UINT8: 6,
}
DTYPE_OF = {number: dtype for dtype, number in DTYPE_NUMBERS.items()}

OUT_OF_MEMORY = 1
INVALID_ARGUMENTS = 2
STATUS_TEXTS = {
    OUT_OF_MEMORY: "out of memory",
    INVALID_ARGUMENTS: "invalid arguments",
    3: "unimplemented",
    4: "no further implementation",
    5: "runtime error",
    6: "not required",
    7: "invalid graph",
}
TAG_ANY = 1
FORMAT_ANY = 1
FORMAT_BLOCKED = 2
FORWARD_INFERENCE = 96


USE_GLOBAL_STATISTICS, USE_SCALE, USE_SHIFT = 1, 2, 4
"""Flags of normalisations: which arguments they read."""


class ARG:
    """The roles of a primitive's arguments."""

    SRC = 1
    SRC_1 = 2
    SRC_2 = 3
    DST = 17
    DST_1 = 18
    DST_2 = 19
    WEIGHTS = 33
    WEIGHTS_1 = 34
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    WORKSPACE = 64
    SCRATCHPAD = 80
    MULTIPLE_SRC = 1024
    WEIGHT_SCALES = 4096 | WEIGHTS
    POST_OP_BASE = 32768

    SINGLE = (
        *(SRC, SRC_1, SRC_2, DST, DST_1, DST_2, WEIGHTS, WEIGHTS_1),
        *(BIAS, MEAN, VARIANCE, SCALE, SHIFT, WORKSPACE, SCRATCHPAD, WEIGHT_SCALES),
    )
    """Those that a primitive has once."""

    @classmethod
    def post_op(cls, index: int) -> int:
        """Return the role of a binary post-op's operand."""
        return cls.POST_OP_BASE * (index + 1) | cls.SRC_1


_ELTWISE_NAMES = """
    relu tanh elu square abs sqrt linear soft_relu hardsigmoid logistic exp gelu_tanh swish log
    clip clip_v2 pow gelu_erf round mish hardswish
"""
ELTWISE = {name: 0x20 + index for index, name in enumerate(_ELTWISE_NAMES.split())}
_BINARY_NAMES = "add mul max min div sub ge gt le lt eq ne"
BINARY_ALGORITHMS = {name: 0x1FFF0 + index for index, name in enumerate(_BINARY_NAMES.split())}
QUERY_IMPLEMENTATION = 8
QUERY_MD = {"src": 129, "weights": 131, "dst": 133, "scratchpad": 136, "exec_arg": 255}
QUERY_DTYPE = 258
