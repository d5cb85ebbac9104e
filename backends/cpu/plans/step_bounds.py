"""Whether a step touches only what its operands' buffers hold. Pure.

The last look before a step is put into a plan, which trusts no type rule and no kernel: for a
native kernel it goes by the parameters that are run, for a primitive by what oneDNN says of its
arguments, for a numpy step by the layouts in which arrays are made. Each function says what is
wrong, or gives None.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from ctypes import c_uint

from ..onednn.bindings import ARG, Attributes, Descs, PrimitiveDesc
from ..onednn.numbers import USE_SCALE, USE_SHIFT
from .kernel_bounds import reaches_of
from .operand_layout import Operand

__all__ = [
    "find_array_overrun",
    "find_missing_argument",
    "find_native_overrun",
    "find_primitive_overrun",
]


def find_native_overrun(
    kernel: str, operands: Sequence[Operand], parameters: tuple[int, ...]
) -> str | None:
    """Look at a native kernel by its parameters."""
    try:
        reaches = reaches_of(kernel, parameters)
    except (ValueError, IndexError) as error:
        return f"the kernel {kernel!r} cannot be run so: {error}"
    if len(reaches) != len(operands):
        return f"the kernel {kernel!r} takes {len(reaches)} operands, not {len(operands)}"
    for operand, (low, high, dtypes) in zip(operands, reaches, strict=True):
        if dtypes and operand.layout.dtype not in dtypes:
            labels = ", ".join(sorted(dtype.label for dtype in dtypes))
            return f"the kernel {kernel!r} takes {labels}, not {operand.dtype.label}"
        found = _find_overrun(operand, low, high)
        if found is not None:
            return found
        layout = operand.layout
        if high != layout.size_bytes or low != (layout.reach or (0,))[0]:
            return (
                f"the kernel {kernel!r} uses {high - low} bytes of an operand of {layout}, which "
                f"has {layout.size_bytes}"
            )
    return None


def find_primitive_overrun(
    desc: PrimitiveDesc, arguments: Iterable[tuple[int, Operand]]
) -> str | None:
    """Look at a primitive by the descriptors of its arguments, which are what it goes by."""
    for role, operand in arguments:
        dtype, size_bytes = desc.argument(role)
        if dtype is None:
            return f"{desc.implementation} takes no argument {role}"
        if dtype is not operand.layout.dtype:
            return (
                f"{desc.implementation} takes {dtype.label} as argument {role}, not "
                f"{operand.dtype.label}"
            )
        if operand.offset_bytes + size_bytes > operand.buffer.size_bytes:
            size_bytes = desc.desc("exec_arg", role).reach_bytes  # of a view with gaps
        found = _find_overrun(operand, 0, size_bytes)
        if found is not None:
            return found
    return None


_FLAGS = {ARG.SCALE: USE_SCALE, ARG.SHIFT: USE_SHIFT}
"""Arguments that are described whether they are read or not -> what says that they are."""


def find_missing_argument(desc: PrimitiveDesc, given: Collection[int]) -> str | None:
    """Look for arguments that a primitive takes and is not given, of which the library is sure."""
    parts = [argument for argument in desc.arguments if isinstance(argument, Descs)]
    steps = [argument for argument in desc.arguments if isinstance(argument, Attributes)]
    roles = [
        *ARG.SINGLE,
        *(ARG.MULTIPLE_SRC + index for part in parts for index in range(len(part.descs))),
        *(ARG.post_op(index) for step in steps for index in range(len(step.post_ops))),
    ]
    flags = [argument.value for argument in desc.arguments if isinstance(argument, c_uint)]
    unread = {role for role, flag in _FLAGS.items() if flags and not flags[0] & flag}
    for role in roles:
        if role not in given and role not in unread and desc.argument(role)[1]:
            return f"{desc.implementation} takes an argument {role}, which it is not given"
    return None


def find_array_overrun(operands: Iterable[Operand]) -> str | None:
    """Look at operands that numpy sees as arrays."""
    for operand in operands:
        reach = operand.layout.reach
        if reach is None:
            return f"numpy sees no {operand.layout}"
        found = _find_overrun(operand, *reach)
        if found is not None:
            return found
    return None


def _find_overrun(operand: Operand, low: int, high: int) -> str | None:
    offset, size_bytes = operand.offset_bytes, operand.buffer.size_bytes
    if offset + low >= 0 and offset + high <= size_bytes and 0 <= offset <= size_bytes:
        return None
    return (
        f"bytes {offset + low} to {offset + high} of {operand.layout} are used, and there are "
        f"{size_bytes}; the shapes of the node's inputs and outputs contradict each other"
    )
