"""Random edits of random graphs keep every invariant."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.runtime.graph import (
    Graph,
    Node,
    Value,
    check_graph,
    copy_graph,
    graph_text,
)
from exhaustive import drawn

MAX_STEPS = 25


class Editor:
    """Makes edits that are allowed, chosen by a source of numbers."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._count = 0
        self.graph = Graph("edited", [Value("x0"), Value("x1")])
        self.graph.outputs = self.graph.inputs[:1]

    def step(self) -> None:
        edit = self._choose(
            [
                self.append,
                self.insert,
                self.add_branch,
                self.add_constant,
                self.replace_input,
                self.replace_uses,
                self.change_outputs,
                self.remove,
            ]
        )
        edit()

    def append(self) -> None:
        self.graph.append(self._new_node(self._values_before(None)))

    def insert(self) -> None:
        place = self._any_node()
        if place is not None:
            self.graph.insert_before(place, self._new_node(self._values_before(place)))

    def add_branch(self) -> None:
        values = self._values_before(None)
        body = Graph(self._name("body"))
        inner = body.append(self._new_node(values))
        body.outputs = [self._choose([*inner.outputs, *values])]
        branch = {"then_branch": body, "else_branch": Graph(self._name("body"), outputs=values[:1])}
        output = Value(self._name("v"))
        self.graph.append(Node("If", values[:1], [output], branch, name=self._name("n")))

    def add_constant(self) -> None:
        content = np.zeros(2, np.float32)
        self.graph.add_initializer(Value(self._name("w"), constant=content))

    def replace_input(self) -> None:
        node = self._any_node()
        if node is not None and node.inputs:
            index = self._choose(range(len(node.inputs)))
            node.replace_input(index, self._choose([None, *self._values_before(node)]))

    def replace_uses(self) -> None:
        node = self._any_node()
        if node is not None:
            self.graph.replace_uses(node.outputs[0], self._choose(self._values_before(node)))

    def change_outputs(self) -> None:
        values = st.sampled_from(self._values_before(None))
        self.graph.outputs = self._data.draw(st.lists(values, max_size=3))

    def remove(self) -> None:
        node = self._any_node()
        if node is None:
            return
        for value in node.outputs:
            self.graph.replace_uses(value, self.graph.inputs[0])
        self.graph.remove(node)

    def _new_node(self, values: list[Value]) -> Node:
        inputs = self._data.draw(st.lists(st.sampled_from([None, *values]), max_size=3))
        outputs = [Value(self._name("v")) for _ in range(self._choose([1, 2]))]
        return Node("Op", inputs, outputs, name=self._name("n"))

    def _values_before(self, place: Node | None) -> list[Value]:
        """List what a node at that place may use; None: at the end."""
        values = [*self.graph.inputs, *self.graph.initializers.values()]
        for node in self.graph.nodes:
            if node is place:
                break
            values.extend(node.outputs)
        return values

    def _any_node(self) -> Node | None:
        return self._choose([None, *self.graph.nodes])

    def _choose(self, items: Any) -> Any:
        return self._data.draw(st.sampled_from(list(items)))

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"


@settings(max_examples=drawn(60))
@given(data=st.data(), step_count=st.integers(1, MAX_STEPS))
def test_every_edit_keeps_every_invariant(data: st.DataObject, step_count: int) -> None:
    editor = Editor(data)
    for _ in range(step_count):
        editor.step()
        check_graph(editor.graph)
        assert len(editor.graph) == len(list(editor.graph.nodes))


@settings(max_examples=drawn(40))
@given(data=st.data(), step_count=st.integers(1, MAX_STEPS))
def test_a_copy_of_any_graph_holds_reads_the_same_and_is_independent(
    data: st.DataObject, step_count: int
) -> None:
    editor = Editor(data)
    for _ in range(step_count):
        editor.step()
    original, before = editor.graph, graph_text(editor.graph)
    editor.graph = copy_graph(original)
    assert graph_text(editor.graph) == before
    for _ in range(step_count):
        editor.step()
        check_graph(editor.graph)
    check_graph(original)
    assert graph_text(original) == before
