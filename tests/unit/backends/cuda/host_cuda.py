"""Runs CUDA C++ on the host: what the driver compiles, by the host's C++ compiler, for a fake GPU.

The text, the header and the grid are those of a GPU; only the two instructions that convert half
are another's. Work-items of a kernel with barriers are threads, which go from group to group.
"""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unit.backends.cuda.fake_cupy import FakeCupy, FakeKernel, FakeModule
from unit.backends.cuda.fake_gpu import FakeGpu

_FUNCTIONS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp"),
    *("expm1", "fabs", "floor", "fmax", "fmin", "fmod", "isinf", "isnan", "log", "log1p", "pow"),
    *("rint", "sin", "sinh", "sqrt", "tan", "tanh"),
)
_TYPES = ("int", "unsigned", "long", "unsigned long", "long long", "unsigned long long")
_BEFORE = (
    r"""
#include <barrier>
#include <cmath>
#include <cstring>
#include <immintrin.h>
#include <thread>
#include <vector>
#undef INFINITY
#undef NAN
struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };
struct alignas(16) ulong2 { unsigned long x, y; };
static thread_local uint3 threadIdx, blockIdx;
static thread_local dim3 blockDim, gridDim;
static std::barrier<> *group_barrier;
static void __syncthreads() { group_barrier->arrive_and_wait(); }
static float __uint_as_float(unsigned v) { float f; std::memcpy(&f, &v, 4); return f; }
static float __int_as_float(int v) { return __uint_as_float(v); }
static unsigned __float_as_uint(float f) { unsigned v; std::memcpy(&v, &f, 4); return v; }
#define __global__
#define __device__
#define __shared__ static
"""
    + "".join(f"using std::{name};\n" for name in _FUNCTIONS)
    + "".join(
        f"static {kind} max({kind} a, {kind} b) {{ return a > b ? a : b; }}\n"
        f"static {kind} min({kind} a, {kind} b) {{ return a < b ? a : b; }}\n"
        for kind in _TYPES
    )
)
_BEHIND = r"""
extern "C" void run_grid(void (*kernel)(void **), void **arguments, unsigned x, unsigned y,
                         unsigned z, unsigned bx, unsigned by, unsigned bz, int meets) {
    std::barrier<> all(meets ? bx * by * bz : 1);
    group_barrier = &all;
    auto walk = [&](unsigned item) {
        blockDim = {bx, by, bz};
        gridDim = {x, y, z};
        threadIdx = {item % bx, item / bx % by, item / bx / by};
        for (unsigned k = 0; k < z; k++) for (unsigned j = 0; j < y; j++)
            for (unsigned i = 0; i < x; i++) {
                blockIdx = {i, j, k};
                kernel(arguments);
                all.arrive_and_wait();
            }
    };
    std::vector<std::thread> items;
    for (unsigned item = 0; item < bx * by * bz; item++) {
        if (meets) items.emplace_back(walk, item); else walk(item);
    }
    for (auto &item : items) item.join();
}
"""
_INSTRUCTIONS = {
    r'asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(from[index].bits));': (
        "value = _cvtsh_ss(from[index].bits);"
    ),
    r'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));': "bits = _cvtss_sh(value, 0);",
}
_KERNEL = re.compile(r"__kernel void (\w+)\s*\(([^)]*)\)")


class HostCupy(FakeCupy):
    """CuPy whose GPU runs kernels by the host's compiler, which builds in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FakeGpu(memory_bytes=1 << 26))
        self.folder = folder

    def module(self, code: str) -> FakeModule:
        return _Module(self, code)


class _Module(FakeModule):
    def __init__(self, cupy: HostCupy, code: str) -> None:
        super().__init__(cupy, code)
        for instruction, call in _INSTRUCTIONS.items():
            assert instruction in code
            code = code.replace(instruction, call)
        calls = [_call(*found.groups()) for found in _KERNEL.finditer(code)]
        place = cupy.folder / f"kernels{len(list(cupy.folder.iterdir()))}"
        source, built = place.with_suffix(".cpp"), place.with_suffix(".so")
        source.write_text("\n".join([_BEFORE, code, *calls, _BEHIND]))
        options = ("-std=c++20", "-w", "-mf16c", "-shared", "-fPIC", "-pthread")
        command = ["g++", *options, "-o", str(built), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        self.library = ctypes.CDLL(str(built))

    def function(self, name: str) -> _Kernel:
        body = self.code[self.code.index(f"__kernel void {name}") :].split("__kernel", 2)[1]
        return _Kernel(self, name, "barrier(" in body)


class _Kernel(FakeKernel):
    def __init__(self, module: _Module, name: str, meets: bool) -> None:
        super().__init__(module, name)
        self._library, self._meets = module.library, meets
        self._call = ctypes.cast(module.library[f"call_{name}"], ctypes.c_void_p)

    def action(
        self, gpu: FakeGpu, grid: tuple[int, ...], block: tuple[int, ...], given: list[Any]
    ) -> Callable[[], None]:
        arguments = [np.array([argument]) for argument in given]

        def run() -> None:
            places = [item.ctypes.data for item in arguments]
            addresses = (ctypes.c_void_p * len(places))(*places)
            sizes = map(ctypes.c_uint, (*grid, *block))
            self._library.run_grid(self._call, addresses, *sizes, int(self._meets))

        return run


def _call(name: str, parameters: str) -> str:
    """Write a function that calls a kernel with arguments by their addresses, as CUDA does."""
    types = [re.sub(r"\w+$", "", item.strip()).strip() for item in parameters.split(",")]
    given = ", ".join(f"*({kind} *)arguments[{place}]" for place, kind in enumerate(types))
    return f'extern "C" void call_{name}(void **arguments) {{ {name}({given}); }}'


def host_cupy_or_skip(folder: Path) -> HostCupy:
    """Make one, or skip the test with the reason why this machine cannot run kernels so."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    if platform.machine() != "x86_64":
        pytest.skip("half is converted by instructions of x86-64")
    return HostCupy(folder)
