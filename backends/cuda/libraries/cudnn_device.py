"""cuDNN on this machine's devices: whether it is there, and its plans for each device in use.

Plans, their files and the processes that build them belong to the process, not to a network, since
an operation's plan is the same for all. They are made with the first use.
"""

from __future__ import annotations

import importlib
import json
import threading

from ....executors.late_imports import late_imports
from ...accelerator.queues.driver import DriverError, ErrorKind
from ..plan_files import PlanFiles, own_cache_folder
from ..plan_workers import PlanWorkers
from .cudnn_builder import find_frontend, versions
from .cudnn_graph import GraphDescription
from .cudnn_plans import CudnnPlanned, CudnnPlans
from .device_timing import DeviceTimers

__all__ = ["close", "find_missing", "plan_on"]


def find_missing() -> str | None:
    """Return what is missing to use cuDNN, or None; loads it, and needs no device."""
    try:
        with late_imports:
            find_frontend()
    except ImportError as error:
        return f"{error}; {_WAY_OUT}"
    return None


def plan_on(device_id: int, description: GraphDescription) -> CudnnPlanned:
    """Plan an operation for a device, the thread's current one: from disk, or elsewhere. Blocks.

    Any thread may call it. Raises DriverError, with cuDNN's reason, if that is missing or has no
    plan.
    """
    return _plans_of(device_id).plan(description)


def close() -> None:
    """End the processes that build plans and forget what devices have; twice is fine.

    Whatever is planned keeps working, and the next plan starts anew.
    """
    global _workers
    with _lock:
        ended, _workers = _workers, None
        _plans.clear()
    if ended is not None:
        ended.close()


_WAY_OUT = "pip install nvidia-cudnn-cu13, and --no-deps nvidia-cudnn-frontend"
_lock = threading.Lock()
_plans: dict[int, CudnnPlans] = {}
_workers: PlanWorkers | None = None


def _plans_of(device_id: int) -> CudnnPlans:
    global _workers
    with _lock:
        if device_id not in _plans:
            if _workers is None:
                _workers = PlanWorkers()
            try:
                _plans[device_id] = _open(device_id, _workers)
            except Exception as error:  # ImportError, RuntimeError: what loading or asking gives
                raise DriverError(
                    ErrorKind.OTHER, f"cuDNN cannot use CUDA.{device_id}: {error}; {_WAY_OUT}"
                ) from error
        return _plans[device_id]


def _open(device_id: int, workers: PlanWorkers) -> CudnnPlans:
    with late_imports:
        frontend = find_frontend()
    device = str(frontend.create_device_properties(device_id).serialize()).rstrip("\0")
    facts = json.loads(device)
    environment = {
        name: str(facts.get(name)) for name in ("deviceName", "deviceVer", "multiProcessorCount")
    }
    files = PlanFiles(own_cache_folder(), "cudnn", {**environment, **versions(frontend)})
    with late_imports:
        cupy = importlib.import_module("cupy")
    cache_bytes = int(facts.get("l2CacheSize") or 0)
    timers = DeviceTimers(cupy, cache_bytes, device_id)
    return CudnnPlans(frontend, device, workers, files, timers, device_id=device_id)
