"""Plans of cuBLASLt in use: matmuls by the fastest algorithm that was found.

Where plans can be timed, the algorithms that the library's heuristics recommend compete on the
device, and the winner's bytes are kept on disk, by kind of device and version; else the first one
is taken. The library checks what comes from disk. Plans of a device are the process's, not a
network's, since an operation's plan is the same for all.
"""

from __future__ import annotations

import logging
import threading

from ....executors.late_imports import late_imports
from ...accelerator.queues.driver import DriverError, ErrorKind
from ...accelerator.queues.library_operation import LibraryOperation
from ..autotune import UselessError
from ..matrix_layout import StoredMatrix, column_matmul
from ..plan_files import PlanFiles, StoredPlan, own_cache_folder
from .cublaslt_library import CublasLt, MatmulPlan
from .device_timing import DeviceTimers
from .library_errors import translated
from .plan_tuning import OperationBuffers, TimerMaker, tune

__all__ = ["CANDIDATES", "MatmulPlans", "buffers_of", "find_missing", "plan"]

_log = logging.getLogger("aioinfer")

CANDIDATES = 8
"""How many algorithms are worth timing: the heuristics order them by what they expect."""

_LIMIT_BYTES = 4 << 20  # of what is on disk: some 8000 choices
_WAY_OUT = "take another version of cuBLAS, or run the node on another device"
_lock = threading.Lock()
_plans: dict[int, MatmulPlans] = {}


def find_missing() -> str | None:
    """Return why nvmath or cuBLASLt itself cannot be loaded; None if both can."""
    try:
        _library()
    except (ImportError, OSError, RuntimeError) as error:
        return f"{error}; install both with 'pip install nvmath-python nvidia-cublas'"
    return None


def plan(operation: LibraryOperation, device_id: int) -> MatmulPlan:
    """Plan a matmul for a device, the thread's current one, by the algorithm chosen for it. Blocks.

    Any thread may call it. Raises DriverError, also if the library has no algorithm.
    """
    with translated(operation), _lock:
        if device_id not in _plans:
            _plans[device_id] = _open(device_id)
        plans = _plans[device_id]
    return plans.plan(operation)


class MatmulPlans:
    """Plans for one device. Thread-safe.

    Without ``timer`` the first algorithm that the heuristics recommend is taken.
    """

    def __init__(
        self, library: CublasLt, device_id: int, files: PlanFiles, timer: TimerMaker | None = None
    ) -> None:
        self._library, self._device_id = library, device_id
        self._files, self._timer = files, timer
        self._choosing = threading.Lock()

    def plan(self, operation: LibraryOperation) -> MatmulPlan:
        """Return a plan with the kept algorithm, or choose one. Blocks.

        The device is the thread's current one. Raises DriverError if no algorithm works.
        """
        kept = self._kept(operation)
        if kept is not None:
            return kept
        with self._choosing:  # a thread that had to wait finds what the other one chose
            return self._kept(operation) or self._chosen(operation)

    def _kept(self, operation: LibraryOperation) -> MatmulPlan | None:
        stored = self._files.read(operation.name)
        if stored is None or not (stored.is_final or self._timer is None):
            return None
        try:
            return self._library.restored(operation, self._device_id, stored.blob)
        except DriverError as error:
            _log.warning("choosing again, for cuBLASLt refuses a cached algorithm: %s", error)
            self._files.forget(operation.name)
            return None

    def _chosen(self, operation: LibraryOperation) -> MatmulPlan:
        count = 1 if self._timer is None else CANDIDATES
        plans = self._library.candidates(operation, self._device_id, count)
        try:
            choice = tune(buffers_of(operation), plans, self._timer)
        except UselessError as error:
            raise DriverError(
                ErrorKind.OTHER,
                f"cuBLASLt {self._library.version} has {len(plans)} algorithms and none that works "
                f"for {_summary(operation)}: {error}; {_WAY_OUT}",
            ) from error
        chosen = plans[choice.index]
        name = f"algorithm {choice.index + 1} of {len(plans)}"
        needed, blob = chosen.workspace_bytes, chosen.blob
        kept = StoredPlan(name, needed, blob, choice.median_s, choice.is_final)
        self._files.write(operation.name, kept)
        return chosen


def buffers_of(operation: LibraryOperation) -> OperationBuffers:
    """Return what memory a matmul takes; raises DriverError for strides that cuBLASLt lacks.

    The factors are as long as their strides make them.
    """
    with translated(operation):
        matmul = column_matmul(operation)
    batch, m, n = (int(operation[name]) for name in ("batch", "m", "n"))
    shapes = [("a", _length(matmul.second, batch)), ("b", _length(matmul.first, batch))]
    shapes += [("bias", (n,))] if operation["has_bias"] else []
    shapes += [("residual", (batch, m, n))] if operation["has_residual"] else []
    return OperationBuffers(
        _summary(operation),
        operation["dtype"],
        (*shapes, ("d", (batch, m, n))),
        "d",
        operation["workspace_bytes"],
    )


def _length(matrix: StoredMatrix, batch: int) -> tuple[int, ...]:
    one = (matrix.columns - 1) * matrix.leading + matrix.rows
    return ((batch - 1) * matrix.batch_stride + one,)


def _summary(operation: LibraryOperation) -> str:
    batch, m, n, k = (operation[name] for name in ("batch", "m", "n", "k"))
    many = "a matmul" if batch == 1 else f"{batch} matmuls"
    return f"{many} of {operation['dtype']} {m}x{k} by {k}x{n}"


def _open(device_id: int) -> MatmulPlans:
    with late_imports:
        import cupy

    library = _library()
    said = cupy.cuda.runtime.getDeviceProperties(device_id)
    name = said["name"]
    environment = {
        "device": name.decode() if isinstance(name, bytes) else str(name),
        "compute_capability": f"{said['major']}.{said['minor']}",
        "multiprocessors": str(said["multiProcessorCount"]),
        "cublaslt": library.version,
    }
    files = PlanFiles(own_cache_folder(), "cublaslt", environment, _LIMIT_BYTES)
    timers = DeviceTimers(cupy, int(said["l2CacheSize"]), device_id)
    return MatmulPlans(library, device_id, files, timers)


def _library() -> CublasLt:
    """Load it; raises ImportError, OSError or RuntimeError."""
    with late_imports:
        import cupy
        from nvmath.bindings import cublas, cublasLt

    return CublasLt(cublasLt, cublas, cupy.cuda.Device)
