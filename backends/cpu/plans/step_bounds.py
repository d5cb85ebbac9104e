"""Whether a step touches only what its operands' buffers hold. Pure.

The last look before a step is put into a plan, which trusts no type rule and no kernel: for a
native kernel it goes by the parameters that are run, for a primitive by what oneDNN says of its
arguments, for a numpy step by the layouts in which arrays are made. Each function says what is
wrong, or gives None.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from ctypes import c_uint

import numpy as np

from ....executors.late_imports import late_imports
from ..onednn.bindings import ARG, Attributes, Descs, PrimitiveDesc
from ..onednn.numbers import USE_GLOBAL_STATISTICS, USE_SCALE, USE_SHIFT
from .kernel_bounds import INT8_KERNELS, reaches_of
from .operand_layout import Buffer, Operand

__all__ = [
    "find_array_overrun",
    "find_missing_argument",
    "find_native_overrun",
    "find_part_overrun",
    "find_primitive_overrun",
    "find_shared_memory",
    "find_write_to_constant",
    "find_wrong_places",
    "native_places",
    "native_writes",
    "primitive_writes",
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
        is_described = role != ARG.WEIGHT_SCALES
        if is_described and operand.offset_bytes + size_bytes > operand.buffer.size_bytes:
            size_bytes = desc.desc("exec_arg", role).reach_bytes  # of a view with gaps
        found = _find_overrun(operand, 0, size_bytes)
        if found is not None:
            return found
    return None


def find_part_overrun(
    desc: PrimitiveDesc,
    arguments: Sequence[tuple[int, Operand]],
    part_count: int,
    moves: Sequence[int],
) -> str | None:
    """Look at the last part of a primitive that is executed part by part."""
    if not moves:
        return None if part_count == 1 else f"{part_count} parts, of which none moves"
    if part_count < 1 or len(moves) != len(arguments):
        return f"{len(moves)} moves of {len(arguments)} operands to {part_count} parts"
    last = []
    for (role, operand), move in zip(arguments, moves, strict=True):
        if not move:
            continue
        if move < 0:
            return f"argument {role} moves by {move} bytes"
        offset_bytes = operand.offset_bytes + (part_count - 1) * move
        last.append((role, operand._replace(offset_bytes=offset_bytes)))
    return find_primitive_overrun(desc, last)


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


def native_writes(
    kernel: str, operands: Sequence[Operand], parameters: Sequence[int]
) -> Sequence[Operand]:
    """Return which operands a native kernel writes, whose parameters are known to be right."""
    if kernel == "attention_probabilities":
        return operands[:2]
    if kernel in ("dynamic_quantize", "quantize_rows", "select_top"):
        return operands[1:]
    if kernel == "layer_norm":  # the statistics of rows lie behind the result
        return operands[2 + parameters[4] :]
    if kernel == "tree_ensemble":
        return operands[8:]
    if kernel == "recurrent":  # the states, and the result where there is one
        return operands[-1 - parameters[12] :]
    if kernel == "vote_by_pairs":
        return operands[-3:]
    if kernel in INT8_KERNELS:  # the scratch, and the result
        return operands[-2:]
    return operands[-1:]


def native_places(kernel: str, operands: Sequence[Operand]) -> Sequence[Operand]:
    """Return which operands a native kernel goes by without a look at them in each run."""
    return operands[2:3] if kernel == "int8_product" else ()


def find_wrong_places(
    kernel: str, operands: Sequence[Operand], parameters: Sequence[int]
) -> str | None:
    """Look at the content of ``native_places``, whose parameters are known to be right."""
    places = native_places(kernel, operands)
    if not places:
        return None
    with late_imports:
        from .native_bounds.int8_bounds import has_places

    for operand in places:
        array = operand.buffer.array
        if operand.buffer.kind != "constant" or array is None:
            return f"it goes by {operand.buffer}, which is no constant"
        numbers = np.frombuffer(array, np.int32, operand.layout.count, operand.offset_bytes)
        if not has_places(parameters, numbers):
            return "its weights go with data that a row has not"
    return None


def primitive_writes(desc: PrimitiveDesc, given: Mapping[int, Operand]) -> list[Operand]:
    """Return which arguments a primitive writes."""
    flags = [argument.value for argument in desc.arguments if isinstance(argument, c_uint)]
    roles = [ARG.DST, ARG.DST_1, ARG.DST_2, ARG.WORKSPACE, ARG.SCRATCHPAD]
    if not (flags and flags[0] & USE_GLOBAL_STATISTICS):
        roles += [ARG.MEAN, ARG.VARIANCE]
    return [operand for role, operand in given.items() if role in roles]


def find_write_to_constant(written: Iterable[Operand]) -> str | None:
    """Look for memory that no step may write: constants may be a file's, inputs are the caller's.

    In memory that is mapped to be read a write ends the process.
    """
    for operand in written:
        if operand.buffer.kind not in ("arena", "output"):
            return f"it writes into {operand.buffer}, which is there to be read"
    return None


def find_shared_memory(
    own: Operand, others: Iterable[Operand], offsets: Mapping[Buffer, int]
) -> str | None:
    """Look for operands of a step that lie in the memory of one that has to have its own.

    A primitive keeps addresses in its scratchpad, and a kernel looks at indices before it writes:
    code that overwrites these meanwhile may have it write anywhere. ``offsets`` places the arena's
    buffers.
    """
    mine, start = own.buffer, offsets.get(own.buffer, 0)
    end = start + mine.size_bytes
    for other in others:
        buffer = other.buffer
        is_apart = buffer.kind != mine.kind
        if buffer.kind == mine.kind == "arena":
            place = offsets.get(buffer, 0)
            is_apart = place >= end or place + buffer.size_bytes <= start
        elif not is_apart:
            is_apart = buffer.index != mine.index or mine.kind == "constant"
        if not is_apart and buffer.size_bytes and mine.size_bytes:
            return f"{other.layout} lies in the memory of {own.layout}"
    return None


def _find_overrun(operand: Operand, low: int, high: int) -> str | None:
    offset, size_bytes = operand.offset_bytes, operand.buffer.size_bytes
    if offset + low >= 0 and offset + high <= size_bytes and 0 <= offset <= size_bytes:
        return None
    return (
        f"bytes {offset + low} to {offset + high} of {operand.layout} are used, and there are "
        f"{size_bytes}; the shapes of the node's inputs and outputs contradict each other"
    )
