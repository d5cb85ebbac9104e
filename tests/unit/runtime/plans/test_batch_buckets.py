"""Which bucket a batch takes, and what a network makes of it; no device is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.properties import BATCH_BUCKETS, BUCKETS_TO_256
from aioinfer.errors import PropertyError
from aioinfer.runtime.plans.batch_axis import BatchAxis
from aioinfer.runtime.plans.batch_buckets import BatchBuckets, Padding, bucket_of, choose_buckets
from aioinfer.runtime.tensors.tensor import ports_of
from onnx_text import parse

MODEL = """g (int64[N,S] ids, float[3] table, float[N,S] mask) => (y)
{ f = Cast <to = 1> (ids)  y = Mul (f, mask) }"""


def buckets_of(*sizes: int) -> BatchBuckets:
    model = parse(MODEL)
    return BatchBuckets(sizes, BatchAxis(("ids", "mask"), ("y",)), ports_of(model.inputs))


@pytest.mark.parametrize(
    ("batch", "bucket"),
    [(0, 0), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (129, 256), (256, 256), (257, 257)],
)
def test_a_batch_takes_the_least_bucket_that_holds_it(batch: int, bucket: int) -> None:
    assert bucket_of(batch, BUCKETS_TO_256) == bucket


def test_every_batch_has_room_in_its_bucket_and_in_none_below() -> None:
    sizes = (3, 7, 20)
    for batch in range(1, 25):
        bucket = bucket_of(batch, sizes)
        assert bucket >= batch
        assert (bucket in sizes) == (batch <= 20)
        assert not any(batch <= size < bucket for size in sizes)


def test_without_buckets_a_batch_is_its_own() -> None:
    assert bucket_of(5, ()) == 5


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ("1,2,4", (1, 2, 4)),
        (" 2 , 8 ", (2, 8)),
        ("16", (16,)),
        ("", ()),
        ("  ", ()),
        ((), ()),
        ([1, np.int64(4)], (1, 4)),
        (BUCKETS_TO_256, (1, 2, 4, 8, 16, 32, 64, 128, 256)),
    ],
)
def test_a_value_of_the_property(given: Any, sizes: tuple[int, ...]) -> None:
    assert BATCH_BUCKETS.value_of(given, "TOY") == sizes
    assert BATCH_BUCKETS.value_of(sizes, "TOY") == sizes


@pytest.mark.parametrize(
    "given", ["1,,2", "2,1", "1,1", "0,1", "-1", "a", "1.5", [1, True], [1.5], 4, None, {1: 2}]
)
def test_a_bad_value_of_the_property_is_named(given: Any) -> None:
    with pytest.raises(
        PropertyError, match=r"TOY: bad value .* for BATCH_BUCKETS: ascending batch sizes"
    ) as caught:
        BATCH_BUCKETS.value_of(given, "TOY")
    assert caught.value.key == "BATCH_BUCKETS"


def test_only_inputs_with_rows_are_rounded_up() -> None:
    buckets = buckets_of(1, 4, 8)
    assert buckets.signature_of_plan(((3, 7), (3,), (3, 7))) == ((4, 7), (3,), (4, 7))
    assert buckets.signature_of_plan(((9, 7), (3,), (9, 7))) == ((9, 7), (3,), (9, 7))
    assert buckets.signature_of_plan(((0, 7), (3,), (0, 7))) == ((0, 7), (3,), (0, 7))


def test_shapes_that_do_not_agree_are_left_for_the_error_that_they_deserve() -> None:
    shapes = ((3, 7), (3,), (4, 7))
    assert buckets_of(1, 4, 8).signature_of_plan(shapes) == shapes


def test_a_run_that_fills_its_bucket_is_not_padded() -> None:
    buckets, table = buckets_of(1, 4), np.zeros(3)
    for rows, padding in ((1, None), (3, Padding(3, 4)), (4, None), (5, None), (0, None)):
        inputs = {"ids": np.zeros((rows, 2)), "table": table, "mask": np.zeros((rows, 2))}
        assert buckets.padding_of(inputs) == padding
    uneven = {"ids": np.zeros((3, 2)), "table": table, "mask": np.zeros((2, 2))}
    assert buckets.padding_of(uneven) is None


def test_an_output_keeps_all_lines_of_its_rows() -> None:
    assert Padding(3, 4).visible_shape((4, 7)) == (3, 7)
    assert Padding(3, 4).visible_shape((20, 7)) == (15, 7)


def test_a_network_says_why_it_has_none() -> None:
    model = parse("g (float[N,4] x) => (y) { y = ReduceMean (x) }")
    ports = ports_of(model.inputs)
    buckets, reason = choose_buckets(model, ports, (1, 2))
    assert buckets is None
    assert "ReduceMean" in reason
    assert choose_buckets(model, ports, ()) == (None, "no buckets are set")
    model = parse(MODEL)
    buckets, reason = choose_buckets(model, ports_of(model.inputs), (1, 2))
    assert buckets is not None
    assert (buckets.inputs, buckets.outputs, reason) == ({"ids", "mask"}, {"y"}, "")
