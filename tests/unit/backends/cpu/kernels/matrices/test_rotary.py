"""RotaryEmbedding on CPU, beside onnxruntime and REFERENCE."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from aioinfer.errors import TensorError
from exhaustive import drawn
from unit.backends.cpu.arrays import numbers
from unit.backends.cpu.comparing import assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.stepping import implementations

Inputs = dict[str, np.ndarray]


def rotary_model(inputs: Inputs, *, dynamic: bool = False, **attributes: Any) -> Any:
    node = helper.make_node("RotaryEmbedding", [*inputs], ["y"], name="rotary", **attributes)
    return model_of([node], inputs, dynamic=dynamic, opset=23)


def drawn_inputs(
    shape: tuple[int, int, int, int], half: int, *, by_places: bool, by_rows: bool
) -> Inputs:
    """Make heads (B, N, S, H) or rows (B, S, N H), with tables by places or by positions."""
    batch, heads, length, size = shape
    x = numbers(*shape)
    table = (batch, length, half) if by_places else (length + 3, half)
    inputs = {
        "x": x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size).copy() if by_rows else x,
        "cosines": numbers(*table),
        "sines": numbers(*table)[::-1].copy(),
    }
    if not by_places:
        inputs["p"] = np.random.default_rng(length).integers(0, length + 3, (batch, length))
    return inputs


@st.composite
def embeddings(draw: st.DrawFn) -> tuple[Inputs, dict[str, Any]]:
    batch, heads, length = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 40)),
    )
    half = draw(st.integers(1, 20))
    rest = draw(st.sampled_from([0, 0, 2, 6]))
    by_rows = draw(st.booleans())
    inputs = drawn_inputs(
        (batch, heads, length, 2 * half + rest),
        half,
        by_places=draw(st.booleans()),
        by_rows=by_rows,
    )
    # onnxruntime wants to be told the heads wherever not all of a head is turned.
    attributes = {"num_heads": heads} if by_rows or rest else {}
    if rest:
        attributes["rotary_embedding_dim"] = 2 * half
    return inputs, attributes | {"interleaved": draw(st.integers(0, 1))}


@settings(max_examples=drawn(80), derandomize=True, database=None)
@given(case=embeddings())
def test_pairs_are_turned_as_onnxruntime_turns_them(core: Core, case: Any) -> None:
    inputs, attributes = case
    model = rotary_model(inputs, **attributes)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = session.run(None, inputs)[0]
    made = run(core, model, "CPU", inputs)["y"]
    assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("by_places", [False, True])
@pytest.mark.parametrize("by_rows", [False, True])
def test_it_is_computed_natively_also_of_lengths_that_come_with_the_run(
    core: Core, by_rows: bool, by_places: bool
) -> None:
    attributes = {"num_heads": 4}
    cases = [
        drawn_inputs((2, 4, length, 10), 5, by_places=by_places, by_rows=by_rows)
        for length in (70, 1, 9, 3)
    ]
    model = rotary_model(cases[0], dynamic=True, **attributes)
    assert ("RotaryEmbedding", "native:turn_pairs") in implementations(core, model, cases[0])
    assert_same_as_reference(core, model, cases[0], INFERENCE_NUM_THREADS=2)
    with core.load_network(model, "CPU") as network, core.load_network(model, "REFERENCE") as other:
        for given in cases:
            made = network.create_infer_request().infer_sync(given)["y"]
            wanted = other.create_infer_request().infer_sync(given)["y"]
            np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16])
def test_halves_are_widened(core: Core, dtype: Any) -> None:
    inputs = drawn_inputs((1, 2, 6, 8), 4, by_places=False, by_rows=False)
    inputs = {name: x.astype(dtype) if name != "p" else x for name, x in inputs.items()}
    made, wanted = (
        run(core, rotary_model(inputs), device, inputs)["y"] for device in ("CPU", "REFERENCE")
    )
    assert made.dtype == dtype
    np.testing.assert_allclose(made, wanted, rtol=1e-2, atol=0.2)


@pytest.mark.parametrize("position", [-1, 9, 1 << 40])
def test_a_position_without_angles_is_a_wrong_input(core: Core, position: int) -> None:
    inputs = drawn_inputs((1, 2, 6, 8), 4, by_places=False, by_rows=False)
    inputs["p"][0, 3] = position
    with pytest.raises(
        TensorError, match=r"RotaryEmbedding \(node 'rotary'\): an index in the data"
    ):
        run(core, rotary_model(inputs), "CPU", inputs)


@pytest.mark.parametrize("is_interleaved", [0, 1])
@pytest.mark.parametrize(("batch", "by_rows"), [(1, True), (3, True), (3, False)])
def test_onnxruntimes_own_operator_is_turned_by_the_same_kernel(
    core: Core, batch: int, by_rows: bool, is_interleaved: int
) -> None:
    given = drawn_inputs((batch, 4, 7, 10), 5, by_places=False, by_rows=by_rows)
    inputs = {name: given[name] for name in ("x", "p", "cosines", "sines")}
    node = helper.make_node(
        "RotaryEmbedding",
        [*inputs],
        ["y"],
        name="rotary",
        domain="com.microsoft",
        interleaved=is_interleaved,
    )
    model = model_of(
        [node],
        {name: inputs[name] for name in ("x", "p")},
        ("y",),
        {name: inputs[name] for name in ("cosines", "sines")},
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    fed = {name: inputs[name] for name in ("x", "p")}
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, fed)[0]
    assert ("RotaryEmbedding", "native:turn_pairs") in implementations(core, model, fed)
    np.testing.assert_allclose(run(core, model, "CPU", fed)["y"], wanted, rtol=1e-5, atol=1e-4)


def test_a_first_place_for_several_sequences_is_turned_as_what_it_is_made_of(core: Core) -> None:
    given = drawn_inputs((3, 4, 7, 10), 5, by_places=False, by_rows=True)
    fed = {"x": given["x"], "p": np.array([2])}
    node = helper.make_node(
        "RotaryEmbedding", ["x", "p", "c", "s"], ["y"], name="rotary", domain="com.microsoft"
    )
    tables = {"c": given["cosines"], "s": given["sines"]}
    model = model_of([node], fed, ("y",), tables)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, fed)[0]
    np.testing.assert_allclose(run(core, model, "CPU", fed)["y"], wanted, rtol=1e-5, atol=1e-4)
