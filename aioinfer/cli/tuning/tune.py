"""``aioinfer tune``: the shell around the search for the best configuration of a model.

It loads what ``search`` names, measures networks in turns, and keeps what was found when an
interrupt comes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ...errors import AioInferError
from ...runtime.devices.core import Core
from ...runtime.devices.device_aliases import understood
from ...runtime.devices.device_name import parse_device
from ...runtime.devices.implicit_batching import BATCH
from ...runtime.graph import Model, TensorType
from ...runtime.properties.properties import ALLOW_AUTO_BATCHING, PERFORMANCE_HINT
from ..console import make_console, print_indented
from ..device_config import device_config
from ..error_line import error_line
from ..output_errors import output_errors
from ..shapes import parse_shapes
from .network import Loaded, is_pinned, run_first, settled_of, shapes_of, thread_count
from .placement import Placement, batch_around, placed_on_batch
from .report import Found, TuneReport
from .search import (
    Choice,
    Goal,
    Settled,
    Slice,
    Space,
    doublings,
    has_won,
    is_time_for_search,
    next_challenger,
    score,
    slice_seconds,
    winner_of,
)

__all__ = ["run_tune"]

INTERRUPTED = 130
FIRST_ROUNDS, LEAST_LAST_ROUNDS = 3, 3
MOST_BATCH = 64
PRECISIONS = ("f32", "tf32", "bf16", "f16")
BASE = "f32"


def run_tune(parsed: argparse.Namespace) -> int:
    """Search, and print what was found; 130 if it was interrupted. Errors are raised."""
    config = device_config(parsed.config)
    goal = Goal(parsed.goal == "latency", parsed.max_latency)
    report = TuneReport(parsed.model, parsed.d, parsed.goal)
    report.are_precisions_asked = parsed.precision is not None
    console = make_console()
    is_interrupted = False
    with Core() as core:
        tuner = Tuner(core, parsed, goal, config, report, None if parsed.json else console)
        try:
            tuner.run()
        except KeyboardInterrupt:
            is_interrupted, report.ended = True, "interrupted"
        finally:
            tuner.close()
    if parsed.json:
        print(report.json_text())
    else:
        report.print_on(console)
    if parsed.o is not None and report.best is not None:
        parsed.o.write_text(json.dumps(report.chosen(), indent=2) + "\n", encoding="utf-8")
        if not parsed.json:
            console.print(f"wrote {parsed.o}", soft_wrap=True)
    return INTERRUPTED if is_interrupted else 0


class Tuner:
    """One search; ``run`` fills the report."""

    def __init__(
        self,
        core: Core,
        parsed: argparse.Namespace,
        goal: Goal,
        config: Mapping[str, Any],
        report: TuneReport,
        console: Console | None,
    ) -> None:
        self._core, self._parsed, self._goal = core, parsed, goal
        self._config, self._report, self._console = dict(config), report, console
        self._started_s = monotonic()
        self._slice_s = slice_seconds(parsed.seconds)
        self._asked = parse_shapes(parsed.shape) if parsed.shape is not None else {}
        self._loaded: list[Loaded] = []
        self._noted: set[str] = set()
        self._progress: Progress | None = None
        self._device = ""
        self._joined: Found | None = None
        """The best that was measured on BATCH."""

    def run(self) -> None:
        """Measure the configurations of the hints, search, and measure the best beside them."""
        model = self._core.read_model(self._parsed.model)
        with self._progress_bar():
            baselines = self._measure_baselines(model)
            best = self._search(model, baselines)
            self._measure_last(model, baselines, best)
            self._compare_precisions(model)
        self._report.seconds = self._elapsed_s

    def close(self) -> None:
        """Close all networks that are still loaded."""
        self._report.seconds = self._report.seconds or self._elapsed_s
        while self._loaded:
            self._loaded.pop().network.close()

    @property
    def _elapsed_s(self) -> float:
        return monotonic() - self._started_s

    def _measure_baselines(self, model: Model) -> list[Loaded]:
        requests = 1 if self._goal.is_latency else None
        batch = self._parsed.b or 1
        default = self._load(model, "default", Choice(requests=requests, batch=batch))
        loaded = [default]
        self._device = default.network.device
        if parse_device(self._report.device).name == "AUTO":
            self._report.device = self._device
            default.found.placement = self._placement(default.found.choice)
        own_hint = default.network.config.value_or_default(PERFORMANCE_HINT)
        for hint in ("LATENCY", "THROUGHPUT"):
            if hint == own_hint:
                default.found.label = f"default ({hint.lower()} hint)"
            elif "PERFORMANCE_HINT" not in self._config:
                choice = Choice(hint, requests=requests, batch=batch)
                found = self._try_load(model, f"{hint.lower()} hint", choice)
                loaded += [found] if found is not None else []
        self._report.rows = [item.found for item in loaded]
        self._take_turns(loaded, FIRST_ROUNDS)
        return loaded

    def _search(self, model: Model, baselines: Sequence[Loaded]) -> Loaded:
        """Go from the best of the hints from step to step, and return the best."""
        best, axis = self._winner(baselines), None
        space = self._space(model, best)
        tried = {item.found.choice for item in baselines}
        while True:
            self._report.tried_count = len(tried) - len(self._report.refused)
            if not is_time_for_search(self._elapsed_s, self._parsed.seconds):
                self._report.ended = "the time was up"
                return best
            step = next_challenger(best.found.choice, best.found.settled, space, tried, axis)
            if step is None:
                self._report.ended = "no step makes it better"
                return best
            tried.add(step[1])
            challenger = self._try_load(model, "found", step[1], step[0], best.found.settled)
            if challenger is None:
                if step[0] == "joined_rows":
                    space = replace(space, joined_rows=())  # it refuses the model, not the number
                continue
            has_won_duel = self._duel(challenger, best)
            self._note_joined(challenger.found)
            if not has_won_duel:
                self._close(challenger)
                continue
            if best not in baselines:
                self._close(best)
            best, axis = challenger, step[0]
            self._report.rows = [*(item.found for item in baselines), best.found]
            self._report.best = best.found

    def _duel(self, challenger: Loaded, best: Loaded) -> bool:
        ratios: list[float] = []
        if challenger.found.choice.joined_rows > 1:
            self._measure(challenger)  # until there are plans for what comes together
        while (verdict := has_won(ratios)) is None:
            slices = [self._measure(item) for item in (challenger, best)]
            challenger.found.slices.append(slices[0])
            ratios.append(score(slices[0], self._goal) / score(slices[1], self._goal))
        result = f"{sorted(ratios)[len(ratios) // 2]:.2f}x"
        self._say(f"{challenger.found.text()}: {result}{', the best so far' if verdict else ''}")
        return verdict

    def _note_joined(self, found: Found) -> None:
        if found.choice.joined_rows > 1 and (
            self._joined is None
            or score(found.typical, self._goal) > score(self._joined.typical, self._goal)
        ):
            self._joined = found

    def _beside(self, model: Model, best: Found) -> Iterator[Loaded]:
        """Load what the best is shown beside: BATCH, if that has lost, and the best in f32."""
        choices: list[tuple[str, Choice, Settled]] = []
        if self._joined is not None and best.choice.joined_rows == 1:
            choices.append(("with BATCH", self._joined.choice, self._joined.settled))
        if best.choice.precision not in (None, BASE):
            in_f32 = replace(best.choice, precision=None)
            choices.append((f"found, in {BASE}", in_f32, best.settled))
        for label, choice, settled in choices:
            loaded = self._try_load(model, label, choice, like=settled)
            if loaded is not None:
                yield loaded

    def _measure_last(self, model: Model, baselines: Sequence[Loaded], best: Loaded) -> None:
        """Measure the best in turns with the hints, BATCH, and itself in f32, for the time left."""
        rows = [*baselines, *self._beside(model, best.found)]
        if best not in rows:
            rows.append(best)
        first = [self._measure(row) for row in rows]  # an interrupt leaves the table as it was
        for row, measured in zip(rows, first, strict=True):
            row.found.slices = [measured]
        self._report.rows = [row.found for row in rows]
        self._take_turns(rows, LEAST_LAST_ROUNDS - 1)
        while self._elapsed_s < self._parsed.seconds:
            self._take_turns(rows)

    def _compare_precisions(self, model: Model) -> None:
        """Run the same inputs in f32 and in each precision that the device has."""
        best = self._report.best
        if best is None or self._is_virtual or "INFERENCE_PRECISION_HINT" in self._config:
            return
        expected: dict[str, Any] | None = None
        for precision in self._precisions():
            choice = Choice(batch=best.choice.batch, precision=precision)
            loaded = self._try_load(model, precision, choice, "precision")
            if loaded is None and expected is None:
                return
            if loaded is None:
                continue
            made = loaded.network.create_infer_request().infer_sync(loaded.inputs.at(0))
            self._close(loaded)
            if expected is None:
                expected = made
            else:
                self._report.precisions[precision] = output_errors(made, expected)

    def _take_turns(self, loaded: Sequence[Loaded], rounds: int = 1) -> None:
        for _ in range(rounds):
            for item in loaded:
                item.found.slices.append(self._measure(item))
            self._winner(loaded)

    def _winner(self, loaded: Sequence[Loaded]) -> Loaded:
        """Find the best of those that took turns, and note it."""
        scores = [[score(item, self._goal) for item in one.found.slices] for one in loaded]
        best = loaded[winner_of(scores)]
        self._report.best = best.found
        return best

    def _measure(self, loaded: Loaded) -> Slice:
        if self._progress is not None:
            text = f"{self._report.tried_count} tried, now {loaded.found.text()}"
            done_s = min(self._elapsed_s, self._parsed.seconds)
            self._progress.update(self._progress.task_ids[0], completed=done_s, description=text)
        return loaded.measure(self._slice_s)

    def _try_load(
        self,
        model: Model,
        label: str,
        choice: Choice,
        axis: str | None = None,
        like: Settled | None = None,
    ) -> Loaded | None:
        """Load, or note why that is impossible: of a value of the axis, if it moved along one."""
        try:
            return self._load(model, label, choice, like)
        except AioInferError as error:
            what = f"{axis} {getattr(choice, axis)}" if axis is not None else str(choice.config())
            if axis == "joined_rows":
                what = self._placement(choice).device
            self._report.refused[what] = error_line(error)
            return None

    def _load(
        self, model: Model, label: str, choice: Choice, like: Settled | None = None
    ) -> Loaded:
        chosen = shapes_of(model, choice, self._asked, self._parsed.b)
        for note in chosen.notes:
            self._say_once(note)
        placement = self._placement(choice)
        pinned = model.copy()
        pinned.reshape(chosen.shapes)
        self._report.pins_shapes = is_pinned(model, pinned)
        device = placement.device if choice.joined_rows > 1 else self._parsed.d
        network = self._core.load_network(pinned, device, placement.config)
        try:
            settled = settled_of(network, choice, like)
            found = Found(label, choice, settled, chosen.shapes, placement)
            loaded = run_first(network, found, self._parsed.seed)
        except BaseException:
            network.close()
            raise
        self._loaded.append(loaded)
        return loaded

    def _placement(self, choice: Choice) -> Placement:
        config = {**self._config, **choice.config()}
        if choice.joined_rows == 1:
            return Placement(self._report.device, config)
        is_of_batch = self._core.device_configuration(BATCH).knows
        return placed_on_batch(self._held, config, choice.joined_rows, is_of_batch)

    def _close(self, loaded: Loaded) -> None:
        self._loaded.remove(loaded)
        loaded.network.close()

    def _space(self, model: Model, base: Loaded) -> Space:
        """List the values of the properties that the device has and the caller has not set."""
        device = base.network.device
        streams: Sequence[int] = ()
        if not self._is_virtual:
            streams = doublings(self._core.get_metric(device, "RANGE_FOR_STREAMS")[1])
        most = max(16, 4 * (streams[-1] if streams else 4))
        joined_rows = doublings(MOST_BATCH) if self._may_join else ()
        if joined_rows:
            most = max(most, 4 * MOST_BATCH)
        return Space(
            streams=() if "NUM_STREAMS" in self._config else streams,
            threads=()
            if self._is_virtual or "INFERENCE_NUM_THREADS" in self._config
            else doublings(thread_count(base.network)),
            requests=() if self._goal.is_latency else doublings(most),
            batch=() if not self._has_open_batch(model) else doublings(MOST_BATCH),
            precision=() if "INFERENCE_PRECISION_HINT" in self._config else self._precisions(),
            joined_rows=joined_rows,
        )

    def _precisions(self) -> Sequence[str]:
        if self._is_virtual:
            return ()
        wanted = self._parsed.precision
        names = PRECISIONS if wanted is None else (BASE, *(name for name in wanted if name != BASE))
        return [name for name in names if f"precision {name}" not in self._report.refused]

    @property
    def _is_virtual(self) -> bool:
        """True where each device of the network has properties of its own."""
        return bool(parse_device(self._device).entries)

    @property
    def _held(self) -> str:
        """The device, by the name that BATCH around it has for it."""
        return understood(self._report.device, self._core.plugin_names)

    @property
    def _may_join(self) -> bool:
        """True where BATCH is tried: for many requests of one row, on a device it can hold."""
        is_wanted = not self._goal.is_latency and self._parsed.b in (None, 1)
        is_own = ALLOW_AUTO_BATCHING.key in self._config
        can_hold = BATCH in self._core.plugin_names and batch_around(self._held, 2) is not None
        return is_wanted and can_hold and not is_own

    def _has_open_batch(self, model: Model) -> bool:
        if self._goal.is_latency or self._parsed.b is not None or self._asked:
            return False
        tensors = [value.type for value in model.inputs if isinstance(value.type, TensorType)]
        return any(kind.shape and not isinstance(kind.shape[0], int) for kind in tensors)

    def _say(self, line: str) -> None:
        if self._console is not None:
            print_indented(self._console, line)

    def _say_once(self, line: str) -> None:
        if line not in self._noted:
            self._noted.add(line)
            self._say(line)

    @contextmanager
    def _progress_bar(self) -> Iterator[None]:
        """Show a bar while the block runs; nothing where the output is no terminal."""
        if self._console is None or not self._console.is_terminal:
            yield
            return
        columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
        with Progress(*columns, console=self._console, transient=True) as progress:
            progress.add_task("", total=self._parsed.seconds)
            self._progress = progress
            try:
                yield
            finally:
                self._progress = None
