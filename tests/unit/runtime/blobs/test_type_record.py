from typing import Any

import pytest

from aioinfer.errors import BlobError
from aioinfer.runtime.blobs.graph_record import type_of, type_record
from aioinfer.runtime.graph import (
    DType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)

TENSOR = TensorType(DType.FLOAT32, ("n", 3, None))


@pytest.mark.parametrize(
    "known",
    [
        None,
        TENSOR,
        SequenceType(TENSOR),
        OptionalType(SequenceType(None)),
        SequenceType(MapType(DType.STRING, TENSOR)),
        MapType(DType.INT64, None),
    ],
)
def test_types_come_back(known: ValueType | None) -> None:
    assert type_of(type_record(known)) == known


@pytest.mark.parametrize(
    "record",
    [{"map": []}, {"map": ["int64"]}, {"map": ["odd", None]}, {"map": None}, {"set": None}],
)
def test_what_is_no_type_is_refused(record: Any) -> None:
    with pytest.raises(BlobError):
        type_of(record)
