"""aioinfer, onnxruntime and OpenVINO side by side, in one interleaved run.

    python benchmarks peers --models resnet50 minilm_l6 --precision f32,bf16
    python benchmarks peers --precision int8,int8-dynamic --models resnet50 bert_base
    python benchmarks peers --rows latency1,throughput --slots 21 --output FILE

Each engine lives in a process of its own, which sleeps while another one has its slot; the order
within each round is drawn. A slot beside which other processes kept a tenth of a CPU busy is noisy,
and noisy slots are left out where at least half are quiet. Ratios are ours to the better peer's,
above 1 is better, and less than 5 % is a tie.

int8 is the model as onnxruntime's quantizer writes it: QDQ, calibrated by inputs like those that
are measured, uint8 activations, int8 weights with a scale for each channel. In int8-dynamic, only
matmuls are quantised, by ranges of each run. Errors are against the float32 model in both.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from models import MODELS, Model
from rich.console import Console
from run import machine, versions

from against_peers.engines import ENGINES, Setting
from against_peers.judgement import Slot, counted, lower_quartile, middle, slot_orders, verdict
from against_peers.notes import Notes
from against_peers.process import WorkerError, WorkerProcess, import_s, started
from against_peers.report import Result, error_table, table_of
from aioinfer.cli.quantization.quantizer import Quantization, quantize

OURS = "aioinfer"
REFERENCE = ("onnxruntime", "openvino", OURS)  # whose outputs, in f32, the others' are held against
FRESH_COUNT = 3  # processes for each number of load and memory
WARM_UP_S = 0.3
PRECISIONS = ("f32", "bf16", "int8", "int8-dynamic")
QUANTIZED = {"int8": Quantization(), "int8-dynamic": Quantization(is_dynamic=True)}
SAMPLE_COUNT = 4  # that an int8 model is calibrated by
DEFAULT_MODELS = ["resnet50", "mobilenet_v2", "minilm_l6", "bert_base"]

Outputs = dict[str, npt.NDArray[Any]]
Slots = Mapping[str, Sequence[Slot]]


@dataclass(frozen=True)
class Quantity:
    """A line of the table: what one number says of the slots."""

    title: str
    unit: str
    statistic: Callable[[Sequence[float]], float] = middle
    is_more_better: bool = False


@dataclass(frozen=True)
class Steady:
    """A row that is measured in slots: one request at a time, or two streams."""

    thread_count: int
    has_streams: bool
    quantities: tuple[Quantity, ...]


STEADY = {
    "latency1": Steady(1, False, (Quantity("latency, 1 thread", "ms"),)),
    "latency2": Steady(
        2,
        False,
        (
            Quantity("latency, 2 threads", "ms"),
            Quantity("  its lower quartile", "ms", lower_quartile),  # two threads have two speeds
        ),
    ),
    "throughput": Steady(2, True, (Quantity("throughput, 2 streams", "/s", is_more_better=True),)),
}
FRESH = {
    "load": (
        Quantity("import", "ms"),
        Quantity("load from file", "ms"),
        Quantity("import to first answer", "ms"),
    ),
    "memory": (Quantity("peak memory", "MiB"),),
}
ROWS = (*STEADY, *FRESH)


@dataclass
class Run(Notes):
    """What has been found out so far."""

    device: str
    slot_count: int
    slot_s: float
    seed: int
    results: list[Result] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)
    reference: str = ""  # whose outputs the errors are against
    is_complete: bool = False

    def judge(self, model: str, precision: str, quantity: Quantity, slots: Slots) -> None:
        """Add a result, unless no engine is left."""
        if not slots:
            return
        numbers = {name: quantity.statistic(counted(taken)) for name, taken in slots.items()}
        peers = {name: number for name, number in numbers.items() if name != OURS}
        said = verdict(numbers[OURS], peers, quantity.is_more_better) if OURS in numbers else None
        self.results.append(
            Result(
                model=model,
                precision=precision,
                quantity=quantity.title,
                unit=quantity.unit,
                numbers=numbers,
                ratio=said.ratio if said else None,
                peer=said.peer if said else None,
                verdict=said.word if said else "-",
                noisy_count=sum(slot.is_noisy for taken in slots.values() for slot in taken),
                slots=slots,
            )
        )


@dataclass(frozen=True)
class Case:
    """A model in a precision: its file, what to feed it and the outputs that are right."""

    model: str
    precision: str
    file: Path
    inputs: Path
    engines: tuple[str, ...]
    wanted: Outputs

    def of(self, engine: str) -> str:
        return f"{engine} {self.precision} on {self.model}"

    def setting(self, has_streams: bool, thread_count: int, device: str) -> Setting:
        computed = "f32" if self.precision in QUANTIZED else self.precision
        return Setting(has_streams, thread_count, computed, device)


def measure_slots(run: Run, case: Case, row: str, folder: Path) -> None:
    """Start every engine, compare their outputs, then give each a slot in every round."""
    steady = STEADY[row]
    setting = case.setting(steady.has_streams, steady.thread_count, run.device)
    slots: dict[str, list[Slot]] = {}
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(started(name)) for name in case.engines}
        for name, worker in workers.items():
            with run.leaving_out(case.of(name)):
                worker.load(case.file, case.inputs, setting)
                compare(run, case, worker, folder)
                worker.slot(WARM_UP_S)
                slots[name] = []
        for order in slot_orders(list(slots), run.slot_count, run.seed):
            for name in (name for name in order if name in slots):
                taken = slots.pop(name)
                with run.leaving_out(case.of(name)):
                    slots[name] = [*taken, workers[name].slot(run.slot_s)]
    for quantity in steady.quantities:
        run.judge(case.model, case.precision, quantity, slots)


def compare(run: Run, case: Case, worker: WorkerProcess, folder: Path) -> None:
    """Note the largest difference of the outputs over the largest value, and keep the worst."""
    file = folder / "outputs.npz"
    worker.write_outputs(file)
    error = largest_error(outputs_of(file), case.wanted)
    key = f"{case.model} {case.precision} {worker.engine}"
    run.errors[key] = max(error, run.errors.get(key, 0.0))


def largest_error(outputs: Outputs, wanted: Outputs) -> float:
    """Give the largest difference over the largest value, of the worst output, NaN as inf."""
    errors = (
        float(np.abs(outputs[name].astype(np.float64) - right).max() / np.abs(right).max())
        for name, right in wanted.items()
    )
    return max(error if np.isfinite(error) else float("inf") for error in errors)


def outputs_of(file: Path) -> Outputs:
    with np.load(file) as arrays:
        return dict(arrays)


def measure_fresh(run: Run, case: Case, rows: Sequence[str]) -> None:
    """Load in new processes, engine by engine in turn; two threads, one request at a time."""
    setting = case.setting(has_streams=False, thread_count=2, device=run.device)
    seen: dict[str, dict[str, list[float]]] = {}
    for order in slot_orders(case.engines, FRESH_COUNT, run.seed):
        for name in order:
            with run.leaving_out(case.of(name)):
                for title, number in fresh_numbers(name, case, setting).items():
                    seen.setdefault(title, {}).setdefault(name, []).append(number)
    for quantity in (quantity for row in rows for quantity in FRESH[row]):
        slots = {
            name: [Slot(number, 0.0) for number in numbers]
            for name, numbers in seen.get(quantity.title, {}).items()
        }
        run.judge(case.model, case.precision, quantity, slots)


def fresh_numbers(engine: str, case: Case, setting: Setting) -> dict[str, float]:
    imported_s = import_s(engine)
    with started(engine) as worker:
        loaded = worker.load(case.file, case.inputs, setting)
    ready_s = imported_s + loaded["load_s"] + loaded["first_s"]
    return {
        "import": imported_s * 1000,
        "load from file": loaded["load_s"] * 1000,
        "import to first answer": ready_s * 1000,
        "peak memory": loaded["peak_bytes"] / 2**20,
    }


def right_outputs(engines: Sequence[str], file: Path, inputs: Path, run: Run) -> Outputs:
    """Take the outputs of the first engine that can compute in f32 as right."""
    for name in (name for name in REFERENCE if name in engines):
        try:
            with started(name) as worker:
                worker.load(file, inputs, Setting(False, 1, "f32", run.device))
                outputs = inputs.with_name("right.npz")
                worker.write_outputs(outputs)
                run.reference = name
                return outputs_of(outputs)
        except WorkerError as error:
            run.leave_out(f"{name} f32 on {file.stem}", str(error))
    raise WorkerError("no engine can run it in f32")


def model_file(model: Model, folder: Path) -> Path:
    """Find a model in a folder; where it is not there, it is built."""
    file = folder / f"{model.name}.onnx"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(model.build(), file)
    return file


def quantized_file(file: Path, model: Model, precision: str) -> Path:
    """Find a model in int8 beside its file; where it is not there, it is made."""
    target = file.with_name(f"{file.stem}.{precision}.onnx")
    if not target.exists():
        chance = np.random.default_rng(2)
        samples = [model.inputs(chance, 1) for _ in range(SAMPLE_COUNT)]
        size_bytes = file.stat().st_size
        quantize(file, target, samples, QUANTIZED[precision], size_bytes, onnx.load)
    return target


def measure(run: Run, arguments: argparse.Namespace, folder: Path) -> None:
    engines = run.installed(arguments.engines)
    fresh = [row for row in arguments.rows if row in FRESH]
    for name in arguments.models:
        file = model_file(MODELS[name], arguments.models_dir or folder)
        inputs = folder / "inputs.npz"
        np.savez(inputs, allow_pickle=False, **MODELS[name].inputs(np.random.default_rng(1), 1))
        try:
            wanted = right_outputs(engines, file, inputs, run)
        except WorkerError as error:
            run.leave_out(name, str(error))
            continue
        for precision in arguments.precision:
            able = tuple(one for one in engines if precision != "bf16" or one != "onnxruntime")
            measured = file
            if precision in QUANTIZED:
                measured = quantized_file(file, MODELS[name], precision)
            case = Case(name, precision, measured, inputs, able, wanted)
            for row in (row for row in arguments.rows if row in STEADY):
                run.say(f"{name} {precision}: {row}")
                measure_slots(run, case, row, folder)
            if fresh:
                run.say(f"{name} {precision}: {', '.join(fresh)}")
                measure_fresh(run, case, fresh)


def kept(run: Run, arguments: argparse.Namespace) -> dict[str, Any]:
    """Give what the results file holds."""
    settings = {
        "device": run.device,
        "slots": run.slot_count,
        "slot_s": run.slot_s,
        "seed": run.seed,
        "rows": arguments.rows,
    }
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "settings": settings,
        "is_complete": run.is_complete,
        "errors_against": run.reference,
        "errors": run.errors,
        "left_out": run.left_out,
        "cases": {"peers": [asdict(result) for result in run.results]},
    }


def listed(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Make a parser for names with commas between them."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return names

    return parse


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    made.add_argument(
        "--models", nargs="+", choices=[*MODELS, "all"], default=DEFAULT_MODELS, metavar="NAME"
    )
    made.add_argument("--models-dir", type=Path, metavar="DIR", help="where models are, or go")
    made.add_argument("--device", default="CPU", help="aioinfer's")
    made.add_argument("--engines", type=listed(list(ENGINES)), default=list(ENGINES))
    made.add_argument("--rows", type=listed(ROWS), default=list(ROWS), help=", ".join(ROWS))
    made.add_argument("--precision", type=listed(PRECISIONS), default=["f32"])
    made.add_argument("--slots", type=int, default=9, help="of each engine in each row")
    made.add_argument("--seconds", type=float, default=1.0, help="of each slot")
    made.add_argument("--seed", type=int, default=1, help="of the order of the slots")
    made.add_argument("--output", type=Path, metavar="FILE", help="also write the results there")
    return made


@contextlib.contextmanager
def finished(run: Run, arguments: argparse.Namespace, console: Console) -> Iterator[None]:
    """Show and keep what there is, also when the run is ended early."""
    try:
        yield
        run.is_complete = True
    finally:
        if run.results:
            console.print(table_of(run.results))
        if run.errors:
            console.print(error_table(run.errors, run.reference))
        if arguments.output is not None:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(kept(run, arguments), indent=1) + "\n"
            arguments.output.write_text(text, encoding="utf-8")


def main() -> None:
    options = parser()
    arguments = options.parse_args()
    if arguments.slots < 1 or arguments.seconds <= 0:
        options.error("--slots takes numbers from 1 on, --seconds times above 0")
    if "all" in arguments.models:
        arguments.models = list(MODELS)
    console = Console()
    run = Run(
        device=arguments.device,
        slot_count=arguments.slots,
        slot_s=arguments.seconds,
        seed=arguments.seed,
        say=lambda text: console.print(text, style="dim", highlight=False),
    )
    with tempfile.TemporaryDirectory() as folder, finished(run, arguments, console):
        measure(run, arguments, Path(folder))
