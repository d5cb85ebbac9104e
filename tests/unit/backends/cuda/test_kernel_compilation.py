"""Every kernel that CUDA may launch compiles, on machines without a GPU."""

from __future__ import annotations

import pytest

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from exhaustive import all_but
from unit.backends.cuda.compiling import ARCHITECTURES, find_refused, nvrtc_or_skip
from unit.backends.cuda.drawn_kernels import draw_kernels, operators

_PARTS = 16


@pytest.mark.parametrize("part", all_but([0], range(_PARTS)))
def test_kernels_of_drawn_cases_compile(part: int) -> None:
    nvrtc_or_skip()
    drawn: dict[str, KernelSource] = {}
    for operator in operators()[part::_PARTS]:
        drawn |= draw_kernels(*operator)
    assert drawn
    for architecture in ARCHITECTURES:
        refused = find_refused(list(drawn.values()), architecture)
        assert not refused, f"{architecture}: {_report(refused)}"


def test_a_kernel_that_does_not_compile_is_named_with_the_words_of_the_compiler() -> None:
    nvrtc_or_skip()
    good = KernelSource.of("good", "__kernel void $name(__global float *x) { x[0] = NAN; }")
    bad = KernelSource.of("bad", "__kernel void $name(__global float *x) { x[0] = missing; }")
    refused = find_refused([good, bad], ARCHITECTURES[0])
    assert list(refused) == [bad.name]
    assert 'error: identifier "missing" is undefined' in refused[bad.name]


def test_names_of_kernel_c_mean_what_they_mean_in_opencl() -> None:
    nvrtc_or_skip()
    text = """
    __kernel void $name(__global const half *h, __global long *l, __global float *f,
                        __global uchar *u) {
        static_assert(sizeof(long) == 8 && sizeof(ulong) == 8 && sizeof(half) == 2, "");
        static_assert((char)-1 < 0 && LONG_MIN < 0 && ULONG_MAX > 0 && UINT_MAX > 0, "");
        static_assert(INT_MIN == -INT_MAX - 1 && (short)SHRT_MIN == SHRT_MIN, "");
        static_assert(sizeof(exp(f[0])) == 4 && sizeof(pow(f[0], f[1])) == 4, "in float");
        static_assert(sizeof(fmax(f[0], f[1])) == 4 && sizeof(rint(f[0])) == 4, "in float");
        static_assert(sizeof(fabs(f[0])) == 4 && sizeof(erf(f[0])) == 4, "in float");
        static_assert(sizeof(max(l[0], l[1])) == 8 && sizeof(min(1, 2)) == 4, "in their type");
        static_assert(sizeof(get_global_id(0)) == 8 && sizeof(get_num_groups(2)) == 8, "");
        __local float parts[2];
        parts[get_local_id(0)] = vload_half(get_global_size(1), h);
        barrier(CLK_LOCAL_MEM_FENCE);
        u[get_group_id(2)] = isnan(parts[0]) != 0 && isinf(parts[1]);
    }
    """
    source = KernelSource.of("names", text)
    for architecture in ARCHITECTURES:
        assert find_refused([source], architecture) == {}


def _report(refused: dict[str, str]) -> str:
    return "\n".join(f"{name}: {words}" for name, words in refused.items())
