"""Plans of cuDNN in use: found on disk or built, chosen, loaded, and enqueued.

A plan is a blob until it is loaded for a device, wherever it comes from: the disk, another process,
or, where that fails, this one. The device's properties go to those processes as JSON. If plans can
be timed, those that cuDNN recommends compete and the winner is kept on disk; else the first one is.

Plans are loaded for the device's properties, too, and get a handle when they are run. With a handle
the frontend tries each plan that it loads, and frees what it took for that, for which CUDA waits
until all work of the device is done. The properties are those that the device itself gives, not
their JSON: with that, kernels that divide their work among all multiprocessors, of Hopper and
later, take 18 for all (seen with cuDNN 9.19 on an H200, which has 132). How a plan was built makes
no such difference.

A handle belongs to one thread at a time, and has streams of its own inside, which become a part of
whatever is being captured. So each stream has its handle, and all handles of a device are under one
lock, as are its loaded graphs; the frontend holds the GIL in its calls anyway.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...accelerator.queues.driver import DriverError, ErrorKind
from ..autotune import Choice, UselessError
from ..plan_files import PlanFiles, StoredPlan
from ..plan_workers import PlanWorkers, WorkerError
from . import cudnn_builder
from .cudnn_builder import RefusedError
from .cudnn_graph import GraphDescription, PlanCandidate
from .plan_tuning import OperationBuffers, TimerMaker, tune

__all__ = ["CudnnPlanned", "CudnnPlans", "StreamHandles"]

_log = logging.getLogger("aioinfer")

_MOST_CANDIDATES = 40  # all that cuDNN has, for what it has compiled ahead
_SECONDS = 2.0  # of compiling: two to four plans
_ALLOCATION = "ALLOC"  # a part of the names of all statuses that mean it
_WAY_OUT = "take another version of cuDNN, or run the node on another device"
_MOST_HANDLES = 8  # of one device: its compute queue, and streams that capture


class StreamHandles:
    """cuDNN's handles of one device, one for each stream. Thread-safe."""

    def __init__(self, frontend: Any) -> None:
        self._frontend = frontend
        self.lock = threading.RLock()
        """Held while a handle is used."""
        self._handles: OrderedDict[int, Any] = OrderedDict()

    @contextmanager
    def at(self, stream: int) -> Iterator[Any]:
        """Yield the handle of a stream; no other thread has any of them meanwhile.

        The device is the thread's current one.
        """
        with self.lock:
            handle = self._handles.get(stream)
            if handle is None:
                if len(self._handles) < _MOST_HANDLES:
                    handle = self._frontend.create_handle()
                else:
                    _, handle = self._handles.popitem(last=False)
                self._frontend.set_stream(handle, stream)
                self._handles[stream] = handle
            self._handles.move_to_end(stream)
            yield handle


