"""Addresses and what answers there: each endpoint's errors become the protocol's answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..failures import refusal_of
from ..protocol.http_response import refusal_body
from .answers import JSON_TYPE
from .refusals import refusal_headers

__all__ = ["Endpoint", "both", "get", "post", "versioned"]

Endpoint = Callable[[Request], Awaitable[Response]]


def get(path: str, endpoint: Endpoint) -> Route:
    """Return the route of an address that is asked."""
    return Route(path, _answering(endpoint), methods=["GET"])


def post(path: str, endpoint: Endpoint) -> Route:
    """Return the route of an address that takes a body."""
    return Route(path, _answering(endpoint), methods=["POST"])


def both(path: str, endpoint: Endpoint) -> list[Route]:
    """With and without a slash at the end, as clients differ."""
    return [get(path, endpoint), get(f"{path}/", endpoint)]


def versioned(model: str, rest: str, endpoint: Endpoint, method: str = "GET") -> list[Route]:
    """Without and with a version behind the model."""
    make = get if method == "GET" else post
    return [
        make(f"{model}{rest}", endpoint),
        make(f"{model}/versions/{{version}}{rest}", endpoint),
    ]


def _answering(endpoint: Endpoint) -> Endpoint:
    """Turn what an endpoint raises into the protocol's answer."""

    async def answering(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            refused = refusal_of(error)
            body = refusal_body(str(refused))
            return Response(body, refused.status, refusal_headers(refused), JSON_TYPE)

    return answering
