"""Kernels that are built, each once for a device; pyopencl keeps the programs on disk as well."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ...errors import DeviceError
from .driver import Context, DriverError, Kernel, Program
from .kernel_source import KernelSource, program_text

__all__ = ["KernelPrograms"]

_LOG_CHARACTERS = 2000  # of a build log; compilers repeat themselves


class KernelPrograms:
    """The programs of one device. Thread-safe; ``build`` blocks: it is for compile threads."""

    def __init__(self, device: str, context: Context) -> None:
        self._device, self._context = device, context
        self._lock = threading.Lock()
        self._programs: dict[str, Program] = {}

    def __len__(self) -> int:
        return len(self._programs)

    def build(self, sources: Iterable[KernelSource]) -> None:
        """Build what is missing, as one program; raises DeviceError with the compiler's words."""
        with self._lock:
            wanted = {source.name: source for source in sources}
            missing = [item for name, item in wanted.items() if name not in self._programs]
            if not missing:
                return
            try:
                program = self._context.program(program_text(missing))
            except DriverError as error:
                raise self._explain(missing, error) from error
            self._programs.update({source.name: program for source in missing})

    def kernel(self, source: KernelSource) -> Kernel:
        """Make a kernel object, with arguments of its own, of a source that was built."""
        return self._programs[source.name].kernel(source.name)

    def _explain(self, sources: list[KernelSource], error: DriverError) -> DeviceError:
        """Find out which kernel it is."""
        for source in sources:
            try:
                self._context.program(program_text([source]))
            except DriverError as alone:
                return DeviceError(
                    f"{self._device} cannot build the kernel {source.name!r}: "
                    f"{alone.text[-_LOG_CHARACTERS:]}; run its node on another device by HETERO "
                    "and report this, with the driver's version"
                )
        return DeviceError(
            f"{self._device} cannot build {len(sources)} kernels at once, though each alone: "
            f"{error.text[-_LOG_CHARACTERS:]}; report this, with the driver's version"
        )
