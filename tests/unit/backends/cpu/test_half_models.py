"""Models stored in float16 and bfloat16 on CPU, beside REFERENCE, which computes in their types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aioinfer import Core
from aioinfer.errors import UnsupportedOpError
from unit.backends.comparing import operator
from unit.backends.cpu.comparing import Arrays, assert_same_as_reference, model_of, run

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
BOUNDS = {"float16": 4e-3, "bfloat16": 3e-2}
KINDS = sorted(DTYPES)


def numbers(kind: str, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(DTYPES[kind])


def network_of(kind: str, *, dynamic: bool = False) -> tuple[Any, Arrays]:
    """Make a residual block with a classifier."""
    inputs = {"x": numbers(kind, 2, 3, 8, 8), "z": numbers(kind, 2, 8, 8, 8, seed=1)}
    constants = {
        "w": numbers(kind, 8, 3, 3, 3, seed=2) / DTYPES[kind].type(4),
        "b": numbers(kind, 8, seed=3),
        "scale": np.abs(numbers(kind, 8, seed=4)) + DTYPES[kind].type(0.5),
        "shift": numbers(kind, 8, seed=5),
        "mean": numbers(kind, 8, seed=6),
        "variance": np.abs(numbers(kind, 8, seed=7)) + DTYPES[kind].type(0.5),
        "gw": numbers(kind, 5, 8, seed=8),
    }
    nodes = [
        operator("Conv", "x", "w", "b", outputs=["c"], pads=[1, 1, 1, 1]),
        operator("Relu", "c", outputs=["r"]),
        operator("BatchNormalization", "r", "scale", "shift", "mean", "variance", outputs=["n"]),
        operator("Add", "n", "z", outputs=["a"]),
        operator("GlobalAveragePool", "a", outputs=["p"]),
        operator("Flatten", "p", outputs=["f"]),
        operator("Gemm", "f", "gw", transB=1),
    ]
    return model_of(nodes, inputs, constants=constants, dynamic=dynamic), inputs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_network_keeps_its_types_and_is_right(core: Core, kind: str, dynamic: bool) -> None:
    model, inputs = network_of(kind, dynamic=dynamic)
    assert_same_as_reference(core, model, inputs, bound=BOUNDS[kind])


@pytest.mark.parametrize("device", ["HETERO:CPU,REFERENCE", "AUTO:CPU,REFERENCE"])
def test_cpu_is_what_others_choose_for_it(core: Core, device: str) -> None:
    model, inputs = network_of("float16")
    answers = core.query_network(model, "CPU")
    assert all(answer.supported for answer in answers.values())
    with core.load_network(model, device) as network:
        found = network.create_infer_request().infer_sync(dict(inputs))["y"]
        assert network.get_metric("EXECUTION_DEVICES") == ["CPU.0"]
    wanted = run(core, model, "REFERENCE", inputs)["y"]
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), atol=0.05)


@pytest.mark.parametrize("exportable", [False, True])
def test_explain_says_so_after_an_import_too(core: Core, exportable: bool) -> None:
    model, _ = network_of("float16")
    with core.load_network(model, "CPU", {"EXPORTABLE": exportable}) as network:
        blob = network.export()
    with core.import_network(blob) as imported:
        assert "float16 or bfloat16 is computed in f32" in imported.explain()


def test_explain_says_what_was_done_and_nothing_of_float32_models(core: Core) -> None:
    model, _ = network_of("bfloat16")
    with core.load_network(model, "CPU") as network:
        assert "float16 or bfloat16 is computed in f32" in network.explain()
    plain = model_of([operator("Relu", "x")], {"x": np.ones(2, np.float32)})
    with core.load_network(plain, "CPU") as network:
        assert "bfloat16" not in network.explain()


def test_without_the_pass_such_models_are_refused(core: Core) -> None:
    model, _ = network_of("float16")
    with pytest.raises(UnsupportedOpError, match="not for float16"):
        core.load_network(model, "CPU", {"CPU_DISABLED_PASSES": "half widening"})


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_and_what_is_too_large_come_out_as_such(core: Core, kind: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e4, -0.0, 6e-8], DTYPES[kind])
    model = model_of([operator("Add", "x", "x")], {"x": x})
    assert_same_as_reference(core, model, {"x": x}, bound=BOUNDS[kind])


def test_a_sum_beyond_float16_inside_the_model_is_no_infinity(core: Core) -> None:
    x = np.array([6e4, 1], np.float16)
    quarter = np.array(0.25, np.float16)
    nodes = [operator("Add", "x", "x", outputs=["s"]), operator("Mul", "s", "q")]
    model = model_of(nodes, {"x": x}, constants={"q": quarter})
    np.testing.assert_array_equal(run(core, model, "CPU", {"x": x})["y"], [3e4, 0.5])


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_of_a_cast_of_the_files_are_those_that_it_rounds_to(
    core: Core, kind: str
) -> None:
    x = np.array([0.99999, 2.99999, 2049, -1.99999], np.float32)
    number = {"float16": 10, "bfloat16": 16}[kind]
    nodes = [
        operator("Cast", "x", outputs=["h"], to=number),
        operator("Cast", "h", outputs=["i"], to=7),
        operator("Range", "zero", "n", "one"),
        operator("Squeeze", "last", outputs=["n"]),
        operator("Slice", "i", "one_row", "two_row", outputs=["last"]),
    ]
    nodes = [*nodes[:2], nodes[4], nodes[3], nodes[2]]
    constants = {
        "zero": np.array(0),
        "one": np.array(1),
        "one_row": np.array([1]),
        "two_row": np.array([2]),
    }
    model = model_of(nodes, {"x": x}, ["y", "i"], constants)
    found, wanted = (run(core, model, device, {"x": x}) for device in ("CPU", "REFERENCE"))
    np.testing.assert_array_equal(found["i"], wanted["i"])
    assert found["y"].shape == wanted["y"].shape == (3,)


@pytest.mark.parametrize("kind", KINDS)
def test_a_normalisation_that_keeps_statistics_in_16_bits_runs(core: Core, kind: str) -> None:
    x, scale = numbers(kind, 2, 8), numbers(kind, 8, seed=1)
    stash = {"float16": 10, "bfloat16": 16}[kind]
    given, plain = (
        model_of(
            [operator("LayerNormalization", "x", "g", **more)],
            {"x": x},
            constants={"g": scale},
        )
        for more in ({"stash_type": stash}, {})
    )
    found, wanted = (run(core, model, "CPU", {"x": x})["y"] for model in (given, plain))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_scalars_and_empty_tensors(core: Core, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float16)
    model = model_of([operator("Exp", "x")], {"x": x})
    assert_same_as_reference(core, model, {"x": x}, bound=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_and_caches_are_read_as_they_are_stored(core: Core, kind: str) -> None:
    inputs = {"i": np.array([3, 0, 3]), "past": numbers(kind, 2, 4)}
    nodes = [
        operator("Gather", "table", "i", outputs=["e"]),
        operator("Concat", "past", "e", outputs=["present"], axis=0),
        operator("MatMul", "present", "w"),
    ]
    constants = {"table": numbers(kind, 9, 4, seed=1), "w": numbers(kind, 4, 2, seed=2)}
    model = model_of(nodes, inputs, ["y", "present"], constants, dynamic=True)
    assert_same_as_reference(core, model, inputs, bound=BOUNDS[kind])


def test_an_exported_network_answers_alike(core: Core) -> None:
    model, inputs = network_of("float16")
    with core.load_network(model, "CPU") as network:
        wanted = network.create_infer_request().infer_sync(dict(inputs))["y"]
        blob = network.export()
    with core.import_network(blob) as network:
        found = network.create_infer_request().infer_sync(dict(inputs))["y"]
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, wanted)
