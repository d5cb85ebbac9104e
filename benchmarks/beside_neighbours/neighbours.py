"""Latency beside neighbours: aioinfer, onnxruntime and OpenVINO in one interleaved run.

    python benchmarks neighbours
    python benchmarks neighbours --full --save
    python benchmarks neighbours --models minilm_l6 --situations alone,busy1,quota1 --rounds 6

Each engine lives in a process of its own, loaded and warm, and sleeps while another has its turn;
in every round each situation is set up once and all engines take a turn in it, in rotating order.
One request at a time, f32; with --awaited a uvloop awaits it, the peers through a thread of
run_in_executor. The peers compute with a thread for each CPU that they may use, a quota included;
aioinfer is left as it comes. Turns beside which strangers kept a tenth of a CPU busy are noisy, and
left out where at least half are quiet.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from against_peers.engines import ENGINES
from against_peers.peers import listed
from rich.console import Console
from run import RESULTS, machine, versions

from beside_neighbours.judgement import rows_of
from beside_neighbours.measuring import NETWORKS, Findings, Plan, measure
from beside_neighbours.quota import refusal
from beside_neighbours.report import WIDTH, summary, table_of
from beside_neighbours.situations import SITUATIONS, expected_s

SHORT = Plan(
    models=("resnet50", "mobilenet_v2", "minilm_l6", "lstm_tagger", "perceptron"),
    situations=("alone", "busy1", "busy2", "quota1.5", "decoders"),
    rounds=3,
    seconds=0.8,
)
FULL = Plan(models=tuple(NETWORKS), situations=tuple(SITUATIONS), rounds=6, seconds=1.5)


def possible(findings: Findings, names: Sequence[str]) -> list[str]:
    """Leave out the situations that cannot be had on this machine, with their reasons."""
    kept = []
    for name in names:
        reason = refusal(SITUATIONS[name].quota)
        if SITUATIONS[name].decoders and importlib.util.find_spec("PIL") is None:
            reason = "Pillow is not installed; pip install Pillow"
        if reason is None:
            kept.append(name)
        else:
            findings.leave_out(name, reason)
    return kept


def kept(findings: Findings, plan: Plan) -> dict[str, Any]:
    """Give what the results file holds."""
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "settings": {"device": findings.device, **asdict(plan)},
        "is_complete": findings.is_complete,
        "left_out": findings.left_out,
        "idle_cpus": findings.idle_cpus,
        "cases": {"neighbours": [row.flat() for row in rows_of(findings.turns)]},
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="models: " + ", ".join(NETWORKS) + "\nsituations:\n" + situation_lines(),
    )
    made.add_argument(
        "--models",
        type=listed(list(NETWORKS)),
        metavar="NAMES",
        help=f"with commas; {','.join(SHORT.models)}, or all with --full",
    )
    made.add_argument(
        "--situations",
        type=listed(list(SITUATIONS)),
        metavar="NAMES",
        help=f"with commas; {','.join(SHORT.situations)}, or all with --full",
    )
    made.add_argument(
        "--rounds", type=int, metavar="COUNT", help=f"{SHORT.rounds}, or {FULL.rounds} with --full"
    )
    made.add_argument(
        "--seconds",
        type=float,
        help=f"of each engine's turn; {SHORT.seconds:g}, or {FULL.seconds:g} with --full",
    )
    made.add_argument("--full", action="store_true", help="half an hour instead of six minutes")
    made.add_argument("--awaited", action="store_true", help="await each request on a uvloop")
    made.add_argument("--engines", type=listed(list(ENGINES)), default=list(ENGINES))
    made.add_argument("--device", default="CPU", help="aioinfer's (CPU)")
    made.add_argument("--save", action="store_true", help="keep the results in the repository")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    return made


def situation_lines() -> str:
    return "\n".join(f"  {name:<10}{one.title}" for name, one in SITUATIONS.items())


def plan_of(arguments: argparse.Namespace) -> Plan:
    usual = FULL if arguments.full else SHORT
    return replace(
        usual,
        models=arguments.models or usual.models,
        situations=arguments.situations or usual.situations,
        rounds=usual.rounds if arguments.rounds is None else arguments.rounds,
        seconds=usual.seconds if arguments.seconds is None else arguments.seconds,
        is_awaited=arguments.awaited,
    )


@contextlib.contextmanager
def finished(
    findings: Findings, plan: Plan, arguments: argparse.Namespace, console: Console
) -> Iterator[None]:
    """Show and keep what there is, also when the run is ended early."""
    try:
        yield
        findings.is_complete = True
    finally:
        rows = rows_of(findings.turns)
        if rows:
            console.print(table_of(rows))
            console.print(summary(rows), highlight=False)
        if arguments.json is not None:
            write(arguments.json, {"rows": [row.flat() for row in rows]})
        if arguments.save:
            write(RESULTS / f"{datetime.date.today()}-neighbours.json", kept(findings, plan))


def write(file: Path, result: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    options = parser()
    arguments = options.parse_args()
    plan = plan_of(arguments)
    if plan.rounds < 1 or plan.seconds <= 0:
        options.error("--rounds takes numbers from 1 on, --seconds times above 0")
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    findings = Findings(
        say=lambda text: console.print(text, style="dim", highlight=False), device=arguments.device
    )
    engines = findings.installed(arguments.engines)
    plan = replace(plan, situations=possible(findings, plan.situations))
    seconds = expected_s(len(plan.models), plan.situations, len(engines), plan.rounds, plan.seconds)
    findings.say(f"about {seconds / 60:.1f} minutes; busy neighbours may stretch them")
    with finished(findings, plan, arguments, console):
        measure(findings, plan, engines)
