"""Which device gets a model, in which order others follow, and whether to cut it. Pure decisions.

What is measured comes before what is supposed: DEFAULT_ORDER, and for a model that CPU refuses in
part the rough numbers of SPEEDS, which only tell compiled kernels from numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...runtime.costs import DeviceSpeed, NodeCost
from ...runtime.devices.device_name import parse_device
from .properties import PRIORITIES

__all__ = [
    "AFTER_AS_PROCESSOR",
    "BY_NUMPY",
    "DEFAULT_ORDER",
    "HOP_S",
    "SPEEDS",
    "Piece",
    "by_speed",
    "default_turns",
    "expected_s",
    "is_same_or_one_of",
    "joint_devices",
    "unheld",
    "without",
]

DEFAULT_ORDER = ("CUDA", "CPU", "OPENCL", "ONNXRUNTIME", "REFERENCE")
"""Fastest first; without a list, the devices that are there are tried in this order."""

AFTER_AS_PROCESSOR = {"OPENCL": "ONNXRUNTIME"}
"""Device that may drive an accelerator -> the one that precedes it where it only drives a CPU."""

HOP_S = 60e-6
CARRIED_BYTES_PER_S = 5e9
"""What a hand-over from one device to the next costs."""

SPEEDS: Mapping[str, DeviceSpeed] = {
    "CPU": DeviceSpeed(80e9, 8e9, CARRIED_BYTES_PER_S, HOP_S, 2e-6),
    "ONNXRUNTIME": DeviceSpeed(64e9, 8e9, CARRIED_BYTES_PER_S, HOP_S, 4e-6),
    "REFERENCE": DeviceSpeed(0.4e9, 4e9, CARRIED_BYTES_PER_S, HOP_S, 40e-6),
}
"""Of what computes on the processor."""

BY_NUMPY = frozenset({"REFERENCE"})
"""Those of them that have nothing but numpy, so that no node gains by going there."""

_RUN_S = {"ONNXRUNTIME": 40e-6}
"""What a run takes beside its nodes, where that is much."""


def default_turns(devices: Sequence[str], is_processor: Callable[[str], bool]) -> Iterator[str]:
    """Yield devices, which stand in DEFAULT_ORDER, in the order of their turns.

    What a device is, is asked only when its turn comes: a device is opened for the answer.
    """
    waiting: dict[str, str] = {}
    for device in devices:
        other = AFTER_AS_PROCESSOR.get(device)
        if other is not None and other in devices and is_processor(device):
            waiting[other] = device
            continue
        yield device
        if device in waiting:
            yield waiting[device]


def is_same_or_one_of(device: str, name: str) -> bool:
    """True if ``name`` means the device, or its kind."""
    return device == name or parse_device(device).name == name


def without(
    devices: Sequence[str], excluded: Sequence[str], ids_of: Callable[[str], Sequence[str]]
) -> list[str]:
    """List devices but for those left out: ``CUDA`` is all of a kind, ``CUDA.1`` one of them.

    A name without an id then stands for those of its kind that are left.
    """
    left: list[str] = []
    for device in devices:
        if any(is_same_or_one_of(device, name) for name in excluded):
            continue
        if any(parse_device(name).name == device for name in excluded):
            ids = [f"{device}.{number}" for number in ids_of(device)]
            left += [name for name in ids if name not in excluded]
        else:
            left.append(device)
    return left


def unheld(devices: Sequence[str], held: Mapping[str, str], priority: str) -> list[str]:
    """List the devices that no model of a higher priority has; the last one if all are held.

    ``held``: the highest priority that each device has now.
    """
    own = PRIORITIES.index(priority)
    free = [name for name in devices if PRIORITIES.index(held.get(name, PRIORITIES[0])) <= own]
    return free or list(devices[-1:])


def by_speed(devices: Sequence[str], times_s: Mapping[str, float]) -> list[str]:
    """Order devices: those with a time, among themselves, fastest first; others stay in place."""
    measured = iter(sorted((name for name in devices if name in times_s), key=times_s.__getitem__))
    return [next(measured) if name in times_s else name for name in devices]


def joint_devices(taken: Mapping[str, Collection[str]], nodes: Collection[str]) -> list[str]:
    """List devices, in order, that together take all nodes; none if some node is left.

    taken: which nodes each device takes, preferred devices first. A device that takes nothing more
    than those before it is left out.
    """
    left = set(nodes)
    chosen: list[str] = []
    for device, names in taken.items():
        if left & set(names):
            chosen.append(device)
            left -= set(names)
    return [] if left else chosen


@dataclass(frozen=True)
class Piece:
    """Nodes that run on one device, one behind the other.

    ``numpy_s`` is what those take that the device leaves to numpy; ``costs`` are the others'.
    """

    device: str
    costs: Sequence[NodeCost]
    numpy_s: float = 0.0


def expected_s(pieces: Iterable[Piece], carried_bytes: Iterable[int] = ()) -> float:
    """Suppose how long pieces take, one behind the other; infinite for a device not in SPEEDS."""
    total_s = 0.0
    for count, piece in enumerate(pieces):
        if piece.device not in SPEEDS:
            return math.inf
        total_s += sum(map(SPEEDS[piece.device].node_s, piece.costs)) + piece.numpy_s
        total_s += _RUN_S.get(piece.device, 0.0) + (HOP_S if count else 0.0)
    return total_s + sum(carried_bytes) / CARRIED_BYTES_PER_S
