"""The ladder's table: what it has, in which order, and how long each step may take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gpu.limited_runs import GRACE_S

from gpu.ladder_steps import (
    ENDS_S,
    FACTS,
    LEAST_S,
    STEPS,
    TOTAL_S,
    Step,
    command_of,
    environment_of,
    limit_of,
    turns_of,
)
from gpu.rungs.table import RUNGS

ROOT = Path(__file__).parents[3]
NAMES = [step.name for step in STEPS]


def named(name: str) -> Step:
    return STEPS[NAMES.index(name)]


def test_names_are_different() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_every_rung_has_its_function_and_stands_in_the_documentation() -> None:
    rungs = [step.name for step in STEPS if step.kind == "rung"]
    assert rungs == list(RUNGS)
    assert rungs == NAMES[: len(rungs)]
    text = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
    section = text.partition("## What ran on a device")[2]
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE) == rungs


def test_every_file_of_tests_and_benchmarks_is_there() -> None:
    for step in STEPS:
        if step.kind == "benchmark":
            assert (ROOT / "benchmarks" / "gpu" / f"{step.name}.py").exists()
        for argument in step.arguments:
            if argument.startswith("tests/"):
                assert (ROOT / argument).exists(), argument


def test_every_file_of_tests_on_a_gpu_is_a_step_of_its_own() -> None:
    files = {f"tests/gpu/{file.name}" for file in (ROOT / "tests" / "gpu").glob("test_*.py")}
    assert {file for step in STEPS for file in step.arguments if "/gpu/" in file} == files


def test_what_fills_memory_is_the_last_of_the_suites_and_benchmarks_are_alone() -> None:
    assert [step.name for step in STEPS if step.part == "suites"][-1] == "failures"
    turns = [[step.name for step in turn] for turn in turns_of(STEPS)]
    assert ["property", "conformance"] in turns
    assert sum(len(turn) > 1 for turn in turns) == 1


def test_a_rung_may_take_25_to_40_seconds() -> None:
    assert all(25 <= step.limit_s <= 40 for step in STEPS if step.kind == "rung")


def test_every_part_leaves_time_to_those_after_it() -> None:
    """However long each step takes, until it is left behind after its limit."""
    now_s = 0.0
    left_out = set()
    for turn in turns_of(STEPS):
        limits = {step: limit_of(step, now_s) for step in turn}
        left_out.update(step.part for step in turn if limits[step] is None)
        taken_s = [limit_s + GRACE_S for limit_s in limits.values() if limit_s is not None]
        now_s += max(taken_s, default=0.0)
        assert now_s <= ENDS_S[turn[0].part]
    assert now_s <= TOTAL_S - 10
    assert left_out == set(ENDS_S)


def test_no_step_begins_that_has_hardly_any_time() -> None:
    end_s = ENDS_S["rungs"] - GRACE_S
    assert limit_of(FACTS, end_s - LEAST_S) == LEAST_S
    assert limit_of(FACTS, end_s - LEAST_S + 0.1) is None


@pytest.mark.parametrize("factor", [2, 10])
def test_with_more_time_each_step_may_take_longer(factor: int) -> None:
    step = named("references")
    assert limit_of(step, 0.0, factor * TOTAL_S) == factor * step.limit_s


def test_with_less_time_all_parts_end_earlier() -> None:
    assert limit_of(named("resnet50"), 200.0, TOTAL_S / 2) == 525 / 2 - GRACE_S - 200.0


def test_benchmarks_are_told_to_end_before_their_limit() -> None:
    command = command_of(named("transfers"), 20.0, Path("rows"))
    assert command[command.index("--seconds") + 1] == "14"
    assert command[command.index("--json") + 1] == str(Path("rows", "transfers.json"))


def test_steps_see_our_folders_first_and_only_the_plugins_that_the_tests_need() -> None:
    given = {"PYTHONPATH": "/theirs", "HOME": "/home"}
    made = environment_of(named("conformance"), given, [Path("/a"), Path("/b")], Path("/cache"))
    assert made["PYTHONPATH"] == "/a:/b:/theirs"
    assert made["HOME"] == "/home"
    assert made["AIOINFER_CONFORMANCE_DEVICE"] == "CUDA"
    assert made["AIOINFER_REQUIRE_DEVICE"] == made["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] == "1"
    assert "xdist.plugin" in made["PYTEST_PLUGINS"]
    assert "AIOINFER_CONFORMANCE_DEVICE" not in environment_of(FACTS, {}, [], Path("/cache"))
