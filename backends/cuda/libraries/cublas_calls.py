"""The calls of cuBLAS that are made, by ctypes, on the library that CuPy has loaded.

CuPy's own bindings of them refuse whatever is captured for a CUDA graph; the library does not.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

__all__ = ["CublasCalls", "CublasError", "load_calls"]

_SUCCESS = 0
_INT, _LONG, _POINTER = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_MATRIX = (_POINTER, _INT, _INT, _LONG)
"""Of an argument: its address, element type, leading dimension and batch stride."""
_GEMM = (
    *(_POINTER, _INT, _INT, _INT, _INT, _INT),
    *(_POINTER, *_MATRIX, *_MATRIX, _POINTER, *_MATRIX),
    *(_INT, _INT, _INT),
)


class CublasError(RuntimeError):
    """A call that cuBLAS refused; ``status`` is its number."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name} (status {status})")
        self.status = status


class CublasCalls:
    """cuBLAS's functions, without the GIL; a handle is for one thread at a time.

    Raises CublasError. ``library`` is what ctypes has loaded.
    """

    OP_N, OP_T = 0, 1
    GEMM_DEFAULT = -1
    COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77

    def __init__(self, library: Any) -> None:
        self._name = library.cublasGetStatusName
        self._name.argtypes, self._name.restype = (_INT,), ctypes.c_char_p
        self._set_stream = library.cublasSetStream_v2
        self._set_stream.argtypes = _POINTER, _POINTER
        self._gemm = library.cublasGemmStridedBatchedEx
        self._gemm.argtypes = _GEMM

    def set_stream(self, handle: int, stream: int) -> None:
        """Make the handle's later calls enqueue on a stream."""
        self._check(self._set_stream(handle, stream))

    def gemm(self, *given: int) -> None:
        """Call ``cublasGemmStridedBatchedEx``, with its arguments; addresses are numbers."""
        self._check(self._gemm(*given))

    def _check(self, status: int) -> None:
        if status != _SUCCESS:
            raise CublasError(self._name(status).decode(), status)


def load_calls(cuda_major: int) -> CublasCalls:
    """Find the library, which has been loaded for CUDA of this version; else raises OSError."""
    name = f"cublas64_{cuda_major}.dll" if sys.platform == "win32" else f"libcublas.so.{cuda_major}"
    return CublasCalls(ctypes.CDLL(name))
