"""What onnxruntime's errors become: ours, with its text and our names of the node. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...errors import AioInferError, DeviceError, Place, TensorError
from ...runtime.graph import Node
from .node_support import onnxruntime_text

__all__ = ["explain_run", "original_names"]

_NODE = re.compile(r"running (?P<op>\S+) node\. Name:'(?P<name>[^']*)'")
_DEVICE_FAILURES = frozenset({"EPFail", "EngineError", "DeviceReset", "MemoryError"})
_NO_MEMORY = re.compile(r"failed to allocate memory|bad_alloc|out of memory", re.IGNORECASE)


def original_names(nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """Return for each node, by its name in the session, the nodes of the file it stands for."""
    return {node.name: node.fused_from for node in nodes}


def explain_run(
    error: BaseException, device: str, network: str, origins: Mapping[str, tuple[str, ...]]
) -> AioInferError:
    """Return an error with the device, the node as the file has it, and onnxruntime's text.

    A DeviceError if the device or its memory failed, else a TensorError.
    """
    text = onnxruntime_text(error)
    where = f"network {network!r} on {device}"
    place: Place = {"network": network, "device": device}
    found = _NODE.search(str(error))
    if found is not None:
        where = f"{found['op']} ({_names(found['name'], origins)}) of {where}"
        place |= {"node": _file_name(found["name"], origins), "op": found["op"]}
        text = text.partition("Status Message: ")[2] or text
    lacks_memory = type(error).__name__ == "MemoryError" or _NO_MEMORY.search(text) is not None
    if lacks_memory or type(error).__name__ in _DEVICE_FAILURES:
        return DeviceError(
            f"{where} failed: {text}; use smaller inputs or fewer requests at a time, or another "
            f"device",
            resource="memory" if lacks_memory else "",
            **place,
        )
    return TensorError(f"{where} failed: {text}; check its inputs", **place)


def _file_name(name: str, origins: Mapping[str, tuple[str, ...]]) -> str:
    """Return the first node of the file that a node of the session stands for, or its own name."""
    return next(iter(origins.get(name) or (name,)))


def _names(name: str, origins: Mapping[str, tuple[str, ...]]) -> str:
    """Find the nodes of the file behind a name that onnxruntime's own rewrites may have changed."""
    known = origins.get(name)
    if known is None:
        return f"node {name!r}, made by onnxruntime" if name else "a node made by onnxruntime"
    if known == (name,) or not known:
        return f"node {name!r}"
    return "nodes " + ", ".join(map(repr, known))
