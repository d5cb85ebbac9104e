"""Runs a model on REFERENCE with and without padding rows, and compares what is the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aioinfer import ExecutableNetwork
from aioinfer.runtime.plans.batch_axis import BatchAxis

Arrays = Mapping[str, np.ndarray]
MORE = 2
"""Rows of padding."""


def padded(inputs: Arrays, axis: BatchAxis, chance: np.random.Generator) -> dict[str, Any]:
    """Add rows whose elements are drawn from those that are there, so that they are in range."""
    made: dict[str, Any] = dict(inputs)
    for name in axis.inputs:
        array = made[name]
        rows = chance.choice(array.reshape(-1), (MORE, *array.shape[1:]))
        made[name] = np.concatenate([array, rows.astype(array.dtype)])
    return made


def assert_padding_changes_nothing(
    network: ExecutableNetwork, axis: BatchAxis, inputs: Arrays, bound: float = 0.0
) -> None:
    """Compare a run with one of more rows; errors are relative to the largest value."""
    request = network.create_infer_request()
    alone = request.infer_sync(dict(inputs))
    more = request.infer_sync(padded(inputs, axis, np.random.default_rng(3)))
    rows = len(inputs[axis.inputs[0]])
    for name, expected in alone.items():
        found = more[name]
        if name in axis.outputs:
            lines, rest = divmod(len(found) * rows, rows + MORE)
            assert not rest, f"output {name!r} has {len(found)} lines for {rows + MORE} rows"
            found = found[:lines]
        assert found.shape == expected.shape, name
        if not bound or expected.dtype.kind in "biu":
            np.testing.assert_array_equal(found, expected, err_msg=name)
            continue
        wanted = expected.astype(np.float64)
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
        np.testing.assert_allclose(
            found.astype(np.float64), wanted, rtol=0, atol=bound * largest, err_msg=name
        )
