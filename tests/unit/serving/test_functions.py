"""Functions before and behind a model: only what was allowed, declared, and kept to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import PropertyError
from aioinfer.serving import Limits, postprocess, preprocess
from aioinfer.serving.functions import AllowedFunctions, ModelFunctions
from aioinfer.serving.inference import Inference
from aioinfer.serving.protocol.call import GivenTensor, InferCall, fitted
from aioinfer.serving.protocol.refusal import RefusedError
from aioinfer.serving.repository.directory import FolderRepository
from aioinfer.serving.repository.loader import Loader
from aioinfer.serving.repository.settings import read_settings
from aioinfer.serving.web.application import application
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import scaled

MODULE = """
import asyncio
import sys
import numpy as np
from aioinfer.errors import TensorError
from aioinfer.serving import postprocess, preprocess

@preprocess(takes={"file": ("BYTES", [-1])})
def lengths(given):
    if b"damaged" in given["file"]:
        raise TensorError("the file is damaged", tensor="file")
    if b"bug" in given["file"]:
        raise KeyError("/home/somebody")
    if b"exit" in given["file"]:
        sys.exit("/home/somebody")
    if b"cancelled" in given["file"]:
        raise asyncio.CancelledError
    if b"nothing" in given["file"]:
        return None
    assert all(type(item) is bytes for item in given["file"])
    return {"x": np.array([[len(item)] * 3 for item in given["file"]], np.float32)}

@postprocess(gives={"text": ("BYTES", [-1]), "sum": ("FP32", [-1])})
def told(outputs):
    sums = outputs["y"].sum(axis=1)
    if sums[0] == 6:
        return {"text": ["too", "many"], "sum": sums.astype(np.float64)}
    if sums[0] == 12:
        return {"text": [b"\\xff"], "sum": sums}
    return {"text": [f"{total:g}" for total in sums], "sum": sums}

