"""The driver on a fake GPU, opened, and kernels that the GPU knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource, program_text
from aioinfer.backends.accelerator.queues.driver import Context, Kernel, Memory
from aioinfer.backends.cuda.cupy_driver import CupyDriver
from unit.backends.cuda.fake_cupy import FakeCupy
from unit.backends.cuda.fake_gpu import FakeGpu, StickyError

ONE = KernelSource.of("add_one", "__kernel void $name(__global uchar *x, const int count) {}")
BREAK = KernelSource.of("break", "__kernel void $name() {}")


class OpenedGpu:
    """One of the GPUs of a fake CuPy, the last."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.cupy = FakeCupy(*gpus)
        self.cupy.functions = {"add_one": add_one, "break": break_device}
        self.gpu = self.cupy.gpus[-1]
        driver = CupyDriver(self.cupy, frozenset)
        self.context: Context = driver.open(driver.find_devices()[-1])

    def kernel(self, source: KernelSource, *arguments: Any) -> Kernel:
        kernel = self.context.program(program_text([source])).kernel(source.name)
        kernel.set_arguments(arguments)
        return kernel

    def bytes_of(self, memory: Memory) -> np.ndarray[Any, Any]:
        """Look at device memory past the driver."""
        return self.gpu.use(memory.address, memory.size_bytes)


def add_one(gpu: FakeGpu, grid: Any, block: Any, x: Any, count: Any, *group_arguments: Any) -> None:
    assert len(group_arguments) == 2
    gpu.use(int(x), int(count))[:] += 1


def break_device(gpu: FakeGpu, *given: Any) -> None:
    raise StickyError(719)
