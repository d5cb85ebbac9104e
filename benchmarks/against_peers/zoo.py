"""Architectures as PyTorch exports them: are they right, and how long do load and runs take.

    pip install 'aioinfer[zoo]'
    python benchmarks zoo                               # exports what is missing first
    python benchmarks zoo --only bert,ssdlite --device HETERO:CPU,REFERENCE --threads 1

Each model has a process of its own, in which onnxruntime, OpenVINO where it is installed and takes
the model, and ours load the same file, answer the same request, and then compute in turns. Ratios
are a peer's time by ours, so above 1 ours is faster: elapsed time of the better peer, and processor
time of onnxruntime, which shows less of what else the machine does. How far answers differ is a
share of the largest number of onnxruntime's answer.

"load" and "load + first" begin where both are imported; but ours imports as it loads what a model
needs, and onnxruntime is there whole. What a user waits for is "start": in new processes of either,
from the import to the first answer; "memory" is by how much these processes grew at their peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from networks.exported import ARCHITECTURES, export_all
from programs import FOLDER
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer
from against_peers.engines import OpenVino, Setting
from against_peers.first_answer import Inputs, our_config, peers_session

Infer = Callable[[Inputs], Any]

BUILT = Path(__file__).parents[2] / "build" / "exported"
ZOO = [
    "albert",
    "bert",
    "convnext_tiny",
    "dcgan",
    "deberta_v2",
    "deeplabv3_mobilenet",
    "densenet121",
    "distilbert",
    "efficientnet_b0",
    "fasterrcnn_mobilenet",
    "gemma",
    "gpt2",
    "llama",
    "lstm_tagger",
    "maxvit_t",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "qwen2",
    "resnet50",
    "shufflenet_v2",
    "ssdlite",
    "swin_t",
    "t5_encoder",
    "vgg11_bn",
    "vit_b_32",
]
BATCH, TEXT_LENGTH, IMAGE_LENGTH = 1, 32, 64
"""Of requests, where the model leaves them open."""
WANTED, MOST_DIFFERENCE = 0.95, 2e-3
WORKER_TIMEOUT_S = 300.0
FIRST_ANSWER = Path(__file__).with_name("first_answer.py")
PEERS = ("onnxruntime", "openvino")
STARTS = 3
"""New processes of each engine, for a model."""


def inputs_of(session: onnxruntime.InferenceSession) -> Inputs:
    """Draw images at unit scale, and ones as integers, which are ids and masks alike."""
    chance = np.random.default_rng(0)
    found = {}
    for port in session.get_inputs():
        inner = IMAGE_LENGTH if len(port.shape) > 2 else TEXT_LENGTH
        shape = [
            dim if isinstance(dim, int) else inner if axis else BATCH
            for axis, dim in enumerate(port.shape)
        ]
        is_float = port.type == "tensor(float)"
        found[port.name] = (
            chance.random(shape, np.float32) if is_float else np.ones(shape, np.int64)
        )
    return found


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what a call gives, and its seconds: of the processor, and elapsed."""
    begun_s, clock_s = time.process_time(), time.perf_counter()
    made = call()
    return made, time.process_time() - begun_s, time.perf_counter() - clock_s


