"""Requests that are good, and what becomes of them by chance. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

import numpy as np

from aioinfer.serving.rpc.proto_text import message_classes

__all__ = [
    "Body",
    "good_json",
    "good_message",
    "mutated_body",
    "mutated_bytes",
    "mutated_fields",
    "mutated_head",
]

Body = tuple[bytes, int | None]
"""The bytes of a body, and what its header says of the length of its JSON."""

_ODD = [None, True, -1, 0, 1.5, 1e999, 1 << 70, "", "FP32", "BYTES", "\ud800", "ü" * 9]
_ODDER = [[], [[]], {}, [1, [2]], [[1, 2], [3]], {"a": {}}, [None], float("nan"), [0] * 300]
_PIECES = (b"[", b"]", b"{", b"}", b'"', b",", b":", b"\\u", b"\xff", b"\x00", b"1e9", b"null")
_HEADS = (
    b"content-length: 7",
    b"content-length: -1",
    b"transfer-encoding: chunked",
    b"transfer-encoding: gzip",
    b"inference-header-content-length: 99999999999999999999",
    b"inference-header-content-length: \xc2\xb2",
    b"expect: 100-continue",
    b"connection: upgrade\r\nupgrade: websocket",
    b"content-encoding: gzip",
    b"authorization: Bearer \xff",
    b"host:",
    b"a" * 5000 + b": b",
    b": b",
    b"\x00: b",
)


def good_json() -> tuple[dict[str, object], bytes]:
    """Return the document of a request for the model ``echo``, and the tensor behind it."""
    raw = np.arange(6, dtype=np.float32).tobytes()
    text = {"name": "in_8", "datatype": "BYTES", "shape": [2, 3], "data": [*"abcdef"]}
    array = {"name": "in_1", "datatype": "FP32", "shape": [2, 3]}
    return {
        "id": "1",
        "inputs": [{**array, "parameters": {"binary_data_size": len(raw)}}, text],
        "outputs": [{"name": "out_1", "parameters": {"classification": 2}}, {"name": "out_8"}],
        "parameters": {"timeout": 50_000_000, "priority": 1, "binary_data_output": False},
    }, raw


def good_message() -> bytes:
    """Return a ModelInferRequest for the model ``echo``."""
    request = message_classes()["ModelInferRequest"](model_name="echo", id="1")
    request.parameters["timeout"].int64_param = 50_000_000
    entry = request.inputs.add(name="in_1", datatype="FP32", shape=[2, 3])
    entry.parameters["p"].string_param = "q"
    text = request.inputs.add(name="in_8", datatype="BYTES", shape=[2, 3])
    text.contents.bytes_contents.extend([b"a", b"", b"c", b"d", b"e", b"f"])
    entry.contents.fp32_contents.extend([0, 1, 2, 3, 4, 5])
    request.outputs.add(name="out_1").parameters["classification"].int64_param = 2
    made: bytes = request.SerializeToString()
    return made


def mutated_fields(chance: random.Random) -> bytes:
    """Return the body of a generate request with something wrong in it."""
    document = {"in_1": [[0, 1, 2], [3, 4, 5]], "in_8": [[*"abc"], [*"def"]], "max_steps": 2}
    if chance.random() < 0.6:
        return json.dumps(_changed(document, chance)).encode()
    return mutated_bytes(json.dumps(document).encode(), chance, _PIECES)


def mutated_body(chance: random.Random) -> Body:
    """Return a request's body with something wrong in its document, its bytes, or its lengths."""
    document, raw = good_json()
    kind = chance.random()
    if kind < 0.6:
        text = json.dumps(_changed(document, chance)).encode()
    else:
        text = mutated_bytes(json.dumps(document).encode(), chance, _PIECES)
    if chance.random() < 0.02:
        text = text.decode("utf-8", "replace").encode(chance.choice(["utf-16", "utf-32"]))
    length: int | None = len(text)
    if chance.random() < 0.2:
        length = chance.choice([None, 0, len(text) + 1, len(text) - 1, 10**9])
    if chance.random() < 0.2:
        raw = mutated_bytes(raw, chance, (b"\x00", b"\xff" * 4))
    return text + raw, length


def mutated_bytes(data: bytes, chance: random.Random, pieces: tuple[bytes, ...]) -> bytes:
    """Flip, cut, double and put in some bytes."""
    made = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(made) + 1)
        kind = chance.randrange(4)
        if kind == 0 and place < len(made):
            made[place] = chance.randrange(256)
        elif kind == 1:
            del made[place : place + chance.randrange(9)]
        elif kind == 2:
            made[place:place] = made[place : place + chance.randrange(40)]
        else:
            made[place:place] = chance.choice(pieces) * chance.randrange(1, 5)
    return bytes(made)


def mutated_head(chance: random.Random, body: Body) -> bytes:
    """Return a whole HTTP request, whose head has something wrong in it, as its body may."""
    content, length = body
    lines = [b"POST /v2/models/echo/infer HTTP/1.1", b"host: x"]
    lines.append(b"content-length: %d" % len(content))
    if length is not None:
        lines.append(b"inference-header-content-length: %d" % length)
    kind = chance.random()
    if kind < 0.5:
        lines.insert(chance.randrange(1, len(lines) + 1), chance.choice(_HEADS))
    elif kind < 0.6:
        lines += [b"x-%d: y" % number for number in range(chance.choice([50, 150]))]
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    if kind > 0.8:
        head = mutated_bytes(head, chance, (b"\r\n", b"\n", b" ", b"\x00", b"%", b"/.."))
    return head + content


def _changed(value: object, chance: random.Random) -> object:
    if chance.random() < 0.02:
        return chance.choice(_ODD if chance.random() < 0.6 else _ODDER)
    if isinstance(value, Mapping):
        return {
            name: _changed(item, chance) for name, item in value.items() if chance.random() > 0.01
        }
    if isinstance(value, list):
        return [_changed(item, chance) for item in value]
    return value
