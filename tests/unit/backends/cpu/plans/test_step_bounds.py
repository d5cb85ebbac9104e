"""Steps touch only what their operands' buffers hold, whatever a kernel was told."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.cpu.kernels.matrices.matmul import matmul
from aioinfer.backends.cpu.native.step_runner import KIND_END, double_bits, step_runner
from aioinfer.backends.cpu.onednn.bindings import OneDnnError, open_engine
from aioinfer.backends.cpu.plans import native_bounds
from aioinfer.backends.cpu.plans.kernel_bounds import FAMILIES, reaches_of
from aioinfer.backends.cpu.plans.operand_layout import Buffer, Layout, Operand
from aioinfer.backends.cpu.plans.packed_weights import WeightStore
from aioinfer.backends.cpu.plans.plan_builder import PlanBuilder
from aioinfer.backends.cpu.plans.step_bounds import (
    find_native_overrun,
    find_wrong_places,
    native_writes,
)
from aioinfer.errors import GraphError
from aioinfer.runtime.graph import DType
from unit.backends.cpu.comparing import model_of

F32, I64, I32, BOOL = DType.FLOAT32, DType.INT64, DType.INT32, DType.BOOL
U8, I8, F64 = DType.UINT8, DType.INT8, DType.FLOAT64
U16 = DType.UINT16
ONE = double_bits(1.0)

Shape = tuple[int, ...]
Operands = list[tuple[DType, Shape]]

CALLS: dict[str, tuple[Operands, list[int]]] = {
    "align_regions": (
        [(F32, (2, 3, 5, 6)), (F32, (7, 4)), (I64, (7,)), (F32, (7, 3, 2, 4))],
        [2, 3, 5, 6, 7, 2, 4, 0, 0, 1, ONE],
    ),
    "copy": ([(F32, (3, 4)), (F32, (3, 4))], [4, 1, 12, 4, 4]),
    "pool_regions": (
        [(F32, (2, 3, 5, 6)), (F32, (7, 5)), (F32, (7, 3, 2, 4))],
        [2, 3, 5, 6, 7, 2, 4, ONE],
    ),
    "turn_pairs": (
        [(F32, (2, 3, 4, 6)), (F32, (9, 2)), (F32, (9, 2)), (I64, (2, 4)), (F32, (2, 3, 4, 6))],
        [2, 3, 4, 6, 2, 0, 1, 1, 9],
    ),
    "sample_points": (
        [(F32, (2, 3, 5, 6)), (F32, (2, 4, 7, 2)), (F32, (2, 3, 4, 7))],
        [2, 3, 28, 2, 1, 0, 0, 5, 6, 1],
    ),
    "dynamic_quantize": ([(F32, (3, 4)), (U8, (3, 4)), (F32, ()), (U8, ())], [12]),
    "fill": ([(F32, (5,))], [4, 5, 0]),
    "fold_columns": (
        [(F32, (2, 3, 5, 4, 3, 6)), (F32, (2, 7, 12, 6))],
        [2, 6, 7, 12, 3, 4, 2, 1, 1, 5, 3, 2, 2, 0],
    ),
    "gather": ([(F32, (3, 4)), (I64, (2,)), (F32, (2, 4))], [1, 3, 2, 16, 8]),
    "sample_grid": (
        [(F32, (2, 3, 4)), (I32, (5,)), (I32, (6,)), (F32, (2, 5, 6))],
        [2, 3, 4, 5, 6, 4],
    ),
    "resample": (
        [(F32, (2, 3, 4)), (I32, (5, 2)), (F32, (5, 2)), (F32, (5,)), (F32, (2, 5, 4))],
        [2, 3, 5, 4, 2],
    ),
    "float_elementwise": (
        [(F32, (3, 4)), (F32, (4,)), (F32, (3, 4))],
        [3, 2, 1, 3, 4, 1, 16, 4, 1, 0, 4, 1, 16, 4, 42, 1, 0, 0],
    ),
    "integer_elementwise": (
        [(I64, (3, 4)), (I32, (3, 1)), (F32, (3, 4))],
        [3, 2, 1, 3, 4, 7, 32, 8, 6, 4, 0, 1, 16, 4, 6, 1, 0, 0],
    ),
    "where": (
        [(BOOL, (3, 4)), (F32, (4,)), (F32, (3, 4)), (F32, (3, 4))],
        [4, 2, 3, 4, 4, 0, 16, 16, 1, 4, 4, 4],
    ),
    "reduce": ([(F32, (3, 4)), (F32, (3, 1))], [0, 1, 1, 1, 0, 4, 4, 0, 3, 16, 4]),
    "find_extremes": ([(F32, (2, 3, 4)), (I64, (2, 1, 4))], [2, 3, 4, 1, 0]),
    "select_top": (
        [(F32, (2, 3, 4)), (F32, (2, 2, 4)), (I64, (2, 2, 4))],
        [2, 3, 4, 2, 1],
    ),
    "softmax": ([(F32, (2, 3, 4)), (F32, (2, 3, 4))], [0, 2, 3, 4, 0]),
    "attention_probabilities": (
        [(F32, (1, 2, 3, 4)), (F32, (1, 2, 3, 4)), (F32, (3, 4))],
        [0, 1, 2, 3, 4, ONE, 1, 0, 0, 4, 0],
    ),
    "rms_norm": ([(F32, (3, 4)), (F32, (4,)), (F32, (3, 4))], [0, 3, 4, ONE]),
    "layer_norm": (
        [(F32, (3, 4)), (F32, (4,)), (F32, (4,)), (F32, (3, 4)), (F32, (3,)), (F32, (3,))],
        [0, 3, 4, ONE, 1, 2],
    ),
    "look_up": ([(U8, (3, 4)), (I8, (256,)), (I8, (3, 4))], [12]),
    "small_matmul": (
        [(F32, (2, 3)), (F32, (3, 4)), (F32, (4,)), (F32, (2, 4))],
        [2, 3, 4, 1, 0],
    ),
    "half_matmul": (
        [(F32, (3, 7)), (U16, (5, 7)), (F32, (5,)), (F32, (3, 5))],
        [3, 7, 5, DType.FLOAT16.value, 1, 2],
    ),
    "order_rows": ([(F32, (3, 70)), (F32, (3, 2, 8, 8))], [3, 70, 4, 1]),
    "packed_matmul": (
        [
            *[(F32, (3, 2, 8, 8)), (U8, (5, 3, 16)), (F32, (5, 3)), (I8, (5, 3)), (F32, (5,))],
            (F32, (3, 5)),
        ],
        [3, 70, 5, 32, 4, 1, 1, 1],
    ),
    "quantize_rows": (
        [(F32, (3, 128)), (I8, (3, 128)), (F32, (3, 4)), (F32, (3, 4))],
        [3, 128, 4, 1],
    ),
    "packed_matmul_int8": (
        [
            *[(I8, (3, 128)), (F32, (3, 4)), (F32, (3, 4)), (U8, (5, 64)), (F32, (5, 2))],
            *[(I8, (5, 2)), (F32, (5,)), (F32, (3, 5))],
        ],
        [3, 128, 5, 64, 4, 1, 1, 1],
    ),
    "int8_product": (  # 3 x 3 of 6 channels in two groups to 40, with a sum in between
        [
            *[
                (U8, (1, 5, 4, 6)),
                (U8, (48, 64)),
                (I32, (9 + 48,)),
                (I32, (4, 16)),
                (F32, (40,)),
            ],
            *[(F32, (40,)), (I8, (1, 5, 4, 40)), (U8, (2 * (12 * 84 + 32),)), (U8, (1, 5, 4, 40))],
        ],
        [
            *[1, 5, 4, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 0, 2, 3, 20, 2, 2, 1, 48, 40, 12, 2, 1, 1],
            *[3, 42, 1, ONE, ONE],
        ],
    ),
    "int8_depthwise": (
        [
            *[(I8, (1, 5, 4, 20)), (U8, (10, 64)), (F32, (1,)), (F32, (20,)), (U8, (20,))],
            (F32, (1, 5, 4, 20)),
        ],
        [1, 5, 4, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 0, 20, 1, 1, 3, 1, 0, 0, 1, 1, 2, 0, 0],
    ),
    "int8_squares": (
        [
            *[(I8, (1, 5, 4, 32)), (U8, (2 * 16 * 32 * 32,)), (F32, (20,)), (F32, (20,))],
            *[(U8, (2 * 16 * (12 * 128 + 64) + 32,)), (U8, (1, 5, 4, 20))],
        ],
        [1, 5, 4, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 0, 1, 32, 20, 3, 2, 0, 0, 20, 12, 2, 0, 0],
    ),
    "int8_taps": (  # 3 x 3 with strides of 2, of 24 channels, with a sum behind
        [
            *[(I8, (1, 5, 8, 24)), (U8, (3, 3, 64, 4)), (I32, (3, 64)), (F32, (3, 64))],
            *[(F32, (3, 64)), (U8, (1, 3, 4, 24)), (U8, (2 * 3 * (256 + 64),))],
            (U8, (1, 3, 4, 24)),
        ],
        [
            *[1, 5, 8, 3, 4, 3, 3, 2, 2, 1, 1, 1, 1, 0, 24, 1, 1, 3, 2, 0, 0, 24, 1, 2, 1, 1],
            *[2, 42, 1, ONE, ONE],
        ],
    ),
    "unpack_weights": (
        [(U8, (5, 3, 32)), (F32, (5, 3)), (F32, (2, 96))],
        [70, 5, 32, 8, 0, 3, 2, 1],
    ),
    "thin_matmul": (
        [(F32, (2, 3, 2, 5)), (F32, (2, 3, 4, 5)), (F32, (2, 3, 2, 4))],
        [1, 2, 2, 3, 2, 5, 4, 30, 10, 5, 60, 20, 5, 24, 8, 4, ONE],
    ),
    "tree_ensemble": (
        [
            *[(F32, (6, 3)), (I32, (8, 4)), (I32, (2, 2)), (I32, (5,)), (I32, (4,))],
            *[(F32, (4,)), (F64, (2,)), (I64, (2,)), (F64, (6, 2)), (U8, (6, 2))],
            *[(I64, (6,)), (F32, (6, 2))],
        ],
        [6, 3, 8, 2, 4, 4, 2, 0, 1, 1, 0, 0, 1, 2],
    ),
    "recurrent": (  # an LSTM of two directions, with peepholes and lengths
        [
            *[(F32, (3, 2, 2, 2, 4, 16)), (F32, (2, 2, 20, 4, 16)), (F32, (2, 3, 32)), (I32, (2,))],
            *[(F32, (3, 2, 2, 32)), (F32, (3, 2, 2, 20))],
        ],
        [0, 3, 2, 20, 2, 2, 512, 256, 80, 40, 20, 1, 1, 1, 1, 0, ONE, 1, 2],
    ),
    "vote_by_pairs": (
        [
            *[(F32, (5, 7)), (F32, (2, 7)), (I32, (3,)), (F32, (3,)), (F32, (2, 3)), (I64, (3,))],
            *[(F64, (18,)), (I64, (5,)), (F32, (5, 3))],
        ],
        [5, 7, 3, 1],
    ),
    "pair_distances": ([(F32, (3, 4)), (F32, (5, 4)), (F32, (3, 5))], [0, 3, 5, 4]),
    "pool": (
        [(F32, (1, 2, 5, 5)), (F32, (9,)), (F32, (1, 2, 4, 4))],
        [1, 1, 4, 2, 1, *[1, 1, 1, 1, 1, 0], *[5, 4, 2, 1, 1, 0], *[5, 4, 2, 1, 1, 0]],
    ),
}
"""A call of each native kernel: its operands, and the parameters that suit them exactly."""


def operands_of(kinds: Operands, short: int | None = None) -> list[Operand]:
    """Make operands; one may lie in a buffer that is a byte too short."""
    found = []
    for index, (dtype, shape) in enumerate(kinds):
        layout = Layout.plain(shape, dtype)
        found.append(Operand(Buffer("arena", layout.size_bytes - (index == short)), layout))
    return found


def test_the_table_says_which_kernels_a_module_has_rules_for() -> None:
    folder = Path(str(native_bounds.__file__)).parent
    modules = {file.stem for file in folder.glob("*_bounds.py")}
    found = {
        name: sorted(import_module(f"{native_bounds.__name__}.{name}").RULES) for name in modules
    }
    assert {name: kernels.split() for name, kernels in FAMILIES.items()} == found


def test_every_native_kernel_has_a_call_here() -> None:
    assert set(CALLS) == set(step_runner(open_engine()).kinds)


@pytest.mark.parametrize("kernel", CALLS)
def test_a_kernel_reaches_all_of_its_operands_and_no_further(kernel: str) -> None:
    kinds, parameters = CALLS[kernel]
    assert find_native_overrun(kernel, operands_of(kinds), tuple(parameters)) is None


@pytest.mark.parametrize(
    ("kernel", "short"), [(name, k) for name, call in CALLS.items() for k in range(len(call[0]))]
)
def test_a_buffer_that_is_a_byte_too_short_is_found(kernel: str, short: int) -> None:
    kinds, parameters = CALLS[kernel]
    found = find_native_overrun(kernel, operands_of(kinds, short), tuple(parameters))
    assert found is not None
    assert "contradict each other" in found


@pytest.mark.parametrize(
    ("kernel", "reads"),
    [
        ("copy", 1),
        ("dynamic_quantize", 1),
        ("quantize_rows", 1),
        ("select_top", 1),
        ("layer_norm", 3),
        ("recurrent", 4),
        ("vote_by_pairs", 6),
        ("int8_depthwise", 4),
        ("int8_product", 7),
        ("int8_squares", 4),
        ("int8_taps", 6),
    ],
)
def test_all_that_a_kernel_writes_is_known(kernel: str, reads: int) -> None:
    """A plan may not write to a constant, whichever of the results that is."""
    kinds, parameters = CALLS[kernel]
    operands = operands_of(kinds)
    assert native_writes(kernel, operands, parameters) == operands[reads:]


@pytest.mark.parametrize("kernel", CALLS)
def test_a_kernel_writes_nothing_else(kernel: str) -> None:
    """Not even what it is not known to write: scratch, statistics, or a second result."""
    kinds, parameters = CALLS[kernel]
    arrays = [np.zeros(shape, dtype.numpy) for dtype, shape in kinds]
    for array in arrays:
        array[...] = {"f": 1, "u": 3}.get(array.dtype.kind, 0)
    before = [array.tobytes() for array in arrays]
    steps = step_runner(open_engine())
    payload = [len(arrays), *(word for array in arrays for word in (0, array.ctypes.data))]
    words = [*payload, *parameters]
    table = [0, 0, 0, steps.kinds[kernel], 2 + len(words), *words, KIND_END, 2]
    steps.run(np.array(table, np.int64), (), 1)
    changed = {k for k, array in enumerate(arrays) if array.tobytes() != before[k]}
    operands = operands_of(kinds)
    known = {operands.index(operand) for operand in native_writes(kernel, operands, parameters)}
    assert changed <= known


PLACES = [*range(0, 45, 5), *([0] * 32), *([20] * 16)]
"""Of the int8_product above: where the chunks of four panels end, and a row of 21 for each."""


def operands_with_places(places: list[int]) -> list[Operand]:
    operands = operands_of(CALLS["int8_product"][0])
    array = np.array(places, np.int32)
    buffer = Buffer("constant", array.nbytes, array=array)
    return [*operands[:2], Operand(buffer, operands[2].layout), *operands[3:]]


@pytest.mark.parametrize(
    ("place", "number"), [(0, 1), (0, -1), (3, 4), (3, 41), (8, 49), (9, -1), (9, 21), (56, 21)]
)
def test_weights_go_with_data_that_a_row_has(place: int, number: int) -> None:
    """The kernel reads there and does not look."""
    parameters = CALLS["int8_product"][1]
    assert find_wrong_places("int8_product", operands_with_places(PLACES), parameters) is None
    wrong = [*PLACES[:place], number, *PLACES[place + 1 :]]
    assert find_wrong_places("int8_product", operands_with_places(wrong), parameters) is not None


def test_what_a_kernel_goes_by_is_a_constant() -> None:
    """A run's own memory could be another by the time that it is read."""
    kinds, parameters = CALLS["int8_product"]
    found = find_wrong_places("int8_product", operands_of(kinds), parameters)
    assert found is not None
    assert "is no constant" in found


