"""How many replicas there are, where they run, and how much they take. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import PropertyError

__all__ = ["RayOptions", "deployment_options", "replica_bounds"]

_MAY_FAIL_S = 5.0
_END_WITHIN_S = 60.0
_TRIES = 2
_MEASURED_EVERY_S = 2.0


@dataclass(frozen=True)
class RayOptions:
    """How models are deployed.

    ``address``: of a running cluster, "auto" finds one; "" starts one on this machine. ``name``: of
    Ray Serve's application. ``replicas``: the least and the most; between them their number
    follows the requests under way, ``target_count`` for each, when that has been so for
    ``scale_up_s`` seconds, or for ``scale_down_s`` where there are too many. ``cpus`` and ``gpus``:
    what one replica reserves, which is where it may run. ``ongoing_count``: requests that one
    replica has at once, several times what its device joins; ``queued_count``: that may wait for
    one, before more are refused. ``model_count``: models that a replica keeps, the least used goes;
    0: all. ``retry_count``: how often a request goes to another replica when its own has ended.
    """

    address: str = ""
    name: str = "aioinfer"
    replicas: tuple[int, int] = (1, 1)
    cpus: float = 1.0
    gpus: float = 0.0
    ongoing_count: int = 64
    target_count: int = 32
    scale_up_s: float = 10.0
    scale_down_s: float = 300.0
    queued_count: int = 256
    model_count: int = 0
    retry_count: int = 2


def replica_bounds(text: str) -> tuple[int, int]:
    """Read ``3`` or ``1-8``. Raises PropertyError."""
    least, dash, most = text.partition("-")
    if least.isdecimal() and (most.isdecimal() if dash else not most):
        bounds = int(least), int(most if dash else least)
        if 1 <= bounds[0] <= bounds[1]:
            return bounds
    raise PropertyError(f"--ray-replicas is {text!r}; give a number such as 3, or 1-8")


def deployment_options(options: RayOptions) -> dict[str, Any]:
    """Return the options of Ray Serve's deployment. Raises PropertyError."""
    if options.scale_up_s <= 0:
        raise PropertyError(
            f"scale_up_s of RayOptions is {options.scale_up_s}; give seconds above 0",
            "scale_up_s",
        )
    told: dict[str, Any] = {
        "name": "models",
        "max_ongoing_requests": options.ongoing_count,
        "max_queued_requests": options.queued_count,
        "ray_actor_options": {"num_cpus": options.cpus, "num_gpus": options.gpus},
        "health_check_period_s": _MAY_FAIL_S,
        "graceful_shutdown_timeout_s": _END_WITHIN_S,
        "max_constructor_retry_count": _TRIES,
    }
    least, most = options.replicas
    if least == most:
        told["num_replicas"] = most
    else:
        told["autoscaling_config"] = {
            "min_replicas": least,
            "max_replicas": most,
            "target_ongoing_requests": min(options.target_count, options.ongoing_count),
            "upscale_delay_s": options.scale_up_s,
            "downscale_delay_s": options.scale_down_s,
            "metrics_interval_s": min(_MEASURED_EVERY_S, options.scale_up_s / 2),
            "look_back_period_s": options.scale_up_s,
        }
    return told
