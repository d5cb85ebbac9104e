"""The program of a process that builds plans of cuDNN; ``plan_workers`` starts it, by its path.

It loads two modules of ``libraries`` under a name of its own, and so nothing else of aioinfer. It
ends when its input does, which is when its parent is gone, and after a while without work.
"""

import importlib
import json
import os
import select
import struct
import sys
import types
from pathlib import Path
from typing import Any, BinaryIO

_LENGTHS = struct.Struct("<QQ")
_PACKAGE = "plan_libraries"


def main() -> int:
    """Answer requests, one after another, until there are none."""
    path, idle_s = json.loads(sys.argv[1])
    sys.path[:] = path
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "r+b", buffering=0) as nowhere:  # what cuDNN prints is no answer
        os.dup2(nowhere.fileno(), 0)
        os.dup2(nowhere.fileno(), 1)
    while _wait(requests, idle_s):
        request = _read_request(requests)
        if request is None:
            break
        fields, blobs = _answer(request)
        content = json.dumps(fields).encode()
        _write(answers, _LENGTHS.pack(len(content), len(blobs)) + content + blobs)
    return 0


def _answer(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    try:
        return _candidates(request)
    except Exception as error:  # also what cuDNN raises, which is not known before it is loaded
        kind = type(error).__name__
        return {"error": str(error) if kind == "RefusedError" else f"{kind}: {error}"}, b""


def _candidates(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    builder, graphs = (_library(name) for name in ("cudnn_builder", "cudnn_graph"))
    frontend = builder.find_frontend()
    found = builder.build_candidates(
        frontend,
        graphs.GraphDescription.from_json(request["description"]),
        request["most"],
        request["seconds"],
        **builder.place_of(frontend, request["device"]),
    )
    told = [{**vars(item), "blob": len(item.blob)} for item in found]
    return {"candidates": told}, b"".join(item.blob for item in found)


def _library(name: str) -> Any:
    """Load a module of ``libraries`` without the packages that it lies in."""
    if _PACKAGE not in sys.modules:
        package = types.ModuleType(_PACKAGE)
        package.__path__ = [str(Path(__file__).with_name("libraries"))]
        sys.modules[_PACKAGE] = package
    full_name = f"{_PACKAGE}.{name}"
    return importlib.import_module(full_name)


def _wait(requests: BinaryIO, idle_s: float) -> bool:
    """Wait for a request, or the end of them; False after too long."""
    if os.name != "posix":
        return True  # pipes cannot be waited for
    return bool(select.select([requests], [], [], idle_s)[0])


def _read_request(requests: BinaryIO) -> dict[str, Any] | None:
    head = _read(requests, _LENGTHS.size)
    if len(head) < _LENGTHS.size:
        return None
    content = _read(requests, sum(_LENGTHS.unpack(head)))
    try:
        fields = json.loads(content)
    except ValueError:  # its parent is gone
        return None
    return fields if isinstance(fields, dict) else None


def _read(requests: BinaryIO, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = requests.read(size - len(content))
        if not part:
            break
        content += part
    return bytes(content)


def _write(answers: BinaryIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[answers.write(view) :]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)
