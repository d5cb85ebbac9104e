"""Engines in turns beside neighbours: their processes, quotas, and what a turn gives."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from against_peers.engines import Setting
from against_peers.judgement import foreign_cpus
from against_peers.notes import Notes
from against_peers.peers import model_file
from against_peers.process import REST_S, WorkerProcess, all_busy_s, own_s, started
from models import MODELS, Model
from networks.perceptron import INPUTS, perceptron

from aioinfer.executors import allowed_cpus
from beside_neighbours.judgement import OURS, Turn
from beside_neighbours.processes import busy_processes, cpu_s_of
from beside_neighbours.quota import join, limited
from beside_neighbours.situations import (
    SITUATIONS,
    WARM_UP_S,
    Placement,
    Situation,
    by_placement,
    threads_for,
    turn_order,
)

WORKER = Path(__file__).with_name("worker.py")
NETWORKS = {
    name: MODELS[name]
    for name in ("resnet50", "mobilenet_v2", "minilm_l6", "bert_base", "lstm_tagger")
} | {"perceptron": Model("perceptron", perceptron, lambda chance, batch: dict(INPUTS))}
MOST_RESTS = 20
IDLE_CPUS = 0.05  # an engine that uses more while another has its turn is said to be restless


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    models: Sequence[str]
    situations: Sequence[str]
    rounds: int
    seconds: float
    least_runs: int = 5
    is_awaited: bool = False


@dataclass
class Findings(Notes):
    """What has been found out so far."""

    device: str = "CPU"
    turns: dict[tuple[str, str], dict[str, list[Turn]]] = field(default_factory=dict)
    idle_cpus: dict[str, float] = field(default_factory=dict)
    """The most CPUs that each engine's process kept busy while another had its turn."""
    is_complete: bool = False

    def note_idle(self, engine: str, cpus: float) -> None:
        if cpus > max(IDLE_CPUS, self.idle_cpus.get(engine, 0.0)):
            self.say(f"{engine} used {cpus:.2f} CPUs while another engine had its turn")
        self.idle_cpus[engine] = max(cpus, self.idle_cpus.get(engine, 0.0))


@dataclass(frozen=True)
class Bench:
    """The engines' processes for one model and placement, and a folder for what they write."""

    workers: dict[str, WorkerProcess]
    plan: Plan
    findings: Findings
    folder: Path

    def turn(self, engine: str, situation: Situation, seconds: float, beside: list[int]) -> Turn:
        """Have one engine compute while the others sleep; beside are the busy processes' ids."""
        others = {name: one.process.pid for name, one in self.workers.items() if name != engine}
        wait_until_idle(list(others.values()))
        began_s, busy_before_s = time.perf_counter(), all_busy_s()
        known_before_s = own_s() + sum(map(cpu_s_of, beside))
        idle_before_s = {name: cpu_s_of(other) for name, other in others.items()}
        times = self.folder / "times.npy"
        answer = self.workers[engine].ask(
            do="turn",
            seconds=seconds,
            least_runs=self.plan.least_runs,
            busy_threads=situation.busy_threads,
            decoders=situation.decoders,
            is_awaited=self.plan.is_awaited,
            times=str(times),
        )
        elapsed_s, busy_s = time.perf_counter() - began_s, all_busy_s() - busy_before_s
        known_s = answer["cpu_s"] + own_s() + sum(map(cpu_s_of, beside)) - known_before_s
        for name, other in others.items():
            self.findings.note_idle(name, (cpu_s_of(other) - idle_before_s[name]) / elapsed_s)
        times_ms = np.load(times) * 1000
        strangers = foreign_cpus(busy_s, known_s, elapsed_s)
        return Turn(float(times_ms.mean()), strangers, times_ms, answer["image_rate"])


def wait_until_idle(process_ids: Sequence[int]) -> None:
    """Wait until the pools of the engines that had their turns stop spinning; a while, at most."""
    for _ in range(MOST_RESTS):
        before_s = sum(map(cpu_s_of, process_ids))
        time.sleep(REST_S)
        if sum(map(cpu_s_of, process_ids)) == before_s:
            return


def measure_placement(
    bench: Bench, engines: Sequence[str], model: Model, placement: Placement
) -> None:
    """Load one model in every engine, then take turns in all situations that share a placement."""
    plan, findings = bench.plan, bench.findings
    situations = by_placement(plan.situations)[placement]
    for name in situations:
        findings.turns[model.name, name] = {}
    with contextlib.ExitStack() as stack:
        for engine in engines:
            with findings.leaving_out(f"{engine} on {model.name}, {situations[0]}"):
                bench.workers[engine] = stack.enter_context(
                    loaded(engine, model, placement, findings.device, bench.folder)
                )
                bench.turn(engine, SITUATIONS["alone"], WARM_UP_S, [])
        for number in range(plan.rounds):
            for shift, name in enumerate(situations):
                findings.say(f"{model.name}: {SITUATIONS[name].title}, {number + 1}/{plan.rounds}")
                take_turns(bench, model.name, name, turn_order(engines, number + shift))


@contextlib.contextmanager
def loaded(
    engine: str, model: Model, placement: Placement, device: str, folder: Path
) -> Iterator[WorkerProcess]:
    """Start an engine's process, under its quota before it loads."""
    inputs = folder / f"{model.name}.npz"
    np.savez(inputs, allow_pickle=False, **model.inputs(np.random.default_rng(1), 1))
    count = threads_for(len(allowed_cpus().cpus), placement.quota)
    setting = Setting(False, None if engine == OURS else count, "f32", device)
    with limited(placement.quota) as group, started(engine, WORKER) as worker:
        join(group, worker.process.pid)
        worker.ask(
            do="load",
            engine=engine,
            file=str(model_file(model, folder)),
            inputs=str(inputs),
            setting=list(setting),
            network_count=placement.network_count,
        )
        yield worker


def take_turns(bench: Bench, model: str, name: str, order: Sequence[str]) -> None:
    """Set a situation up and give every engine its turn in it."""
    situation, found = SITUATIONS[name], bench.findings.turns[model, name]
    with busy_processes(situation.busy_processes) as beside:
        for engine in (engine for engine in order if engine in bench.workers):
            with bench.findings.leaving_out(f"{engine} on {model}, {name}"):
                turn = bench.turn(engine, situation, bench.plan.seconds, beside)
                found.setdefault(engine, []).append(turn)


def measure(findings: Findings, plan: Plan, engines: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for model in plan.models:
            for placement in by_placement(plan.situations):
                bench = Bench({}, plan, findings, Path(folder))
                measure_placement(bench, engines, NETWORKS[model], placement)
