"""Bodies of inference requests: what they mean, and what is refused, with the field's name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from aioinfer.errors import nearest
from aioinfer.serving.protocol import http_request
from aioinfer.serving.protocol.call import InferCall, SequencePlace
from aioinfer.serving.protocol.http_request import read_infer_request
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.protocol.refusal import RefusedError

LIMITS = Limits(body_bytes=4096, json_bytes=2048, tensor_bytes=1024, tensor_count=4, rank=3)


def tensor(datatype: str, shape: list[int], data: Any = None, **rest: Any) -> dict[str, Any]:
    entry = {"name": "x", "datatype": datatype, "shape": shape, **rest}
    return entry if data is None else {**entry, "data": data}


def read(*inputs: dict[str, Any], **rest: Any) -> InferCall:
    body = json.dumps({"inputs": list(inputs), **rest}).encode()
    return read_infer_request(body, None, LIMITS)


def read_binary(document: dict[str, Any], *tensors: bytes) -> InferCall:
    text = json.dumps(document).encode()
    return read_infer_request(b"".join([text, *tensors]), len(text), LIMITS)


@pytest.mark.parametrize(
    ("datatype", "data", "dtype"),
    [
        ("BOOL", [True, False], np.bool_),
        ("UINT8", [0, 255], np.uint8),
        ("UINT16", [0, 65535], np.uint16),
        ("UINT32", [0, 2**32 - 1], np.uint32),
        ("UINT64", [0, 2**64 - 1], np.uint64),
        ("INT8", [-128, 127], np.int8),
        ("INT16", [-(2**15), 1], np.int16),
        ("INT32", [-(2**31), 1], np.int32),
        ("INT64", [-(2**63), 1], np.int64),
        ("FP32", [0.5, 1], np.float32),
        ("FP64", [0.1, -1e300], np.float64),
        ("BYTES", ["a", "ü"], np.object_),
    ],
)
def test_numbers_and_texts_are_read_from_lists(datatype: str, data: Any, dtype: Any) -> None:
    for shape, nested in (([2], data), ([2, 1], [[data[0]], [data[1]]]), ([1, 2], data)):
        array = read(tensor(datatype, shape, nested)).inputs[0].array
        assert (array.dtype, list(array.shape)) == (np.dtype(dtype), shape)
        assert array.ravel().tolist() == np.array(data, dtype).tolist()


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (tensor("FP31", [1], [1]), r"inputs\[0\]\.datatype: 'FP31' is none of"),
        (tensor("FP32", [2], [1]), r"inputs\[0\]\.data: 1 elements; shape \[2\] has 2"),
        (tensor("FP32", [-1], [1]), r"inputs\[0\]\.shape: lengths"),
        (tensor("FP32", [True], [1]), r"inputs\[0\]\.shape: lengths"),
        (tensor("FP32", [1] * 4, [1]), r"inputs\[0\]\.shape: 4 items; at most 3"),
        (tensor("FP32", [1 << 20], [1]), r"inputs\[0\]\.shape: a tensor of"),
        (tensor("FP32", [1], "1"), r"inputs\[0\]\.data: a list is wanted"),
        (tensor("FP32", [1]), r"inputs\[0\]\.data: a list is wanted"),
        (tensor("FP32", [1], ["1"]), r"inputs\[0\]\.data: an element is not of FP32"),
        (tensor("FP32", [1], [True]), r"inputs\[0\]\.data: an element is not of FP32"),
        (tensor("FP32", [1], [None]), r"inputs\[0\]\.data: an element is not of FP32"),
        (tensor("FP32", [1], [{}]), r"inputs\[0\]\.data: an element is not of FP32"),
        (tensor("INT32", [1], [1.5]), r"inputs\[0\]\.data: an element is not of INT32"),
        (tensor("UINT8", [1], [256]), r"inputs\[0\]\.data: an element is out of the range"),
        (tensor("UINT8", [1], [-1]), r"inputs\[0\]\.data: an element is out of the range"),
        (tensor("INT64", [1], [2**64]), r"inputs\[0\]\.data"),
        (tensor("FP32", [2], [[1], 2]), r"inputs\[0\]\.data: elements and lists are mixed"),
        (tensor("FP32", [2], [1, [2]]), r"inputs\[0\]\.data: elements and lists are mixed"),
        (tensor("FP16", [1], [1]), r"inputs\[0\]\.data: FP16 is taken as binary data only"),
        (tensor("FP32", [0, 1 << 39, 1 << 39], []), r"inputs\[0\]\.shape: lengths are too great"),
        (tensor("BF16", [1], [1]), r"inputs\[0\]\.data: BF16 is taken as binary data only"),
        (tensor("BYTES", [1], [1]), r"inputs\[0\]\.data\[0\]: a string is wanted"),
        (tensor("BYTES", [1], ["\ud800"]), r"inputs\[0\]\.data\[0\]: is not UTF-8"),
        ({"datatype": "FP32"}, r"inputs\[0\]\.name: a string is wanted"),
        (
            tensor("FP32", [1], [1], parameters={"shared_memory_region": "r"}),
            r"inputs\[0\]\.parameters\.shared_memory_region: is not served here",
        ),
        (
            tensor("FP32", [1], [1], parameters={"binary_data_size": 4}),
            r"inputs\[0\]\.data: is there beside binary_data_size",
        ),
    ],
)
def test_a_wrong_input_is_refused_with_its_field(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(RefusedError, match=told):
        read(entry)


@pytest.mark.parametrize(
    ("shape", "data"),
    [([0, 3], []), ([2, 0], [[], []]), ([1, 0, 3], [[]]), ([1, 2, 1], [[[1], [2]]])],
)
def test_nested_lists_have_the_shape(shape: list[int], data: list[Any]) -> None:
    assert list(read(tensor("INT8", shape, data)).inputs[0].array.shape) == shape


@pytest.mark.parametrize(
    ("shape", "data", "told"),
    [
        ([1, 3], [[1], [2, 3]], "lists beside each other differ in length"),
        ([3], [[1, 2, 3]], "nests as [1, 3], and its shape is [3]"),
        ([2, 3], [[1, 2], [3, 4], [5, 6]], "nests as [3, 2], and its shape is [2, 3]"),
        ([1, 1, 2], [[1, 2]], "nests as [1, 2], and its shape is [1, 1, 2]"),
        ([0], [[]], "nests as [1, 0], and its shape is [0]"),
    ],
)
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_nested_lists_of_another_shape_are_refused(
    datatype: str, shape: list[int], data: list[Any], told: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        read(tensor(datatype, shape, data))
    assert str(refused.value) == f"inputs[0].data: {told}"


@pytest.mark.parametrize("datatype", ["INT8", "UINT64", "FP32", "FP64"])
@pytest.mark.parametrize("data", [[True, True], [1, True], [False, 0.5]])
def test_flags_are_no_numbers(datatype: str, data: list[Any]) -> None:
    with pytest.raises(RefusedError, match=f"an element is not of {datatype}"):
        read(tensor(datatype, [2], data))


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_whole_numbers_of_any_length_are_floats(datatype: str) -> None:
    array = read(tensor(datatype, [2], [10**30, 1])).inputs[0].array
    assert array.tolist() == [array.dtype.type(1e30), 1.0]
    with pytest.raises(RefusedError, match=f"out of the range of {datatype}"):
        read(tensor(datatype, [2], [10**400, 1]))


def test_texts_among_numbers_take_no_memory() -> None:
    """Numpy would give each element the room of the longest text, here 40 GB in all."""
    data = ["a" * (1 << 20), *[""] * 9999]
    body = json.dumps({"inputs": [tensor("FP32", [10_000], data)]}).encode()
    with pytest.raises(RefusedError, match="an element is not of FP32"):
        read_infer_request(body, None, Limits())


def test_a_long_word_of_a_client_is_cut_and_not_compared() -> None:
    word = "x" * (1 << 20)
    assert len(str(RefusedError(f"there is no {word}", field="inputs[0]"))) < 3000
    assert nearest(word, ["x"]) == ""


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ({"id": 7}, "id: a string"),
        ({"outputs": {}}, "outputs: a list"),
        ({"outputs": [1]}, r"outputs\[0\]: an object"),
        ({"outputs": [{}]}, r"outputs\[0\]\.name"),
        ({"outputs": [{"name": "y"}] * 5}, "outputs: 5 items; at most 4"),
        (
            {"outputs": [{"name": "y", "parameters": {"classification": -1}}]},
            r"outputs\[0\]\.parameters\.classification: a whole number",
        ),
        ({"parameters": 1}, "parameters: an object"),
        ({"parameters": {"timeout": -1}}, r"parameters\.timeout: a whole number"),
        ({"parameters": {"timeout": 1.5}}, r"parameters\.timeout: a whole number"),
        ({"parameters": {"priority": "high"}}, r"parameters\.priority: a whole number"),
        ({"parameters": {"binary_data_output": 1}}, r"parameters\.binary_data_output: true or"),
        ({"parameters": {"sequence_id": -1}}, r"parameters\.sequence_id: a whole number"),
        ({"parameters": {"sequence_id": [4]}}, r"parameters\.sequence_id: a whole number"),
        ({"parameters": {"sequence_id": "a" * 257}}, r"parameters\.sequence_id: 257 char"),
        ({"parameters": {"sequence_start": True}}, r"parameters\.sequence_id: is missing"),
        ({"parameters": {"sequence_id": 1, "sequence_end": 1}}, r"parameters\.sequence_end: true"),
    ],
)
def test_what_is_wrong_beside_the_inputs_is_refused_too(rest: dict[str, Any], told: str) -> None:
    with pytest.raises(RefusedError, match=told):
        read(**rest)


def test_ids_outputs_and_parameters_are_read() -> None:
    call = read(
        tensor("FP32", [1], [1]),
        id="seven",
        outputs=[{"name": "y", "parameters": {"classification": 3}}, {"name": "z"}],
        parameters={"timeout": 1500, "priority": 1, "binary_data_output": True, "mine": [1]},
    )
    assert call.id == "seven"
    assert [(out.name, out.is_binary, out.class_count) for out in call.outputs] == [
        ("y", True, 3),
        ("z", True, 0),
    ]
    assert (call.deadline_s, call.is_binary) == (0.0015, True)
    assert call.priority > read().priority == 0
    assert read(parameters={"priority": 100}).priority < 0
    assert read().deadline_s is None


def test_raw_tensors_follow_the_json_in_order() -> None:
    first, second = np.float16([1, 2]), np.int64([[3]])
    call = read_binary(
        {
            "inputs": [
                tensor("FP16", [2], parameters={"binary_data_size": 4}),
                tensor("FP32", [1], [5]),
                tensor("INT64", [1, 1], parameters={"binary_data_size": 8}),
            ]
        },
        first.tobytes(),
        second.tobytes(),
    )
    assert [given.array.tolist() for given in call.inputs] == [[1.0, 2.0], [5.0], [[3]]]


@pytest.mark.parametrize(
    ("size", "raw", "told"),
    [
        (4, b"1234", r"binary_data_size: 4 bytes; FP32 of shape \[2\] has 8"),
        (8, b"1234", "8 bytes, and 4 are left"),
        (8, b"123456789", "1 bytes of the body belong to no input"),
    ],
)
def test_raw_bytes_that_do_not_fit_are_refused(size: int, raw: bytes, told: str) -> None:
    entry = tensor("FP32", [2], parameters={"binary_data_size": size})
    with pytest.raises(RefusedError, match=told):
        read_binary({"inputs": [entry]}, raw)


@pytest.mark.parametrize(
    ("body", "length", "told"),
    [
        (b"{}", 3, "Inference-Header-Content-Length is 3"),
        (b"", None, "not JSON"),
        (b"[]", None, "the body: an object"),
        (b"\xff", None, "not UTF-8"),
        (b'{"inputs": 1}', None, "inputs: a list"),
        (b"[" * 40 + b"]" * 40, None, "nests 40 deep; at most 32"),
        (b'{"a": ' + b"9" * 1500 + b"e99999", None, "not JSON"),
        (b" " * 2049, None, "JSON of 2049 bytes"),
    ],
)
def test_what_is_no_request_is_refused(body: bytes, length: int | None, told: str) -> None:
    with pytest.raises(RefusedError, match=told):
        read_infer_request(body, length, LIMITS)


def test_null_is_as_if_it_were_not_there() -> None:
    """Clients whose messages are classes send every field that has no value."""
    entry = tensor("FP32", [1], [1], parameters=None)
    output = {"name": "y", "parameters": None, "datatype": None}
    call = read(entry, id=None, parameters=None, outputs=[output])
    assert (call.id, call.level, call.outputs[0].name) == ("", 0, "y")
    assert list(read(entry, outputs=None).outputs) == []
    with pytest.raises(RefusedError, match=r"inputs\[0\]\.name: a string is wanted"):
        read({**entry, "name": None})
    raw = tensor("FP32", [1], parameters={"binary_data_size": 4})
    call = read_binary({"inputs": [{**raw, "data": None}]}, np.float32([2]).tobytes())
    assert call.inputs[0].array.tolist() == [2]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_other_encodings_than_utf_8_are_refused(encoding: str) -> None:
    text = json.dumps({"inputs": [tensor("FP32", [1], [1])]})
    with pytest.raises(RefusedError, match="the body is not"):
        read_infer_request(text.encode(encoding), None, LIMITS)
    marked = read_infer_request(text.encode("utf-8-sig"), None, LIMITS)
    assert marked.inputs[0].name == "x"


@pytest.mark.parametrize("name", [1, (1 << 64) - 1, "one"])
def test_parameters_name_the_place_in_a_sequence(name: int | str) -> None:
    rest = {"sequence_id": name, "sequence_start": True}
    assert read(parameters=rest).sequence == SequencePlace(name, is_start=True)
    assert read(parameters={"sequence_id": name}).sequence == SequencePlace(name)
    for none in (0, "", None):
        assert read(parameters={"sequence_id": none}).sequence is None


def outcome(body: bytes, length: int | None) -> object:
    try:
        call = read_infer_request(body, length, LIMITS)
    except RefusedError as error:
        return str(error), error.status
    arrays = [(each.array.dtype, each.array.shape, each.array.tolist()) for each in call.inputs]
    return repr(arrays), call._replace(inputs=[each._replace(array=None) for each in call.inputs])


@pytest.mark.parametrize(
    "text",
    [
        '{"inputs": [%s], "\udcff": 1}',
        '{"inputs": [%s], "id": null, "outputs": null, "parameters": null, "more": [1]}',
        '{"inputs": [%s], "outputs": [{"name": "y", "parameters": {"binary_data": true}}]}',
        '{"inputs": [%s], "parameters": {"priority": 2, "timeout": 5, "x": {}, "y": null}}',
        '{"inputs": [%s], "parameters": {"sequence_id": 0, "sequence_end": false}}',
        '{"inputs": [%s, %s], "id": "\u00fc"}',
        '{"id": "1", "id": "2", "inputs": [%s]}',
        '{"inputs": [%s, {"name": "z"}]}',
        '{"inputs": [%s], "outputs": [{}]}',
        '{"inputs": [%s], "id": 5}',
        '{"inputs": [%s], "parameters": []}',
        '{"inputs": {"a": %s}}',
        '{"inputs": [%s',
        "[%s]",
        "\ufeff{}",
        "null",
    ],
)
@pytest.mark.parametrize(
    "entry",
    [
        '{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2.5], "parameters": null}',
        '{"name": "x", "datatype": "FP32", "shape": [2], "data": null}',
        '{"name": "x", "datatype": "FP32", "shape": [1.0], "data": [NaN]}',
        '{"name": "x", "datatype": "FP32", "shape": [1], "data": [NaN]}',
        '{"name": "x", "datatype": "UINT64", "shape": [1], "data": [18446744073709551615]}',
        '{"name": "x", "datatype": "INT64", "shape": [1], "data": [18446744073709551616]}',
        '{"name": "x", "datatype": "FP32", "shape": [true], "data": [1]}',
        '{"name": "x", "datatype": "FP32", "shape": [-1], "data": [1]}',
        '{"name": "x", "datatype": "FP32", "shape": [1, 1, 1, 1], "data": [1]}',
        '{"name": null, "datatype": "FP32", "shape": [1], "data": [1]}',
        '{"name": "x", "datatype": "FP3", "shape": [1], "data": {}}',
        '{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["\\ud800"]}',
        '{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["\\u00fc"]}',
        '{"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}',
        '{"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": "4"}}',
        "null",
        "7",
    ],
)
def test_a_body_means_the_same_whether_or_not_it_has_the_usual_form(
    text: str, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read at once as its class is what is read field by field, refusals included."""
    head = text.replace("%s", entry).encode(errors="surrogateescape")
    body, length = head + np.float32(3).tobytes() * entry.count("binary_data_size"), len(head)
    usual = outcome(body, length)
    monkeypatch.setattr(http_request, "_read_typed", lambda text, limits: None)
    assert outcome(body, length) == usual
