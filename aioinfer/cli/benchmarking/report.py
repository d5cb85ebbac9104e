"""The JSON report of a benchmark: filled step by step, written whatever happens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...runtime.tracing.durations import Durations
from ...runtime.tracing.statistics import StageStatistics
from .percentiles import LatencySummary, Window
from .summed_node_times import NodeTime

__all__ = ["BenchmarkReport", "json_value"]


@dataclass
class BenchmarkReport:
    """What is known of a benchmark so far; what was not reached is None or empty. Times in ms."""

    command_line: str
    configuration: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    execution_devices: list[str] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)
    shapes: dict[str, list[int]] = field(default_factory=dict)
    request_count: int | None = None
    batch: int | None = None
    read_model_ms: float | None = None
    load_network_ms: float | None = None
    first_inference_ms: float | None = None
    duration_ms: float | None = None
    throughput_fps: float | None = None
    latency: LatencySummary | None = None
    latencies_ms: list[float] = field(default_factory=list)
    window: Window | None = None
    nodes: list[NodeTime] = field(default_factory=list)
    is_interrupted: bool = False
    error: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the report as JSON knows it."""
        return {
            "command_line": self.command_line,
            "environment": self.environment,
            "configuration": self.configuration,
            "execution": {
                "devices": self.execution_devices,
                "properties": json_value(self.properties),
                "shapes": self.shapes,
                "batch": self.batch,
                "nireq": self.request_count,
            },
            "results": {
                "read_model_ms": self.read_model_ms,
                "load_network_ms": self.load_network_ms,
                "first_inference_ms": self.first_inference_ms,
                "count": len(self.latencies_ms),
                "duration_ms": self.duration_ms,
                "throughput_fps": self.throughput_fps,
                "latency": asdict(self.latency) if self.latency else None,
            },
            "stages": [_stage(stage) for stage in self.window.stages] if self.window else [],
            "busy_shares": self.window.busy_shares if self.window else {},
            "nodes": [asdict(node) for node in self.nodes],
            "latencies_ms": self.latencies_ms,
            "interrupted": self.is_interrupted,
            "error": self.error,
        }

    def write(self, path: Path) -> None:
        """Write the report; raises OSError."""
        path.write_text(json.dumps(self.document(), indent=2) + "\n", encoding="utf-8")


def _stage(stage: StageStatistics) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "executor": stage.executor,
        "count": stage.count,
        "busy_s": stage.busy_s,
        "mean_service_s": stage.mean_service_s,
        "mean_queue_s": stage.mean_queue_s,
        "service": _percentiles(stage.service),
        "queue": _percentiles(stage.queue),
    }


def _percentiles(durations: Durations) -> dict[str, float]:
    return {
        "p50_s": durations.p50_s,
        "p90_s": durations.p90_s,
        "p99_s": durations.p99_s,
        "max_s": durations.max_s,
    }


def json_value(value: Any) -> Any:
    """Turn a property's value into what JSON knows; what it does not know becomes text."""
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
