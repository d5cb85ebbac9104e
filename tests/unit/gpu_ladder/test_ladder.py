"""The ladder goes to its end whatever its steps do, and what they said is there."""

from __future__ import annotations

import itertools
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from gpu.limited_runs import Outcome

from exhaustive import all_but
from gpu import ladder as module
from gpu.ladder import Ladder, RunningStep, table_of
from gpu.ladder_journal import Journal
from gpu.ladder_steps import FACTS, STEPS, Step, limit_of
from gpu.needs import UNFIT
from opencl_device import missing_reason

LACKING = missing_reason()
TESTS = Path(__file__).parents[2]
RIGHT = ["sh", "-c", "echo all is right"]
WAYS = {
    "failing": ["sh", "-c", "echo so far; exit 1"],
    "hanging": ["sleep", "300"],
    "crashing": ["sh", "-c", "echo so far; kill -ABRT $$"],
}
Climb = Callable[..., list[Outcome]]


@pytest.fixture
def climb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Climb:
    """Climb steps, some of which run other commands than the others; in milliseconds."""
    monkeypatch.setattr(module, "LOOK_S", 0.002)

    def run(
        steps: Sequence[Step],
        others: dict[str, Sequence[str]],
        command: Sequence[str] = RIGHT,
        limits: dict[str, float] | None = None,
    ) -> list[Outcome]:
        short = limits or {}
        monkeypatch.setattr(
            module, "limit_of", lambda step, now_s, total_s: short.get(step.name, 50.0)
        )
        made = made_ladder(tmp_path, lambda step, limit, rows: others.get(step.name, command))
        return made.climb(steps)

    return run


def made_ladder(folder: Path, command_of: Callable[..., Sequence[str]]) -> Ladder:
    work, cache = folder / "work", folder / "cache"
    for made in (work, cache):
        made.mkdir(mode=0o700)
    path = [TESTS, TESTS.parent / "benchmarks"]
    journal = Journal(folder / "out", work)
    return Ladder(journal, work, path, cache, time.monotonic(), command_of)


def archive(folder: Path) -> dict[str, str]:
    """Read what the archive has, by name."""
    with tarfile.open(folder / "out" / "ladder.tar.gz") as opened:
        found = {name: opened.extractfile(name) for name in opened.getnames()}
        return {name: file.read().decode() for name, file in found.items() if file}


