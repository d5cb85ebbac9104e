"""The options of ``aioinfer serve``, and their help."""

from __future__ import annotations

from pathlib import Path

from .arguments import CommandParser, duration, port_number, positive_integer
from .common_options import add_common, add_config, add_device

__all__ = ["SERVE", "SERVE_EXAMPLES", "add_serve"]

SERVE = """\
Serve one ONNX file, or a directory of models (name/version/model.onnx), by the Open
Inference Protocol (KServe V2) over HTTP and gRPC. Only this machine reaches it unless --host
says otherwise. SIGTERM and Ctrl-C let requests under way finish; a second one ends
them. How to call it is in docs/serving.md."""

SERVE_EXAMPLES = """\
examples:
  aioinfer serve model.onnx -d CPU
  aioinfer serve models --port 8000 --poll 5 --allow-management
  AIOINFER_TOKEN=secret aioinfer serve models --host 0.0.0.0"""


def add_serve(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.add_argument("model", metavar="MODEL", help="the ONNX file, or the model directory")
    add_device(parser)
    add_config(parser)
    address = parser.add_argument_group("address")
    address.add_argument(
        "--host", metavar="HOST", default="127.0.0.1", help="address to listen on (127.0.0.1)"
    )
    address.add_argument(
        "--port",
        metavar="PORT",
        type=port_number,
        default=8000,
        help="port for HTTP; 0: any that is free (default: 8000)",
    )
    address.add_argument(
        "--grpc-port",
        metavar="PORT",
        type=port_number,
        help="serve gRPC, too, on this port, which is 8001 elsewhere; 0: any that is free",
    )
    models = parser.add_argument_group("model directory")
    models.add_argument(
        "--poll",
        metavar="SECONDS",
        type=duration,
        help="look for new, changed and removed models so often (default: never)",
    )
    models.add_argument(
        "--allow-management", action="store_true", help="let clients load and unload models"
    )
    models.add_argument(
        "--functions",
        metavar="MODULE",
        action="append",
        help="let model.toml name functions that this Python module declares; may be repeated",
    )
    models.add_argument(
        "--memory-limit",
        metavar="MB",
        type=positive_integer,
        help="of all loaded versions' files together, in MiB (default: none)",
    )
    add_ray(parser)
    parser.add_argument(
        "--access-log",
        metavar="FILE",
        help="append a JSON line for each request; -: to standard error (default: none)",
    )
    safety = parser.add_argument_group("safety")
    safety.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="want the bearer token in this file of every request (default: AIOINFER_TOKEN's)",
    )
    safety.add_argument("--tls-certificate", metavar="FILE", type=Path, help="serve with TLS")
    safety.add_argument("--tls-key", metavar="FILE", type=Path, help="the certificate's key")
    safety.add_argument(
        "--max-body-mb",
        metavar="MB",
        type=positive_integer,
        default=64,
        help="the longest body that is taken, in MiB (default: 64)",
    )
    safety.add_argument(
        "--max-bodies-mb",
        metavar="MB",
        type=positive_integer,
        help="bodies in memory together, in MiB (default: 8 of the longest)",
    )
    safety.add_argument(
        "--max-connections",
        metavar="COUNT",
        type=positive_integer,
        default=1024,
        help="open connections, and calls by gRPC under way, at most (default: 1024)",
    )
    safety.add_argument(
        "--shared-memory-prefix",
        metavar="PREFIX",
        action="append",
        help="let clients register shared memory whose keys begin so; may be repeated",
    )
    safety.add_argument(
        "--drain",
        metavar="SECONDS",
        type=duration,
        default=30.0,
        help="how long requests under way may take at the end (default: 30)",
    )
    add_common(parser)


def add_ray(parser: CommandParser) -> None:
    """Add the options of replicas on a Ray cluster."""
    ray = parser.add_argument_group("many machines")
    ray.add_argument(
        "--ray", action="store_true", help="run the models in replicas on a Ray cluster"
    )
    ray.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        default="",
        help="of a running cluster; auto finds one (default: start one on this machine)",
    )
    ray.add_argument(
        "--ray-replicas",
        metavar="N",
        default="1",
        help="replicas, or 1-8: as many as the requests under way want (default: 1)",
    )
    ray.add_argument(
        "--ray-cpus", metavar="N", type=float, default=1.0, help="CPUs of each replica (1)"
    )
    ray.add_argument(
        "--ray-gpus", metavar="N", type=float, default=0.0, help="GPUs of each replica (0)"
    )
    ray.add_argument(
        "--ray-ongoing",
        metavar="N",
        type=positive_integer,
        default=64,
        help="requests that a replica has at once: several batches (default: 64)",
    )
    ray.add_argument(
        "--ray-queued",
        metavar="N",
        type=positive_integer,
        default=256,
        help="requests that may wait for a replica; more are refused (default: 256)",
    )
    ray.add_argument(
        "--ray-models",
        metavar="N",
        type=positive_integer,
        help="models that stay in a replica, loaded when asked for (default: all)",
    )
    ray.add_argument(
        "--ray-retries",
        metavar="N",
        type=int,
        choices=range(11),
        default=2,
        help="other replicas for a request whose own has ended, 0 to 10 (default: 2)",
    )
