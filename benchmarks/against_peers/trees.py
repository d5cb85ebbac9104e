"""Forests of trees beside onnxruntime: one row and a thousand, by each form of a classifier.

    python benchmarks trees
    python benchmarks/run.py trees --save

A hundred trees of depth 8, drawn by chance, as scikit-learn's converter writes them: a regressor,
and classifiers whose labels are numbers or texts, without and with the ZipMap that makes a dict of
each row's scores. A session of onnxruntime on one thread, which nobody awaits, is called in turns
with ``infer_sync`` and ``await request.infer`` of a network on one thread, in the same thread.
Results are compared first. Times are medians over the rounds of a turn's mean; ratios are medians
of the rounds' ratios: 2 is twice as quick as onnxruntime.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer

TREES, DEPTH, FEATURES, CLASSES = 100, 8, 20, 3
ML = "ai.onnx.ml"
NUMBERS, TEXTS = [0, 1, 2], ["cat", "dog", "eel"]
FORMS = ("regressor", "numbers", "numbers, ZipMap", "texts", "texts, ZipMap")
WARMING_CALLS = 20

Array = np.ndarray[Any, Any]
Call = Callable[[int], object]
"""Makes this many inferences, one after the other."""


@dataclass(frozen=True)
class Row:
    """Microseconds of one inference, and how often onnxruntime's time ours goes in."""

    form: str
    row_count: int
    onnxruntime_us: float
    sync_us: float
    sync_ratio: float
    await_us: float
    await_ratio: float


def forest_of(generator: np.random.Generator) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Draw full trees; return the attributes of their nodes, and the trees and ids of leaves."""
    inner, count = 2**DEPTH - 1, 2 ** (DEPTH + 1) - 1
    ids = np.tile(np.arange(count), TREES)
    trees, is_leaf = np.repeat(np.arange(TREES), count), ids >= inner
    features = np.where(is_leaf, 0, generator.integers(FEATURES, size=ids.size))
    values = np.where(is_leaf, 0, generator.standard_normal(ids.size)).astype(np.float32)
    attributes = {
        "nodes_treeids": trees.tolist(),
        "nodes_nodeids": ids.tolist(),
        "nodes_featureids": features.tolist(),
        "nodes_values": values.tolist(),
        "nodes_modes": ["LEAF" if leaf else "BRANCH_LEQ" for leaf in is_leaf],
        "nodes_truenodeids": np.where(is_leaf, 0, 2 * ids + 1).tolist(),
        "nodes_falsenodeids": np.where(is_leaf, 0, 2 * ids + 2).tolist(),
    }
    return attributes, list(zip(trees[is_leaf].tolist(), ids[is_leaf].tolist(), strict=True))


def model_of(form: str) -> onnx.ModelProto:
    generator = np.random.default_rng(7)
    attributes, leaves = forest_of(generator)
    kind = "target" if form == "regressor" else "class"
    width = 1 if form == "regressor" else CLASSES
    shares = generator.dirichlet([1] * CLASSES, len(leaves))[:, :width].astype(np.float32) / TREES
    attributes |= {
        f"{kind}_treeids": np.repeat([tree for tree, _ in leaves], width).tolist(),
        f"{kind}_nodeids": np.repeat([node for _, node in leaves], width).tolist(),
        f"{kind}_ids": list(range(width)) * len(leaves),
        f"{kind}_weights": shares.reshape(-1).tolist(),
    }
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", width])
    if form == "regressor":
        nodes = [
            helper.make_node(
                "TreeEnsembleRegressor", ["x"], ["scores"], domain=ML, n_targets=1, **attributes
            )
        ]
        outputs = [scores]
    else:
        nodes, outputs = classifier_of(form, attributes, scores)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", FEATURES])
    graph = helper.make_graph(nodes, "forest", [x], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def classifier_of(
    form: str, attributes: dict[str, Any], scores: onnx.ValueInfoProto
) -> tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto]]:
    has_texts = form.startswith("texts")
    labels = {"classlabels_strings": TEXTS} if has_texts else {"classlabels_int64s": NUMBERS}
    kind = TensorProto.STRING if has_texts else TensorProto.INT64
    given = attributes | labels
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain=ML, **given
    )
    label = helper.make_tensor_value_info("label", kind, ["rows"])
    if not form.endswith("ZipMap"):
        return [node], [label, scores]
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(kind, number))
    zipped = helper.make_node("ZipMap", ["scores"], ["maps"], domain=ML, **labels)
    return [node, zipped], [label, helper.make_value_info("maps", maps)]


def check(form: str, found: dict[str, Any], wanted: list[Any]) -> None:
    """Raise RuntimeError for results that are not onnxruntime's."""
    for name, (ours, theirs) in zip(found, zip(found.values(), wanted, strict=True), strict=True):
        if isinstance(theirs, list):
            columns = [[[row[key] for key in theirs[0]] for row in maps] for maps in (ours, theirs)]
            is_right = np.allclose(*columns, atol=1e-5)
        elif theirs.dtype.kind == "f":
            is_right = np.allclose(ours, theirs, atol=1e-5)
        else:
            is_right = ours.tolist() == theirs.tolist()
        if not is_right:
            raise RuntimeError(f"{form}: {name} is not what onnxruntime gives")


