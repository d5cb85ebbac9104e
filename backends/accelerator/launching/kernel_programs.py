"""Kernels that are built, each once for a device; drivers keep them on disk as well.

A program belongs to the plans that built it or found it built, and goes with the last of them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ....errors import DeviceError
from ..plan import Launch
from ..queues.driver import Context, DriverError, ErrorKind, Kernel, Program
from ..queues.library_operation import LibraryOperation
from .kernel_source import KernelSource, program_text

__all__ = ["BuiltProgram", "KernelPrograms", "LibraryRefusedError"]

_LOG_CHARACTERS = 2000  # of a build log; compilers repeat themselves
_PLANNERS = 4
"""Operations that are planned side by side: mostly waiting, for other processes or a device."""
_WAY_OUT = "report this, with the driver's version"
_NODE_WAY_OUT = f"run the node on another device (HETERO's AFFINITY), and {_WAY_OUT}"


class LibraryRefusedError(DeviceError):
    """Libraries do not plan some operations; their nodes can be lowered without the library.

    ``nodes`` are libraries and names of nodes, ``held`` is what was built all the same.
    """

    def __init__(
        self,
        reasons: Sequence[str],
        nodes: frozenset[tuple[str, str]],
        held: Sequence[BuiltProgram],
    ) -> None:
        super().__init__(f"{reasons[0]}; {_NODE_WAY_OUT}")
        self.reasons, self.nodes, self.held = tuple(reasons), nodes, tuple(held)


class BuiltProgram:
    """A program, which stays as long as this object does."""

    __slots__ = ("__weakref__", "program")

    def __init__(self, program: Program) -> None:
        self.program = program


class KernelPrograms:
    """The programs of one device. Thread-safe; ``build`` blocks: it is for compile threads."""

    def __init__(self, device: str, context: Context) -> None:
        self._device, self._context = device, context
        self._lock = threading.Lock()
        self._built: weakref.WeakValueDictionary[str, BuiltProgram] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._built)

    def build(self, launches: Iterable[Launch]) -> list[BuiltProgram]:
        """Build what launches lack, as one program, and return all that they need, to be held.

        Operations of libraries are planned side by side. Raises DeviceError with the compiler's
        words, LibraryRefusedError where a library has no plan.
        """
        launches = tuple(launches)
        with self._lock:
            wanted = {launch.source.name: launch for launch in launches}
            found = {name: self._built.get(name) for name in wanted}
            held = [program for program in found.values() if program is not None]
            missing = [wanted[name] for name, program in found.items() if program is None]
            kernels = [item for item in missing if isinstance(item.source, KernelSource)]
            if kernels:
                made = self._made(kernels)
                self._built.update({item.source.name: made for item in kernels})
                held.append(made)
            operations = [item for item in missing if isinstance(item.source, LibraryOperation)]
            refusals: dict[str, str] = {}
            for item, planned in zip(operations, self._planned(operations), strict=True):
                if isinstance(planned, str):
                    refusals[item.source.name] = planned
                else:
                    self._built[item.source.name] = planned
                    held.append(planned)
            if refusals:
                refused = [item for item in launches if item.source.name in refusals]
                raise LibraryRefusedError(
                    list(refusals.values()), frozenset(map(_library_and_node, refused)), held
                )
            return list(dict.fromkeys(held))

    def kernel(self, source: KernelSource | LibraryOperation) -> Kernel:
        """Make a kernel object, with arguments of its own, of a source whose program is held."""
        return self._built[source.name].program.kernel(source.name)

    def _made(self, launches: list[Launch]) -> BuiltProgram:
        try:
            text = program_text(_sources(launches))
            return BuiltProgram(self._context.program(text))
        except DriverError as error:
            raise self._explain(launches, error) from error

    def _planned(self, launches: Sequence[Launch]) -> list[BuiltProgram | str]:
        """Plan operations of libraries; gives the reason for one that is refused."""
        if len(launches) < 2:
            return [self._plan_of(launch) for launch in launches]
        with ThreadPoolExecutor(min(_PLANNERS, len(launches)), f"{self._device} plans") as planners:
            return list(planners.map(self._plan_of, launches))

    def _plan_of(self, launch: Launch) -> BuiltProgram | str:
        operation = launch.source
        assert isinstance(operation, LibraryOperation)
        try:
            return BuiltProgram(self._context.library_program(operation))
        except DriverError as error:
            reason = (
                f"{self._device} cannot plan {operation.label!r} of {operation.library} for "
                f"{launch.origin.op} (node {launch.origin.name!r}): {_words(error)}"
            )
            if error.kind is not ErrorKind.OTHER:
                raise DeviceError(f"{reason}; {_NODE_WAY_OUT}") from error
            return reason

    def _explain(self, launches: list[Launch], error: DriverError) -> DeviceError:
        """Find out which kernel it is, and which node wants it."""
        for launch in launches:
            try:
                self._context.program(program_text(_sources([launch])))
            except DriverError as alone:
                return DeviceError(
                    f"{self._device} cannot build the kernel {launch.source.name!r} of "
                    f"{launch.origin.op} (node {launch.origin.name!r}): {_words(alone)}; "
                    f"{_NODE_WAY_OUT}"
                )
        return DeviceError(
            f"{self._device} cannot build {len(launches)} kernels at once, though each alone: "
            f"{_words(error)}; {_WAY_OUT}"
        )


def _sources(launches: Iterable[Launch]) -> list[KernelSource]:
    return [item.source for item in launches if isinstance(item.source, KernelSource)]


def _library_and_node(launch: Launch) -> tuple[str, str]:
    assert isinstance(launch.source, LibraryOperation)
    return launch.source.library, launch.origin.name


def _words(error: DriverError) -> str:
    """Take what the compiler calls errors from its log, or its end where it calls nothing so."""
    lines = [line.strip() for line in error.text.splitlines() if "error:" in line]
    return " ".join(dict.fromkeys(lines))[:_LOG_CHARACTERS] or error.text[-_LOG_CHARACTERS:].strip()
