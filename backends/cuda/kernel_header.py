"""Kernel C as CUDA C++: what stands before a program so that NVRTC compiles it. Pure.

Kernel C has OpenCL's names, and the header gives them their meaning, in C++17 and without any other
header: a driver and NVRTC are all that compiling needs. (``cuda_fp16.h`` may come behind it:
``half`` here is storage alone.) Float functions are the overloads of CUDA's, which are exact to a
few ulp: no fast math, division and square root are correctly rounded, products and sums may be
contracted to fma as OPENCL's may, and float32 values below 2^-126 are zeros, as they are for
libraries.

OpenCL's grid is as long as one likes along every axis, CUDA's along the first alone: no more than
65535 groups along the others. So every kernel gets two more arguments, ``group_arguments``. Both
are 0 where a grid is launched as it is; else its groups are numbered along the first axis, and they
say how many there were along the first two. ``get_global_id`` and its like read them, so they can
be used in a kernel's own body only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["BUILD_OPTIONS", "Grid", "cuda_text", "launch_grid"]

BUILD_OPTIONS = ("-std=c++17", "-w", "-ftz=true")
"""For NVRTC; kernels may leave variables unused."""

_HEADER = r"""
#define CUDA_NO_HALF
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
struct half { ushort bits; };

#if defined(_WIN32) || defined(_WIN64)
typedef unsigned long long ulong;
#define ulong2 ulonglong2
#define long long long
#else
typedef unsigned long ulong;
#endif
#if '\377' > 0
#define char signed char
#endif

#define __kernel extern "C" __global__
#define __global
#define __local __shared__
#define DEVICE_FUNCTION static __device__ inline

#define CHAR_MIN (-128)
#define CHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LONG_MAX ((long)9223372036854775807LL)
#define LONG_MIN (-LONG_MAX - 1)
#define ULONG_MAX ((ulong)18446744073709551615ULL)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)

#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
DEVICE_FUNCTION void barrier(int fences) { __syncthreads(); }

DEVICE_FUNCTION uint bits_of_float(float value) { return __float_as_uint(value); }
DEVICE_FUNCTION float float_of_bits(uint bits) { return __uint_as_float(bits); }
DEVICE_FUNCTION float vload_half(size_t index, const half *from) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(from[index].bits));  // exact
    return value;
}
DEVICE_FUNCTION void vstore_half(float value, size_t index, half *to) {
    ushort bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    to[index].bits = bits;
}

DEVICE_FUNCTION uint axis_of(const dim3 &sizes, int axis) {
    return axis == 0 ? sizes.x : axis == 1 ? sizes.y : sizes.z;
}
DEVICE_FUNCTION uint axis_of(const uint3 &places, int axis) {
    return axis == 0 ? places.x : axis == 1 ? places.y : places.z;
}
DEVICE_FUNCTION size_t group_place(int axis, uint columns, uint rows) {
    if (columns == 0) return axis_of(blockIdx, axis);
    if (axis == 0) return blockIdx.x % columns;
    return axis == 1 ? blockIdx.x / columns % rows : blockIdx.x / columns / rows;
}
DEVICE_FUNCTION size_t group_count(int axis, uint columns, uint rows) {
    if (columns == 0) return axis_of(gridDim, axis);
    return axis == 0 ? columns : axis == 1 ? rows : gridDim.x / columns / rows;
}
DEVICE_FUNCTION size_t get_local_id(int axis) { return axis_of(threadIdx, axis); }
DEVICE_FUNCTION size_t get_local_size(int axis) { return axis_of(blockDim, axis); }
#define get_group_id(axis) group_place(axis, group_columns, group_rows)
#define get_num_groups(axis) group_count(axis, group_columns, group_rows)
#define get_global_id(axis) (get_group_id(axis) * get_local_size(axis) + get_local_id(axis))
#define get_global_size(axis) (get_num_groups(axis) * get_local_size(axis))
"""

_KERNEL = re.compile(r"(__kernel\s+void\s+\w+\s*\()([^)]*)\)")
_GROUP_PARAMETERS = "const uint group_columns, const uint group_rows"

_LONGEST = 2**31 - 1
_OTHERS_LONGEST = 65535
"""Groups along the first axis, and along the others."""

Sizes = tuple[int, int, int]
Grid = tuple[Sizes, Sizes, tuple[int, int]]
"""Groups and work-items of one along CUDA's axes, and ``group_arguments``."""


def cuda_text(source: str) -> str:
    """Make CUDA C++ of kernels in kernel C, for NVRTC with ``BUILD_OPTIONS``."""
    return _HEADER + _KERNEL.sub(_with_group_parameters, source)


def _with_group_parameters(found: re.Match[str]) -> str:
    own = found[2].strip()
    own = "" if own == "void" else own
    return f"{found[1]}{', '.join(filter(None, (own, _GROUP_PARAMETERS)))})"


def launch_grid(global_size: Sequence[int], local_size: Sequence[int]) -> Grid:
    """Lay a grid of work-items, whole groups along one to three axes, out on CUDA's axes.

    Raises ValueError for one that has more groups than any launch.
    """
    local = _three(local_size)
    x, y, z = counts = tuple(
        size // group for size, group in zip(_three(global_size), local, strict=True)
    )
    if x <= _LONGEST and max(y, z) <= _OTHERS_LONGEST:
        return (x, y, z), local, (0, 0)
    if x * y * z > _LONGEST:
        raise ValueError(f"a grid of {counts} groups is more than a launch can have")
    return (x * y * z, 1, 1), local, (x, y)


def _three(sizes: Sequence[int]) -> Sizes:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