def secret(given):
    return given
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AllowedFunctions:
    (tmp_path / "served_lengths.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return AllowedFunctions(["served_lengths"])


@pytest.fixture
async def repository(
    core: aioinfer.Core, tmp_path: Path, functions: AllowedFunctions
) -> AsyncIterator[FolderRepository]:
    root = tmp_path / "models"
    scaled(root / "m" / "1" / "model.onnx", 2.0)
    configure(root, 'preprocess = "served_lengths:lengths"\npostprocess = "served_lengths:told"')
    made = FolderRepository(root, Loader(core, "REFERENCE", {}, functions), can_manage=True)
    await made.refresh()
    yield made
    await made.aclose()


@pytest.fixture
def client(repository: FolderRepository) -> AsgiClient:
    return AsgiClient(application(Inference(repository, Limits())))


def configure(root: Path, text: str) -> None:
    (root / "m" / "model.toml").write_text(text)


def of_files(*files: str) -> dict[str, object]:
    data = list(files)
    return {"inputs": [{"name": "file", "datatype": "BYTES", "shape": [len(data)], "data": data}]}


async def test_clients_give_and_get_what_the_functions_declare(client: AsgiClient) -> None:
    told = (await client.get("/v2/models/m")).json()
    assert told["inputs"] == [{"name": "file", "datatype": "BYTES", "shape": [-1]}]
    assert [output["name"] for output in told["outputs"]] == ["text", "sum"]
    reply = await client.post("/v2/models/m/infer", of_files("abcd", "é"))
    assert [output["data"] for output in reply.json()["outputs"]] == [["24", "12"], [24, 12]]
    reply = await client.post("/v2/models/m/generate", {"file": "abcd"})
    assert reply.json()["text"] == "24"


async def test_raw_elements_need_not_be_texts(client: AsgiClient) -> None:
    head = (
        b'{"inputs":[{"name":"file","datatype":"BYTES","shape":[1],'
        b'"parameters":{"binary_data_size":9}}]}'
    )
    reply = await client.post(
        "/v2/models/m/infer",
        head + b"\x05\x00\x00\x00\xff\xd8\x00\xff\xfe",
        inference_header_content_length=str(len(head)),
    )
    assert reply.json()["outputs"][0]["data"] == ["30"]


async def test_what_a_function_refuses_is_the_clients_and_a_bug_is_the_servers(
    client: AsgiClient, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await client.post("/v2/models/m/infer", of_files("damaged"))
    assert (reply.status, reply.error) == (400, "input 'file': the file is damaged")
    reply = await client.post("/v2/models/m/infer", of_files("bug"))
    assert (reply.status, "somebody" in reply.error) == (500, False)
    assert "KeyError" in caplog.text


@pytest.mark.parametrize("file", ["exit", "cancelled", "nothing"])
async def test_a_function_that_would_end_the_server_is_answered_as_a_bug(
    client: AsgiClient, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    reply = await client.post("/v2/models/m/infer", of_files(file))
    assert (reply.status, "somebody" in reply.error) == (500, False)
    assert "preprocess lengths r" in caplog.text
    assert (await client.post("/v2/models/m/infer", of_files("abcd"))).status == 200


async def test_a_result_that_was_not_declared_is_the_servers_fault(
    client: AsgiClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await client.post("/v2/models/m/infer", of_files("a"))).status == 500
    assert "postprocess of model 'm' returns 'sum' of float64" in caplog.text


async def test_bytes_that_are_no_text_are_not_put_into_json(client: AsgiClient) -> None:
    reply = await client.post("/v2/models/m/infer", of_files("ab"))
    assert reply.error.startswith("output 'text': has bytes that are no text")
    wanted = {**of_files("ab"), "parameters": {"binary_data_output": True}}
    reply = await client.post("/v2/models/m/infer", wanted)
    assert (reply.status, b"\x01\x00\x00\x00\xff" in reply.body) == (200, True)


async def test_inputs_of_the_network_are_no_inputs_of_clients(client: AsgiClient) -> None:
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    reply = await client.post("/v2/models/m/infer", {"inputs": [x]})
    assert reply.error.startswith("inputs[0].name: model 'm' has no input 'x'")
    file = {"name": "file", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}
    reply = await client.post("/v2/models/m/infer", {"inputs": [file]})
    assert reply.error.startswith("inputs[0].shape: 'file' has shape [-1], not [1, 1]")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('preprocess = "os:system"', "preprocess is 'os:system', which is not allowed"),
        ('preprocess = "served_lengths:secret"', "'served_lengths:secret', which is not allowed"),
        ('preprocess = "served_lengths:told"', "which is a postprocess"),
        ('postprocess = "served_lengths:tolt"', "did you mean 'served_lengths:told'"),
        ("preprocess = 3", "preprocess is 3; give a name such as"),
    ],
)
async def test_what_is_not_allowed_is_named_with_its_model_and_the_old_one_serves_on(
    repository: FolderRepository, client: AsgiClient, tmp_path: Path, text: str, problem: str
) -> None:
    configure(tmp_path / "models", text)
    await repository.refresh()
    (state,) = repository.states()
    assert problem in state.reason
    if "3" not in text:
        assert "model.toml of 'm'" in state.reason
    assert (await client.post("/v2/models/m/infer", of_files("abcd"))).status == 200


async def test_functions_come_and_go_with_the_settings(
    repository: FolderRepository, client: AsgiClient, tmp_path: Path
) -> None:
    configure(tmp_path / "models", "")
    await repository.refresh()
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    reply = await client.post("/v2/models/m/infer", {"inputs": [x]})
    assert reply.json()["outputs"][0]["data"] == [2, 4, 6]


async def test_without_an_allowed_module_nothing_is_called(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    scaled(tmp_path / "m" / "1" / "model.onnx", 2.0)
    configure(tmp_path, 'preprocess = "served_lengths:lengths"')
    repository = FolderRepository(tmp_path, Loader(core, "REFERENCE", {}))
    await repository.refresh()
    assert "none is allowed; allow its module with --functions" in repository.states()[0].reason
    await repository.aclose()


@pytest.mark.parametrize("module", ["no_such_module", "base64", "", ".relative"])
def test_a_module_that_is_not_there_or_declares_nothing_is_refused(module: str) -> None:
    with pytest.raises(PropertyError, match="--functions"):
        AllowedFunctions([module])


def test_declarations_are_checked() -> None:
    wrong_shapes: list[Any] = [[-2], [True], [1.5], ["a"], [None], 3]
    wrong: list[Any] = [{}, [("x", "FP32")], {"x": "FP32"}, {3: ("FP32", [1])}]
    wrong += [{"x": (datatype, [1])} for datatype in ("FLOAT", [], None)]
    for takes in wrong + [{"x": ("FP32", shape)} for shape in wrong_shapes]:
        with pytest.raises(PropertyError, match="takes"):
            preprocess(takes)
    with pytest.raises(PropertyError, match="coroutine function"):

        @preprocess(takes={"x": ("FP32", [1])})
        async def later(given: object) -> None:
            pass


def test_a_call_fits_the_model_that_it_finds() -> None:
    """The one that was there when it was read may have been exchanged."""
    texts = GivenTensor("t", "BYTES", np.array([["é"]], object), "inputs[0]")
    call = InferCall([texts, GivenTensor("n", "FP32", np.zeros(1, np.float32), "inputs[1]")])
    assert fitted(call, keeps_bytes=False) is call
    kept = fitted(call, keeps_bytes=True)
    assert kept.inputs[0].array.tolist() == [["é".encode()]]
    assert fitted(kept, keeps_bytes=False).inputs[0].array.tolist() == [["é"]]
    wrong = GivenTensor("t", "BYTES", np.array([b"\xff"], object), "inputs[0]")
    with pytest.raises(RefusedError, match=r"inputs\[0\]\[0\]: is not UTF-8"):
        fitted(InferCall([wrong], keeps_bytes=True), keeps_bytes=False)


@pytest.mark.parametrize(
    ("datatype", "made", "wanted"),
    [
        ("INT32", [1.5], None),
        ("INT32", [True], None),
        ("INT32", np.int64(1), None),
        ("BOOL", ["no"], None),
        ("BOOL", [0], None),
        ("FP32", ["1"], None),
        ("FP32", [1, 2.5], [1, 2.5]),
        ("UINT8", [255], [255]),
        ("UINT8", [], []),
        ("BOOL", [True], [True]),
        ("BYTES", ["a", b"b"], ["a", b"b"]),
    ],
)
def test_lists_of_a_postprocess_are_not_cut_to_what_it_declares(
    datatype: str, made: object, wanted: list[object] | None
) -> None:
    declared = postprocess(gives={"y": (datatype, [-1])})(lambda outputs: {"y": made})
    function = ModelFunctions(postprocess=declared).behind("m")
    assert function is not None
    if wanted is None:
        with pytest.raises(PropertyError, match="model 'm' returns 'y'"):
            function({})
    else:
        assert function({})["y"].tolist() == wanted


def test_settings_name_functions() -> None:
    settings = read_settings('preprocess = "a:b"')
    assert (settings.preprocess, settings.postprocess) == ("a:b", None)
