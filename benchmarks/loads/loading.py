"""What loading costs by the size of a model: processor time, ours beside onnxruntime's.

    python benchmarks loading --rounds 5
    python benchmarks/run.py loading --save

Both load the same file in turns, in one process and with one thread each, so that what else the
machine does falls on both alike. The least of the rounds counts, and the ratio of the two. A model
of half the size follows each one: what grows faster than the model shows there.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer

ERRORS_ONLY = 3  # onnxruntime warns of each constant that nothing reads
ROW = [1, 64]


@dataclass(frozen=True)
class Row:
    """One model on one device: seconds of processor time, the least of the rounds."""

    model: str
    device: str
    part_count: int
    ours_s: float
    onnxruntime_s: float
    ratio: float


def model_of(nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, ROW)
    y = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    used = opsets if nodes[-1].domain else opsets[:1]
    return helper.make_model(graph, opset_imports=used, ir_version=10)


def chain(op_type: str, count: int, *others: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node(op_type, [f"v{index}", *others], [f"v{index + 1}"])
        for index in range(count)
    ]


def adds(count: int) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones(ROW, np.float32), "w")
    return model_of(chain("Add", count, "w"), [weight])


def relus(count: int) -> onnx.ModelProto:
    return model_of(chain("Relu", count), [])


def constants(count: int) -> onnx.ModelProto:
    made = [numpy_helper.from_array(np.ones(1, np.float32), f"w{index}") for index in range(count)]
    return model_of(chain("Add", 1, "w0"), made)


def trees(count: int) -> onnx.ModelProto:
    """Make trees of 63 inner nodes and 64 leaves: all they are is in the attributes of one node."""
    chance = np.random.default_rng(0)
    size, inner = 127, 63
    places = np.tile(np.arange(size), count)
    is_inner = places < inner
    leaves = np.flatnonzero(~is_inner)
    of_tree = np.repeat(np.arange(count), size)
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["v0"],
        ["v1"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=of_tree.tolist(),
        nodes_nodeids=places.tolist(),
        nodes_featureids=(chance.integers(0, ROW[1], len(places)) * is_inner).tolist(),
        nodes_values=(chance.standard_normal(len(places)) * is_inner).tolist(),
        nodes_modes=["BRANCH_LEQ" if item else "LEAF" for item in is_inner],
        nodes_truenodeids=((2 * places + 1) * is_inner).tolist(),
        nodes_falsenodeids=((2 * places + 2) * is_inner).tolist(),
        target_treeids=of_tree[leaves].tolist(),
        target_nodeids=places[leaves].tolist(),
        target_ids=[0] * len(leaves),
        target_weights=chance.standard_normal(len(leaves)).tolist(),
    )
    return model_of([node], [])


CASES: dict[str, tuple[Callable[[int], onnx.ModelProto], str, int]] = {
    "adds": (adds, "CPU", 20_000),
    "relus": (relus, "REFERENCE", 20_000),
    "constants": (constants, "CPU", 20_000),
    "trees": (trees, "ONNXRUNTIME", 100),
}
"""By name: what makes a model of a size, the device that loads it, and the size."""


def load_s(load: Callable[[], AbstractContextManager[object] | object]) -> float:
    gc.collect()
    began_s = time.process_time()
    loaded = load()
    spent_s = time.process_time() - began_s
    if isinstance(loaded, AbstractContextManager):
        loaded.__exit__(None, None, None)
    return spent_s


def measure(core: aioinfer.Core, name: str, count: int, rounds: int, folder: Path) -> Row:
    make, device, _ = CASES[name]
    file = folder / f"{name}.onnx"
    onnx.save(make(count), file)
    config = {"INFERENCE_NUM_THREADS": 1} if device == "CPU" else {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, ERRORS_ONLY
    providers = ["CPUExecutionProvider"]
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds + 1):  # the first one also imports
        ours.append(load_s(lambda: core.load_network(file, device, config)))
        theirs.append(load_s(lambda: onnxruntime.InferenceSession(file, options, providers)))
    least, peer = min(ours[1:]), min(theirs[1:])
    return Row(name, device, count, least, peer, least / peer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=[*CASES], metavar="CASE")
    parser.add_argument("--rounds", type=int, default=3, help="of each case (3)")
    parser.add_argument("--size", type=int, help="of every model, by default a size of its own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown or arguments.rounds < 1:
        parser.error(f"cases are {[*CASES]}, and one round is the least")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, aioinfer.Core() as core:
        for name in arguments.cases:
            size = max(arguments.size or CASES[name][2], 2)
            for count in (size, size // 2):
                rows.append(measure(core, name, count, arguments.rounds, Path(folder)))
    table = Table("model", "device", "parts", "ours, s", "onnxruntime, s", "ratio", box=SIMPLE)
    for row in rows:
        times = (f"{row.ours_s:.3f}", f"{row.onnxruntime_s:.3f}", f"{row.ratio:.2f}")
        table.add_row(row.model, row.device, f"{row.part_count:,}", *times)
    Console().print(table)
    write_rows(arguments.json, "loading", [asdict(row) for row in rows])
