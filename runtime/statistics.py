"""What a network has done so far, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["NetworkStatistics", "StageStatistics"]


@dataclass(frozen=True)
class StageStatistics:
    """One stage on one executor; means are per execution."""

    stage: str
    executor: str
    count: int
    busy_s: float
    mean_service_s: float
    mean_queue_s: float


@dataclass(frozen=True)
class NetworkStatistics:
    """A frozen picture of a network.

    Requests by outcome: ``finished`` with a result, ``failed`` with an error, ``cancelled`` by the
    caller, ``expired`` by a deadline, ``aborted`` by a close. ``waiting`` have no slot yet,
    ``running`` have one. ``busy_shares`` says for each executor in which share of ``elapsed_s``
    (since the first run) its lanes worked for this network, 0 to 1.
    """

    finished_request_count: int
    failed_request_count: int
    cancelled_request_count: int
    expired_request_count: int
    aborted_request_count: int
    waiting_run_count: int
    running_run_count: int
    elapsed_s: float
    stages: tuple[StageStatistics, ...]
    busy_shares: Mapping[str, float]
