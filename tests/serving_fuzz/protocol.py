"""Cases at the pure layer, and at the application without sockets."""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from google.protobuf.message import DecodeError

import aioinfer
from aioinfer.serving import Limits, app
from aioinfer.serving.protocol import http_request
from aioinfer.serving.protocol.generate_json import read_generate_request
from aioinfer.serving.protocol.http_request import read_infer_request
from aioinfer.serving.protocol.refusal import RefusedError
from aioinfer.serving.rpc.infer_messages import INFER_DEPTH, read_infer_message
from aioinfer.serving.rpc.proto_text import message_classes
from aioinfer.serving.rpc.wire import refuse_too_many_fields
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import OF_DATATYPE, echo

from .mutations import good_message, mutated_body, mutated_bytes, mutated_fields

__all__ = ["ask_application", "read_purely"]

Report = Callable[[str], None]
LIMITS = Limits(body_bytes=1 << 20, json_bytes=1 << 18, tensor_bytes=1 << 18)
_TYPES = [int(OF_DATATYPE["FP32"]), int(OF_DATATYPE["BYTES"])]


def read_purely(count: int, seed: int, report: Report) -> Counter[str]:
    """Read bodies and messages; all but a refusal is reported."""
    told: Counter[str] = Counter()
    request = message_classes()["ModelInferRequest"]
    message = good_message()
    with tempfile.TemporaryDirectory() as folder, aioinfer.Core() as core:
        network = core.load_network(echo(Path(folder) / "echo.onnx", _TYPES), "REFERENCE")
        for number in range(count):
            chance = random.Random(f"{seed} {number}")
            kind = number % 3
            try:
                if kind == 0:
                    body, length = mutated_body(chance)
                    usual = _outcome(body, length)
                    with patch.object(http_request, "_read_typed", lambda text, limits: None):
                        slow = _outcome(body, length)
                    if usual != slow:
                        report(f"case {number} of seed {seed}: {usual} at once, {slow} by fields")
                    read_infer_request(body, length, LIMITS)
                elif kind == 1:
                    read_generate_request(mutated_fields(chance), network.inputs, LIMITS)
                else:
                    data = mutated_bytes(message, chance, (b"\x2a\x00", b"\xff", b"\x00"))
                    refuse_too_many_fields(data, INFER_DEPTH, LIMITS)
                    read_infer_message(request.FromString(data), LIMITS)
                told["read"] += 1
            except (RefusedError, DecodeError) as error:
                told[f"refused {getattr(error, 'status', 400)}"] += 1
            except Exception:
                report(f"case {number} of seed {seed}: {traceback.format_exc()}")
    return told


def _outcome(body: bytes, length: int | None) -> str:
    """Tell what a body is read as, or that it is refused: of several faults either may be named."""
    try:
        return repr(read_infer_request(body, length, LIMITS))
    except RefusedError as error:
        return f"refused {error.status}"


def ask_application(count: int, seed: int, report: Report) -> Counter[str]:
    """Ask the whole application over HTTP without sockets; a status of 500 is reported."""
    told: Counter[str] = Counter()
    logging.getLogger("aioinfer").setLevel(logging.CRITICAL)

    async def ask() -> None:
        with tempfile.TemporaryDirectory() as folder, aioinfer.Core() as core:
            network = core.load_network(echo(Path(folder) / "echo.onnx", _TYPES), "REFERENCE")
            client = AsgiClient(app(network, limits=LIMITS))
            for number in range(count):
                chance = random.Random(f"{seed} {number}")
                body, length = mutated_body(chance)
                path = chance.choice(["infer", "infer", "generate", "generate_stream"])
                if path != "infer":
                    body, length = mutated_fields(chance), None
                headers = {} if length is None else {"inference-header-content-length": str(length)}
                size = None if chance.random() < 0.8 else chance.choice([-1, 0, len(body) + 1, 7])
                cut = chance.randrange(len(body) + 1)
                pieces = [body] if chance.random() < 0.5 else [body[:cut], body[cut:]]
                try:
                    reply = await client.send(
                        "POST", f"/v2/models/echo/{path}", pieces, headers, length=size
                    )
                except Exception:
                    report(f"request {number} of seed {seed}: {traceback.format_exc()}")
                    continue
                told[f"status {reply.status}"] += 1
                if reply.status == 500:
                    report(f"request {number} of seed {seed}: 500: {reply.body!r}: {body!r}")
                elif reply.headers["content-type"] == "application/json":
                    reply.json()

    asyncio.run(ask())
    return told
