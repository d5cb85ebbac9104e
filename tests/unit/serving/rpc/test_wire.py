"""The fields of messages, counted before they are parsed."""

import random

import pytest
from google.protobuf.message import DecodeError

from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.protocol.refusal import RefusedError
from aioinfer.serving.rpc.infer_messages import INFER_DEPTH, read_infer_message
from aioinfer.serving.rpc.proto_text import message_classes
from aioinfer.serving.rpc.wire import refuse_too_many_fields

LIMITS = Limits(tensor_count=4, json_bytes=100)
Request = message_classes()["ModelInferRequest"]


def good() -> bytes:
    request = Request(model_name="m", id="1")
    request.parameters["timeout"].int64_param = 5
    for number in range(4):
        entry = request.inputs.add(name=f"x{number}", datatype="FP32", shape=[1, 2])
        entry.parameters["p"].string_param = "q"
        request.raw_input_contents.append(bytes(8))
    request.outputs.add(name="y").parameters["classification"].int64_param = 2
    made: bytes = request.SerializeToString()
    return made


def test_a_request_passes() -> None:
    refuse_too_many_fields(good(), INFER_DEPTH, LIMITS)
    refuse_too_many_fields(b"", {}, LIMITS)


@pytest.mark.parametrize(
    "data",
    [
        b"\x2a\x00" * 65,  # empty inputs
        b"\x2a\x82\x01" + b"\x22\x00" * 65,  # parameters of an input
        b"\x32\x82\x01" + b"\x12\x00" * 65,  # parameters of an output
        b"\x22\x00" * 65,  # parameters
        b"\xf8\x07\x00" * 65,  # what nobody knows
    ],
)
def test_more_fields_than_a_request_needs_are_refused_unparsed(data: bytes) -> None:
    with pytest.raises(RefusedError, match="more fields") as refused:
        refuse_too_many_fields(data, INFER_DEPTH, LIMITS)
    assert refused.value.status == 413


def test_contents_that_are_no_raw_bytes_are_bounded_as_json_is() -> None:
    request = Request()
    request.inputs.add().contents.int64_contents.extend([0] * 98)
    refuse_too_many_fields(request.SerializeToString(), INFER_DEPTH, LIMITS)
    request.inputs[0].contents.int64_contents.extend([0] * 3)
    with pytest.raises(RefusedError, match="raw_input_contents"):
        refuse_too_many_fields(request.SerializeToString(), INFER_DEPTH, LIMITS)


@pytest.mark.parametrize(
    "data", [b"\x2a", b"\x2a\x05a", b"\xff" * 11, b"\x2b", b"\x2a\x01\x2a", b"\x0d\x00", b"\x08"]
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError, match="no protobuf message") as refused:
        refuse_too_many_fields(data, INFER_DEPTH, LIMITS)
    assert refused.value.status == 400


@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_message_is_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    refused_count = 0
    for _ in range(1000):
        data = bytearray(good())
        for _ in range(chance.randrange(1, 5)):
            place = chance.randrange(len(data))
            if chance.random() < 0.5:
                data[place] = chance.randrange(256)
            else:
                del data[place : place + chance.randrange(5)]
        try:
            refuse_too_many_fields(bytes(data), INFER_DEPTH, LIMITS)
            read_infer_message(Request.FromString(bytes(data)), LIMITS)
        except (RefusedError, DecodeError):
            refused_count += 1
    assert 300 < refused_count < 1000
