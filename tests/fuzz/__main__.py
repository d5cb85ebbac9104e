"""Wrong models and wrong inputs for every operator, by chance: ``make fuzz`` runs it.

Each finding is printed with the command that repeats it. Ends with status 1 if there are findings,
if a device fails what is known to be good, or if one accepted too little for that to mean anything.
Run with MALLOC_PERTURB_=1, so that memory which nobody has written is conspicuous.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

from .arbiter import is_upheld
from .bases import Base, load_bases
from .contrib_bases import load_contrib_bases
from .drawing import Case, Draw, draw_case
from .flow_bases import load_flow_bases
from .known_good import known_good_cases
from .oracle import Finding
from .pool import BATCH, run_cases
from .quantized_bases import load_quantized_bases

_BASES = {
    "operators": load_bases,
    "quantized": load_quantized_bases,
    "contrib": load_contrib_bases,
    "flow": load_flow_bases,
}
_DEVICES = ("CPU", "HETERO:CPU,REFERENCE", "OPENCL")
_TOLD_EVERY = 5000
_MOST_ASKED = 3
"""Cases of one group of suspicions that onnxruntime is asked about; REFERENCE is about all."""


class Report:
    """Collects findings by group, and prints the first of each."""

    def __init__(self, draw: Draw, is_strict: bool, bases: str = "") -> None:
        self._draw, self._is_strict, self._bases = draw, is_strict, bases
        self._counts: dict[str, int] = {}
        self._first: dict[str, tuple[int, Finding]] = {}
        self._asked: dict[str, int] = {}

    def tell(self, index: int, finding: Finding) -> None:
        group = finding.group
        if group not in self._first:
            if finding.is_suspect and not self._is_strict:
                asked = self._asked[group] = self._asked.get(group, 0) + 1
                is_asked = asked <= _MOST_ASKED or finding.category == "differs"
                if not is_asked or not is_upheld(self._draw(index), finding):
                    return
            self._first[group] = (index, finding)
            self._print(index, finding)
        self._counts[group] = self._counts.get(group, 0) + 1

    def _print(self, index: int, finding: Finding) -> None:
        case = self._draw(index)
        print(f"{finding.category.upper()} {case}")
        print(f"    {finding.device}: {finding.detail}", flush=True)
        if case.answer is None:
            replay = f"--replay {case.seed}:{index} --devices {finding.device}{self._bases}"
            print(f"    make fuzz ARGS='{replay}'", flush=True)

    def summary(self) -> int:
        """Print the groups and return how many there are."""
        for group, count in sorted(self._counts.items(), key=lambda item: -item[1]):
            case = self._draw(self._first[group][0])
            print(f"{count:6} {case.seed}:{case.index} {group}")
        return len(self._counts)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if not options.replay:
        return _fuzz(options)
    seed, _, index = options.replay.partition(":")
    return _replay(_bases(options), int(seed), int(index), options)


def _bases(options: argparse.Namespace) -> list[Base]:
    return [base for kind in options.bases for base in _BASES[kind]()]


def _fuzz(options: argparse.Namespace) -> int:
    devices = ["REFERENCE", *_present(options.devices)]
    known = known_good_cases()
    report = Report(known.__getitem__, is_strict=True)
    run_cases(known.__getitem__, iter([range(len(known))]), devices, 1, report.tell)
    if report.summary():
        print("a device fails what is known to be good: nothing else is worth running")
        return 1
    bases = _bases(options)
    draw = functools.partial(draw_case, bases, options.seed)
    report = Report(draw, options.strict, f" --bases {' '.join(options.bases)}")
    begun = time.monotonic()
    batches = _batches(options, begun)
    print(f"seed {options.seed} on {', '.join(devices)}, {len(bases)} models to begin with")
    acceptance = run_cases(draw, batches, devices, options.jobs, report.tell)
    group_count = report.summary()
    took_s = time.monotonic() - begun
    print("\n".join(acceptance.describe()))
    count = acceptance.case_count
    print(f"{count} cases on {len(devices)} devices in {took_s:.0f} s: {group_count} findings")
    return 1 if group_count or acceptance.shortfalls() else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="how many (2000)")
    parser.add_argument("--hours", type=float, help="go on for so long, whatever --cases says")
    parser.add_argument("--seed", type=int, default=1, help="of chance (1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--devices", nargs="+", default=_DEVICES, help="beside REFERENCE")
    parser.add_argument("--strict", action="store_true", help="do not look again at suspicions")
    parser.add_argument(
        "--bases", nargs="+", choices=_BASES, default=list(_BASES), help="kinds of models (all)"
    )
    parser.add_argument("--replay", metavar="SEED:INDEX", help="run one case and show it")
    parser.add_argument("--save", metavar="FILE.onnx", help="with --replay: write it to a file")
    return parser.parse_args(arguments)


def _batches(options: argparse.Namespace, begun: float) -> Iterator[range]:
    for start in itertools.count(options.first, BATCH):
        if start % _TOLD_EVERY == 0:
            print(f"{time.monotonic() - begun:.0f} s: at case {start}", flush=True)
        if options.hours is not None:
            if time.monotonic() - begun > options.hours * 3600:
                return
            yield range(start, start + BATCH)
            continue
        end = options.first + options.cases
        if start >= end:
            return
        yield range(start, min(start + BATCH, end))


def _present(devices: Sequence[str]) -> list[str]:
    """Leave out devices that are not there; asked in a child, so that none is opened here."""
    read, write = os.pipe()
    if os.fork() == 0:
        import aioinfer

        with aioinfer.Core() as core:
            os.write(write, ",".join(core.available_devices).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        there = {name.partition(".")[0] for name in file.read().split(",")}
    os.wait()
    present = []
    for device in devices:
        parts = device.partition(":")[2].split(",") if ":" in device else [device]
        if {part.partition(".")[0] for part in parts} <= there:
            present.append(device)
        else:
            print(f"{device} is not there, and left out")
    return present


def _replay(bases: Sequence[Base], seed: int, index: int, options: argparse.Namespace) -> int:
    case = draw_case(bases, seed, index)
    _show(case)
    if options.save:
        path = Path(options.save)
        path.write_bytes(case.model)
        for number, run in enumerate(case.runs):
            arrays = {name: x for name, x in run.feeds.items() if isinstance(x, np.ndarray)}
            np.savez(path.with_suffix(f".run{number}.npz"), **arrays)  # type: ignore[arg-type]
    draw = functools.partial(draw_case, bases, seed)
    report = Report(draw, is_strict=True)
    devices = ["REFERENCE", *options.devices]
    only = iter([range(index, index + 1)])
    run_cases(draw, only, devices, 1, report.tell)
    return 1 if report.summary() else 0


def _show(case: Case) -> None:
    print(case)
    print(onnx.printer.to_text(onnx.load_from_string(case.model)))
    for number, run in enumerate(case.runs):
        print(f"run {number}, {'right' if run.is_valid else 'wrong'}:")
        for name, value in run.feeds.items():
            if isinstance(value, np.ndarray):
                print(f"    {name} {value.dtype}{list(value.shape)} {value.reshape(-1)[:12]}")
            else:
                print(f"    {name} {value}")


if __name__ == "__main__":
    sys.exit(main())
