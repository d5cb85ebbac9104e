"""The file of an imported network while runs use it: cut short, written over, replaced, gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import BlobError
from unit.runtime.blobs.test_crafted_records import STATIC, convolutions

pytestmark = pytest.mark.skipif(os.name != "posix", reason="files in use cannot be changed here")


def cut(path: Path) -> None:
    os.truncate(path, 64)


def write_over(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    os.utime(path, ns=(0, 0))  # of the same length, and another time


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(b"another")
    other.rename(path)


@pytest.mark.parametrize(
    ("change", "is_refused"),
    [(cut, True), (write_over, True), (replace, False), (os.unlink, False)],
)
def test_runs_look_at_the_file_that_they_use(
    core: aioinfer.Core, tmp_path: Path, change: Callable[[Path], None], is_refused: bool
) -> None:
    path = tmp_path / "net.blob"
    with core.load_network(convolutions(), "CPU") as network:
        network.export(path)
    with core.import_network(path) as imported:
        request = imported.create_infer_request()
        first = request.infer_sync(STATIC)["j"].copy()
        change(path)
        for _ in range(2):
            if is_refused:
                with pytest.raises(BlobError, match="written to while it is in use"):
                    request.infer_sync(STATIC)
            else:
                assert np.array_equal(request.infer_sync(STATIC)["j"], first)


def test_what_was_read_into_memory_is_used_whatever_becomes_of_the_file(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    path = tmp_path / "net.blob"
    with core.load_network(convolutions(), "CPU") as network:
        network.export(path)
    with core.import_network(path, config={"ENABLE_MMAP": False}) as imported:
        cut(path)
        assert imported.create_infer_request().infer_sync(STATIC)["j"].shape == (1, 4, 4, 72)
