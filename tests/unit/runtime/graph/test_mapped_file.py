"""Constants that stay in their file."""

from __future__ import annotations

import gc
import mmap
import weakref
from pathlib import Path

import numpy as np
import pytest

from aioinfer.runtime.graph import Graph, Node, Value
from aioinfer.runtime.graph.mapped_file import MappedFile, forget_pages, is_mapped, read_constants

PAGE = mmap.PAGESIZE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes((np.arange(16 * PAGE) % 251).astype(np.uint8).tobytes())
    return path


def _mapped(path: Path) -> MappedFile:
    with path.open("rb") as opened:
        return MappedFile.of(opened)


def test_a_part_is_the_bytes_of_the_file(file: Path) -> None:
    part = _mapped(file).part(3, 3 + 4 * PAGE)
    np.testing.assert_array_equal(part, (np.arange(3, 3 + 4 * PAGE) % 251).astype(np.uint8))
    assert not part.flags.writeable


def test_views_of_a_part_are_mapped_and_copies_are_not(file: Path) -> None:
    part = _mapped(file).part(1, 1 + 4 * PAGE)
    floats = part.view(np.float32).reshape(2, -1).T
    assert is_mapped(part)
    assert is_mapped(floats)
    assert not is_mapped(floats.copy())
    assert not is_mapped(np.frombuffer(bytes(8), np.uint8))


def _resident_bytes(file: MappedFile) -> int:
    """Ask the system how much of the file this process has in its page tables."""
    address = file.part(0, 1).ctypes.data
    with Path("/proc/self/smaps").open() as lines:
        inside = False
        for line in lines:
            if line.split(maxsplit=1)[0].count("-") == 1 and ":" not in line.split()[0]:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                inside = start <= address < end
            elif inside and line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("the mapping is not listed")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system tells no residence")
def test_forgotten_pages_are_given_back_and_come_again(file: Path) -> None:
    mapped = _mapped(file)
    part = mapped.part(0, 16 * PAGE)
    total = int(part.sum())
    assert _resident_bytes(mapped) == 16 * PAGE
    forget_pages(part[PAGE // 2 : 9 * PAGE + PAGE // 2])
    assert _resident_bytes(mapped) == 8 * PAGE, "but for the pages that others share"
    assert int(part.sum()) == total


def test_what_is_not_mapped_is_left_alone(file: Path) -> None:
    array = np.ones(4 * PAGE, np.uint8)
    forget_pages(array)
    forget_pages(_mapped(file).part(5, 5))
    assert array.all()


def test_the_file_is_unmapped_with_its_last_array(file: Path) -> None:
    mapped = _mapped(file)
    reference = weakref.ref(mapped)
    part = mapped.part(0, 8).view(np.float32)
    del mapped
    gc.collect()
    assert reference() is not None
    del part
    assert reference() is None


def test_constants_come_into_memory_once_each_wherever_they_are(file: Path) -> None:
    part = _mapped(file).part(1, 1 + 4 * PAGE).view(np.float32)
    own = np.ones(3, np.float32)
    body = Graph("body")
    body.add_initializer(Value("inner", constant=part))
    graph = Graph("g")
    for name, array in {"a": part, "b": part[:8], "c": part, "own": own}.items():
        graph.add_initializer(Value(name, constant=array))
    attributes = {"then_branch": body, "tensors": [part], "tensor": part}
    graph.append(Node("If", [], [], attributes, name="if"))
    read_constants(graph)
    found = {name: value.constant for name, value in graph.initializers.items()}
    [node] = graph.nodes
    assert found["own"] is own
    for array in (found["a"], found["b"], body.initializers["inner"].constant):
        assert array is not None
        assert not is_mapped(array)
        assert array.flags.aligned
        assert not array.flags.writeable
    np.testing.assert_array_equal(found["a"], part)
    np.testing.assert_array_equal(found["b"], part[:8])
    shared = [found["c"], body.initializers["inner"].constant]
    shared += [node.attributes["tensor"], node.attributes["tensors"][0]]  # type: ignore[index]
    assert all(array is found["a"] for array in shared)
