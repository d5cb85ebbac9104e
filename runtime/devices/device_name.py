"""The grammar of device strings: ``NAME``, ``NAME.ID`` and ``VIRTUAL:A,B(2),C``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import DeviceError

__all__ = ["DeviceEntry", "DeviceName", "check_plugin_name", "parse_device"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ID = re.compile(r"[A-Za-z0-9_.\-]+")
_ENTRY = re.compile(r"(?P<device>[^()]+)(\((?P<count>[^()]*)\))?")
_COUNT = re.compile(r"0*[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class DeviceEntry:
    """One item of a virtual device's list; ``count`` is the number in ``NAME(n)``, if any."""

    device: str
    count: int | None = None


@dataclass(frozen=True)
class DeviceName:
    """A parsed device string; ``id`` follows the dot, ``entries`` follow the colon."""

    name: str
    id: str | None = None
    entries: tuple[DeviceEntry, ...] = ()

    def __str__(self) -> str:
        if self.entries:
            items = [
                entry.device + (f"({entry.count})" if entry.count is not None else "")
                for entry in self.entries
            ]
            return f"{self.name}:{','.join(items)}"
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
        return DeviceName(name, None, tuple(_entries(rest, text)))
    name, dot, device_id = stripped.partition(".")
    _check_name(name, text)
    if dot and not _ID.fullmatch(device_id):
        raise DeviceError(f"device {text!r}: the id after the dot is missing or has bad characters")
    return DeviceName(name, device_id if dot else None)


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


def _entries(rest: str, text: str) -> list[DeviceEntry]:
    entries = []
    for item in rest.split(","):
        match = _ENTRY.fullmatch(item.strip())
        if match is None:
            raise DeviceError(
                f"device {text!r}: {item.strip()!r} is not NAME, NAME.ID or NAME(count); look for "
                f"an empty item or a stray parenthesis"
            )
        count = match["count"]
        if count is not None and not _COUNT.fullmatch(count):
            raise DeviceError(
                f"device {text!r}: the count in {item.strip()!r} must be a number from 1 to 999999"
            )
        parsed = parse_device(match["device"])
        if parsed.entries:
            raise DeviceError(f"device {text!r}: a device list cannot hold another list")
        entries.append(DeviceEntry(str(parsed), None if count is None else int(count)))
    return entries
