"""A pass that is imported when a graph has what it wants is the same pass otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aioinfer.backends.cpu.passes import first_passes, plan_passes, shared_passes, writing_passes
from aioinfer.runtime.graph import Graph, Model, Node, Value
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.rewriting.late_pass import LatePass

EVERY = (*first_passes(), *writing_passes(), *shared_passes(), *plan_passes())
LATE = [item for item in EVERY if isinstance(item, LatePass)]

RENAMING = """
from aioinfer.runtime.passes import GraphPatch, Pass

class Renaming(Pass):
    name = "renaming"
    enters_bodies = False
    wanted_ops = frozenset({"Relu"})

    def __init__(self, prefix, *, suffix):
        self.prefix, self.suffix = prefix, suffix

    def find(self, graph):
        for node in list(graph.nodes):
            if node.op_type == "Relu":
                made = node.outputs[0]
                patch = GraphPatch(f"{self.prefix} {graph.name}{self.suffix}").remove(node)
                yield patch.replace(made, node.inputs[0])
"""


@pytest.mark.parametrize("late", LATE, ids=[item.name for item in LATE])
def test_what_a_list_says_of_a_pass_is_what_it_says_itself(late: LatePass) -> None:
    made = late.made()
    assert (late.name, late.wanted_ops) == (made.name, made.wanted_ops)
    assert late.made() is made


def model_of(op_type: str) -> Model:
    x, y, z = (Value(name) for name in "xyz")
    nodes = [Node(op_type, [x], [y], name="first"), Node("Abs", [y], [z], name="last")]
    graph = Graph("g", [x], [z])
    for node in nodes:
        graph.append(node)
    return Model(graph, {"": 21})


def test_it_is_imported_by_the_first_graph_that_has_what_it_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "toy_passes"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "renaming.py").write_text(RENAMING)
    monkeypatch.syspath_prepend(str(tmp_path))
    late = LatePass("toy_passes", "renaming:Renaming", "renaming", "Relu", "leave out", suffix="!")
    report = run_passes(model_of("Sqrt"), [late], check=False)
    assert "toy_passes.renaming" not in sys.modules
    assert [item.name for item in report.results] == ["renaming"]
    report = run_passes(model_of("Relu"), [late])
    assert [item.patches for item in report.results] == [("leave out g!",)]
