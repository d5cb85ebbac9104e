"""The kernels of the raw benchmarks compile for the GPUs that they are meant for."""

from __future__ import annotations

import pytest
import raw_cuda


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("code", [raw_cuda.ADD_ONE, raw_cuda.SPIN], ids=["add_one", "spin"])
def test_a_kernel_compiles_without_a_gpu(code: str, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy").cuda.nvrtc
    try:
        program = nvrtc.createProgram(code, "kernel.cu", (), ())
    except RuntimeError as error:
        pytest.skip(f"NVRTC is not there: {error}")
    try:
        nvrtc.compileProgram(program, (f"-arch={architecture}",))
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program))
    assert nvrtc.getCUBIN(program)
