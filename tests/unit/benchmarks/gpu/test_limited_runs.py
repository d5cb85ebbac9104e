"""Programs in turn for a limited time: which are chosen, left out, stopped, and what they leave."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from limited_runs import Outcome, chosen, run_in_turn, run_limited


@dataclass(frozen=True)
class Item:
    name: str
    takes_s: float = 0.0


ITEMS = (Item("first", 30.0), Item("second", 45.0), Item("third", 10.0))


class Clock:
    """Tells the time that the items which were run have taken."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run_until(until_s: float, least_s: float) -> tuple[list[tuple[str, float]], list[Outcome]]:
    """Run the items; gives those that were started with what was left, and how all ended."""
    clock, started = Clock(), []

    def run(item: Item, left_s: float) -> Outcome:
        started.append((item.name, left_s))
        clock.now_s += item.takes_s
        return Outcome(item.name, "failed", item.takes_s, True)

    return started, run_in_turn(ITEMS, until_s, least_s, run, clock)


def test_each_is_told_what_the_others_have_left_and_a_failure_does_not_end_them() -> None:
    started, outcomes = run_until(200.0, 20.0)
    assert started == [("first", 100.0), ("second", 70.0), ("third", 25.0)]
    assert [outcome.text for outcome in outcomes] == ["failed"] * 3


def test_what_there_is_too_little_time_for_is_left_out_and_has_not_failed() -> None:
    started, outcomes = run_until(195.0, 20.1)
    assert [name for name, _ in started] == ["first", "second"]
    assert outcomes[2] == Outcome("third", "left out: no time", 0.0, False)


def test_without_an_end_all_are_run() -> None:
    started, _ = run_until(math.inf, 20.0)
    assert [left_s for _, left_s in started] == [math.inf] * 3


def test_names_choose_in_the_items_own_order() -> None:
    assert [item.name for item in chosen(["third", "first"], ITEMS)] == ["first", "third"]
    assert chosen([], ITEMS) == list(ITEMS)


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="unknown: slow, speed; there are first, second, third"):
        chosen(["speed", "first", "slow"], ITEMS)


@pytest.mark.parametrize("limit_s", [30.0, math.inf])
def test_a_status_is_passed_on(limit_s: float) -> None:
    assert run_limited(python("raise SystemExit(3)"), limit_s) == 3


def test_a_program_that_runs_on_is_stopped_with_what_it_has_started(tmp_path: Path) -> None:
    held, never = tmp_path / "held", tmp_path / "never"
    for pipe in (held, never):
        os.mkfifo(pipe)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    try:
        script = 'cat "$1" > "$2" & wait'  # the child holds one pipe, and waits for the other
        assert run_limited(["sh", "-c", script, "sh", str(never), str(held)], 0.2) is None
        os.set_blocking(reader, True)
        assert os.read(reader, 1) == b""  # only once nobody holds it
    finally:
        os.close(reader)


def test_output_and_errors_go_to_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('said', flush=True); print('warned', file=sys.stderr)"
    log = tmp_path / "one.log"
    assert run_limited(python(code), math.inf, log=log) == 0
    assert log.read_text().split() == ["said", "warned"]
    assert capfd.readouterr() == ("", "")
    assert run_limited(python(code), math.inf) == 0
    assert capfd.readouterr() == ("said\n", "warned\n")


def test_a_program_runs_where_and_with_what_it_is_given(tmp_path: Path) -> None:
    code = "import os; open('made', 'w').write(os.environ.get('GIVEN', ''))"
    assert run_limited(python(code), math.inf, folder=tmp_path, environment={"GIVEN": "x"}) == 0
    assert (tmp_path / "made").read_text() == "x"
