"""NVRTC, CUDA's compiler of kernels, through CuPy's binding: text in, code for a GPU out.

It needs no driver and no device, so that tests compile for GPUs that are not there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .kernel_header import BUILD_OPTIONS, cuda_text

__all__ = ["CompilerError", "code_kind", "compile_kernels"]


class CompilerError(Exception):
    """The compiler refuses a text; ``str`` of it is the compiler's log."""


def code_kind(supported: Collection[int], capability: tuple[int, int]) -> str:
    """Name what to compile to for a compute capability: code (sm_90), or an older virtual one.

    The driver compiles the latter when it loads it, for a GPU that is newer than the compiler.
    ``supported`` are the numbers of ``nvrtc.getSupportedArchs``. Pure.
    """
    own = capability[0] * 10 + capability[1]
    if own in supported:
        return f"sm_{own}"
    return f"compute_{max((known for known in supported if known < own), default=own)}"


def compile_kernels(nvrtc: Any, source: str, kind: str) -> bytes:
    """Compile kernel C for a ``code_kind``, without the GIL; raises CompilerError."""
    program = nvrtc.createProgram(cuda_text(source), "kernels.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={kind}", *BUILD_OPTIONS))
        code: bytes = (nvrtc.getCUBIN if kind.startswith("sm_") else nvrtc.getPTX)(program)
    except nvrtc.NVRTCError as error:
        raise CompilerError(str(nvrtc.getProgramLog(program)) or str(error)) from error
    finally:
        nvrtc.destroyProgram(program)
    return code
