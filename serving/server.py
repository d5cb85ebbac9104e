"""Server: one event loop, its sockets, and how it starts, drains and ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from errno import EADDRINUSE
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from ..errors import NotSupportedError
from .access_log import AccessLog
from .inference import Inference
from .protocol.limits import Limits
from .regions import SharedRegions
from .repository.directory import poll
from .repository.models import LoadingRepository
from .web.application import application
from .web.connection import connection_class
from .web.handshakes import SecureListener

__all__ = ["ServeOptions", "Server"]

_BACKLOG = 2048
_CUT_OFF_S = 1.0
"""How long answers may take to reach clients whose runs were ended."""


@dataclass(frozen=True)
class ServeOptions:
    """How a server is reached, and what it takes.

    ``port`` and ``grpc_port`` 0: any free one; no ``grpc_port``: no gRPC. ``token``: wanted of
    every request; None: none. ``certificate`` and ``key``: PEM files; None: no TLS. ``poll_s``:
    how often to look for changed models; None: never.
    ``drain_s``: how long requests under way may take when the server ends.
    ``shared_memory_prefixes``: of the keys that clients may register; without any they may not.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    poll_s: float | None = None
    drain_s: float = 30.0
    shared_memory_prefixes: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)


class _QuietServer(uvicorn.Server):
    """uvicorn's server without its signal handlers: the process's signals are the command's.

    ``context``: of TLS, whose handshakes it counts; None: no TLS.
    """

    def __init__(
        self, config: uvicorn.Config, limits: Limits, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(config)
        self._limits, self._context = limits, context

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._context is None:
            await super().startup(sockets)
            return
        await self.lifespan.startup()
        self.servers = [self._secured(listener, self._context) for listener in sockets or ()]
        self.started = True

    def _secured(self, listener: socket.socket, context: ssl.SSLContext) -> Any:
        def make() -> asyncio.BaseProtocol:
            made: Any = self.config.http_protocol_class
            connection: asyncio.BaseProtocol = made(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return connection

        return SecureListener(
            listener,
            context,
            make,
            self.server_state.connections,
            limit=self._limits.connection_count,
            within_s=self._limits.head_s,
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Serves a repository over HTTP until ``stop`` is called. Used on one event loop.

    Requests are answered while models load: that it is live, and not ready. ``on_ready`` is called
    with the addresses when the models have been looked at. ``make_inference``: of the repository,
    the limits and the access log.
    """

    def __init__(
        self,
        repository: LoadingRepository,
        options: ServeOptions,
        on_ready: Callable[[list[str]], None],
        access_log: AccessLog | None = None,
        make_inference: Callable[..., Inference] = Inference,
    ) -> None:
        self._make_inference = make_inference
        self._repository, self._options, self._on_ready = repository, options, on_ready
        self._access_log = access_log
        self._stopping, self._hurry = asyncio.Event(), asyncio.Event()
        self._web: _QuietServer | None = None
        self._cutting: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Take no more requests and end when those under way have ended; if again, end now.

        When the time for that is over, the networks end what runs, and answer its clients so;
        what has not even come whole is cut off a little later. Called on the server's loop.
        """
        is_again = self._stopping.is_set()
        self._stopping.set()
        if is_again:
            self._hurry.set()
            self._repository.abort()
        else:
            loop, abort = asyncio.get_running_loop(), self._repository.abort
            self._cutting = loop.call_later(self._options.drain_s, abort)
        if self._web is not None:
            self._web.should_exit = True
            self._web.force_exit = is_again

    async def run(self) -> None:
        """Serve; returns when it was stopped. Raises OSError for an address that is not free.

        Raises what ``refresh`` raises, after the sockets are closed.
        """
        options = self._options
        listener = _listen(options.host, options.port)
        try:
            inference = self._make_inference(
                self._repository,
                options.limits,
                access_log=self._access_log,
                regions=_regions(options),
            )
            app = application(inference, options.token, is_ending=self._stopping.is_set)
            web = self._web = _QuietServer(
                self._web_config(app), options.limits, _secure_context(options)
            )
            web.config.load()
        except BaseException:
            listener.close()
            raise
        addresses = [_url("https" if options.certificate else "http", listener)]
        rpc = None
        try:
            if options.grpc_port is not None:
                rpc, address = await self._start_rpc(options.grpc_port, inference)
                addresses.append(address)
        except BaseException:
            listener.close()
            raise
        loading = asyncio.create_task(self._load(addresses))
        serving = asyncio.create_task(web.serve(sockets=[listener]))
        ending = asyncio.create_task(self._end_rpc(rpc))
        try:
            await asyncio.wait((loading, serving), return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()
            await serving
        finally:
            web.should_exit = True
            self._stopping.set()
            loading.cancel()
            await asyncio.gather(loading, serving, ending, return_exceptions=True)
            if self._cutting is not None:
                self._cutting.cancel()
            await self._repository.aclose()

    async def _end_rpc(self, rpc: Any) -> None:
        """Drain gRPC beside HTTP, from when the server begins to stop."""
        await self._stopping.wait()
        if rpc is None:
            return
        draining = asyncio.create_task(rpc.stop(self._options.drain_s + _CUT_OFF_S))
        hurrying = asyncio.create_task(self._hurry.wait())
        await asyncio.wait((draining, hurrying), return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not draining.done():
            await rpc.stop(None)
        await draining

    async def _start_rpc(self, port: int, inference: Inference) -> tuple[Any, str]:
        """Return a gRPC server that answers, and its address."""
        try:
            import grpc

            from .rpc.service import make_server
        except ModuleNotFoundError as error:
            raise NotSupportedError(
                f"gRPC wants {error.name}; pip install 'aioinfer[grpc]'"
            ) from error
        options = self._options
        rpc = make_server(inference, options.token)
        host = f"[{options.host}]" if ":" in options.host else options.host
        try:
            if options.certificate is not None and options.key is not None:
                pair = (options.key.read_bytes(), options.certificate.read_bytes())
                credentials = grpc.ssl_server_credentials([pair])
                bound = rpc.add_secure_port(f"{host}:{port}", credentials)
            else:
                bound = rpc.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(EADDRINUSE, "cannot listen there", f"{host}:{port}") from error
        await rpc.start()
        return rpc, f"grpc://{host}:{bound}"

    async def _load(self, addresses: list[str]) -> None:
        await self._repository.refresh()
        self._on_ready(addresses)
        poll_s = self._options.poll_s
        if poll_s is not None:
            await poll(self._repository.refresh, lambda: asyncio.sleep(poll_s))

    def _web_config(self, app: ASGIApp) -> uvicorn.Config:
        options = self._options
        return uvicorn.Config(
            app,
            http=connection_class(options.limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=options.drain_s + _CUT_OFF_S,  # type: ignore[arg-type]
        )


def _regions(options: ServeOptions) -> SharedRegions | None:
    """Return where clients register shared memory; raises PropertyError for what is no prefix."""
    prefixes = options.shared_memory_prefixes
    return SharedRegions(prefixes, options.limits) if prefixes else None


def _secure_context(options: ServeOptions) -> ssl.SSLContext | None:
    """Read the certificate; raises OSError for one that is none."""
    if options.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(options.certificate, options.key)
    return context


def _listen(host: str, port: int) -> socket.socket:
    """Bind a socket; raises OSError that names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        error.filename = f"{host}:{port}"
        raise


def _url(scheme: str, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
