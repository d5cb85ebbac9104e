"""Serve networks to the clients that exist: the Open Inference Protocol (KServe V2).

Wants the extra ``aioinfer[serve]``, and ``aioinfer[grpc]`` for gRPC. ``aioinfer serve`` is the
command; ``app(networks)`` is the same as an ASGI application, for a service of one's own.
"""

from ..errors import AioInferError
from .functions import postprocess, preprocess
from .protocol.generation import Generation
from .protocol.limits import Limits
from .protocol.refusal import RefusedError
from .web.application import app

__all__ = [
    "AioInferError",
    "Generation",
    "Limits",
    "RefusedError",
    "app",
    "postprocess",
    "preprocess",
]
