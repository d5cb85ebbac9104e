"""A directory of models: what is loaded, exchanged without a lost request, and refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from anyio.lowlevel import checkpoint

import aioinfer
from aioinfer.serving import Generation, Limits, RefusedError
from aioinfer.serving.inference import Inference
from aioinfer.serving.protocol.call import GivenTensor, InferCall
from aioinfer.serving.repository.directory import FolderRepository, poll
from aioinfer.serving.repository.loader import Loader
from aioinfer.serving.repository.settings import read_settings, wanted_versions
from unit.serving.models import counter, scaled

CALL = InferCall([GivenTensor("x", "FP32", np.ones((1, 3), np.float32), "inputs[0]")])


@pytest.fixture
async def repository(core: aioinfer.Core, tmp_path: Path) -> AsyncIterator[FolderRepository]:
    made = FolderRepository(tmp_path, Loader(core, "REFERENCE", {}), can_manage=True)
    yield made
    await made.aclose()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


def put(root: Path, factor: float, version: int = 1, model: str = "m") -> None:
    """Write a version as a user should: under another name first."""
    folder = root / model / str(version)
    scaled(folder / "new", factor)
    os.replace(folder / "new", folder / "model.onnx")


async def factor_of(repository: FolderRepository, version: str = "") -> float:
    answer = await Inference(repository, Limits()).run("m", version, CALL)
    return float(answer.outputs[0][1][0, 0])


def reasons(repository: FolderRepository) -> dict[str, tuple[str, str]]:
    return {state.version: (state.state, state.reason) for state in repository.states()}


async def test_nothing_is_ready_before_the_directory_was_looked_at(
    repository: FolderRepository, tmp_path: Path
) -> None:
    put(tmp_path, 2)
    assert not repository.is_ready
    await repository.refresh()
    assert repository.is_ready
    assert await factor_of(repository) == 2


async def test_the_latest_version_serves_and_the_one_before_goes(
    repository: FolderRepository, tmp_path: Path
) -> None:
    put(tmp_path, 2)
    await repository.refresh()
    old = repository.find("m").network
    put(tmp_path, 10, version=10)
    put(tmp_path, 9, version=9)
    await repository.refresh()
    assert reasons(repository) == {"10": ("READY", "")}
    assert await factor_of(repository) == 10
    with pytest.raises(RefusedError, match="no version '1'"):
        repository.find("m", "1")
    while not old.is_closed:
        await checkpoint()


async def test_a_changed_file_takes_the_place_of_the_old_one_and_no_request_is_lost(
    repository: FolderRepository, tmp_path: Path
) -> None:
    put(tmp_path, 1)
    await repository.refresh()
    stop = asyncio.Event()
    seen: list[float] = []

    async def client() -> None:
        while not stop.is_set():
            seen.append(await factor_of(repository))
            await asyncio.sleep(0)

    clients = [asyncio.ensure_future(client()) for _ in range(8)]
    for factor in range(2, 7):
        put(tmp_path, factor)
        await repository.refresh()
    stop.set()
    await asyncio.gather(*clients)
    assert await factor_of(repository) == 6
    assert {1.0, 6.0} <= {*seen, 6.0} <= {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}


async def test_an_exported_network_is_a_version(
    core: aioinfer.Core, repository: FolderRepository, tmp_path: Path
) -> None:
    with core.load_network(scaled(tmp_path / "other", 7.0), "REFERENCE") as network:
        (tmp_path / "m" / "1").mkdir(parents=True)
        network.export(tmp_path / "m" / "1" / "model.blob")
    (tmp_path / "other").unlink()
    await repository.refresh()
    assert reasons(repository) == {"1": ("READY", "")}
    assert await factor_of(repository) == 7
    (tmp_path / "m" / "2").mkdir()
    (tmp_path / "m" / "2" / "model.blob").write_bytes(b"nothing")
    await repository.refresh()
    assert await factor_of(repository) == 7
    state, reason = reasons(repository)["2"]
    assert (state, str(tmp_path) in reason) == ("UNAVAILABLE", False)
    assert "no network exported by aioinfer" in reason


async def test_what_has_not_changed_is_not_loaded_again(
    repository: FolderRepository, tmp_path: Path
) -> None:
    put(tmp_path, 2)
    await repository.refresh()
    network = repository.find("m").network
    await repository.refresh()
    await repository.load("m")
    assert repository.find("m").network is network


async def test_a_version_that_fails_leaves_the_old_one_serving_and_says_why(
    repository: FolderRepository, tmp_path: Path
) -> None:
    put(tmp_path, 2)
    await repository.refresh()
    (tmp_path / "m" / "2").mkdir()
    (tmp_path / "m" / "2" / "model.onnx").write_bytes(b"nothing")
    await repository.refresh()
    told = reasons(repository)
    assert told["1"] == ("READY", "")
    assert told["2"][0] == "UNAVAILABLE"
    assert told["2"][1]
    assert str(tmp_path) not in told["2"][1]
    assert await factor_of(repository) == 2
    assert repository.is_ready
    with pytest.raises(RefusedError, match="could not be loaded: version 2"):
        await repository.load("m")
    put(tmp_path, 3, version=2)
    await repository.refresh()
    assert reasons(repository) == {"2": ("READY", "")}
    assert await factor_of(repository) == 3


async def test_a_model_that_fails_alone_is_not_ready(
    repository: FolderRepository, tmp_path: Path
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    await repository.refresh()
    assert not repository.is_ready
    with pytest.raises(RefusedError, match=r"not ready: it has neither model\.onnx") as refused:
        repository.find("m")
    assert refused.value.status == 503


async def test_clients_load_and_unload(repository: FolderRepository, tmp_path: Path) -> None:
    put(tmp_path, 2)
    await repository.refresh()
    await repository.unload("m")
    assert repository.is_ready  # nobody wants it
    with pytest.raises(RefusedError, match="unloaded"):
        repository.find("m")
    await repository.refresh()
    assert reasons(repository) == {"": ("UNAVAILABLE", "unloaded")}
    await repository.load("m")
    assert await factor_of(repository) == 2
    for change in (repository.load, repository.unload):
        with pytest.raises(RefusedError, match=r"no model '\.\./m'"):
            await change("../m")


async def test_a_model_whose_folder_is_gone_is_gone(
    repository: FolderRepository, tmp_path: Path
) -> None:
    put(tmp_path, 2)
    await repository.refresh()
    os.rename(tmp_path / "m", tmp_path / ".m")
    await repository.refresh()
    with pytest.raises(RefusedError, match="no model") as refused:
        repository.find("m")
    assert refused.value.status == 404


async def test_a_link_out_of_the_directory_is_not_followed(
    repository: FolderRepository, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    put(outside, 2)
    (tmp_path / "linked").symlink_to(outside / "m")
    (tmp_path / "file" / "1").mkdir(parents=True)
    (tmp_path / "file" / "1" / "model.onnx").symlink_to(outside / "m" / "1" / "model.onnx")
    (tmp_path / "version").mkdir()
    (tmp_path / "version" / "1").symlink_to(outside / "m" / "1")
    await repository.refresh()
    states = {state.model: state.reason for state in repository.states()}
    assert set(states) == {"linked", "file", "version"}
    assert all("leads out of the model directory" in reason for reason in states.values()), states


async def test_links_in_a_circle_and_names_that_are_no_text_end_nothing(
    repository: FolderRepository, tmp_path: Path
) -> None:
    put(tmp_path, 2)
    (tmp_path / "circle" / "1").mkdir(parents=True)
    (tmp_path / "circle" / "1" / "a").symlink_to("b")
    (tmp_path / "circle" / "1" / "b").symlink_to("a")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    await repository.refresh()
    assert {state.model: state.state for state in repository.states()} == {
        "m": "READY",
        "circle": "UNAVAILABLE",
    }
    assert await factor_of(repository) == 2


async def test_settings_that_became_wrong_are_told_of_what_still_serves(
    repository: FolderRepository, tmp_path: Path
) -> None:
    put(tmp_path, 2)
    await repository.refresh()
    for text, told in (("broken =", "model.toml"), ("x = " + "[" * 100_000, "too deep")):
        (tmp_path / "m" / "model.toml").write_text(text)
        await repository.refresh()
        (state,) = repository.states()
        assert (state.state, told in state.reason) == ("READY", True), state
    (tmp_path / "m" / "model.toml").unlink()
    await repository.refresh()
    assert reasons(repository) == {"1": ("READY", "")}


async def test_polling_survives_what_nobody_expects() -> None:
    turns = []

    async def refresh() -> None:
        turns.append(len(turns))
        if len(turns) < 3:
            raise (OSError(5, "broken"), RuntimeError("broken"))[turns[-1]]

    async def wait() -> None:
        if len(turns) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await poll(refresh, wait)
    assert turns == [0, 1, 2]


async def test_a_model_is_warm_before_it_serves_where_its_settings_say_so(
    repository: FolderRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[str] = []

    async def warm_up(network: aioinfer.ExecutableNetwork) -> None:
        warmed.append(network.name)

    monkeypatch.setattr(aioinfer.ExecutableNetwork, "warm_up_async", warm_up)
    put(tmp_path, 2)
    await repository.refresh()
    assert warmed == []
    (tmp_path / "m" / "model.toml").write_text("warm_up = true\n")
    put(tmp_path, 3, version=2)
    await repository.refresh()
    assert warmed == ["m"]
    assert await factor_of(repository) == 3


async def test_settings_of_a_model_are_its_own(
    repository: FolderRepository, tmp_path: Path
) -> None:
    put(tmp_path, 2)
    put(tmp_path, 3, version=3)
    settings = tmp_path / "m" / "model.toml"
    settings.write_text(
        'device = "BATCH:REFERENCE(4)"\nversions = [1]\n[properties]\nMAX_QUEUED_REQUESTS = 7\n'
    )
    await repository.refresh()
    network = repository.find("m").network
    assert network.device.startswith("BATCH")
    assert network.get_config("MAX_QUEUED_REQUESTS") == 7
    assert await factor_of(repository) == 2
    settings.write_text("devise = 1\n")
    await repository.refresh()
    assert await factor_of(repository) == 2  # what served goes on


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("generate = 1", "generate is 1; give a table with feed, steps, end"),
        ("[generate]\nfeed = 1\nsteps = 1", "generate.feed"),
        ("[generate]\nsteps = 1", "generate.feed"),
        ("[generate]\nfeed = {a = 'b'}", "generate.steps"),
        ("[generate]\nfeed = {a = 'b'}\nsteps = 0", "generate.steps"),
        ("[generate]\nfeed = {a = 'b'}\nsteps = 1\nend = {a = 'b'}", "generate.end"),
        ("[generate]\nfeed = {a = 'b'}\nsteps = 1\nmore = 1", "a table with feed"),
        ("devise = 'CPU'", "unknown key 'devise'; did you mean 'device'"),
        ("device = 1", "device is 1; give a text"),
        ("versions = 0", "versions is 0"),
        ("versions = []", r"versions is \[\]"),
        ("versions = [true]", r"versions is \[True\]"),
        ("properties = 1", "properties is 1"),
        ("warm_up = 'yes'", "warm_up is 'yes'"),
        ("device =", r"model\.toml: "),
    ],
)
def test_wrong_settings_are_refused(text: str, told: str) -> None:
    with pytest.raises(aioinfer.errors.PropertyError, match=told):
        read_settings(text)


def test_versions_are_chosen_by_policy() -> None:
    assert wanted_versions("latest", [1, 10, 9]) == [10]
    assert wanted_versions("all", [2, 1]) == [1, 2]
    assert wanted_versions((3, 1), [1, 2]) == [1]
    assert wanted_versions("latest", []) == []


async def test_settings_say_how_a_model_generates(core: aioinfer.Core, tmp_path: Path) -> None:
    counter(tmp_path / "m" / "1" / "model.onnx")
    settings = tmp_path / "m" / "model.toml"
    text = "[generate]\nfeed = {next = 'token'}\nsteps = 4\nend = {next = 9}\n"
    settings.write_text(text + "[properties]\nSTATE = {past = 'present'}\n")
    repository = FolderRepository(tmp_path, Loader(core, "REFERENCE", {}))
    await repository.refresh()
    generation = Generation({"next": "token"}, 4, {"next": 9})
    assert repository.find("m").generation == generation
    settings.write_text(text.replace("token", "tokens"))
    await repository.refresh()
    assert repository.find("m").generation == generation  # what served before goes on
    (state,) = repository.states()
    assert "input 'tokens', which it does not have; did you mean 'token'" in state.reason
    await repository.aclose()


async def test_versions_that_do_not_fit_together_wait_for_room(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    put(tmp_path, 2)
    size = (tmp_path / "m" / "1" / "model.onnx").stat().st_size
    put(tmp_path, 3, model="n")
    repository = FolderRepository(
        tmp_path, Loader(core, "REFERENCE", {}), can_manage=True, limit_bytes=2 * size - 1
    )
    await repository.refresh()
    told = {state.model: state.reason for state in repository.states()}
    assert told["m"] == ""
    assert told["n"].startswith(f"its files of {size} bytes do not fit beside those of others")
    put(tmp_path, 4, version=2)
    await repository.refresh()
    assert await factor_of(repository) == 2  # the new version has no room beside the old one
    with pytest.raises(RefusedError, match="--memory-limit"):
        await repository.load("n")
    await repository.unload("m")
    while repository.loaded_bytes:
        await checkpoint()
    await repository.refresh()
    assert [served.model for served in repository.served()] == ["n"]
    await repository.aclose()
    assert repository.loaded_bytes == 0