def calls_of(
    form: str, row_count: int, core: aioinfer.Core, loop: asyncio.AbstractEventLoop
) -> dict[str, Call]:
    """Make the three calls, whose results are the same."""
    model = model_of(form)
    inputs = {"x": np.random.default_rng(row_count).random((row_count, FEATURES), np.float32)}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    network = core.load_network(model, "CPU", {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1})
    request = network.create_infer_request()
    check(form, request.infer_sync(inputs), session.run(None, inputs))

    def run(count: int) -> None:
        for _ in range(count):
            session.run(None, inputs)

    def infer_sync(count: int) -> None:
        for _ in range(count):
            request.infer_sync(inputs)

    async def infer(count: int) -> None:
        for _ in range(count):
            await request.infer(inputs)

    return {
        "onnxruntime": run,
        "sync": infer_sync,
        "await": lambda count: loop.run_until_complete(infer(count)),
    }


def measure(form: str, row_count: int, round_count: int, seconds: float) -> Row:
    times: dict[str, list[float]] = {}
    with aioinfer.Core() as core, closing(asyncio.new_event_loop()) as loop:
        calls = calls_of(form, row_count, core, loop)
        counts = {}
        for name, call in calls.items():
            call(WARMING_CALLS)
            began_s = time.perf_counter()
            call(WARMING_CALLS)
            one_s = (time.perf_counter() - began_s) / WARMING_CALLS
            counts[name] = max(1, int(seconds / one_s))
        gc.collect()
        for number in range(round_count):
            for name in list(calls) if number % 2 else reversed(calls):
                began_s = time.perf_counter()
                calls[name](counts[name])
                taken_s = time.perf_counter() - began_s
                times.setdefault(name, []).append(taken_s / counts[name] * 1e6)
    peer = times["onnxruntime"]
    ratios = {
        name: median(theirs / ours for theirs, ours in zip(peer, times[name], strict=True))
        for name in ("sync", "await")
    }
    return Row(
        form,
        row_count,
        median(peer),
        median(times["sync"]),
        ratios["sync"],
        median(times["await"]),
        ratios["await"],
    )


def table_of(rows: list[Row]) -> Table:
    table = Table(title=f"{TREES} trees of depth {DEPTH}, us per inference", box=SIMPLE)
    table.add_column("form")
    for title in ("rows", "onnxruntime", "infer_sync", "ratio", "await infer", "ratio"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row.form,
            str(row.row_count),
            f"{row.onnxruntime_us:.1f}",
            f"{row.sync_us:.1f}",
            f"{row.sync_ratio:.2f}",
            f"{row.await_us:.1f}",
            f"{row.await_ratio:.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--forms", nargs="+", default=FORMS, choices=FORMS, metavar="FORM")
    parser.add_argument("--row-counts", nargs="+", type=int, default=[1, 1000], metavar="N")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.02, help="of each turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds <= 0 or min(arguments.row_counts) < 1:
        parser.error("--rounds and --row-counts take numbers from 1 on, --seconds above 0")
    rows = [
        measure(form, row_count, arguments.rounds, arguments.seconds)
        for form in arguments.forms
        for row_count in arguments.row_counts
    ]
    console = Console()
    console.print(table_of(rows))
    console.print("wanted: 1.00 or more of onnxruntime's speed in each row")
    write_rows(
        arguments.json,
        "trees",
        [asdict(row) for row in rows],
        onnxruntime=onnxruntime.__version__,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )
