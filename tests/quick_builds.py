"""OpenCL programs built in a fraction of the time on PoCL: most of what a test costs there.

PoCL parses 18,000 lines of declarations before each program, and pyopencl asks for the binary to
keep it. Kernels need a few of those declarations: programs bring them here, and the driver's header
is left out by its own guard. Nor are they optimised, which takes longer than running them on the
small arrays of tests; a program that needs more declarations is built as usual. Each kernel is a
program of its own, kept as long as the device is open: of those that a fuzzer's models need four
fifths were met before. As users do it, programs are built by ``tests/conformance``, by
``tests/property`` for the simplest case of every kernel, and by OPENCL's own tests for the driver,
states and whole architectures.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator

import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.queues.driver import (
    Context,
    DeviceFacts,
    DriverError,
    Kernel,
    Program,
)
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.backends.opencl.pyopencl_driver import PyOpenClDriver
from opencl_device import choose_device

__all__ = ["KernelByKernel", "QuickDriver", "build_quickly", "core"]

os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # read when pyopencl is imported

_OPTIONS = "PYOPENCL_BUILD_OPTIONS"
_PLATFORM = "Portable Computing Language"
_LINES = """
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
#define SCHAR_MIN (-127 - 1)
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32767 - 1)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 0xffffffffU
#define LONG_MIN (-0x7fffffffffffffffL - 1)
#define LONG_MAX 0x7fffffffffffffffL
#define ULONG_MAX 0xffffffffffffffffUL
#define as_uint(x) __builtin_astype((x), uint)
#define as_float(x) __builtin_astype((x), float)
#define INFINITY (__builtin_inff())
#define NAN as_float(INT_MAX)
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define OVERLOADED __attribute__((overloadable))
#define PURE __attribute__((overloadable, const))
void __attribute__((overloadable, convergent)) barrier(uint);
float __attribute__((overloadable, pure)) vload_half(size_t, const __global half *);
void OVERLOADED vstore_half(float, size_t, __global half *);
int PURE isinf(float);
int PURE isnan(float);
"""
_OF_IDS = ("global_id", "local_id", "group_id", "global_size", "local_size", "num_groups")
_OF_ONE = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp"),
    *("expm1", "fabs", "floor", "log", "log1p", "log2", "rint", "round", "rsqrt", "sin", "sinh"),
    *("sqrt", "tan", "tanh", "trunc"),
)
_OF_TWO = ("copysign", "fmax", "fmin", "fmod", "pow")
_INTEGERS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong")


def _declarations() -> str:
    lines = [f"size_t PURE get_{name}(uint);" for name in _OF_IDS]
    lines += [f"float PURE {name}(float);" for name in _OF_ONE]
    lines += [f"float PURE {name}(float, float);" for name in _OF_TWO]
    lines += ["float PURE fma(float, float, float);", "float PURE mad(float, float, float);"]
    for kind in (*_INTEGERS, "float"):
        lines += [f"{kind} PURE {name}({kind}, {kind});" for name in ("max", "min")]
    lines += [f"u{kind} PURE abs({kind});" for kind in _INTEGERS[::2]]
    lines += [f"{kind} PURE abs({kind});" for kind in _INTEGERS[1::2]]
    return _LINES + "\n".join(lines) + "\n"


_building = threading.Lock()
_KERNEL = re.compile(r"^__kernel void (\w+)", re.MULTILINE)


class _Kernels:
    """A program made of programs of one kernel each, by its name."""

    def __init__(self, programs: dict[str, Program]) -> None:
        self._programs = programs

    def kernel(self, name: str) -> Kernel:
        return self._programs[name].kernel(name)


class KernelByKernel:
    """Builds the kernels of a program one by one, each once. Thread-safe."""

    def __init__(self, build: Callable[[str], Program]) -> None:
        self._build = build
        self._built: dict[str, Program] = {}

    def __call__(self, source: str) -> Program:
        places = [*_KERNEL.finditer(source)]
        if not places:
            return self._build(source)
        ends = [*(place.start() for place in places[1:]), len(source)]
        head = source[: places[0].start()]
        try:
            return _Kernels(
                {
                    place[1]: self._program(head + source[place.start() : end].rstrip())
                    for place, end in zip(places, ends, strict=True)
                }
            )
        except DriverError:  # or one needs what stands with another
            return self._build(source)

    def _program(self, source: str) -> Program:
        known = self._built.get(source)
        return self._built.setdefault(source, self._build(source)) if known is None else known


class QuickDriver(PyOpenClDriver):
    options = "-D_OPENCL_H_ -cl-opt-disable"

    def open(self, facts: DeviceFacts) -> Context:
        context = super().open(facts)
        import pyopencl

        # Kernels include nothing. PoCL keeps what it has built by source and options, so that the
        # path of pyopencl's headers among them would have each checkout build all kernels anew.
        pyopencl._DEFAULT_INCLUDE_OPTIONS.clear()
        if facts.platform == _PLATFORM:
            usual, declarations = context.program, _declarations()

            def program(source: str) -> Program:
                with _building:
                    os.environ[_OPTIONS] = self.options
                    try:
                        return usual(declarations + source)
                    except DriverError:
                        del os.environ[_OPTIONS]
                        return usual(source)
                    finally:
                        os.environ.pop(_OPTIONS, None)

            context.program = KernelByKernel(program)  # type: ignore[method-assign]
        return context


class _OptimisingDriver(QuickDriver):
    options = "-D_OPENCL_H_"


def build_quickly(core: Core, *, is_optimised: bool = False) -> None:
    """Give a Core that has loaded nothing on OPENCL a driver that builds quickly.

    Kernels are optimised for models whose runs take longer than that.
    """
    driver = _OptimisingDriver if is_optimised else QuickDriver
    core.unregister_plugin("OPENCL")
    core.register_plugin("OPENCL", lambda handle, name: OpenClPlugin(handle, name, driver()))


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as core:
        build_quickly(core)
        choose_device(core)
        yield core