def log(folder: Path) -> str:
    return (folder / "out" / "ladder.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("way", all_but([*WAYS][:2], WAYS))
@pytest.mark.parametrize("name", [step.name for step in STEPS if step.kind == "rung"])
def test_whatever_becomes_of_a_rung_all_others_are_climbed(
    name: str, way: str, climb: Climb, tmp_path: Path
) -> None:
    outcomes = climb(STEPS, {name: WAYS[way]}, limits={name: 0.2} if way == "hanging" else {})
    assert [one.name for one in outcomes] == [step.name for step in STEPS]
    assert [one.name for one in outcomes if one.is_failure] == [name]
    kept = archive(tmp_path)
    assert set(kept) == {f"logs/{step.name}.log" for step in STEPS}
    assert kept["logs/transfers.log"] == "all is right\n"


@pytest.mark.parametrize("way", WAYS)
def test_of_steps_side_by_side_one_does_not_end_the_other(
    way: str, climb: Climb, tmp_path: Path
) -> None:
    steps = [step for step in STEPS if step.turn is not None]
    limits = {"property": 0.2} if way == "hanging" else {}
    outcomes = climb(steps, {"property": WAYS[way]}, limits=limits)
    assert [one.is_failure for one in outcomes] == [True, False]
    assert "conformance: all is right" in log(tmp_path)


def test_if_all_hang_all_are_stopped(climb: Climb) -> None:
    steps = STEPS[:8]
    outcomes = climb(steps, {}, ["sleep", "300"], {step.name: 0.1 for step in steps})
    assert {one.text for one in outcomes} == {"stopped after 0 s by SIGINT"}


def test_a_program_that_is_blocked_shows_where_when_it_is_aborted(
    climb: Climb, tmp_path: Path
) -> None:
    script = (
        "import time\n"
        "def block_here():\n"
        "    print('blocked', flush=True)\n"
        "    time.sleep(300)\n"
        "block_here()"
    )
    # Ignored before Python starts, which may take longer than the limit.
    deaf = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", script]
    (one,) = climb([STEPS[1]], {}, deaf, {STEPS[1].name: 1.0})
    assert one.text == "stopped after 1 s by SIGABRT"
    assert "blocked" in log(tmp_path)
    assert "in block_here" in log(tmp_path)


def test_an_abort_shows_where_it_was(climb: Climb, tmp_path: Path) -> None:
    script = "import os\ndef crash_here():\n    os.abort()\ncrash_here()"
    (one,) = climb([STEPS[1]], {}, [sys.executable, "-c", script])
    assert one.text == "ended by SIGABRT"
    assert "in crash_here" in log(tmp_path)


def test_nothing_follows_on_a_machine_that_is_unfit(climb: Climb) -> None:
    outcomes = climb(STEPS, {FACTS.name: ["sh", "-c", f"exit {UNFIT}"]})
    assert [one.name for one in outcomes] == [FACTS.name]
    assert outcomes[0].is_failure


def test_the_same_status_of_another_step_is_a_failure_of_it_alone(climb: Climb) -> None:
    outcomes = climb(STEPS[:4], {STEPS[2].name: ["sh", "-c", f"exit {UNFIT}"]})
    assert [one.is_failure for one in outcomes] == [False, False, True, False]


def test_a_command_that_is_not_there_is_a_failure(climb: Climb, tmp_path: Path) -> None:
    outcomes = climb(STEPS[:3], {STEPS[1].name: ["/no/such/program"]})
    assert [one.is_failure for one in outcomes] == [False, True, False]
    assert "not started" in outcomes[1].text
    assert "/no/such/program" in log(tmp_path)


def test_bytes_that_are_no_text_are_shown_all_the_same(climb: Climb, tmp_path: Path) -> None:
    assert not climb([STEPS[1]], {}, ["printf", r"\377\000x"])[0].is_failure
    assert "x" in log(tmp_path)


def test_one_that_never_stops_talking_is_not_shown_for_ever(climb: Climb, tmp_path: Path) -> None:
    climb([STEPS[1]], {}, ["sh", "-c", "yes | head -c 3000000"])
    assert "(more of this is in the archive)" in log(tmp_path)
    assert len(log(tmp_path)) < 2_000_000
    assert len(archive(tmp_path)[f"logs/{STEPS[1].name}.log"]) == 3_000_000


def test_without_time_what_is_left_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step seems to take 25 s."""
    monkeypatch.setattr(module, "LOOK_S", 0.002)
    starts_s = itertools.count(0, 25)
    monkeypatch.setattr(
        module, "limit_of", lambda step, _, total_s: limit_of(step, next(starts_s), total_s)
    )
    outcomes = made_ladder(tmp_path, lambda step, limit, rows: RIGHT).climb(STEPS)
    assert sorted(one.name for one in outcomes) == sorted(step.name for step in STEPS)
    texts = {one.name: one.text for one in outcomes}
    assert texts["capture"] == texts["device_facts"] == "passed"
    assert texts["resnet50-f16"] == texts["torch_baseline"] == "left out: no time"
    assert not any(one.is_failure for one in outcomes)


def test_the_table_marks_failures(climb: Climb) -> None:
    lines = table_of(climb(STEPS[:2], {STEPS[1].name: ["false"]})).splitlines()
    assert [line[0] for line in lines] == [" ", "!"]


@pytest.mark.exhaustive
@pytest.mark.skipif(LACKING is not None, reason=f"nothing stands in: {LACKING}")
def test_the_first_rungs_are_climbed_on_a_device_that_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = str(Path(__file__).with_name("stand_in_rung.py"))
    monkeypatch.setenv("AIOINFER_GPU_NEEDS", "")
    made = made_ladder(
        tmp_path, lambda step, limit, rows: [sys.executable, "-P", program, step.name]
    )
    outcomes = made.climb(STEPS[:3])
    assert [one.text for one in outcomes] == ["passed"] * 3, log(tmp_path)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have main work in a folder of the test, and give the arguments that say where it writes."""
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "prepare", lambda site, wheels, say: [])
    monkeypatch.setattr(module, "stop_on_sigterm", lambda: None)
    return ["--out", str(tmp_path / "out")]


@pytest.mark.parametrize(("is_failure", "status"), [(False, 0), (True, 1)])
def test_a_failure_is_the_status_of_all(
    is_failure: bool, status: int, folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def climb(self: Ladder, steps: Sequence[Step], total_s: float) -> list[Outcome]:
        names.extend(step.name for step in steps)
        return [Outcome("capture", "as the test wants it", 1.0, is_failure)]

    monkeypatch.setattr(Ladder, "climb", climb)
    assert module.main(["capture", *folders]) == status
    assert names == ["facts", "capture"]


def test_an_interrupted_ladder_leaves_log_and_archive(
    folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "command_of", lambda *given: ["sleep", "300"])
    monkeypatch.setattr(RunningStep, "look", lambda self: interrupt())
    assert module.main(folders) == 130
    assert archive(tmp_path) == {"logs/facts.log": ""}
    assert log(tmp_path).endswith("stopped\n")


def test_an_unknown_step_is_refused_with_those_that_there_are(
    folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        module.main(["conv", *folders])
    assert "conv-f16" in capsys.readouterr().err
