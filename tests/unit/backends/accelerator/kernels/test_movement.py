from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))))
def test_transpose_puts_axes_in_any_order(permutation: tuple[int, ...], core: Core) -> None:
    inputs = {"x": np.arange(30, dtype=np.float32).reshape(2, 3, 5)}
    node = operator("Transpose", "x", perm=permutation)
    assert_same_as_reference(core, model_of([node], inputs), inputs)


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.int64, np.float16, np.float64])
@pytest.mark.parametrize("op_type", ["Transpose", "Concat"])
def test_elements_of_any_size_are_moved(dtype: type, op_type: str, core: Core) -> None:
    inputs = {"x": np.arange(24).reshape(2, 3, 4).astype(dtype)}
    node = operator("Concat", "x", "x", axis=1) if op_type == "Concat" else operator(op_type, "x")
    assert_same_as_reference(core, model_of([node], inputs), inputs)


def random_shape(chance: np.random.Generator, rank: int) -> list[int]:
    return [int(length) for length in chance.integers(1, 6, rank)]


@pytest.mark.parametrize("seed", range(6))
def test_concat_joins_parts_of_any_length(seed: int, core: Core) -> None:
    chance = np.random.default_rng(seed)
    shape = random_shape(chance, 1 + seed % 4)
    axis = int(chance.integers(-len(shape), len(shape)))
    inputs = {}
    for name in "abc":
        shape[axis] = int(chance.integers(0, 4))
        inputs[name] = chance.standard_normal(shape).astype(np.float32)
    model = model_of([operator("Concat", *inputs, axis=axis)], inputs)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("seed", range(10))
def test_slice_takes_any_start_end_and_step(seed: int, core: Core) -> None:
    chance = np.random.default_rng(seed)
    inputs = {"x": chance.standard_normal(random_shape(chance, 4)).astype(np.float32)}
    axes = chance.permutation(4)[: 1 + seed % 4] - (4 if seed % 2 else 0)
    constants = {
        "starts": chance.integers(-7, 7, len(axes)),
        "ends": chance.integers(-7, 7, len(axes)),
        "axes": axes,
        "steps": chance.choice([-3, -2, -1, 1, 2], len(axes)),
    }
    model = model_of([operator("Slice", "x", *constants)], inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)


def test_a_slice_to_the_ends_of_int64_takes_all_there_is(core: Core) -> None:
    inputs = {"x": np.arange(12, dtype=np.int32).reshape(3, 4)}
    ends = np.array([np.iinfo(np.int64).max, np.iinfo(np.int64).min])
    constants = {
        "starts": np.array([0, -1]),
        "ends": ends,
        "axes": np.array([0, 1]),
        "steps": np.array([np.iinfo(np.int64).max, -1]),
    }
    model = model_of([operator("Slice", "x", *constants)], inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split_cuts_into_given_or_equal_parts(axis: int, core: Core) -> None:
    inputs = {"x": np.arange(7 * 7 * 7, dtype=np.float32).reshape(7, 7, 7)}
    parts = ["a", "b", "c"]
    given = operator("Split", "x", "split", outputs=parts, axis=axis)
    constants = {"split": np.array([2, 0, 5])}
    assert_same_as_reference(core, model_of([given], inputs, parts, constants), inputs)
    equal = operator("Split", "x", outputs=parts, axis=axis, num_outputs=3)
    assert_same_as_reference(core, model_of([equal], inputs, parts), inputs)


@pytest.mark.parametrize("shape", [(2, 3, 4), (4,), (5, 1, 1, 1), (1, 1)])
def test_expand_broadcasts_both_ways(shape: tuple[int, ...], core: Core) -> None:
    inputs = {"x": np.arange(3, dtype=np.float32).reshape(3, 1)}
    constants = {"shape": np.array(shape)}
    model = model_of([operator("Expand", "x", "shape")], inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("repeats", [(1, 1, 1), (2, 1, 3), (1, 4, 1), (0, 1, 2)])
def test_tile_repeats_along_every_axis(repeats: tuple[int, ...], core: Core) -> None:
    inputs = {"x": np.arange(24, dtype=np.int64).reshape(2, 3, 4)}
    constants = {"repeats": np.array(repeats)}
    model = model_of([operator("Tile", "x", "repeats")], inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize(
    "make",
    [
        lambda: operator("DepthToSpace", "x", blocksize=2, mode="DCR"),
        lambda: operator("DepthToSpace", "x", blocksize=2, mode="CRD"),
        lambda: operator("SpaceToDepth", "x", blocksize=3),
    ],
    ids=["DCR", "CRD", "SpaceToDepth"],
)
def test_channels_and_space_change_places(make: Callable[[], Any], core: Core) -> None:
    inputs = {"x": np.arange(2 * 8 * 6 * 9, dtype=np.float32).reshape(2, 8, 6, 9)}
    assert_same_as_reference(core, model_of([make()], inputs), inputs)
