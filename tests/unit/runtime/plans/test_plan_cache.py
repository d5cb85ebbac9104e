"""Plans are built once, on the compile executor, and runs wait for their token."""

from __future__ import annotations

import pytest

from aioinfer.errors import AioInferError
from aioinfer.executors import ImmediateExecutor, ManualExecutor
from aioinfer.runtime.plans.plan_cache import PlanCache, PlanLimits


def test_all_who_ask_meanwhile_wait_for_one_build() -> None:
    built: list[int] = []
    compiler = ManualExecutor("compile")
    cache: PlanCache[int, str] = PlanCache(lambda key: built.append(key) or f"plan {key}", compiler)
    first, second = cache.request(4), cache.request(4)
    assert first is second
    assert not first.is_ready
    with pytest.raises(AioInferError, match="not built yet"):
        _ = first.plan
    compiler.release()
    assert first.is_ready
    assert first.plan == "plan 4"
    assert built == [4]
    assert cache.request(4).is_ready
    assert repr(compiler) == "<ManualExecutor 'compile' 0 waiting>"


def test_a_failed_build_tells_all_who_wait_and_is_tried_again() -> None:
    compiler = ManualExecutor("compile")
    answers = iter([ValueError("no memory"), "plan"])

    def build(_key: int) -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cache: PlanCache[int, str] = PlanCache(build, compiler)
    failed = cache.request(1)
    compiler.release()
    assert isinstance(failed.error, ValueError)
    again = cache.request(1)
    compiler.release()
    assert again.plan == "plan"


def test_the_least_recently_used_plan_goes_first() -> None:
    compiler = ManualExecutor("compile")
    built: list[int] = []
    cache: PlanCache[int, int] = PlanCache(
        lambda key: built.append(key) or key, compiler, PlanLimits(2)
    )
    for key in (1, 2, 1, 3, 1):
        cache.request(key)
        while compiler.waiting_count:
            compiler.release()
    assert built == [1, 2, 3]
    assert len(cache) == 2


def test_the_plans_that_are_kept_and_built_are_listed() -> None:
    def build(key: int) -> str:
        if key == 2:
            raise ValueError("no memory")
        return f"plan {key}"

    compiler = ManualExecutor("compile")
    cache: PlanCache[int, str] = PlanCache(build, compiler, PlanLimits(3))
    for key in (1, 2, 3):
        cache.request(key)
        compiler.release()
    assert cache.plans() == ["plan 1", "plan 3"]
    for key in (4, 5):
        cache.request(key)
    assert cache.plans() == ["plan 3"]


def test_a_closed_compiler_fails_the_token() -> None:
    compiler = ManualExecutor("compile")
    compiler.close()
    cache: PlanCache[int, int] = PlanCache(lambda key: key, compiler)
    assert "closed" in str(cache.request(1).error)
    assert len(cache) == 0


def test_plans_that_were_asked_for_ahead_do_not_push_each_other_out() -> None:
    compiler = ManualExecutor("compile")
    built: list[int] = []
    cache: PlanCache[int, int] = PlanCache(
        lambda key: built.append(key) or key, compiler, PlanLimits(2)
    )
    for key in range(5):
        cache.build_now(key)
    cache.request(5)
    compiler.release()
    assert len(cache) == 5
    assert built == [0, 1, 2, 3, 4, 5]


def test_plans_are_bounded_by_their_bytes() -> None:
    compiler = ImmediateExecutor("compile")
    cache: PlanCache[int, int] = PlanCache(
        lambda key: key, compiler, PlanLimits(most_bytes=100), size_of=lambda plan: plan
    )
    for size in (40, 50, 30):
        cache.request(size)
    assert cache.kept_keys() == [50, 30]
    assert (cache.size_bytes, cache.eviction_count) == (80, 1)
    cache.request(50)
    cache.request(45)
    assert cache.kept_keys() == [50, 45]
    cache.request(500)  # one alone is kept however large it is
    assert cache.kept_keys() == [500]
    cache.clear()
    assert cache.size_bytes == 0


def test_without_a_bound_on_bytes_only_the_count_matters() -> None:
    cache: PlanCache[int, int] = PlanCache(
        lambda key: key, ImmediateExecutor("compile"), PlanLimits(2), size_of=lambda plan: plan
    )
    for size in (1 << 40, 2 << 40, 3 << 40):
        cache.request(size)
    assert cache.kept_keys() == [2 << 40, 3 << 40]


def test_a_warm_up_has_room_for_its_plans_and_leaves_no_room_that_it_has_not_used() -> None:
    cache: PlanCache[int, int] = PlanCache(
        lambda key: key, ImmediateExecutor("compile"), PlanLimits(2)
    )
    for _ in range(3):  # again and again it is the same room
        cache.begin_ahead(5)
        for key in range(4):
            cache.request(key)
        assert cache.end_ahead() == ""
        assert cache.kept_keys() == [0, 1, 2, 3]
    cache.request(4)
    assert cache.kept_keys() == [1, 2, 3, 4]


def test_what_a_warm_up_has_lost_for_a_bound_of_the_user_is_told() -> None:
    by_count: PlanCache[int, int] = PlanCache(
        lambda key: key, ImmediateExecutor("compile"), PlanLimits(2, is_count_asked=True)
    )
    by_count.request(7)
    by_count.begin_ahead(5)
    for key in range(5):
        by_count.request(key)
    assert by_count.end_ahead() == "2 of 5 plans are kept; raise PLAN_CACHE_COUNT"
    by_count.begin_ahead(2)
    for key in (5, 6):  # others may go
        by_count.request(key)
    assert by_count.end_ahead() == ""
    by_bytes: PlanCache[int, int] = PlanCache(
        lambda key: key, ImmediateExecutor("compile"), PlanLimits(9, 100), lambda plan: plan
    )
    by_bytes.begin_ahead(3)
    for size in (50, 51, 49):
        by_bytes.request(size)
    assert by_bytes.end_ahead() == "2 of 3 plans are kept; raise PLAN_CACHE_BYTES"
