"""What kernels are compiled to, by NVRTC itself where it is installed."""

from __future__ import annotations

import pytest

from aioinfer.backends.cuda.kernel_compiler import CompilerError, code_kind, compile_kernels
from unit.backends.cuda.compiling import nvrtc_or_skip

KERNEL = "__kernel void double_it(__global float *x) { x[get_global_id(0)] *= 2.0f; }"


@pytest.mark.parametrize(
    ("supported", "capability", "kind"),
    [
        ((75, 80, 90), (9, 0), "sm_90"),
        ((75, 80, 86, 90), (8, 6), "sm_86"),
        ((75, 80, 90), (10, 3), "compute_90"),
        ((75, 80, 90), (8, 9), "compute_80"),
        ((), (9, 0), "compute_90"),
    ],
)
def test_a_gpu_that_the_compiler_does_not_know_gets_code_for_an_older_one(
    supported: tuple[int, ...], capability: tuple[int, int], kind: str
) -> None:
    assert code_kind(supported, capability) == kind


@pytest.mark.parametrize(("capability", "start"), [((9, 0), b"\x7fELF"), ((99, 0), b"//")])
def test_what_nvrtc_makes_is_code_or_a_text_for_the_driver(
    capability: tuple[int, int], start: bytes
) -> None:
    nvrtc = nvrtc_or_skip()
    made = compile_kernels(nvrtc, KERNEL, code_kind(nvrtc.getSupportedArchs(), capability))
    assert made.lstrip().startswith(start)
    assert b"double_it" in made


def test_what_nvrtc_refuses_is_told_in_its_words() -> None:
    with pytest.raises(CompilerError, match='identifier "y" is undefined'):
        compile_kernels(nvrtc_or_skip(), KERNEL.replace("x[", "y["), "sm_90")
