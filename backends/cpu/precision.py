"""Which element type float32 values are held in: what is asked for, against what the CPU has. Pure.

Source of the instruction sets: oneDNN's dnnl_cpu_isa_t, which are bit masks.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.graph import DType

__all__ = [
    "PRECISIONS",
    "chosen_precision",
    "find_unsupported_precision",
    "has_avx512",
    "has_half_loads",
    "has_int8",
    "has_native_int8",
    "precisions_of",
]

PRECISIONS: Mapping[str, DType] = {
    "f32": DType.FLOAT32,
    "bf16": DType.BFLOAT16,
    "f16": DType.FLOAT16,
}
"""INFERENCE_PRECISION_HINT -> the type in memory."""

_VNNI = (0xF, 0x67)
_AVX2, _AVX512 = 0x7, 0x27
_AVX512_BF16 = 0xE7
_AVX512_FP16 = 0x1EF


def precisions_of(instruction_set: int) -> list[str]:
    """List the precisions that a CPU computes in by itself, the best for accuracy first."""
    found = ["f32"]
    if instruction_set & _AVX512_BF16 == _AVX512_BF16:
        found.append("bf16")
    if instruction_set & _AVX512_FP16 == _AVX512_FP16:
        found.append("f16")
    return found


def has_half_loads(instruction_set: int) -> bool:
    """True if a CPU widens float16 in registers: all that have AVX2 have F16C, too."""
    return instruction_set & _AVX2 == _AVX2


def has_avx512(instruction_set: int) -> bool:
    """True if oneDNN has vectors of 512 bits on a CPU."""
    return instruction_set & _AVX512 == _AVX512


def has_int8(instruction_set: int) -> bool:
    """True if matmuls of 8 bits are exact on a CPU, and faster than those of float32."""
    return _sums_up_in_32_bits(instruction_set) or has_native_int8(instruction_set)


def has_native_int8(instruction_set: int) -> bool:
    """True if they are those of CPU's native kernels, and not oneDNN's.

    Without VNNI oneDNN sums up in 16 bits, in which two products of large numbers overflow. The
    native kernels have vectors of 256 bits: float32 is as fast where the CPU has wider ones.
    """
    is_new_enough = instruction_set & _AVX2 == _AVX2 and not has_avx512(instruction_set)
    return is_new_enough and not _sums_up_in_32_bits(instruction_set)


def _sums_up_in_32_bits(instruction_set: int) -> bool:
    return any(instruction_set & bits == bits for bits in _VNNI)


def find_unsupported_precision(hint: str, instruction_set: int) -> str | None:
    """Return why a precision hint cannot be honoured, or None."""
    known = precisions_of(instruction_set)
    if hint in known:
        return None
    if hint not in PRECISIONS:
        return f"it computes in {', '.join(known)}, not in {hint}"
    return f"this CPU has no instructions for {hint}; it has {', '.join(known)}"


def chosen_precision(hint: str, is_given: bool, execution_mode: str, instruction_set: int) -> str:
    """Choose the precision: the hint if it was given, else what the execution mode allows."""
    if is_given or execution_mode == "ACCURACY":
        return hint
    return "bf16" if "bf16" in precisions_of(instruction_set) else "f32"