@pytest.mark.parametrize("kernel", CALLS)
def test_no_parameter_may_be_anything(kernel: str) -> None:
    """Larger, negative and far too large lengths, strides and counts are found, or do no harm."""
    kinds, parameters = CALLS[kernel]
    operands = operands_of(kinds)
    for place in range(len(parameters)):
        for number in (parameters[place] + 1, -1, 0, 2**31, 2**62, 2**63, -(2**63) - 1):
            tried = (*parameters[:place], number, *parameters[place + 1 :])
            if find_native_overrun(kernel, operands, tried) is None:
                reaches = reaches_of(kernel, tried)
                sizes = [operand.buffer.size_bytes for operand in operands]
                assert [(low, high) for low, high, _ in reaches] == [(0, size) for size in sizes]


@pytest.mark.parametrize("kernel", CALLS)
def test_parameters_are_counted(kernel: str) -> None:
    kinds, parameters = CALLS[kernel]
    for tried in (parameters[:-1], [*parameters, 0], []):
        assert find_native_overrun(kernel, operands_of(kinds), tuple(tried)) is not None
    assert find_native_overrun(kernel, operands_of(kinds)[:-1], tuple(parameters)) is not None


def test_a_view_backwards_reaches_to_its_front() -> None:
    backwards = Layout.plain((5,), F32, (-1,))
    whole = Buffer("arena", 20)
    target = Operand(Buffer("arena", 20), Layout.plain((5,), F32))
    words = (4, 1, 5, -4, 4)
    assert find_native_overrun("copy", [Operand(whole, backwards, 16), target], words) is None
    assert find_native_overrun("copy", [Operand(whole, backwards, 12), target], words) is not None
    assert backwards.reach == (-16, 4)


