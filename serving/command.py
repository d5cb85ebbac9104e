"""``aioinfer serve``: the command, from its parsed options to its exit code."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ..errors import PropertyError
from ..runtime.devices.core import Core
from .access_log import AccessLog
from .functions import AllowedFunctions
from .inference import Inference
from .protocol.limits import Limits
from .repository.directory import FolderRepository
from .repository.loader import Loader
from .repository.models import LoadingRepository
from .repository.single import FileRepository
from .server import ServeOptions, Server

__all__ = ["run_serve"]

TOKEN_VARIABLE = "AIOINFER_TOKEN"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_BODIES = 8


Say = Callable[[str], None]


def run_serve(parsed: argparse.Namespace, config: dict[str, Any], tell: Say, warn: Say) -> int:
    """Serve until a signal comes; 0 when the requests under way were answered.

    config: the properties from the command line. ``tell`` is called with the line that says it is
    ready, ``warn`` with what is not as it should be, each with one line. Raises PropertyError for
    options that contradict each other, OSError for an address that is not free, and what loading
    one file raises.
    """
    options = _options(parsed)
    source = Path(parsed.model)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if not _is_loopback(options.host) and options.token is None:
        warn(
            f"{options.host} can be reached from other machines, and no token is wanted; "
            f"set {TOKEN_VARIABLE} or --token-file"
        )
    if parsed.ray:
        return _run_on_ray(parsed, config, options, tell, warn)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner, Core() as core:
        loader = Loader(core, parsed.d, config, AllowedFunctions(parsed.functions or ()))
        repository = _repository(source, loader, parsed)
        on_ready = _on_ready(repository, tell, warn)
        with _access_log(parsed.access_log) as log:
            runner.run(_serve(repository, options, on_ready, log))
    return 0


def _run_on_ray(
    parsed: argparse.Namespace, config: dict[str, Any], options: ServeOptions, tell: Say, warn: Say
) -> int:
    """Serve models of a Ray cluster's replicas from this process; they end with it."""
    from .ray import RayOptions, RemoteInference, RemoteRepository, ReplicaSpec, deploy, undeploy
    from .ray.options import replica_bounds

    for option, is_given in (
        ("--allow-management", parsed.allow_management),
        ("--memory-limit", parsed.memory_limit is not None),
        ("--shared-memory-prefix", bool(parsed.shared_memory_prefix)),
    ):
        if is_given:
            raise PropertyError(f"{option} is for the models of this process, not for --ray")
    source = Path(parsed.model).resolve()
    for option, is_given in (
        ("--functions", bool(parsed.functions)),
        ("--poll", parsed.poll is not None),
        ("--ray-models", bool(parsed.ray_models)),
    ):
        if is_given and not source.is_dir():
            raise PropertyError(f"{option} wants a model directory, not a file")
    placed = RayOptions(
        address=parsed.ray_address,
        replicas=replica_bounds(parsed.ray_replicas),
        cpus=parsed.ray_cpus,
        gpus=parsed.ray_gpus,
        ongoing_count=parsed.ray_ongoing,
        queued_count=parsed.ray_queued,
        model_count=parsed.ray_models or 0,
        retry_count=parsed.ray_retries,
    )
    spec = ReplicaSpec(
        source, parsed.d, config, tuple(parsed.functions or ()), options.limits, options.poll_s
    )
    handle = deploy(spec, placed)
    try:
        repository = RemoteRepository(handle)
        inference = partial(
            RemoteInference,
            handle=handle,
            retry_count=placed.retry_count,
            is_multiplexed=bool(placed.model_count),
        )
        on_ready = _on_ready(repository, tell, warn)
        with (
            _access_log(parsed.access_log) as log,
            asyncio.Runner(loop_factory=_loop_factory()) as runner,
        ):
            runner.run(_serve(repository, options, on_ready, log, inference))
    finally:
        undeploy(placed)
    return 0


def _on_ready(repository: LoadingRepository, tell: Say, warn: Say) -> Callable[[list[str]], None]:
    def on_ready(addresses: list[str]) -> None:
        for state in repository.states():
            if state.reason:
                warn(f"{state.model} {state.version}: {state.reason}")
        tell(_ready_line(repository, addresses))

    return on_ready


@contextmanager
def _access_log(place: str | None) -> Iterator[AccessLog | None]:
    """Open the file; raises OSError."""
    if place is None:
        yield None
    elif place == "-":
        yield AccessLog(sys.stderr.write)
    else:
        with Path(place).open("a", 1, encoding="utf-8") as file:
            yield AccessLog(file.write)


def _repository(source: Path, loader: Loader, parsed: argparse.Namespace) -> LoadingRepository:
    if source.is_dir():
        limit = None if parsed.memory_limit is None else parsed.memory_limit << 20
        return FolderRepository(
            source, loader, can_manage=parsed.allow_management, limit_bytes=limit
        )
    for option, is_given in (
        ("--allow-management", parsed.allow_management),
        ("--poll", parsed.poll is not None),
        ("--functions", bool(parsed.functions)),
        ("--memory-limit", parsed.memory_limit is not None),
    ):
        if is_given:
            raise PropertyError(f"{option} wants a model directory, not a file")
    return FileRepository(source, loader)


async def _serve(
    repository: LoadingRepository,
    options: ServeOptions,
    on_ready: Callable[[list[str]], None],
    log: AccessLog | None,
    make_inference: Callable[..., Inference] = Inference,
) -> None:
    server = Server(repository, options, on_ready, log, make_inference)
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, server.stop)
    try:
        await server.run()
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _ready_line(repository: LoadingRepository, addresses: list[str]) -> str:
    states = repository.states()
    serving = [f"{state.model} {state.version}" for state in states if state.state == "READY"]
    word = "ready" if repository.is_ready else "not ready"
    return f"{word}: {' '.join(addresses)} serves {', '.join(serving) or 'no model'}"


def _options(parsed: argparse.Namespace) -> ServeOptions:
    if (parsed.tls_certificate is None) != (parsed.tls_key is None):
        raise PropertyError("--tls-certificate and --tls-key belong together; give both or none")
    bodies_mb = parsed.max_bodies_mb or _BODIES * parsed.max_body_mb
    if bodies_mb < parsed.max_body_mb:
        raise PropertyError(
            f"--max-bodies-mb {bodies_mb} has no room for one body of --max-body-mb "
            f"{parsed.max_body_mb}"
        )
    limits = Limits(
        body_bytes=parsed.max_body_mb << 20,
        bodies_bytes=bodies_mb << 20,
        tensor_bytes=parsed.max_body_mb << 20,
        connection_count=parsed.max_connections,
        call_count=parsed.max_connections,
    )
    return ServeOptions(
        host=parsed.host,
        port=parsed.port,
        grpc_port=parsed.grpc_port,
        token=_token(parsed.token_file),
        certificate=parsed.tls_certificate,
        key=parsed.tls_key,
        poll_s=parsed.poll,
        drain_s=parsed.drain,
        shared_memory_prefixes=parsed.shared_memory_prefix or (),
        limits=limits,
    )


def _token(file: Path | None) -> str | None:
    """Read the token from its file, or from the environment; None: none is wanted."""
    if file is None:
        text = os.environ.get(TOKEN_VARIABLE)
    else:
        text = file.read_text(encoding="utf-8", errors="replace")
    if text is None:
        return None
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable():
        place = TOKEN_VARIABLE if file is None else "--token-file"
        raise PropertyError(f"{place} holds no token: printable ASCII is wanted", place)
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
