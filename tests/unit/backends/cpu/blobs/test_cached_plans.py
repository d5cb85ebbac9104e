"""Plans of new shapes in CACHE_DIR: added when a network is closed, and there for the next load."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.errors import ClosedError

RANDOM = np.random.default_rng(0)


@pytest.fixture
def model() -> onnx.ModelProto:
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("Softmax", ["m"], ["y"]),
        ],
        "cached",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        [numpy_helper.from_array(RANDOM.normal(size=(48, 64)).astype(np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def load(core: aioinfer.Core, model: onnx.ModelProto, tmp_path: Path) -> Any:
    return lambda: core.load_network(model, "CPU", {"CACHE_DIR": str(tmp_path)})


def run(network: aioinfer.ExecutableNetwork, *lengths: int) -> list[np.ndarray]:
    request = network.create_infer_request()
    return [request.infer_sync(np.ones((length, 48), np.float32))["y"] for length in lengths]


def plan_count(network: aioinfer.ExecutableNetwork) -> int:
    count: int = network.get_metric("PLAN_COUNT")
    return count


def entry_of(folder: Path) -> Path:
    (entry,) = folder.glob("networks/*.blob")
    return entry


def test_plans_of_new_shapes_are_added_at_close(load: Any) -> None:
    with load() as network:
        wanted = run(network, 5, 6, 7)
        assert plan_count(network) == 3
    with load() as network:
        assert network.get_metric("LOADED_FROM_CACHE")
        assert plan_count(network) == 3
        assert all(map(np.array_equal, run(network, 5, 6, 7), wanted))
        more = run(network, 8)
    with load() as network:
        assert plan_count(network) == 4
        assert np.array_equal(run(network, 8)[0], more[0])


def test_nothing_is_written_without_new_plans(load: Any, tmp_path: Path) -> None:
    with load() as network:
        run(network, 5)
    before = entry_of(tmp_path).stat().st_ino
    with load() as network:
        run(network, 5)
    assert entry_of(tmp_path).stat().st_ino == before


def test_one_new_plan_to_many_does_not_write_them_all_again(load: Any, tmp_path: Path) -> None:
    with load() as network:
        run(network, *range(3, 13))
    before = entry_of(tmp_path).stat().st_ino
    with load() as network:
        run(network, 20)
    assert entry_of(tmp_path).stat().st_ino == before
    with load() as network:
        run(network, 20, 21)
    with load() as network:
        assert plan_count(network) == 12


@pytest.mark.parametrize("how", [{"drain": False}, {"timeout_s": 5}])
def test_a_close_that_is_in_a_hurry_keeps_nothing(
    how: dict[str, Any], load: Any, tmp_path: Path
) -> None:
    network = load()
    run(network, 5)
    before = entry_of(tmp_path).stat().st_ino
    network.close(**how)
    assert entry_of(tmp_path).stat().st_ino == before


def test_no_run_begins_while_plans_are_kept(load: Any) -> None:
    network = load()
    run(network, 5)
    request, keep, asked = network.create_infer_request(), network.keep_at_close, []

    def kept(closing: aioinfer.ExecutableNetwork) -> None:
        with pytest.raises(ClosedError):
            request.infer_sync(np.ones((6, 48), np.float32))
        asked.append(closing)
        keep(closing)

    network.keep_at_close = kept
    assert network.close()
    assert network.close()
    assert asked == [network]
    with load() as network:
        assert plan_count(network) == 1


def test_a_device_is_given_back_when_keeping_fails(load: Any) -> None:
    network = load()
    run(network, 5)

    def kept(closing: aioinfer.ExecutableNetwork) -> None:
        raise MemoryError("no room")

    network.keep_at_close = kept
    with pytest.raises(MemoryError, match="no room"):
        network.close()
    assert network.close()
    assert network.get_metric("ARENA_BYTES") == 0


def test_an_entry_that_another_process_writes_is_left(load: Any, tmp_path: Path) -> None:
    network = load()
    run(network, 5)
    entry = entry_of(tmp_path)
    before = entry.stat().st_ino
    with entry.open("rb") as other:
        fcntl.flock(other.fileno(), fcntl.LOCK_EX)
        network.close()
    assert entry.stat().st_ino == before


def test_what_another_network_has_added_meanwhile_stays(load: Any) -> None:
    load().close()
    with load() as late:
        with load() as early:
            run(early, 5, 6, 7)
        run(late, 8)
    with load() as network:
        assert plan_count(network) == 3
        run(network, 8)
    with load() as network:
        assert plan_count(network) == 4


def test_an_entry_that_is_gone_is_not_written_again(load: Any, tmp_path: Path) -> None:
    network = load()
    run(network, 5)
    entry_of(tmp_path).unlink()
    network.close()
    assert not list(tmp_path.glob("networks/*.blob"))


def test_plans_that_are_not_sound_are_not_written(load: Any, tmp_path: Path) -> None:
    with load() as network:
        run(network, 5)
    entry = entry_of(tmp_path)
    content = bytearray(entry.read_bytes())
    from aioinfer.runtime.blobs.reader import Blob

    frames = Blob.open(bytes(content))._opened.frames
    place = max(
        (frame for name, frame in frames.items() if name.startswith("plans/tensor")),
        key=lambda frame: frame.size_bytes,
    ).offset
    content[place] ^= 1
    entry.write_bytes(content)
    with load() as network, pytest.raises(aioinfer.errors.BlobError, match="is removed"):
        run(network, 5)
    assert not list(tmp_path.glob("networks/*.blob"))
    with load() as network:
        assert not network.get_metric("LOADED_FROM_CACHE")
        run(network, 5)
    with load() as network:
        assert plan_count(network) == 1
