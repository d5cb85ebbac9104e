"""Programs on asyncio, and those without a loop, never import trio for their callbacks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from exhaustive import all_but
from unit.runtime.models import tiny_model

HEAD = """
import asyncio, sys, threading
import numpy as np
import aioinfer

X = np.array([[1, -2, 3]], np.float32)
core = aioinfer.Core()
network = core.load_network(sys.argv[1], "REFERENCE")
"""
TAIL = """
assert len(told) == 8, told
core.close()
assert "trio" not in sys.modules, sorted(name for name in sys.modules if "trio" in name)
print("done")
"""
PROGRAMS = {
    "callbacks on a thread": """
told = []
request = network.create_infer_request()
request.set_callback(lambda request, error: told.append(error))
for _ in range(8):
    request.start_async(X)
    request.wait()
""",
    "callbacks on an asyncio loop": """
told = []

async def main():
    request = network.create_infer_request()

    async def call_back(request, error):
        await asyncio.sleep(0)
        told.append(error)

    request.set_callback(call_back, asyncio.get_running_loop())
    for _ in range(8):
        request.start_async(X)
        await request.wait_async()

asyncio.run(main())
""",
    "a queue on an asyncio loop": """
told = []

async def main():
    queue = aioinfer.AsyncInferQueue(network, 2)

    async def call_back(request, userdata):
        told.append(userdata)

    queue.set_callback(call_back, asyncio.get_running_loop())
    for number in range(8):
        await queue.start(X, number)
    await queue.wait_all_async()

asyncio.run(main())
""",
    "a queue on threads": """
told = []
queue = aioinfer.AsyncInferQueue(network, 2)
queue.set_callback(lambda request, number: told.append(number))
for number in range(8):
    queue.start_async(X, number)
queue.wait_all()
""",
}


@pytest.mark.parametrize("program", all_but([*PROGRAMS][:1], PROGRAMS))
def test_trio_stays_unimported(program: str, tmp_path: object) -> None:
    path = f"{tmp_path}/tiny.onnx"
    with open(path, "wb") as file:
        file.write(tiny_model().SerializeToString())
    text = HEAD + PROGRAMS[program] + TAIL
    ran = subprocess.run([sys.executable, "-c", text, path], capture_output=True, text=True)
    assert ran.stdout == "done\n", ran.stderr
