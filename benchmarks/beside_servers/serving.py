"""What serving costs: requests a second and latencies over HTTP and gRPC, beside other servers.

    python benchmarks serving --seconds 5 --rounds 3
    python benchmarks serving tiny --servers aioinfer fastapi --connections 1 8 64
    python benchmarks serving resnet50 --servers aioinfer "in process" --wires binary grpc
    python benchmarks/run.py serving --save

Each server is a process with one model; the client is another one on loopback, with an asyncio
loop and some connections, each of which asks again when it was answered. All servers of a model
run side by side and are asked in turns, one at a time, so that what else the machine does falls on
all alike; what counts is the median of the rounds. Rows: ``aioinfer`` by JSON, binary tensors and
gRPC; ``fastapi``, ``litserve``, ``bentoml`` and ``mlserver`` with onnxruntime, by JSON, the first
by raw bytes, too, for the tiny model; ``in process`` is the network's own throughput with as many
tasks as connections; ``client`` is what the client itself costs. Peers whose requirements do not
go with ours run in an environment of their own: ``--python mlserver=/venv/bin/python``.

``processor_us`` is the processor time of a server, all of its processes, for each request: on a
machine that others use it says more than requests a second, and is what ``of FastAPI`` compares.
``of in process`` compares requests a second, as the client takes its part of the same processors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from models import MODELS
from onnx import TensorProto, helper, numpy_helper
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer
from aioinfer.serving.rpc.proto_text import message_classes

HERE = Path(__file__).parent
TINY = "tiny"
NETWORKS = (TINY, "resnet50", "minilm_l6")
PEERS = {
    "fastapi": "/docs",
    "litserve": "/health",
    "bentoml": "/readyz",
    "mlserver": "/v2/health/ready",
}
"""By framework, an address that answers when it serves."""
SERVERS = ("aioinfer", *PEERS, "in process", "client")
WIRES = ("json", "binary", "grpc")
DATATYPES = {"float32": "FP32", "int64": "INT64"}
READY_WITHIN_S = 120.0
ANSWERS_WITHIN_S = 90.0
"""What a client may take beside the seconds that it measures; it is more patient with servers."""

Told = dict[str, float]
Ask = Callable[[int, float], Told]
"""Asks with a number of connections for a number of seconds."""


@dataclass(frozen=True)
class Row:
    """One way to a model: medians of the rounds."""

    network: str
    server: str
    wire: str
    connections: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    processor_us: float
    """Of the server, for one request."""
    ratio: float
    """Of the processor time of FastAPI by JSON, with as many connections, to this; 0 without it."""
    in_process: float
    """Of its requests a second to those in process, round by round; 0 without these."""


def tiny() -> onnx.ModelProto:
    """A matmul of 64 by 64 and a Relu: what is measured is the server."""
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        TINY,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def inputs_of(network: str) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(0)
    if network == TINY:
        return {"x": chance.standard_normal((1, 64)).astype(np.float32)}
    return MODELS[network].inputs(chance, 1)


def http_request(path: str, body: bytes, **headers: int) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}"]
    lines.append("content-type: application/json")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def requests_of(inputs: dict[str, np.ndarray]) -> dict[tuple[str, str], bytes]:
    """Return the bytes of a request by server and wire."""
    path = "/v2/models/model/infer"
    entries = [
        {"name": name, "datatype": DATATYPES[array.dtype.name], "shape": list(array.shape)}
        for name, array in inputs.items()
    ]
    arrays = list(inputs.values())
    flat = [
        {**entry, "data": array.ravel().tolist()}
        for entry, array in zip(entries, arrays, strict=True)
    ]
    sized = [
        {**entry, "parameters": {"binary_data_size": array.nbytes}}
        for entry, array in zip(entries, arrays, strict=True)
    ]
    text = json.dumps({"inputs": sized, "parameters": {"binary_data_output": True}}).encode()
    text += b" " * (-len(text) % 8)
    raw = [array.tobytes() for array in arrays]
    message = message_classes()["ModelInferRequest"](model_name="model")
    for entry in entries:
        message.inputs.add(**entry)
    message.raw_input_contents.extend(raw)
    plain = json.dumps({name: array.tolist() for name, array in inputs.items()}).encode()
    return {
        ("aioinfer", "json"): http_request(path, json.dumps({"inputs": flat}).encode()),
        ("aioinfer", "binary"): http_request(
            path, text + b"".join(raw), inference_header_content_length=len(text)
        ),
        ("aioinfer", "grpc"): message.SerializeToString(),
        ("fastapi", "json"): http_request("/predict", plain),
        ("fastapi", "binary"): http_request("/raw", b"".join(raw)),
        ("litserve", "json"): http_request("/predict", plain),
        ("bentoml", "json"): http_request("/predict", b'{"document": %b}' % plain),
        ("mlserver", "json"): http_request(path, json.dumps({"inputs": flat}).encode()),
        ("client", "json"): http_request("/", plain),
    }


@contextmanager
def started(
    command: Sequence[str], python: str = sys.executable
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [python, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # some have workers
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class NoAnswerError(RuntimeError):
    """A server that does not come up, or does not answer, within the time for that."""


def first_line(process: subprocess.Popen[str], within_s: float = READY_WITHIN_S) -> str:
    """Return the line by which a server says that it serves. Raises NoAnswerError."""
    assert process.stdout is not None
    late = threading.Timer(within_s, process.kill)  # which ends the reading
    late.start()
    try:
        line = process.stdout.readline()
    finally:
        late.cancel()
    if not line:
        raise NoAnswerError(f"the server has ended with {process.wait()}")
    return line


@dataclass(frozen=True)
class Started:
    """A server: the address of each wire, and its process, which may have others below it."""

    addresses: dict[str, str]
    process: int

    def processor_s(self) -> float:
        """Return the processor time that its processes have taken."""
        ticks: dict[int, int] = {}
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
                process = int(stat.parent.name)
                ticks[process] = int(fields[11]) + int(fields[12])
                children.setdefault(int(fields[1]), []).append(process)
        family = [self.process]
        for process in family:
            family += children.get(process, ())
        return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


def serve_ours(model: Path, device: str, opened: ExitStack) -> Started:
    """Start ``aioinfer serve``."""
    command = ["-m", "aioinfer", "serve", str(model), "-d", device, "--port", "0"]
    process = opened.enter_context(started([*command, "--grpc-port", "0"]))
    line = first_line(process)
    http, grpc = (word.partition("://")[2] for word in line.split() if "://" in word)
    return Started({"json": http, "binary": http, "grpc": grpc}, process.pid)


def serve_peer(framework: str, python: str, model: Path, opened: ExitStack) -> Started:
    port = free_port()
    command = [
        str(HERE / f"{framework}_server.py"),
        str(model),
        "--port",
        str(port),
    ]
    process = opened.enter_context(started(command, python))
    end_s = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{PEERS[framework]}", timeout=5).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > end_s:
                raise NoAnswerError(f"{framework} does not come up") from None
            time.sleep(0.2)
        else:
            place = f"127.0.0.1:{port}"
            return Started({"json": place, "binary": place}, process.pid)


def asker(wire: str, server: Started, request: Path) -> Ask:
    def ask(connections: int, seconds: float) -> Told:
        address, before_s = server.addresses[wire], server.processor_s()
        command = [sys.executable, "-P", str(HERE / "client.py")]
        command += ["grpc" if wire == "grpc" else "http", "--address", address]
        command += ["--request", str(request), "--connections", str(connections)]
        command += ["--seconds", str(seconds)]
        try:
            done = subprocess.run(
                command,
                check=True,
                capture_output=True,
                text=True,
                timeout=seconds * 2 + ANSWERS_WITHIN_S,
            )
        except subprocess.TimeoutExpired as error:
            raise NoAnswerError(f"no end within {error.timeout:.0f} s") from None
        except subprocess.CalledProcessError as error:
            raise NoAnswerError(error.stderr.strip().rpartition("\n")[2]) from None
        told: Told = json.loads(done.stdout)
        return with_processor_us(told, server.processor_s() - before_s)

    return ask


def in_process(model: Path, device: str, inputs: dict[str, Any], opened: ExitStack) -> Ask:
    """Ask a network of this process by as many tasks as there would be connections."""
    from beside_servers.client import measure

    core = opened.enter_context(aioinfer.Core())
    network = core.load_network(model, device)

    async def once() -> None:
        await network.infer(inputs)

    def ask(connections: int, seconds: float) -> Told:
        before_s = time.process_time()
        told = asyncio.run(measure([once] * connections, seconds))
        return with_processor_us(told, time.process_time() - before_s)

    return ask


def with_processor_us(told: Told, processor_s: float) -> Told:
    count = told.pop("request_count")
    return {**told, "processor_us": processor_s / count * 1e6}


def asks_of(
    network: str, folder: Path, options: argparse.Namespace, opened: ExitStack
) -> dict[tuple[str, str], Ask]:
    """Start every server of a model; returns how each is asked, by server and wire."""
    model, inputs = folder / "model.onnx", inputs_of(network)
    onnx.save(tiny() if network == TINY else MODELS[network].build(), model)
    servers: dict[str, Started] = {}
    if "aioinfer" in options.servers:
        servers["aioinfer"] = serve_ours(model, options.device, opened)
    for framework in PEERS:
        python = dict(options.python).get(framework, sys.executable)
        if framework in options.servers and is_installed(framework, python):
            try:
                servers[framework] = serve_peer(framework, python, model, opened)
            except NoAnswerError as error:
                print(f"{framework} is left out: {error}", file=sys.stderr)
    if "client" in options.servers:
        process = opened.enter_context(started([str(HERE / "client.py"), "echo"]))
        port = json.loads(first_line(process))["port"]
        servers["client"] = Started({"json": f"127.0.0.1:{port}"}, process.pid)
    asks: dict[tuple[str, str], Ask] = {}
    for (server, wire), request in requests_of(inputs).items():
        if (server, wire) == ("fastapi", "binary") and network != TINY:
            continue
        if wire not in options.wires:
            continue
        if server in servers:
            file = folder / f"{server}.{wire}"
            file.write_bytes(request)
            asks[server, wire] = asker(wire, servers[server], file)
    if "in process" in options.servers:
        asks["in process", "none"] = in_process(model, options.device, inputs, opened)
    return asks


def rows_of(
    network: str, asks: dict[tuple[str, str], Ask], options: argparse.Namespace
) -> list[Row]:
    """Ask all in turns, each round beginning with another one.

    A peer that does not answer once is reported and asked no more. Raises NoAnswerError for ours.
    """
    found: dict[tuple[str, str, int], list[Told]] = {}
    ways = list(asks)
    for connections in options.connections:
        for turn in range(options.rounds):
            place = turn % len(ways)
            for way in (*ways[place:], *ways[:place]):
                try:
                    told = asks[way](connections, options.seconds)
                except NoAnswerError as error:
                    if way[0] not in PEERS:
                        raise
                    print(f"{' by '.join(way)} is left out: {error}", file=sys.stderr)
                    ways.remove(way)
                    continue
                found.setdefault((*way, connections), []).append(told)
    middle = {
        key: {name: statistics.median(told[name] for told in each) for name in each[0]}
        for key, each in found.items()
    }
    rows = []
    for (server, wire, connections), told in middle.items():
        peer = middle.get(("fastapi", "json", connections))
        ratio = peer["processor_us"] / max(told["processor_us"], 0.1) if peer else 0.0
        beside = found.get(("in process", "none", connections), [])
        rates = [
            one["requests_per_s"] / other["requests_per_s"]
            for one, other in zip(found[server, wire, connections], beside, strict=False)
        ]
        in_process = statistics.median(rates) if rates else 0.0
        rows.append(
            Row(network, server, wire, connections, **told, ratio=ratio, in_process=in_process)
        )
    return rows


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    titles = ("network", "server", "wire", "connections", "requests/s", "p50 ms", "p99 ms")
    table = Table(*titles, "processor us", "of FastAPI", "of in process", box=SIMPLE)
    for row in rows:
        numbers = (f"{row.requests_per_s:.1f}", f"{row.p50_ms:.2f}", f"{row.p99_ms:.2f}")
        numbers += (f"{row.processor_us:.0f}",)
        names = (row.network, row.server, row.wire, str(row.connections))
        ratios = (f"{each:.2f}" if each else "" for each in (row.ratio, row.in_process))
        table.add_row(*names, *numbers, *ratios)
    console.print(table)


def is_installed(framework: str, python: str) -> bool:
    if python == sys.executable:
        return find_spec(framework) is not None
    command = [python, "-c", f"import {framework}"]
    return not subprocess.run(command, capture_output=True, timeout=READY_WITHIN_S).returncode


def named_python(text: str) -> tuple[str, str]:
    name, _, file = text.partition("=")
    if name not in PEERS or not file:
        raise argparse.ArgumentTypeError(f"{text!r} is not PEER=FILE")
    return name, file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", default=[*NETWORKS], metavar="NETWORK")
    parser.add_argument("--servers", nargs="+", default=[*SERVERS], choices=SERVERS)
    parser.add_argument("--wires", nargs="+", default=[*WIRES], choices=WIRES)
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--device", default="CPU", help="of ours (CPU)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (3)")
    parser.add_argument("--rounds", type=int, default=3, help="of each way (3)")
    parser.add_argument(
        "--python",
        nargs="+",
        default=[],
        type=named_python,
        metavar="PEER=FILE",
        help="the interpreter that a peer is installed for",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    options = parser.parse_args()
    if set(options.networks) - set(NETWORKS):
        parser.error(f"networks are {', '.join(NETWORKS)}")
    console, rows = Console(), []
    for name in options.servers:
        python = dict(options.python).get(name, sys.executable)
        if name in PEERS and not is_installed(name, python):
            console.print(f"{name} is left out: it is not installed")
    for network in options.networks:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
            asks = asks_of(network, Path(folder), options, opened)
            rows += rows_of(network, asks, options)
    print_rows(console, rows)
    write_rows(options.json, "serving", [asdict(row) for row in rows], device=options.device)
