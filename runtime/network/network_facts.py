"""What a network can be asked: facts with ``get_metric``, and the properties it was loaded with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...errors import PropertyError, nearest, placed
from ..properties.properties import Configuration, Metric

__all__ = ["config_value", "known_metrics", "metric_value"]


class AskedNetwork(Protocol):
    """What the facts are read from."""

    name: str
    device: str
    config: Configuration
    batching_refusal: str
    is_from_cache: bool

    @property
    def execution_devices(self) -> tuple[str, ...]:
        """The devices that compute for it."""

    @property
    def optimal_request_count(self) -> int:
        """How many requests in flight keep the device busy."""


def config_value(network: AskedNetwork, key: str, of_backend: Sequence[Metric]) -> Any:
    """Return the value of a property; raises PropertyError for an unknown key, and for a fact."""
    if key in known_metrics(network, of_backend):
        raise PropertyError(
            f"network {network.name!r} on {network.device} has no property {key!r}; that is a "
            f"fact: ask with get_metric",
            key,
            network.device,
            network=network.name,
        )
    with placed(network=network.name, device=network.device):
        return network.config[key]


def metric_value(
    network: AskedNetwork,
    key: str,
    options: Mapping[str, Any],
    of_backend: Sequence[Metric],
) -> Any:
    """Read a fact; raises PropertyError for an unknown key, and for a property."""
    metrics = known_metrics(network, of_backend)
    if key not in metrics:
        hint = nearest(key, metrics) or f"; it has {sorted(metrics)}"
        if network.config.knows(key):
            hint = "; that is a property: ask with get_config"
        raise PropertyError(
            f"network {network.name!r} on {network.device} has no metric {key!r}{hint}",
            key,
            network.device,
            network=network.name,
        )
    with placed(network=network.name, device=network.device):
        return metrics[key].value(options, f"network {network.name!r}")


def known_metrics(network: AskedNetwork, of_backend: Sequence[Metric]) -> dict[str, Metric]:
    """Return the facts about a network by key: the common ones and the backend's."""
    keys = ["NETWORK_NAME", "OPTIMAL_NUMBER_OF_INFER_REQUESTS", "EXECUTION_DEVICES"]
    keys += ["BATCHING_REFUSAL", "LOADED_FROM_CACHE"]
    keys += ["SUPPORTED_METRICS", "SUPPORTED_CONFIG_KEYS", "SUPPORTED_PROPERTIES"]
    known = [*keys, *(metric.key for metric in of_backend)]
    read_only = dict.fromkeys([*known, *network.config], "RO")
    common = [
        Metric(
            "NETWORK_NAME",
            lambda _: network.name,
            "What load_network called it: the file's name, unless one was given.",
        ),
        Metric(
            "OPTIMAL_NUMBER_OF_INFER_REQUESTS",
            lambda _: network.optimal_request_count,
            "How many requests in flight keep the device busy.",
        ),
        Metric(
            "EXECUTION_DEVICES",
            lambda _: list(network.execution_devices),
            "Devices that compute.",
        ),
        Metric(
            "BATCHING_REFUSAL",
            lambda _: network.batching_refusal or "none",
            "Why requests do not share runs, where they were to if they can; else 'none'.",
        ),
        Metric(
            "LOADED_FROM_CACHE",
            lambda _: network.is_from_cache,
            "Whether CACHE_DIR had the network, so that nothing was rewritten.",
        ),
        Metric("SUPPORTED_METRICS", lambda _: sorted(known), "What get_metric knows."),
        Metric("SUPPORTED_CONFIG_KEYS", lambda _: sorted(network.config), "For get_config."),
        Metric("SUPPORTED_PROPERTIES", lambda _: read_only, "All keys with RO or RW."),
    ]
    return {metric.key: metric for metric in (*common, *of_backend)}
