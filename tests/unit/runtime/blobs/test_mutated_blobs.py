"""Mutated blobs of every kind of device: an error of ours or a network, soon, in little memory.

AIOINFER_BLOB_CASES says how many of each kind, AIOINFER_BLOB_SEED with which numbers.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import aioinfer
from aioinfer.errors import AioInferError
from exhaustive import all_but
from unit.runtime.blobs.test_crafted_records import (
    OPEN,
    STATIC,
    blob_of,
    convolutions,
    frames_of,
    model,
    mutated,
)

CASES = int(os.environ.get("AIOINFER_BLOB_CASES", "100"))
SEED = int(os.environ.get("AIOINFER_BLOB_SEED", "21"))
MOST_S = 60.0
"""Of one import and run; a busy machine takes longer than an idle one."""
MOST_BYTES = 64 << 20
MOST_TIMES = 16
"""How much an import may take: so many bytes, and so many times those of the blob."""
COMPILER_BYTES = {"OPENCL": 192 << 20, "CUDA": 192 << 20}
"""What compilers of kernels take beside that, where theirs are not in a cache; LLVM 105 MiB."""

KINDS: dict[str, tuple[str, Any, dict[str, np.ndarray[Any, Any]], dict[str, Any]]] = {
    "REFERENCE": ("REFERENCE", model, OPEN, {}),
    "plan of CPU": ("CPU", convolutions, STATIC, {}),
    "model of CPU": ("CPU", convolutions, STATIC, {"EXPORTABLE": True}),
    "HETERO": ("HETERO:CPU,REFERENCE", model, OPEN, {}),
    "MULTI": ("MULTI:CPU,REFERENCE", convolutions, STATIC, {"EXPORTABLE": True}),
    "BATCH": ("BATCH:CPU(4)", convolutions, STATIC, {}),
    "AUTO": ("AUTO:CPU,REFERENCE", convolutions, STATIC, {}),
    "AUTO of REFERENCE": ("AUTO:REFERENCE", model, OPEN, {"EXPORTABLE": True}),
    "OPENCL": ("OPENCL", convolutions, STATIC, {"EXPORTABLE": True}),
    "CUDA": ("CUDA", convolutions, STATIC, {"EXPORTABLE": True}),
    "ONNXRUNTIME": ("ONNXRUNTIME", convolutions, STATIC, {}),
}


SHARES = {"OPENCL": 4, "CUDA": 4}
"""Devices that compile kernels for each network take one of so many cases."""


@contextmanager
def time_limit() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise AssertionError(f"it took more than {MOST_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


@contextmanager
def memory_limit(size_bytes: int, most_bytes: int) -> Iterator[None]:
    """Expect that a block takes no more than that and a multiple of a size, if the system tells."""
    place = Path("/proc/self/clear_refs")
    if not place.exists():
        yield
        return
    place.write_text("5")  # the peak begins anew
    before = status_bytes("VmRSS")
    yield
    taken = status_bytes("VmHWM") - before
    assert taken <= most_bytes + MOST_TIMES * size_bytes, f"{taken >> 20} MiB for {size_bytes} B"


def changed_bytes(content: bytes, choose: random.Random) -> bytes:
    """Flip bits, cut, repeat, or exchange pieces; checksums are as they were."""
    made, how = bytearray(content), choose.randrange(4)
    place, other = choose.randrange(len(made)), choose.randrange(len(made))
    first, last = min(place, other), max(place, other)
    if how == 0:
        for _ in range(choose.randrange(1, 9)):
            made[choose.randrange(len(made))] ^= 1 << choose.randrange(8)
    elif how == 1:
        del made[first:last]
    elif how == 2:
        made[first:first] = made[first : min(last, first + 4096)]
    else:
        size = min(64, len(made) - last)
        made[first : first + size] = made[last : last + size]
    return bytes(made)


def mutation(whole: bytes, frames: dict[str, bytes], choose: random.Random) -> bytes:
    """Change bytes, or a document or a frame with checksums that are right again."""
    how = choose.randrange(8)
    if how == 0:
        return changed_bytes(whole, choose)
    name = choose.choice([*frames])
    if how == 1:
        other = choose.choice([*frames.values()])
        return blob_of({**frames, name: other if choose.randrange(2) else frames[name][:-1]})
    documents = [key for key in frames if frames[key][:1] in (b"{", b"[")]
    name = choose.choice(documents)
    content = json.loads(frames[name])
    for _ in range(choose.choice((1, 1, 1, 2, 5))):
        if isinstance(content, dict | list):
            content = mutated(content, choose)
    return blob_of({**frames, name: json.dumps(content).encode()})


def import_and_run(
    core: aioinfer.Core, blob: bytes, inputs: dict[str, Any], most_bytes: int
) -> None:
    with memory_limit(len(blob), most_bytes):
        imported = core.import_network(blob)
    with imported:
        imported.create_infer_request().infer_sync(inputs)


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no alarm here")
@pytest.mark.parametrize("kind", all_but(["REFERENCE", "plan of CPU"], KINDS))
def test_a_mutated_blob_is_refused_or_runs_soon_and_in_little_memory(
    core: aioinfer.Core, kind: str
) -> None:
    device, make, inputs, config = KINDS[kind]
    for name in device.replace(":", ",").split(","):
        if reason := core.why_missing(name.partition("(")[0]):
            pytest.skip(reason)
    made: onnx.ModelProto = make()
    with core.load_network(made, device, config) as network:
        whole = network.export()
    frames, choose, refused = frames_of(whole), random.Random(SEED), 0
    cases = max(1, CASES // SHARES.get(kind, 1))
    most_bytes = MOST_BYTES + COMPILER_BYTES.get(kind, 0)
    for case in range(cases):
        blob = mutation(whole, frames, choose)
        try:
            with time_limit():
                import_and_run(core, blob, inputs, most_bytes)
        except AioInferError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"case {case} of {kind}: {error!r}") from error
    assert refused > cases // 4
