"""The addresses of the shared memory extension."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..protocol.fields import Fields
from ..regions import SharedRegions
from .routes import get, post

__all__ = ["region_routes"]

_ALL = "/v2/systemsharedmemory"
_ONE = f"{_ALL}/region/{{name:path}}"


def region_routes(
    regions: SharedRegions, read_fields: Callable[[Request], Awaitable[Fields]]
) -> list[Route]:
    """Return the routes; ``read_fields`` reads a request's body."""

    def name_in(request: Request) -> str:
        name: str = request.path_params.get("name", "")
        return name

    async def status(request: Request) -> Response:
        return JSONResponse([each._asdict() for each in regions.states(name_in(request))])

    async def register(request: Request) -> Response:
        fields = await read_fields(request)
        key, offset, size = fields.text("key"), fields.count("offset"), fields.count("byte_size")
        regions.register(name_in(request), key, offset, size)
        return Response()

    async def unregister(request: Request) -> Response:
        regions.unregister(name_in(request))
        return Response()

    return [
        get(f"{_ALL}/status", status),
        get(f"{_ONE}/status", status),
        post(f"{_ONE}/register", register),
        post(f"{_ALL}/unregister", unregister),
        post(f"{_ONE}/unregister", unregister),
    ]