class CudnnPlanned:
    """One plan, loaded for a device. Thread-safe."""

    def __init__(
        self, frontend: Any, graph: Any, description: GraphDescription, handles: StreamHandles
    ) -> None:
        self._frontend, self._graph, self._handles = frontend, graph, handles
        self.description = description
        self.workspace_bytes = int(graph.get_workspace_size())
        self._uids = tuple(tensor.uid for tensor in description.tensors)

    def enqueue(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueue it; see ``Planned``."""
        *operands, workspace = addresses
        if len(operands) != len(self._uids):
            names = ", ".join(tensor.name for tensor in self.description.tensors)
            raise DriverError(
                ErrorKind.OTHER,
                f"{self.description.summary} takes {names} and workspace, and was given "
                f"{len(addresses)} arguments; report this as a bug",
            )
        try:
            with self._handles.at(stream) as handle:
                self._graph.execute(operands, workspace, handle, tensor_uids=self._uids)
        except Exception as error:  # whatever cuDNN's frontend raises
            raise _driver_error(
                self._frontend, self.description, "refuses to run", error
            ) from error


class CudnnPlans:
    """Plans for one device. Thread-safe.

    ``device`` is the JSON of its properties: plans can be made and loaded without it, and not be
    run; ``device_id`` is its number among CUDA's devices, where it is there. Without ``timer`` the
    first plan that cuDNN recommends is taken.
    """

    def __init__(
        self,
        frontend: Any,
        device: str,
        workers: PlanWorkers,
        files: PlanFiles,
        timer: TimerMaker | None = None,
        *,
        device_id: int | None = None,
    ) -> None:
        self._frontend, self._device, self._workers = frontend, device, workers
        self._files, self._timer = files, timer
        self._place = cudnn_builder.place_of(frontend, device, device_id)
        self._handles = StreamHandles(frontend)

    def plan(self, description: GraphDescription) -> CudnnPlanned:
        """Return the plan of an operation from disk, or build it, in another process. Blocks.

        Raises DriverError if cuDNN has none that works, ClosedError if the processes have been
        closed.
        """
        stored = self._files.read(description.name)
        if stored is not None and (self._timer is None or stored.is_final):
            try:
                return self._loaded(description, stored.name, stored.blob)
            except DriverError as error:
                _log.warning("building a cached plan again: %s", error)
                self._files.forget(description.name)
        built, are_all = self._candidates(description)
        candidates, loaded = self._usable(description, built)
        choice = self._choice(description, loaded) if are_all else Choice(0, is_final=False)
        taken = candidates[choice.index]
        _log.info(
            "cuDNN: %d plans were built and %d load for %s; number %d, %s, is taken",
            *(len(built), len(loaded), description.summary, choice.index + 1, taken.name),
        )
        kept = StoredPlan(
            taken.name, taken.workspace_bytes, taken.blob, choice.median_s, choice.is_final
        )
        self._files.write(description.name, kept)
        return loaded[choice.index]

    def _candidates(self, description: GraphDescription) -> tuple[list[PlanCandidate], bool]:
        """Build plans, and say whether they are all that may compete."""
        has_timer = self._timer is not None
        most = _MOST_CANDIDATES if has_timer else 1
        try:
            return self._workers.build(description, self._device, most, _SECONDS), has_timer
        except WorkerError as failed:
            elsewhere = failed
        _log.warning(
            "%s is planned in this process, where event loops wait for it, because it failed in "
            "another one: %s",
            description.summary,
            elsewhere,
        )
        try:
            found = cudnn_builder.build_candidates(
                self._frontend, description, 1, 0.0, **self._place
            )
        except RefusedError as error:
            raise self._error(description, "has no plan for", error) from error
        return found, False

    def _usable(
        self, description: GraphDescription, candidates: Sequence[PlanCandidate]
    ) -> tuple[list[PlanCandidate], list[CudnnPlanned]]:
        """Load what can be loaded; raises DriverError if nothing can."""
        usable: list[PlanCandidate] = []
        loaded: list[CudnnPlanned] = []
        failed: DriverError | None = None
        for candidate in candidates:
            try:
                loaded.append(self._loaded(description, candidate.name, candidate.blob))
            except DriverError as error:
                failed = failed or error
            else:
                usable.append(candidate)
        if failed is not None and not loaded:
            raise failed
        return usable, loaded

    def _choice(self, description: GraphDescription, loaded: Sequence[CudnnPlanned]) -> Choice:
        buffers = OperationBuffers(
            description.summary,
            description.dtype,
            tuple((tensor.name, (tensor.extent,)) for tensor in description.tensors),
            description.output,
            max(plan.workspace_bytes for plan in loaded),
        )
        try:
            return tune(buffers, loaded, self._timer)
        except UselessError as error:
            what = f"has {len(loaded)} plans and none that works for"
            raise self._error(description, what, error) from error

    def _loaded(self, description: GraphDescription, name: str, blob: bytes) -> CudnnPlanned:
        try:
            graph = self._frontend.pygraph(**self._place)
            graph.deserialize(blob)
            return CudnnPlanned(self._frontend, graph, description, self._handles)
        except Exception as error:  # a damaged blob, or one of another version
            raise self._error(description, f"cannot load plan {name} of", error) from error

    def _error(self, description: GraphDescription, what: str, error: Exception) -> DriverError:
        return _driver_error(self._frontend, description, what, error)


def _driver_error(
    frontend: Any, description: GraphDescription, what: str, error: Exception
) -> DriverError:
    named = cudnn_builder.versions(frontend)
    is_full = _ALLOCATION in str(error)
    return DriverError(
        ErrorKind.OUT_OF_MEMORY if is_full else ErrorKind.OTHER,
        f"cuDNN {named['cudnn']} (frontend {named['frontend']}) {what} {description.summary}: "
        f"{error}; {_WAY_OUT}",
    )
