"""Where stages run: the executor contract and the executors that keep it.

Those that wait for a test are imported when one asks for them.
"""

from ..errors import ClosedError as ClosedError  # first: outside the package this import must fail

# isort: split
import importlib
from typing import TYPE_CHECKING, Any

from .base import (
    NO_LANE,
    NOW,
    HostReady,
    Lane,
    Ready,
    TaskExecutor,
    Then,
    WhenReady,
    hand_over,
    hop,
    is_own_thread,
    mark_own_thread,
    must_not_block,
    refuse_own_thread,
    run_here,
    tell_owner,
)
from .collection_pause import full_collections_paused
from .cpu_allowance import (
    CpuAllowance,
    QuotaGroup,
    allowance_kept,
    allowed_cpus,
    part_of_allowance,
)
from .device_stream import (
    CompletionThread,
    DeviceEvent,
    DeviceLane,
    DeviceStream,
    DeviceStreamExecutor,
    ReadingHost,
)
from .device_times import DeviceClock, TellTimes
from .fork import ProcessMark
from .immediate import ImmediateExecutor
from .late_imports import late_imports as _late_imports
from .manager import (
    ExecutorManager,
    note_count,
    note_given_back,
    note_owner,
    note_taken,
    undone_on_error,
)
from .quota_meter import QuotaMeter, QuotaReading
from .shortage import as_shortage, check_files, find_shortage, is_shortage, shortage_as_error
from .streams import StreamsConfig, StreamsExecutor
from .timer import Clock, Timer, TimerHandle, VirtualTimer, process_timer

if TYPE_CHECKING:
    from .manual import ManualExecutor
    from .manual_streams import ManualEvent, ManualStream, ManualStreams

__all__ = [
    "NOW",
    "NO_LANE",
    "Clock",
    "CompletionThread",
    "CpuAllowance",
    "DeviceClock",
    "DeviceEvent",
    "DeviceLane",
    "DeviceStream",
    "DeviceStreamExecutor",
    "ExecutorManager",
    "HostReady",
    "ImmediateExecutor",
    "Lane",
    "ManualEvent",
    "ManualExecutor",
    "ManualStream",
    "ManualStreams",
    "ProcessMark",
    "QuotaGroup",
    "QuotaMeter",
    "QuotaReading",
    "ReadingHost",
    "Ready",
    "StreamsConfig",
    "StreamsExecutor",
    "TaskExecutor",
    "TellTimes",
    "Then",
    "Timer",
    "TimerHandle",
    "VirtualTimer",
    "WhenReady",
    "allowance_kept",
    "allowed_cpus",
    "as_shortage",
    "check_files",
    "find_shortage",
    "full_collections_paused",
    "hand_over",
    "hop",
    "is_own_thread",
    "is_shortage",
    "mark_own_thread",
    "must_not_block",
    "note_count",
    "note_given_back",
    "note_owner",
    "note_taken",
    "part_of_allowance",
    "process_timer",
    "refuse_own_thread",
    "run_here",
    "shortage_as_error",
    "tell_owner",
    "undone_on_error",
]

_STREAMS = ".manual_streams"
_LATE = {
    "ManualEvent": _STREAMS,
    "ManualExecutor": ".manual",
    "ManualStream": _STREAMS,
    "ManualStreams": _STREAMS,
}


def __getattr__(name: str) -> Any:
    place = _LATE.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _late_imports:
        return getattr(importlib.import_module(place, __name__), name)