def builder_of(core: Core) -> PlanBuilder:
    model = core.read_model(model_of([], {"x": np.zeros(1, np.float32)}, ["x"])).copy()
    return PlanBuilder(model, open_engine(), WeightStore())


def test_a_primitive_is_held_to_what_it_reads_and_writes(core: Core) -> None:
    shapes = [(3, 4), (4, 5), (3, 5)]
    for short in range(3):
        builder = builder_of(core)
        left, right, target = operands_of([(F32, shape) for shape in shapes], short)
        with pytest.raises(GraphError, match="contradict each other"):
            matmul(builder, left, right, target)
    builder = builder_of(core)
    matmul(builder, *operands_of([(F32, shape) for shape in shapes]))


def test_a_view_with_gaps_may_end_with_its_buffer(core: Core) -> None:
    wide = Layout.plain((3, 4), F32, (8, 1))
    left = Operand(Buffer("arena", 4 * 24), wide, 16)
    _, right, target = operands_of([(F32, shape) for shape in [(3, 4), (4, 5), (3, 5)]])
    matmul(builder_of(core), left, right, target)
    with pytest.raises(GraphError, match="contradict each other"):
        matmul(builder_of(core), Operand(left.buffer, wide, 20), right, target)


def test_an_array_of_a_numpy_step_lies_in_its_buffer(core: Core) -> None:
    (operand,) = operands_of([(F32, (3,))], 0)
    with pytest.raises(GraphError, match="contradict each other"):
        builder_of(core).numpy(lambda array: None, [operand])


@pytest.mark.parametrize("shape", [(5, 5), (4, 4), (4, 6)])
def test_a_constant_is_packed_from_as_many_bytes_as_it_has(core: Core, shape: Shape) -> None:
    engine = open_engine()
    desc = engine.desc(shape, F32)
    with pytest.raises(GraphError, match="is read from 80 bytes"):
        builder_of(core).packed(np.zeros((4, 5), np.float32), desc, desc)


@pytest.mark.parametrize(
    ("dims", "strides"),
    [
        ((2**31,), None),
        ((2**32, 3), None),
        ((-1, 3), None),
        ((2**30, 2**30), None),
        ((3, 4), (1, 1)),
        ((3, 4), (-4, 1)),
    ],
)
def test_onednn_gets_no_lengths_that_it_cannot_count(dims: Any, strides: Any) -> None:
    with pytest.raises(OneDnnError):
        open_engine().desc(dims, F32, strides)
    if strides is None:
        with pytest.raises(OneDnnError):
            open_engine().any_desc(dims, F32)
