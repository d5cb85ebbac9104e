"""Descriptors in blobs: made again as they were, whichever team the reading thread has."""

from __future__ import annotations

import copy
from ctypes import c_int
from typing import Any

import pytest

from aioinfer.backends.cpu.blobs.onednn_record import OneDnnReader, OneDnnWriter
from aioinfer.backends.cpu.kernels.windows.onednn_windows import dims_array
from aioinfer.backends.cpu.onednn.bindings import (
    Attributes,
    Desc,
    Engine,
    PrimitiveDesc,
    open_engine,
)
from aioinfer.errors import BlobError
from aioinfer.runtime.graph import DType


@pytest.fixture
def engine() -> Engine:
    return open_engine()


def convolution(engine: Engine, threads: int) -> PrimitiveDesc:
    """One image of one pixel: how many threads there are decides how its weights lie."""
    with engine.with_threads(threads):
        return engine.primitive_desc(
            "convolution_forward",
            engine,
            c_int(96),
            c_int(1),
            engine.any_desc((1, 24, 1, 1), DType.FLOAT32),
            engine.any_desc((24, 24, 3, 3), DType.FLOAT32),
            None,
            engine.desc((1, 24, 1, 1), DType.FLOAT32, (24, 1, 24, 24)),
            dims_array((1, 1)),
            dims_array((0, 0)),
            dims_array((1, 1)),
            dims_array((1, 1)),
            Attributes(engine, [], 0, 0),
        )


def written(*descs: Desc) -> tuple[list[Any], list[int]]:
    writer = OneDnnWriter()
    return writer.rows, [writer.desc(desc) for desc in descs]


def test_layouts_for_teams_come_back_on_a_thread_with_another(engine: Engine) -> None:
    descs = [convolution(engine, threads).desc("weights") for threads in (1, 2, 4)]
    rows, numbers = written(*descs)
    for threads in (1, 2, 4):
        with engine.with_threads(threads):
            reader = OneDnnReader(engine, rows)
        assert [reader.desc(number) for number in numbers] == descs


@pytest.mark.parametrize("threads", [0, -1, 4097, 1 << 40, True, 1.0, None, "1"])
def test_no_team_of_that_many_threads_is_made(engine: Engine, threads: Any) -> None:
    rows, _ = written(convolution(engine, 1).desc("weights"))
    changed = copy.deepcopy(rows)
    row = next(row for row in changed if row[0] == "primitive")
    row[-1] = threads
    with pytest.raises(BlobError, match="threads"):
        OneDnnReader(engine, changed)
