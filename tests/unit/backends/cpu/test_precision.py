"""Precisions, exhaustively: every hint on every kind of CPU."""

from __future__ import annotations

import pytest

from aioinfer.backends.cpu.precision import (
    PRECISIONS,
    chosen_precision,
    find_unsupported_precision,
    has_int8,
    has_native_int8,
    precisions_of,
)
from aioinfer.runtime.graph import DType

pytestmark = pytest.mark.needs_no_library

# dnnl_cpu_isa_t of oneDNN 3.2, and what a CPU computes in with these instructions.
CPUS = {
    "none": (0x0, ["f32"]),
    "sse41": (0x1, ["f32"]),
    "avx": (0x3, ["f32"]),
    "avx2": (0x7, ["f32"]),
    "avx2_vnni": (0xF, ["f32"]),
    "avx2_vnni_2": (0x1F, ["f32"]),
    "avx512_core": (0x27, ["f32"]),
    "avx512_core_vnni": (0x67, ["f32"]),
    "avx512_core_bf16": (0xE7, ["f32", "bf16"]),
    "avx512_core_fp16": (0x1EF, ["f32", "bf16", "f16"]),
    "avx512_core_amx": (0xFEF, ["f32", "bf16", "f16"]),
    "avx512_core_amx_fp16": (0x1FEF, ["f32", "bf16", "f16"]),
    "whatever comes": (0xFFFFF, ["f32", "bf16", "f16"]),
}
INT8 = {"none": "", "sse41": "", "avx": "", "avx2": "native", "avx512_core": ""}
"""Who multiplies 8 bits, where that is not oneDNN."""
HINTS = ["f32", "bf16", "f16", "tf32"]


@pytest.mark.parametrize("cpu", CPUS)
def test_what_a_cpu_computes_in(cpu: str) -> None:
    instructions, wanted = CPUS[cpu]
    assert precisions_of(instructions) == wanted


@pytest.mark.parametrize("cpu", CPUS)
def test_who_multiplies_8_bits(cpu: str) -> None:
    instructions, by = CPUS[cpu][0], INT8.get(cpu, "oneDNN")
    assert has_int8(instructions) == bool(by)
    assert has_native_int8(instructions) == (by == "native")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("hint", HINTS)
def test_a_hint_is_honoured_or_refused_with_what_there_is(cpu: str, hint: str) -> None:
    instructions, known = CPUS[cpu]
    reason = find_unsupported_precision(hint, instructions)
    listed = ", ".join(known)
    if hint in known:
        assert reason is None
    elif hint == "tf32":
        assert reason == f"it computes in {listed}, not in tf32"
    else:
        assert reason == f"this CPU has no instructions for {hint}; it has {listed}"


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("mode", ["ACCURACY", "PERFORMANCE"])
@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("hint", ["f32", "bf16", "f16"])
def test_a_hint_that_was_given_wins_and_else_the_mode_decides(
    cpu: str, mode: str, is_given: bool, hint: str
) -> None:
    instructions, known = CPUS[cpu]
    chosen = chosen_precision(hint, is_given, mode, instructions)
    if is_given or mode == "ACCURACY":
        assert chosen == hint
    else:
        assert chosen == ("bf16" if "bf16" in known else "f32")
    assert chosen in PRECISIONS


def test_each_precision_is_a_type_in_memory() -> None:
    assert dict(PRECISIONS) == {
        "f32": DType.FLOAT32,
        "bf16": DType.BFLOAT16,
        "f16": DType.FLOAT16,
    }
