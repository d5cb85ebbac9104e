"""Rows of a table that is stored in 8 bits are gathered as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.errors import TensorError
from unit.backends.cpu.comparing import skip_without_int8

node = helper.make_node
ROWS, COLUMNS = 300, 16
GATHERED = node("Gather", ["table", "x"], ["y"])


@pytest.fixture(autouse=True)
def _needs_int8(core: Core) -> None:
    skip_without_int8(core)


def model(
    nodes: Sequence[Any] = (GATHERED,),
    stored: type = np.uint8,
    scales: Any = 0.03,
    length: int | str = "length",
    outputs: Sequence[str] = ("y",),
) -> bytes:
    """A table of stored numbers, dequantised by the scales, and nodes between it and y."""
    scales = np.asarray(scales, np.float32)
    drawn = np.random.default_rng(0).integers(0, 256, (ROWS, COLUMNS)).astype(np.uint8)
    constants = {
        "stored": drawn.view(stored),
        "scales": scales,
        "zero": np.full(scales.shape, 3, stored),
    }
    graph = helper.make_graph(
        [node("DequantizeLinear", ["stored", "scales", "zero"], ["table"], axis=1), *nodes],
        "table",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [length])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def run(core: Core, content: bytes, device: str, *xs: Any) -> list[dict[str, np.ndarray]]:
    with core.load_network(content, device) as network:
        request = network.create_infer_request()
        return [dict(request.infer_sync({"x": np.asarray(x, np.int64)})) for x in xs]


def gathers_stored(core: Core, content: bytes) -> bool:
    """True if what a Gather gives is dequantised, and no table is."""
    with core.load_network(content, "CPU") as network:
        network.create_infer_request().infer_sync({"x": np.array([1, 2, 3], np.int64)})
        operators = [item.op_type for item in network.runtime_graph().nodes]
    return operators.index("Gather") < operators.index("DequantizeLinear")


@pytest.mark.parametrize("length", ["length", 3])
@pytest.mark.parametrize("stored", [np.uint8, np.int8])
def test_rows_are_those_of_the_table(core: Core, stored: type, length: int | str) -> None:
    content = model(stored=stored, length=length)
    assert gathers_stored(core, content)
    xs = ([0, 299, 17], [-1, -300, 5], [7, 7, 7])
    found, wanted = (run(core, content, device, *xs) for device in ("CPU", "REFERENCE"))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one["y"], other["y"])


def test_columns_are_gathered_as_stored(core: Core) -> None:
    content = model([node("Gather", ["table", "x"], ["y"], axis=-1)])
    assert gathers_stored(core, content)
    found, wanted = (run(core, content, device, [3, 15]) for device in ("CPU", "REFERENCE"))
    np.testing.assert_array_equal(found[0]["y"], wanted[0]["y"])


def test_two_gathers_read_one_table(core: Core) -> None:
    nodes = [
        node("Gather", ["table", "x"], ["a"]),
        node("Gather", ["table", "x"], ["b"], axis=1),
        node("ReduceSum", ["b"], ["c"]),
        node("Add", ["a", "c"], ["y"]),
    ]
    content = model(nodes)
    assert gathers_stored(core, content)
    found, wanted = (run(core, content, device, [3, 15]) for device in ("CPU", "REFERENCE"))
    np.testing.assert_allclose(found[0]["y"], wanted[0]["y"], rtol=1e-5)


@pytest.mark.parametrize(
    "content",
    [
        model(scales=np.linspace(0.1, 0.2, COLUMNS)),
        model([GATHERED, node("Softmax", ["table"], ["z"])], outputs=("y", "z")),
    ],
    ids=["a scale for each column", "a table that others use"],
)
def test_other_tables_are_right_as_well(core: Core, content: bytes) -> None:
    found, wanted = (run(core, content, device, [3, 15, -2]) for device in ("CPU", "REFERENCE"))
    for name, array in wanted[0].items():
        np.testing.assert_allclose(found[0][name], array, rtol=1e-5)


@pytest.mark.parametrize("index", [ROWS, -ROWS - 1])
def test_an_index_beyond_the_table_is_an_error(core: Core, index: int) -> None:
    with pytest.raises(TensorError, match="out of range"):
        run(core, model(), "CPU", [0, index])
