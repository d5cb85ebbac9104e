from collections.abc import Iterable, Sequence

from aioinfer.cli.benchmarking.summed_node_times import NodeTime, NodeTimes
from aioinfer.runtime.runs.bindings import NodeProfile


def entry(name: str, milliseconds: int) -> NodeProfile:
    end_ns = milliseconds * 1_000_000
    return NodeProfile(name, "Op", (f"original {name}",), 0, end_ns, f"native:{name}")


def mean_node_times(profiles: Iterable[Sequence[NodeProfile]]) -> list[NodeTime]:
    times = NodeTimes()
    for profile in profiles:
        times.add(profile)
    return times.means()


def test_nodes_are_averaged_over_the_runs_and_the_slowest_comes_first() -> None:
    runs = [[entry("a", 1), entry("b", 5)], [entry("a", 3), entry("b", 7)]]
    slow, fast = mean_node_times(runs)
    assert (slow.name, slow.mean_ms, slow.share) == ("b", 6.0, 0.75)
    assert (fast.name, fast.mean_ms, fast.share) == ("a", 2.0, 0.25)
    assert slow.original_nodes == ("original b",)
    assert (slow.implementation, fast.implementation) == ("native:b", "native:a")


def test_a_node_that_ran_in_some_runs_is_averaged_over_those() -> None:
    times = mean_node_times([[entry("a", 4)], [entry("b", 1)], []])
    assert [(time.name, time.mean_ms) for time in times] == [("a", 4.0), ("b", 1.0)]


def test_a_node_in_a_loop_counts_with_the_sum_of_its_times() -> None:
    (time,) = mean_node_times([[entry("a", 1), entry("a", 2)], [entry("a", 5)]])
    assert (time.mean_ms, time.share) == (4.0, 1.0)


def test_equal_nodes_stay_in_running_order() -> None:
    assert [time.name for time in mean_node_times([[entry("b", 1), entry("a", 1)]])] == ["b", "a"]


def test_nodes_that_take_no_time_have_no_share() -> None:
    assert [time.share for time in mean_node_times([[entry("a", 0)]])] == [0.0]
    assert mean_node_times([]) == []
