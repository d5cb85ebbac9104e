"""Bodies from strangers: whatever they hold, they are read or refused, and nothing else."""

from __future__ import annotations

import contextlib
import json
import random

import numpy as np
import pytest

from aioinfer.serving.protocol.http_request import read_infer_request
from aioinfer.serving.protocol.json_text import read_json
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.protocol.refusal import RefusedError

LIMITS = Limits(body_bytes=1 << 16, json_bytes=1 << 16, tensor_bytes=1 << 16)
ODD = [None, True, -1, 0, 1.5, 1 << 70, "", "FP32", "BYTES", [], [[]], {}, [1, [2]], float("nan")]


def good_body() -> tuple[bytes, bytes]:
    raw = np.arange(6, dtype=np.float32).tobytes() + b"\x01\x00\x00\x00a"
    document = {
        "id": "1",
        "inputs": [
            {
                "name": "x",
                "datatype": "FP32",
                "shape": [2, 3],
                "parameters": {"binary_data_size": 24},
            },
            {"name": "t", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
            {"name": "n", "datatype": "INT8", "shape": [2], "data": [1, -2]},
        ],
        "outputs": [{"name": "y", "parameters": {"classification": 1}}],
        "parameters": {"timeout": 5, "priority": 1},
    }
    return json.dumps(document).encode(), raw


def mutated_document(text: bytes, chance: random.Random) -> bytes:
    """Put something odd in the place of some value."""

    def change(value: object) -> object:
        if chance.random() < 0.08:
            return chance.choice(ODD)
        if isinstance(value, dict):
            return {name: change(item) for name, item in value.items() if chance.random() > 0.03}
        if isinstance(value, list):
            return [change(item) for item in value]
        return value

    return json.dumps(change(json.loads(text))).encode()


def mutated_bytes(data: bytes, chance: random.Random) -> bytes:
    """Flip, cut or double some bytes."""
    made = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(made) + 1)
        kind = chance.randrange(3)
        if kind == 0 and place < len(made):
            made[place] = chance.randrange(256)
        elif kind == 1:
            del made[place : place + chance.randrange(9)]
        else:
            made[place:place] = bytes(chance.choices(b'[]{}",:0\xff\\', k=chance.randrange(9)))
    return bytes(made)


@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_request_is_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    text, raw = good_body()
    assert len(read_infer_request(text + raw, len(text), LIMITS).inputs) == 3
    statuses = []
    for _ in range(1000):
        other = mutated_document(text, chance) if chance.random() < 0.5 else text
        body = other + raw
        if other is text:
            body = mutated_bytes(body, chance)
        length = chance.choice([len(other), len(other), None, chance.randrange(len(body) + 2)])
        try:
            read_infer_request(body, length, LIMITS)
        except RefusedError as error:
            statuses.append(error.status)
    assert 500 < len(statuses) < 1000
    assert set(statuses) <= {400, 413}


@pytest.mark.parametrize(
    "text",
    [
        b'"' * 60000,
        b'"\\' * 30000,
        b'\\"' * 30000,
        b'["' + b"[" * 50000 + b'"]',
        b"[" * 60000,
        b"]" * 60000,
        b"[]" * 30000,
        b'{"":' * 15000,
        b"9" * 60000,
        b"1e" + b"9" * 60000,
    ],
)
@pytest.mark.timeout(10)
def test_a_text_that_is_meant_to_be_slow_is_not(text: bytes) -> None:
    with contextlib.suppress(RefusedError):
        read_json(text, LIMITS)


def test_brackets_in_strings_do_not_nest() -> None:
    assert read_json(b'["' + b"[" * 50 + b'\\"]"]', LIMITS) == ["[" * 50 + '"]']


@pytest.mark.parametrize("piece", [b"{},", b"[],", b'[{"a":1}],'])
def test_more_lists_than_a_parser_reads_soon_are_refused_unread(piece: bytes) -> None:
    few = Limits(json_list_count=100)
    text = b"[" + piece * 99
    assert isinstance(read_json(b"[" + b"[]," * 98 + b"0]", few), list)
    with pytest.raises(RefusedError, match="give flat data, or send tensors as binary") as refused:
        read_json(text + piece + b"0]", few)
    assert refused.value.status == 413


def test_brackets_in_strings_are_no_lists() -> None:
    assert read_json(b'["[[[[{{{{"]', Limits(json_list_count=1)) == ["[[[[{{{{"]
