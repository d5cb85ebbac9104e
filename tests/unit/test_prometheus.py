"""Metrics for Prometheus, read back with its own parser as a scrape would."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest, make_asgi_app
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

import aioinfer
from aioinfer.errors import PropertyError
from aioinfer.prometheus import BUCKETS_S, NetworkCollector
from aioinfer.testing import MockDevices
from unit.runtime.models import tiny_model

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_metrics.py"
X = np.array([[-1, 2, 3]], np.float32)
LIMIT_S = 170.0


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    """One for each test, so that it has the test's networks only."""
    with aioinfer.Core() as made:
        yield made


@pytest.fixture
def held(core: aioinfer.Core) -> Iterator[MockDevices]:
    """MOCK.0 and MOCK.1: each run waits until the test releases it."""
    devices = MockDevices(2)
    core.register_plugin("MOCK", devices.make_plugin)
    yield devices
    for device in devices.devices:  # the runs that are left would hold up core's close
        device.held.close()


@pytest.fixture
def registry(core: aioinfer.Core) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(NetworkCollector(core))
    return made


def samples(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Parse a scrape: sample name -> labels -> value; no series comes twice."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), (sample.name, labels)
            found[sample.name][labels] = sample.value
    return found


def scrape(registry: CollectorRegistry) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    return samples(generate_latest(registry).decode())


def test_bytes_that_were_copied_are_counted_by_stage_and_kind(
    core: aioinfer.Core, registry: CollectorRegistry
) -> None:
    network = core.load_network(tiny_model(), "CPU")
    reversed_rows = np.stack([X[0], X[0]])[::-1, ::-1]
    for _ in range(3):
        network.create_infer_request().infer_sync(reversed_rows)
    found = scrape(registry)["aioinfer_copied_bytes_total"]
    ((labels, value),) = found.items()
    assert of(labels, stage="compute", kind="host", network=network.name)
    assert value == 3 * reversed_rows.nbytes


def of(labels: Any, **wanted: str) -> bool:
    return set(wanted.items()) <= set(labels)


def test_a_scrape_of_a_core_without_networks_has_no_series(registry: CollectorRegistry) -> None:
    assert scrape(registry) == {}


def test_all_networks_are_in_one_scrape_with_the_numbers_of_statistics(
    core: aioinfer.Core, held: MockDevices, registry: CollectorRegistry
) -> None:
    networks = [core.load_network(tiny_model(), "MOCK.0", name=name) for name in ("one", "two")]
    for network, count in zip(networks, (5, 1), strict=True):
        for _ in range(count):
            network.create_infer_request().start_async(X)
    held[0].held.release(2)
    found = scrape(registry)
    (number,) = {dict(labels)["core"] for labels in found["aioinfer_waiting_runs"]}

    def value(name: str, network: str, **more: str) -> float:
        labels = {"core": number, "network": network, "device": "MOCK.0", "copy": "1", **more}
        return found[name][tuple(sorted(labels.items()))]

    assert value("aioinfer_waiting_runs", "one") == 1
    assert value("aioinfer_running_runs", "one") == 2
    assert value("aioinfer_running_runs", "two") == 1
    for outcome in ("finished", "failed", "cancelled", "expired", "aborted", "refused"):
        wanted = 2 if outcome == "finished" else 0
        assert value("aioinfer_requests_total", "one", outcome=outcome) == wanted
        assert value("aioinfer_requests_total", "two", outcome=outcome) == 0
    statistics = networks[0].statistics()
    took = value("aioinfer_request_duration_seconds_sum", "one", outcome="finished")
    assert took == pytest.approx(statistics.latency.sum_s)
    assert value("aioinfer_slot_wait_seconds_count", "one") == 4, "one still waits"
    assert value("aioinfer_slot_wait_seconds_sum", "one") == pytest.approx(
        statistics.slot_wait.sum_s
    )
    assert value("aioinfer_batch_rows_count", "one") == 5
    assert value("aioinfer_batch_rows_bucket", "one", le="1.0") == 5
    (stage,) = statistics.stages
    place = {"stage": stage.stage, "executor": stage.executor}
    assert value("aioinfer_stage_duration_seconds_count", "one", **place) == 2
    assert value("aioinfer_stage_queue_seconds_count", "one", **place) == 2


def test_histograms_rise_to_their_count_in_buckets_of_seconds(
    core: aioinfer.Core, registry: CollectorRegistry
) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    for rows in (1, 3, 2000):
        network.create_infer_request().infer_sync(np.ones((rows, 3), np.float32))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    histograms = [family for family in families if family.type == "histogram"]
    assert {family.name for family in histograms if family.samples} == {
        "aioinfer_request_duration_seconds",
        "aioinfer_slot_wait_seconds",
        "aioinfer_stage_duration_seconds",
        "aioinfer_stage_queue_seconds",
        "aioinfer_batch_rows",
    }
    for family in histograms:
        series: dict[Any, list[tuple[float, float]]] = {}
        counts: dict[Any, float] = {}
        for sample in family.samples:
            labels = {name: text for name, text in sample.labels.items() if name != "le"}
            key = tuple(sorted(labels.items()))
            if sample.name.endswith("_bucket"):
                series.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
            elif sample.name.endswith("_count"):
                counts[key] = sample.value
        assert series.keys() == counts.keys()
        for key, buckets in series.items():
            bounds, within = zip(*buckets, strict=True)
            assert list(within) == sorted(within)
            assert (bounds[-1], within[-1]) == (math.inf, counts[key])
            if family.name.endswith("_seconds"):
                assert bounds[:-1] == BUCKETS_S


def test_names_follow_the_conventions_of_prometheus(
    core: aioinfer.Core, registry: CollectorRegistry
) -> None:
    network = core.load_network(tiny_model(), "REFERENCE", name='a "quoted"\\name')
    network.create_infer_request().infer_sync(X)
    text = generate_openmetrics(registry).decode()
    families = {family.name: family for family in parse_openmetrics(text)}  # it is strict
    for name, family in families.items():
        assert name.startswith("aioinfer_")
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
            assert sample.labels.get("network", 'a "quoted"\\name') == 'a "quoted"\\name'


def test_networks_of_one_name_and_the_parts_of_hetero_have_series_of_their_own(
    core: aioinfer.Core, held: MockDevices, registry: CollectorRegistry
) -> None:
    config = {"AFFINITY": {"relu": "MOCK.0", "add": "MOCK.1"}}
    for _ in range(2):
        network = core.load_network(tiny_model(), "HETERO:MOCK.0,MOCK.1", config, name="cut")
        network.create_infer_request().start_async(X)
    found = scrape(registry)
    wholes = found["aioinfer_running_runs"]
    assert [dict(labels)["copy"] for labels in wholes] == ["1", "2"]
    parts = found["aioinfer_part_running_runs"]
    assert [value for labels, value in parts.items() if of(labels, device="MOCK.0")] == [1, 1]
    assert [value for labels, value in parts.items() if of(labels, device="MOCK.1")] == [0, 0]
    assert {dict(labels)["network"] for labels in parts} == {"cut.subgraph0", "cut.subgraph1"}
    requests = found["aioinfer_requests_total"]
    assert {dict(labels)["network"] for labels in requests} == {"cut"}


def test_devices_that_share_requests_have_series_of_their_own(
    core: aioinfer.Core, registry: CollectorRegistry
) -> None:
    with core.load_network(tiny_model("tiny"), "MULTI:REFERENCE.0,REFERENCE.1") as network:
        network.create_infer_request().infer_sync(X)
        runs = {}
        for metric in registry.collect():
            for sample in metric.samples:
                if sample.name == "aioinfer_member_runs_total":
                    runs[sample.labels["member"]] = sample.value
        assert runs == {"REFERENCE.0": 1.0, "REFERENCE.1": 0.0}


def test_plans_tell_which_runs_had_them_built(
    core: aioinfer.Core, registry: CollectorRegistry
) -> None:
    request = core.load_network(tiny_model(), "HETERO:REFERENCE").create_infer_request()
    for rows in (*range(1, 41), 40):
        request.infer_sync(np.ones((rows, 3), np.float32))
    found = scrape(registry)
    lookups = {
        dict(labels)["result"]: n for labels, n in found["aioinfer_plan_lookups_total"].items()
    }
    assert lookups["miss"] == 40
    assert lookups["hit"] >= 1
    (kept,), (evicted,) = (
        found["aioinfer_plans"].values(),
        found["aioinfer_plan_evictions_total"].values(),
    )
    assert kept + evicted == 40
    assert evicted > 0
    assert set(found["aioinfer_plan_builds_total"].values()) == {40}
    assert min(found["aioinfer_plan_build_seconds_total"].values()) > 0


def test_two_cores_in_one_registry_have_series_of_their_own(
    core: aioinfer.Core, registry: CollectorRegistry
) -> None:
    with aioinfer.Core() as other:
        registry.register(NetworkCollector(other))
        networks = [
            owner.load_network(tiny_model(), "REFERENCE", name="same") for owner in (core, other)
        ]
        for rows, network in enumerate(networks, 1):
            network.create_infer_request().infer_sync(np.ones((rows, 3), np.float32))
        found = scrape(registry)  # which refuses a series that comes twice
        for name, series in found.items():
            numbers = {dict(labels)["core"] for labels in series}
            assert len(numbers) == 2, name
        assert sorted(found["aioinfer_batch_rows_sum"].values()) == [1, 2]
        again = CollectorRegistry()
        again.register(NetworkCollector(core))
        assert found.keys() == scrape(again).keys()
        for name, series in scrape(again).items():
            assert series.keys() < found[name].keys(), "a Core keeps its number"


def test_a_closed_network_is_not_shown(core: aioinfer.Core, registry: CollectorRegistry) -> None:
    with core.load_network(tiny_model(), "REFERENCE", name="gone"):
        assert any(of(labels, network="gone") for labels in scrape(registry)["aioinfer_plans"])
    assert "aioinfer_plans" not in scrape(registry)
    core.close()
    assert scrape(registry) == {}


async def test_an_asgi_application_serves_it(
    core: aioinfer.Core, registry: CollectorRegistry
) -> None:
    network = core.load_network(tiny_model(), "REFERENCE", name="served")
    await network.infer(X)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    await make_asgi_app(registry)(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent).decode()
    finished = samples(body)["aioinfer_requests_total"]
    assert [n for labels, n in finished.items() if of(labels, outcome="finished")] == [1]


@pytest.mark.parametrize("buckets_s", [(0.0, 1.0), (2.0, 1.0), (1.0, math.inf), (math.nan,), (-1,)])
def test_buckets_that_do_not_rise_are_refused(core: aioinfer.Core, buckets_s: Any) -> None:
    with pytest.raises(PropertyError, match=r"buckets_s is .*; give rising finite numbers"):
        NetworkCollector(core, buckets_s)


def test_buckets_may_be_the_users(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    network.create_infer_request().infer_sync(X)
    made = CollectorRegistry()
    made.register(NetworkCollector(core, buckets_s=(60, 3600)))
    series = scrape(made)["aioinfer_request_duration_seconds_bucket"]
    assert {dict(labels)["le"]: count for labels, count in series.items()} == {
        "60.0": 1,
        "3600.0": 1,
        "+Inf": 1,
    }


def test_without_the_package_the_error_says_what_to_install() -> None:
    script = "import sys; sys.modules['prometheus_client'] = None; import aioinfer.prometheus"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert "pip install 'aioinfer[prometheus]'" in ended.stderr


def test_the_example_serves_metrics_and_ends_by_itself() -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "aioinfer_request_duration_seconds (histogram)" in ended.stdout


def test_it_is_an_attribute_of_the_package_that_is_loaded_when_it_is_asked_for() -> None:
    program = (
        "import sys, aioinfer; assert 'aioinfer.prometheus' not in sys.modules;"
        "print(aioinfer.prometheus.NetworkCollector.__name__)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=170, check=False
    )
    assert (ran.stdout.strip(), ran.stderr) == ("NetworkCollector", "")
