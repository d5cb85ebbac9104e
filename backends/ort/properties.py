"""What can be set on ONNXRUNTIME, and the session settings that follow from it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ...runtime.properties.properties import Configuration, Property, parse_choice, parse_text

__all__ = [
    "ORT_EXECUTION_MODE",
    "ORT_GRAPH_OPTIMIZATION_LEVEL",
    "ORT_PROFILE_PREFIX",
    "ORT_PROVIDER_OPTIONS",
    "ORT_SESSION_CONFIG",
    "PROPERTIES",
    "SessionSettings",
    "settings_of",
]


def _parse_entries(given: Any) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError("a mapping key -> value is wanted")
    entries = {}
    for key, item in given.items():
        if not isinstance(key, str) or not isinstance(item, str | int | float):
            raise ValueError(f"keys are strings, values strings or numbers; {key!r}: {item!r}")
        entries[key] = str(int(item) if isinstance(item, bool) else item)
    return MappingProxyType(entries)


ORT_GRAPH_OPTIMIZATION_LEVEL = Property(
    "ORT_GRAPH_OPTIMIZATION_LEVEL",
    parse_choice("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_LAYOUT", "ENABLE_ALL"),
    "ENABLE_ALL",
    "How far onnxruntime rewrites the graph, after aioinfer's own passes.",
)
ORT_EXECUTION_MODE = Property(
    "ORT_EXECUTION_MODE",
    parse_choice("SEQUENTIAL", "PARALLEL"),
    "SEQUENTIAL",
    "Whether independent nodes of one run go side by side; PARALLEL shares the threads with them.",
)
ORT_PROVIDER_OPTIONS: Property[Mapping[str, str]] = Property(
    "ORT_PROVIDER_OPTIONS",
    _parse_entries,
    MappingProxyType({}),
    "Options of the execution provider, as onnxruntime names them: {'device_id': 1}.",
    is_local=True,
)
ORT_SESSION_CONFIG: Property[Mapping[str, str]] = Property(
    "ORT_SESSION_CONFIG",
    _parse_entries,
    MappingProxyType({}),
    "Session configuration entries, as onnxruntime names them: "
    "{'session.intra_op.allow_spinning': 0}.",
    is_local=True,
)
ORT_PROFILE_PREFIX = Property(
    "ORT_PROFILE_PREFIX",
    parse_text,
    "",
    "Where onnxruntime writes its profile of all runs when the network is closed: the path that "
    "the file's name begins with; '' writes none.",
    is_local=True,
)

PROPERTIES: tuple[Property[Any], ...] = (
    ORT_GRAPH_OPTIMIZATION_LEVEL,
    ORT_EXECUTION_MODE,
    ORT_PROVIDER_OPTIONS,
    ORT_SESSION_CONFIG,
    ORT_PROFILE_PREFIX,
)

_SEVERITIES = {
    "LOG_NONE": 4,
    "LOG_ERROR": 3,
    "LOG_WARNING": 2,
    "LOG_INFO": 1,
    "LOG_DEBUG": 0,
    "LOG_TRACE": 0,
}
"""From which severity on onnxruntime writes to the standard error; 4 is only what is fatal."""


@dataclass(frozen=True)
class SessionSettings:
    """All that a session is made with. Hashable, so answers can be remembered by it."""

    provider: str
    provider_options: tuple[tuple[str, str], ...] = ()
    config_entries: tuple[tuple[str, str], ...] = ()
    optimization_level: str = "ENABLE_ALL"
    is_parallel: bool = False
    intra_op_threads: int = 1
    inter_op_threads: int = 1
    log_severity: int = 4
    profile_prefix: str = ""

    @property
    def is_single_threaded(self) -> bool:
        """True if the CPU's part of a run keeps to the thread that calls it."""
        return not self.is_parallel and self.intra_op_threads == self.inter_op_threads == 1

    def for_query(self) -> SessionSettings:
        """Return the settings of a session that is made to see whether it can be, and never run."""
        return dataclasses.replace(
            self,
            config_entries=(*self.config_entries, ("session.disable_prepacking", "1")),
            optimization_level="DISABLE_ALL",
            is_parallel=False,
            intra_op_threads=1,
            inter_op_threads=1,
            log_severity=4,
            profile_prefix="",
        )


def settings_of(config: Configuration, provider: str, thread_count: int) -> SessionSettings:
    """Choose a session's settings; ``thread_count`` is how many threads one run may compute with.

    The thread that calls is one of them, so a pool of n has n - 1 threads of its own.
    """
    is_parallel = config[ORT_EXECUTION_MODE] == "PARALLEL"
    inter_op = (thread_count + 1) // 2 if is_parallel else 1
    return SessionSettings(
        provider,
        tuple(sorted(config[ORT_PROVIDER_OPTIONS].items())),
        tuple(sorted(config[ORT_SESSION_CONFIG].items())),
        config[ORT_GRAPH_OPTIMIZATION_LEVEL],
        is_parallel,
        thread_count - inter_op + 1,
        inter_op,
        _SEVERITIES[config["LOG_LEVEL"]],
        config[ORT_PROFILE_PREFIX],
    )
