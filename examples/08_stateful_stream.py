"""Follow sounds as they come: a recurrent network whose memory stays with its request.

Two microphones give their sound in chunks of 160 ms. Each has a request of its own, so each has its
own memory, two layers of GRU, which no caller sees; what comes out after every chunk is what the
network would say after the whole sound at once. That is checked: exit code 1 if it is not so.

    python examples/08_stateful_stream.py --chunks 20
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import aioinfer

BANDS, WIDTH, CLASS_COUNT = 40, 128, 12
CHUNK = 16
"""Steps of 10 ms, each with the loudness of 40 bands."""
STATE = {"before_0": "after_0", "before_1": "after_1"}
TOLERANCE = 1e-4


def keyword_spotter(seed: int = 0) -> onnx.ModelProto:
    """Build two layers of GRU and a classifier of their last step, with random weights.

    ``sound`` is float32 (steps, 1, 40), ``before_*`` and ``after_*`` (1, 1, 128), ``logits``
    (1, 12).
    """
    chance = np.random.default_rng(seed)
    weights, nodes, layer_input = [], [], "sound"

    def weight(name: str, *shape: int) -> str:
        array = chance.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))
        weights.append(numpy_helper.from_array(array, name))
        return name

    def remembering(name: str) -> str:
        bias = np.zeros((1, 6 * WIDTH), np.float32)
        bias[:, :WIDTH] = 4  # of the update gates: most of the state is kept in each step
        weights.append(numpy_helper.from_array(bias, name))
        return name

    for layer, width in enumerate((BANDS, WIDTH)):
        inputs = [
            layer_input,
            weight(f"w_{layer}", 1, 3 * WIDTH, width),
            weight(f"r_{layer}", 1, 3 * WIDTH, WIDTH),
            remembering(f"b_{layer}"),
            "",
            f"before_{layer}",
        ]
        outputs = [f"steps_{layer}", f"after_{layer}"]
        nodes.append(helper.make_node("GRU", inputs, outputs, f"gru_{layer}", hidden_size=WIDTH))
        axis = numpy_helper.from_array(np.array([1]), f"axis_{layer}")
        weights.append(axis)
        layer_input = f"sequence_{layer}"
        nodes.append(helper.make_node("Squeeze", [outputs[0], axis.name], [layer_input]))
    weights.append(numpy_helper.from_array(np.array([0]), "first"))
    nodes.append(helper.make_node("Squeeze", ["after_1", "first"], ["last"]))
    nodes.append(helper.make_node("Gemm", ["last", weight("c", CLASS_COUNT, WIDTH)], ["logits"]))
    nodes[-1].attribute.append(helper.make_attribute("transB", 1))

    def port(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes,
        "keyword_spotter",
        [port("sound", "steps", 1, BANDS), *(port(name, 1, 1, WIDTH) for name in STATE)],
        [port("logits", 1, CLASS_COUNT), *(port(name, 1, 1, WIDTH) for name in STATE.values())],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


async def chunks_of(sound: np.ndarray) -> AsyncIterator[dict[str, np.ndarray]]:
    """Give a sound as a microphone does, chunk by chunk."""
    for start in range(0, len(sound), CHUNK):
        yield {"sound": sound[start : start + CHUNK]}


async def listen(network: aioinfer.ExecutableNetwork, sound: np.ndarray) -> list[np.ndarray]:
    """Return the logits after each chunk; a stream is one request, whose runs follow each other."""
    return [outputs["logits"] async for outputs in network.stream(chunks_of(sound))]


async def whole(network: aioinfer.ExecutableNetwork, sound: np.ndarray) -> np.ndarray:
    """Return the logits after all of a sound at once; a call of a network begins anew."""
    outputs = await network.infer({"sound": sound})
    logits: np.ndarray = outputs["logits"]
    return logits


async def main() -> int:
    parser = argparse.ArgumentParser(description="Follow sounds chunk by chunk.")
    parser.add_argument("--device", default="AUTO")
    parser.add_argument("--chunks", type=int, default=20)
    options = parser.parse_args()
    chance = np.random.default_rng(1)
    shape = options.chunks * CHUNK, 1, BANDS
    sounds = [chance.standard_normal(shape, np.float32) for _ in range(2)]
    console, table, is_right = Console(), Table(box=SIMPLE), True
    for heading in ("microphone", "class at the end", "chunks", "beside the whole sound"):
        table.add_column(heading, justify="right")
    async with aioinfer.Core() as core:
        config = {"STATE": STATE}
        network = await core.load_network_async(keyword_spotter(), options.device, config)
        began = time.perf_counter()
        heard = await asyncio.gather(*(listen(network, sound) for sound in sounds))
        seconds = time.perf_counter() - began
        for number, (sound, logits) in enumerate(zip(sounds, heard, strict=True)):
            away = float(np.abs(logits[-1] - await whole(network, sound)).max())
            is_right &= away < TOLERANCE
            row = str(number), str(int(logits[-1].argmax())), str(len(logits)), f"{away:.1e} away"
            table.add_row(*row)
    console.print(table)
    console.print(f"{2 * options.chunks} chunks in {seconds * 1e3:.0f} ms")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
