"""The grammar of device strings: ``NAME``, ``NAME.ID`` and ``VIRTUAL:A,B(2),-C``.

A list holds plain devices, and devices that hold one: ``MULTI:BATCH:CUDA(32),CPU`` is a list of
two. What holds one may hold a list, which ends with the count: so is
``MULTI:BATCH:HETERO:CUDA,CPU(8),CPU``, and 8 are the rows of BATCH. Nothing nests deeper.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...errors import DeviceError

__all__ = [
    "DEVICE_PRIORITIES",
    "DEVICE_PROPERTIES",
    "HOLD_ONE",
    "MOST_REQUESTS",
    "DeviceEntry",
    "DeviceName",
    "check_plugin_name",
    "devices_inside",
    "parse_device",
    "parse_entries",
]

DEVICE_PRIORITIES = "MULTI_DEVICE_PRIORITIES"
"""The key of the property that a virtual device's list is given in."""

DEVICE_PROPERTIES = "DEVICE_PROPERTIES"
"""The key of the property that those of single devices are given in."""

HOLD_ONE = ("BATCH",)
"""Virtual devices that are made of one device, so that a comma after that is not theirs."""

MOST_REQUESTS = 999_999
"""The greatest count of an item of a list, ``NAME(n)``."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ID = re.compile(r"[A-Za-z0-9_.\-]+")
_ENTRY = re.compile(r"(?P<device>[^()]+)(\((?P<count>[^()]*)\))?")
_COUNT = re.compile(rf"0*[1-9][0-9]{{0,{len(str(MOST_REQUESTS)) - 1}}}")


@dataclass(frozen=True)
class DeviceEntry:
    """One item of a virtual device's list; ``count`` is the number in ``NAME(n)``, if any.

    ``is_excluded``: it was written ``-NAME``, and is not to be used.
    """

    device: str
    count: int | None = None
    is_excluded: bool = False

    def __str__(self) -> str:
        sign = "-" if self.is_excluded else ""
        return f"{sign}{self.device}" + (f"({self.count})" if self.count is not None else "")


class DeviceName(NamedTuple):
    """A parsed device string; ``id`` follows the dot, ``entries`` follow the colon."""

    name: str
    id: str | None = None
    entries: tuple[DeviceEntry, ...] = ()

    def __str__(self) -> str:
        if self.entries:
            return f"{self.name}:{','.join(map(str, self.entries))}"
        return self.name if self.id is None else f"{self.name}.{self.id}"


def parse_device(text: str) -> DeviceName:
    """Parse a device string; raises DeviceError that says where it breaks the grammar."""
    if not isinstance(text, str):
        raise DeviceError(f"a device is a string such as 'CPU', not {type(text).__name__}")
    stripped = text.strip()
    if not stripped:
        raise DeviceError(
            "the device name is empty; give one such as 'CPU', 'REFERENCE.1' or "
            "'HETERO:CUDA,CPU', or leave the argument out for AUTO"
        )
    name, colon, rest = stripped.partition(":")
    if colon:
        _check_name(name, text)
        items = _Items(rest, text)
        entries = []
        while items:
            entries.append(items.take_entry(name))
        return DeviceName(name, None, tuple(entries))
    name, dot, device_id = stripped.partition(".")
    _check_name(name, text)
    if dot and not _ID.fullmatch(device_id):
        raise DeviceError(f"device {text!r}: the id after the dot is missing or has bad characters")
    return DeviceName(name, device_id if dot else None)


def parse_entries(text: str) -> tuple[DeviceEntry, ...]:
    """Parse what may follow the colon of some virtual device; raises DeviceError as parse_device.

    Of which one is not known, so that a list may begin with another one.
    """
    items = _Items(text, text)
    entries = []
    while items:
        entries.append(items.take_entry(None))
    return tuple(entries)


def devices_inside(device: str) -> tuple[str, ...]:
    """Return the devices that one is made of, and those that these are made of; none for others."""
    names: list[str] = []
    for entry in parse_device(device).entries:
        if not entry.is_excluded:
            names += [entry.device, *devices_inside(entry.device)]
    return tuple(names)


def check_plugin_name(name: str) -> None:
    """Raise DeviceError unless the name can be registered: a word without dot or colon."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeviceError(
            f"{name!r} cannot be a plugin's name: letters, digits and underscores only, because "
            f"a dot starts a device id and a colon starts a device list"
        )


def _check_name(name: str, text: str) -> None:
    if not _NAME.fullmatch(name):
        raise DeviceError(
            f"device {text!r}: {name!r} is not a device name; the grammar is NAME, NAME.ID or "
            f"VIRTUAL:A,B(2),C"
        )


class _Items:
    """What stands between the commas of a list, taken from the left."""

    def __init__(self, rest: str, text: str) -> None:
        self._left = [item.strip() for item in rest.split(",")]
        self._text = text

    def __bool__(self) -> bool:
        return bool(self._left)

    def take_entry(self, holder: str | None) -> DeviceEntry:
        """Take the next entry of the list of ``holder``; None: of one that may hold anything."""
        item = self._left[0]
        name, colon, rest = item.partition(":")
        if not colon or item.startswith("-"):
            entry = self._take_plain()
            if entry.is_excluded and entry.count is not None:
                raise self._error(f"{item!r} leaves a device out, and has a count")
            return entry
        _check_name(name.strip(), self._text)
        self._left[0] = rest.strip()
        if name.strip() in HOLD_ONE:
            return self._take_held(name.strip())
        if holder is not None and holder not in HOLD_ONE:
            raise self._error(
                f"a device list cannot hold another list, since nothing would say where {item!r} "
                f"ends; a list holds devices, and BATCH of one of them: MULTI:BATCH:CUDA(32),CPU. "
                f"Write {name.strip()} alone, and give what it holds by DEVICE_PROPERTIES: "
                f"{{{name.strip()!r}: {{{DEVICE_PRIORITIES!r}: 'CUDA,CPU'}}}}"
            )
        return self._take_list(name.strip())

    def _take_held(self, holder: str) -> DeviceEntry:
        if self._left[0].partition(":")[0].strip() in HOLD_ONE:
            raise self._error(f"{holder}:{self._left[0]} holds itself")
        return DeviceEntry(f"{holder}:{self.take_entry(holder)}")

    def _take_list(self, name: str) -> DeviceEntry:
        """Take plain devices to the first with a count, which is for the list, or to the end."""
        inner: list[DeviceEntry] = []
        count = None
        while self._left and count is None:
            entry = self._take_plain()
            count = entry.count
            inner.append(replace(entry, count=None))
        return DeviceEntry(str(DeviceName(name, None, tuple(inner))), count)

    def _take_plain(self) -> DeviceEntry:
        item = self._left.pop(0)
        match = _ENTRY.fullmatch(item.removeprefix("-"))
        if match is None:
            raise self._error(
                f"{item!r} is not NAME, NAME.ID or NAME(count); look for an empty item or a stray "
                f"parenthesis"
            )
        count = match["count"]
        if count is not None and not _COUNT.fullmatch(count):
            raise self._error(f"the count in {item!r} must be a number from 1 to {MOST_REQUESTS}")
        parsed = parse_device(match["device"])
        if parsed.entries:
            raise self._error(f"{item!r} would be a list in a list in a list")
        return DeviceEntry(
            str(parsed), None if count is None else int(count), is_excluded=item.startswith("-")
        )

    def _error(self, what: str) -> DeviceError:
        return DeviceError(f"device {self._text!r}: {what}")
