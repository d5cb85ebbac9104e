"""Compiled kernels of a GPU: kept on disk, loaded, and unloaded with the last kernel in use.

CuPy keeps all modules that it compiles for as long as the process lives. So the compiler and the
driver are called here past CuPy's own modules. A module goes when its program and the last kernel
of it are dropped. To unload it may wait for the device. So where that is on a thread of ours, such
as one that waits for events, or inside a stage, the module is left to the next program that is
made, or that goes elsewhere, and to the end of the context.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...executors import must_not_block
from ..accelerator.queues.driver import Argument, DriverError, ErrorKind, Kernel
from .cupy_device import CupyDevice
from .cupy_memory import address_of
from .kernel_compiler import CompilerError, code_kind, compile_kernels
from .kernel_header import BUILD_OPTIONS, launch_grid
from .plan_files import PlanFiles, StoredPlan, own_cache_folder

__all__ = ["CupyKernel", "CupyPrograms"]

_log = logging.getLogger("aioinfer")

_WORD = np.dtype(np.uint64)
_GROUP_ARGUMENTS = 2


class CupyPrograms:
    """Makes programs for a GPU of a compute capability. Thread-safe."""

    def __init__(self, device: CupyDevice, capability: tuple[int, int]) -> None:
        self._device, self._nvrtc = device, device.cuda.nvrtc
        self._kind = code_kind(self._nvrtc.getSupportedArchs(), capability)
        major, minor = self._nvrtc.getVersion()
        environment = {
            "code": self._kind,
            "options": " ".join(BUILD_OPTIONS),
            "nvrtc": f"{major}.{minor}",
        }
        self._files = PlanFiles(own_cache_folder(), "nvrtc", environment)
        self._modules = _Modules(device)

    def program(self, source: str) -> CupyProgram:
        """Load what was compiled before, or compile it. Blocks, for up to seconds.

        Raises DriverError, with the compiler's words.
        """
        self._modules.unload_left()
        name = hashlib.sha256(source.encode()).hexdigest()
        kept = self._files.read(name)
        if kept is not None:
            try:
                return CupyProgram(self._device, self._modules, kept.blob)
            except DriverError as error:
                if error.kind is not ErrorKind.OTHER:
                    raise
                _log.warning("compiling kernels again that are on disk: %s", error)
                self._files.forget(name)
        try:
            code = compile_kernels(self._nvrtc, source, self._kind)
        except CompilerError as error:
            raise DriverError(ErrorKind.OTHER, str(error)) from error
        made = CupyProgram(self._device, self._modules, code)
        self._files.write(name, StoredPlan("kernels", 0, code, None, True))
        return made

    def close(self) -> None:
        """Unload what nothing needs any more. Blocks."""
        self._modules.unload_left()


class _Modules:
    """The modules of a device that are not needed any more. Thread-safe."""

    def __init__(self, device: CupyDevice) -> None:
        self._device = device
        self._left: deque[int] = deque()

    def drop(self, module: int) -> None:
        """Unload it, now or later; never raises."""
        self._left.append(module)
        if not must_not_block():
            self.unload_left()

    def unload_left(self) -> None:
        """Unload all. Blocks."""
        while self._left:
            try:
                module = self._left.popleft()
            except IndexError:  # another thread has taken the last one
                return
            with contextlib.suppress(DriverError):  # with a lost device its modules are gone
                self._device.on_device(self._device.cuda.driver.moduleUnload, module)


class CupyProgram:
    """A module of compiled kernels, loaded on its device; it goes with its last reference."""

    __slots__ = ("__weakref__", "_device", "_module")

    def __init__(self, device: CupyDevice, modules: _Modules, code: bytes) -> None:
        self._device = device
        self._module = device.on_device(device.cuda.driver.moduleLoadData, code)
        weakref.finalize(self, modules.drop, self._module).atexit = False

    def kernel(self, name: str) -> Kernel:
        driver = self._device.cuda.driver
        function = self._device.on_device(driver.moduleGetFunction, self._module, name)
        return CupyKernel(self, driver.launchKernel, function)


class CupyKernel:
    """A kernel of a program; its arguments lie as the driver reads them, each in a word."""

    __slots__ = ("_addresses", "_function", "_launch", "_program", "_words")

    def __init__(self, program: CupyProgram, launch: Any, function: int) -> None:
        self._program, self._launch, self._function = program, launch, function
        self.set_arguments(())

    def set_arguments(self, arguments: Sequence[Argument]) -> None:
        words = np.zeros(len(arguments) + _GROUP_ARGUMENTS, _WORD)
        for place, argument in enumerate(arguments):
            number = _packed(argument)
            words[place : place + 1].view(number.dtype)[0] = number
        first = words.__array_interface__["data"][0]
        self._words = words
        self._addresses = first + _WORD.itemsize * np.arange(len(words), dtype=_WORD)

    def enqueue(self, stream: Any, global_size: Sequence[int], local_size: Sequence[int]) -> None:
        try:
            groups, items, group_arguments = launch_grid(global_size, local_size)
        except ValueError as error:
            raise DriverError(ErrorKind.OTHER, str(error)) from error
        self._words[-_GROUP_ARGUMENTS:] = group_arguments
        addresses = self._addresses.__array_interface__["data"][0]
        self._launch(self._function, *groups, *items, 0, stream.ptr, addresses, 0)


def _packed(argument: Argument) -> np.generic:
    if isinstance(argument, int):
        return np.int32(argument)
    if isinstance(argument, float):
        return np.float32(argument)
    return np.uint64(address_of(argument))
