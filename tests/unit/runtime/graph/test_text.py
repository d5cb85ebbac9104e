from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.graph import DType, Model, TensorType, Value, graph_text
from aioinfer.runtime.graph.text import some_names
from unit.runtime.graph.graphs import chain, with_branches

BRANCHES = """\
graph outer {
  input %x: float32[4]
  input %c: bool[]
  constant %w: float32[4] = [0.0,1.0,2.0,3.0]
  %relu_out: float32[4] = Relu(%x)  # relu
  %y: float32[4] = If(%c)  # choice
    graph yes {
      %add_out: float32[4] = Add(%relu_out, %w)  # add
      return %add_out
    }
    graph no {
      %neg_out: float32[4] = Neg(%x)  # neg
      return %neg_out
    }
  return %y
}"""


def test_a_graph_is_written_one_node_a_line_with_its_bodies() -> None:
    assert graph_text(with_branches()) == BRANCHES


def test_numbers_are_not_searched_for_bodies() -> None:
    class Numbers(list[int]):
        walks = 0

        def __iter__(self) -> Iterator[int]:
            type(self).walks += 1
            return super().__iter__()

    graph = chain("Relu")
    next(graph.nodes).attributes["nodes_treeids"] = Numbers(range(1000))
    assert "nodes_treeids=[0, 1, 2" in graph_text(graph)
    assert Numbers.walks == 0


def test_a_line_tells_attributes_origin_and_affinity() -> None:
    graph = chain("LeakyRelu")
    node = next(graph.nodes)
    node.attributes.update(alpha=0.5, scales=np.zeros(9, np.float32), axes=np.array([1, 2]))
    node.fused_from = ("conv", "act")
    node.affinity = "CUDA"
    line = graph_text(graph).splitlines()[2].strip()
    assert line == (
        "%n0_out: float32[4] = LeakyRelu(%x) {alpha=0.5, axes=[1,2], scales=float32[9]}"
        "  # n0 from conv, act @CUDA"
    )


def test_missing_inputs_unknown_types_and_large_constants_are_short() -> None:
    graph = chain("Clip")
    clip = next(graph.nodes)
    graph.add_initializer(Value("big", TensorType(DType.INT64, (9,)), np.zeros(9, np.int64)))
    clip.replace_input(0, None)
    clip.outputs[0].type = None
    assert graph_text(graph).splitlines()[2:4] == [
        "  constant %big: int64[9]",
        "  %n0_out: ? = Clip(_)  # n0",
    ]


def test_a_model_prints_its_graph_and_shows_itself_in_short() -> None:
    model = Model(chain("Relu"), {"": 26})
    assert str(model) == graph_text(model.graph)
    assert repr(model) == "<Model 'chain' 1 nodes, opset 26>"
    assert repr(model.node("n0")) == "<Node 'n0' Relu>"
    assert repr(model.inputs[0]) == "<Value 'x' float32[4]>"


def text_with(items: list[Any]) -> str:
    graph = chain("Relu")
    next(graph.nodes).attributes["items"] = items
    return graph_text(graph)


@pytest.mark.parametrize(
    ("items", "other", "shown"),
    [
        (list(range(100)), -1, "[0, 1, 2, 3, ... 100 of checksum "),
        ([0.5] * 100, 0.25, "[0.5, 0.5, 0.5, 0.5, ... 100 of checksum "),
        (["LEAF"] * 100, "", "['LEAF', 'LEAF', 'LEAF', 'LEAF', ... 100 of checksum "),
        ([1 << 80, 1.5, "a", 2] * 25, 3, "[1208925819614629174706176, 1.5, 'a', 2, ... 100 of "),
        ([b"a"] * 65, b"b", "[b'a', b'a', b'a', b'a', ... 65 of checksum "),
    ],
    ids=["integers", "floats", "texts", "mixed", "bytes"],
)
def test_long_attributes_are_told_apart_and_not_shown_whole(
    items: list[object], other: object, shown: str
) -> None:
    assert f"{{items={shown}" in text_with(items)
    assert text_with(items) == text_with(list(items))
    for place in (4, len(items) - 1):
        assert text_with([*items[:place], other, *items[place + 1 :]]) != text_with(items)
    assert "checksum" not in text_with(items[:64])


def test_long_texts_with_zeros_are_told_apart() -> None:
    same = ["LEAF"] * 65
    assert text_with([*same, "a\0b", "c"]) != text_with([*same, "a", "b\0c"])


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "n0"), (3, "n0, n1, n2"), (4, "n0, n1, n2, 1 more"), (9, "n0, n1, n2, 6 more")],
)
def test_of_many_names_the_first_are_written(count: int, text: str) -> None:
    assert some_names([f"n{number}" for number in range(count)], 3) == text
