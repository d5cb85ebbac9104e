"""The options of ``aioinfer benchmark``, checked against each other. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runtime.properties.properties import (
    NUM_STREAMS,
    PERF_COUNT,
    PERFORMANCE_HINT,
    PERFORMANCE_HINT_NUM_REQUESTS,
)
from ...runtime.tracing.timeline import check_trace_file
from ..arguments import OptionError
from ..device_config import device_config
from ..shapes import parse_shapes

__all__ = ["DEFAULT_DURATION_S", "BenchmarkOptions", "network_config", "parse_options"]

DEFAULT_DURATION_S = 10.0


@dataclass(frozen=True)
class BenchmarkOptions:
    """What to measure and how. ``request_count`` None: as many as the network finds optimal."""

    model: str
    device: str
    api: str
    hint: str
    request_count: int | None
    iteration_count: int | None
    duration_s: float | None
    batch: int | None
    shapes: Mapping[str, tuple[int, ...]]
    stream_count: str | None
    inputs: tuple[str, ...]
    seed: int
    percentile: int
    has_node_times: bool
    report: Path | None
    trace: Path | None
    config: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON knows them."""
        return {
            "model": self.model,
            "device": self.device,
            "api": self.api,
            "hint": self.hint,
            "nireq": self.request_count,
            "niter": self.iteration_count,
            "duration_s": self.duration_s,
            "batch": self.batch,
            "shapes": {name or "*": list(shape) for name, shape in self.shapes.items()},
            "nstreams": self.stream_count,
            "inputs": list(self.inputs),
            "seed": self.seed,
            "percentile": self.percentile,
            "config": dict(self.config),
        }


def parse_options(parsed: argparse.Namespace) -> BenchmarkOptions:
    """Check the parsed arguments against each other; raises OptionError for a contradiction."""
    hint = parsed.hint or ("latency" if parsed.api == "sync" else "throughput")
    if parsed.nstreams and hint != "none":
        raise OptionError(
            f"-nstreams {parsed.nstreams} needs -hint none: a hint chooses the streams itself"
        )
    if parsed.api == "sync" and parsed.nireq not in (None, 1):
        raise OptionError(
            f"-api sync uses one request, so -nireq {parsed.nireq} does not fit; leave it out, or "
            f"take -api async"
        )
    config = device_config([*parsed.config, *_stream_settings(parsed.nstreams)], parsed.affinity)
    for option, given, key in (
        ("-hint", parsed.hint, PERFORMANCE_HINT.key),
        ("-pc", parsed.pc, PERF_COUNT.key),
    ):
        if given and key in config:
            raise OptionError(f"{option} and --config {key}={config[key]} both set {key}; give one")
    for option, file in (("-report", parsed.report), ("-trace", parsed.trace)):
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            raise OptionError(f"{option} {str(file)!r}: its folder must exist, and it be a file")
    if parsed.trace is not None:
        check_trace_file(parsed.trace)
    duration_s = parsed.t
    if duration_s is None and parsed.niter is None:
        duration_s = DEFAULT_DURATION_S
    return BenchmarkOptions(
        model=parsed.m,
        device=parsed.d,
        api=parsed.api,
        hint=hint,
        request_count=1 if parsed.api == "sync" else parsed.nireq,
        iteration_count=parsed.niter,
        duration_s=duration_s,
        batch=parsed.b,
        shapes=parse_shapes(parsed.shape) if parsed.shape is not None else {},
        stream_count=parsed.nstreams,
        inputs=tuple(parsed.i),
        seed=parsed.seed,
        percentile=parsed.latency_percentile,
        has_node_times=parsed.pc,
        report=parsed.report,
        trace=parsed.trace,
        config=config,
    )


def network_config(options: BenchmarkOptions) -> dict[str, Any]:
    """Return what to load the network with; a key of --config wins over a default."""
    config: dict[str, Any] = {}
    if options.hint != "none":
        config[PERFORMANCE_HINT.key] = options.hint.upper()
        if options.request_count is not None:
            config[PERFORMANCE_HINT_NUM_REQUESTS.key] = options.request_count
    if options.has_node_times:
        config[PERF_COUNT.key] = True
    return {**config, **options.config}


def _stream_settings(text: str | None) -> list[str]:
    """Turn ``4`` or ``CUDA:2,CPU:4`` into items of --config."""
    settings = []
    for item in text.split(",") if text else []:
        device, colon, count = item.strip().rpartition(":")
        settings.append(f"{device}{colon}{NUM_STREAMS.key}={count}")
    return settings