def difference(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """Return the largest difference by the largest number; infinity for other shapes or NaNs."""
    worst = 0.0
    for one, other in zip(found, wanted, strict=True):
        if one.shape != other.shape:
            return float("inf")
        is_finite = np.isfinite(other)
        if not np.array_equal(one[~is_finite], other[~is_finite], equal_nan=True):
            return float("inf")
        ours, theirs = one[is_finite].astype(float), other[is_finite]
        if not np.isfinite(ours).all():
            return float("inf")
        scale = float(np.abs(theirs).max(initial=0)) or 1.0
        worst = max(worst, float(np.abs(ours - theirs).max(initial=0)) / scale)
    return worst


def in_turns(
    engines: dict[str, Callable[[], Any]], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Time them, the first changing from round to round, after one run that is not counted."""
    once_s = max(timed(run)[2] for run in engines.values())
    count = max(1, min(50, int(0.2 / max(once_s, 1e-6))))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    order = list(engines)
    for _ in range(rounds):
        for name in order:
            run = engines[name]
            _, processor_s, elapsed_s = timed(lambda run=run: [run() for _ in range(count)])
            times[name].append((processor_s / count, elapsed_s / count))
        order = [*order[1:], order[0]]
    return times


def openvino_run(file: Path, threads: int, inputs: Inputs) -> Callable[[], Any] | None:
    """Load a model on OpenVINO; None if that is not installed, or does not take it."""
    try:
        engine = OpenVino(str(file), Setting(False, threads, "f32", ""))
        engine.infer(inputs)
    except (ImportError, RuntimeError):
        return None
    return lambda: engine.infer(inputs)


def measure(file: Path, device: str, threads: int, rounds: int) -> dict[str, Any]:
    """Load a model on both, compare their answers, and time them; in this process."""
    session, peer_load_s, _ = timed(lambda: peers_session(str(file), threads))
    inputs = inputs_of(session)
    wanted, peer_first_s, _ = timed(lambda: session.run(None, inputs))
    runs = {"onnxruntime": lambda: session.run(None, inputs)}
    with aioinfer.Core() as core:
        network, load_s, _ = timed(
            lambda: core.load_network(str(file), device, our_config(device, threads))
        )
        infer = network.create_infer_request().infer_sync
        found, first_s, _ = timed(lambda: infer(inputs))
        other = openvino_run(file, threads, inputs)
        if other is not None:
            runs["openvino"] = other
        times = in_turns({"ours": lambda: infer(inputs), **runs}, rounds)
    names = [port.name for port in session.get_outputs()]
    processor_s, elapsed_s = (
        {name: median(pair[place] for pair in pairs) for name, pairs in times.items()}
        for place in (0, 1)
    )
    return {
        "model": file.stem,
        "difference": difference([found[name] for name in names], wanted),
        "load_ms": load_s * 1e3,
        "load_ratio": peer_load_s / load_s,
        "begin_ratio": (peer_load_s + peer_first_s) / (load_s + first_s),
        **starts_of(file, device, threads, inputs),
        "run_ms": elapsed_s["ours"] * 1e3,
        **{f"{name}_ms": elapsed_s[name] * 1e3 if name in runs else None for name in PEERS},
        "elapsed_ratio": min(elapsed_s[name] for name in runs) / elapsed_s["ours"],
        "processor_ratio": processor_s["onnxruntime"] / processor_s["ours"],
    }


def starts_of(file: Path, device: str, threads: int, inputs: Inputs) -> dict[str, float]:
    """Start new processes in turns: processor time until the first answer, and memory at most."""
    engines = ("onnxruntime", "aioinfer")
    seen: dict[str, list[list[float]]] = {engine: [] for engine in engines}
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder, "inputs.npz")
        np.savez(stored, **inputs)
        for _ in range(STARTS):
            for engine in engines:
                facts = [engine, str(file), device, str(threads), str(stored)]
                command = [sys.executable, "-P", str(FIRST_ANSWER), *facts]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                seen[engine].append(json.loads(done.stdout))
    theirs, ours = (np.median(seen[engine], axis=0).tolist() for engine in engines)
    return {
        "start_ms": ours[0],
        "start_ratio": theirs[0] / ours[0],
        "memory_mb": ours[2] / 1e6,
        "memory_ratio": theirs[2] / ours[2],
    }


def in_a_process(file: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one model in a process of its own. Raises RuntimeError with what it said last."""
    settings = [arguments.device, str(arguments.threads), str(arguments.rounds)]
    command = [sys.executable, str(FOLDER), "zoo", "--worker", str(file), *settings]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WORKER_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"took longer than {WORKER_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or "nothing was said").splitlines()[-1]
        raise RuntimeError(f"ended with {done.returncode}: {last}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def table_of(rows: Sequence[dict[str, Any]], title: str) -> Table:
    table = Table(title=title, box=SIMPLE)
    columns = (
        "model",
        "differs by",
        "load ms",
        "load",
        "load + first",
        "start ms",
        "start",
        "memory MB",
        "memory",
    )
    for column in (*columns, "run ms", *PEERS, "elapsed", "processor"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        model, differs, *numbers = row.values()
        wrong = "[red]" if differs > MOST_DIFFERENCE else ""
        texts = ("-" if number is None else f"{number:.2f}" for number in numbers)
        table.add_row(model, f"{wrong}{differs:.0e}", *texts)
    return table


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        model, place, thread_count, round_count = sys.argv[2:]
        print(json.dumps(measure(Path(model), place, int(thread_count), int(round_count))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="?", default=BUILT, help="of exported files")
    parser.add_argument("--only", metavar="NAMES", help="of architectures, joined by commas")
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--threads", type=int, default=2, help="of each engine (2)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else ZOO
    unknown = sorted(set(names) - ARCHITECTURES.keys())
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; known: {', '.join(ARCHITECTURES)}")
    console, rows = Console(), []
    files = [arguments.folder / f"{name}.onnx" for name in names]
    for line in export_all([file.stem for file in files if not file.exists()], arguments.folder):
        console.print(line)
    for file in (file for file in files if file.exists()):
        try:
            rows.append(in_a_process(file, arguments))
        except RuntimeError as error:  # the others are measured
            console.print(f"{file.stem}: {error}")
    console.print(table_of(rows, f"{arguments.device}, {arguments.threads} threads: ratios"))
    if rows:
        ratios = [row["elapsed_ratio"] for row in rows]
        behind = sum(ratio < WANTED for ratio in ratios)
        console.print(
            f"median {median(ratios):.2f}, {behind} of {len(rows)} below {WANTED}; load and "
            f"first run {median(row['begin_ratio'] for row in rows):.2f}, start "
            f"{median(row['start_ratio'] for row in rows):.2f}, memory "
            f"{median(row['memory_ratio'] for row in rows):.2f}"
        )
    facts = {"device": arguments.device, "threads": arguments.threads}
    write_rows(arguments.json, "zoo", rows, **facts)
    if any(row["difference"] > MOST_DIFFERENCE for row in rows):
        raise SystemExit(1)
