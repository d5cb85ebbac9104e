"""How many plans are built, and which."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioinfer.backends.cuda.libraries.cudnn_builder import RefusedError, build_candidates
from aioinfer.backends.cuda.libraries.cudnn_conv import describe_conv
from unit.backends.cuda.libraries.conv_operation import conv_operation
from unit.backends.cuda.libraries.fake_cudnn import FakeFrontend

CONV = describe_conv(conv_operation())


def ticking(step_s: float) -> Callable[[], float]:
    """Make a clock by which a step passes between any two readings."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += step_s
        return now

    return clock


def built(frontend: FakeFrontend, most: int = 40, seconds: float = 1e9) -> list[str]:
    made = build_candidates(frontend, CONV, most, seconds, ticking(1.0), device_property="p")
    assert [plan.name for plan in made] == [plan.blob.decode()[len("plan ") :] for plan in made]
    return [plan.name for plan in made]


def test_plans_come_in_the_order_of_recommendation_up_to_the_limit() -> None:
    frontend = FakeFrontend("a", "b", "c")
    assert built(frontend) == ["a", "b", "c"]
    assert built(frontend, most=2) == ["a", "b"]


def test_time_ends_it_but_never_before_there_is_one() -> None:
    frontend = FakeFrontend("a", "b", "c", "d")
    assert built(frontend, seconds=0.0) == ["a"]
    assert built(frontend, seconds=2.5) == ["a", "b", "c"]


def test_what_cannot_be_built_is_passed_over() -> None:
    frontend = FakeFrontend("a", "b")
    frontend.unbuildable = {"a"}
    assert built(frontend, most=1) == ["b"]


def test_engines_of_others_are_left_out() -> None:
    assert built(FakeFrontend("python engine", "b")) == ["b"]


def test_nothing_is_compiled_beside_many_that_are_ready() -> None:
    few, many = [f"ready {i}" for i in range(7)], [f"ready {i}" for i in range(8)]
    assert built(FakeFrontend(*few, "compiled")) == [*few, "compiled"]
    assert built(FakeFrontend(*many, "compiled", "last")) == [*many, "last"]
    assert built(FakeFrontend("compiled 1", "compiled 2")) == ["compiled 1", "compiled 2"]


def test_a_knob_and_an_engine_name_a_plan() -> None:
    (_, second) = build_candidates(FakeFrontend("a", "b"), CONV, 2, 1e9, device_property="p")
    assert (second.engine, second.knobs, second.workspace_bytes) == (1, (("TILE_SIZE", 1),), 128)


def test_reasons_are_told_once_each_and_not_all() -> None:
    frontend = FakeFrontend(*"abcde")
    frontend.unbuildable = set("abcde")
    with pytest.raises(RefusedError) as caught:
        built(frontend)
    assert str(caught.value) == (
        "no plan can be built: a fails to compile; b fails to compile; c fails to compile"
    )
    with pytest.raises(RefusedError, match="cuDNN recommends none"):
        built(FakeFrontend("python engine"))
