"""NVRTC without a GPU: whether kernels compile, all of them, and for which architecture not.

NVRTC needs no driver: what is compiled on a device is compiled here, by the same function. Texts
that a version of NVRTC has compiled once are remembered below the user's folder for caches.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource, program_text
from aioinfer.backends.cuda.kernel_compiler import CompilerError, compile_kernels
from aioinfer.backends.cuda.kernel_header import BUILD_OPTIONS, cuda_text

ARCHITECTURES = ("sm_80", "sm_90")
_COMPILED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "aioinfer-tests/nvrtc")
_TOGETHER = 100
"""Kernels of one program: starting the compiler costs more than most of them."""


def nvrtc_or_skip() -> Any:
    """Return CuPy's binding of NVRTC, or skip the test with the reason why there is none."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from cupy.cuda import nvrtc

    try:
        nvrtc.getVersion()
    except RuntimeError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
    return nvrtc


def find_refused(sources: Sequence[KernelSource], architecture: str) -> dict[str, str]:
    """Compile kernels, and give the compiler's words by the name of each that does not compile."""
    nvrtc = nvrtc_or_skip()
    refused: dict[str, str] = {}
    for first in range(0, len(sources), _TOGETHER):
        some = list(sources[first : first + _TOGETHER])
        if compiler_words(nvrtc, program_text(some), architecture) is None:
            continue
        words = {
            item.name: compiler_words(nvrtc, program_text([item]), architecture) for item in some
        }
        refused |= {name: text for name, text in words.items() if text is not None}
        if not refused:
            refused["a program of several kernels, which compile one by one"] = str(
                compiler_words(nvrtc, program_text(some), architecture)
            )
    return refused


def compiler_words(nvrtc: Any, source: str, architecture: str) -> str | None:
    """Compile kernel C; None if that works, or has worked, else what the compiler says."""
    given = repr((nvrtc.getVersion(), architecture, BUILD_OPTIONS, cuda_text(source)))
    has_worked = _COMPILED / hashlib.sha256(given.encode()).hexdigest()
    if has_worked.exists():
        return None
    try:
        assert compile_kernels(nvrtc, source, architecture)
    except CompilerError as error:
        return str(error)
    _COMPILED.mkdir(parents=True, exist_ok=True)
    has_worked.touch()
    return None
