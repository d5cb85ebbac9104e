"""A compiled graph: order, what it is given, what it gives, and how it ends early."""

import threading
import weakref

import numpy as np
import pytest

from aioinfer.errors import (
    DeviceError,
    GraphError,
    RequestCancelledError,
    TensorError,
    UnsupportedOpError,
)
from aioinfer.runtime.graph import DType, Graph, Node, TensorType, Value
from unit.backends.reference.graphs import compile_graph, compile_text

X = np.array([-1.0, 2.0], np.float32)


def chain(*op_types: str) -> Graph:
    """x -> first -> ... -> y."""
    value = Value("x", TensorType(DType.FLOAT32, (2,)))
    graph = Graph("chain", [value])
    for index, op_type in enumerate(op_types):
        made = Value("y" if index == len(op_types) - 1 else f"v{index}")
        graph.append(Node(op_type, [value], [made], name=f"{op_type}_{index}"))
        value = made
    graph.outputs = [value]
    return graph


def test_nodes_run_in_order() -> None:
    (made,) = compile_graph(chain("Relu", "Neg")).run({"x": X})
    assert made.tolist() == [0.0, -2.0]


def test_outputs_come_in_the_order_of_the_graph() -> None:
    steps = compile_text("g (float[2] x) => (float[2] b, float[2] a) { a = Neg(x) b = Abs(a) }")
    assert [made.tolist() for made in steps.run({"x": X})] == [[1.0, 2.0], [1.0, -2.0]]


def test_an_input_that_is_not_given_is_named() -> None:
    with pytest.raises(TensorError, match="'x'"):
        compile_graph(chain("Relu")).run({"X": X})


def test_a_node_without_a_kernel_is_refused_when_compiling() -> None:
    with pytest.raises(UnsupportedOpError, match="Swirl_0") as caught:
        compile_graph(chain("Swirl"))
    assert caught.value.op == "Swirl"


def test_a_graph_that_uses_values_of_another_is_refused() -> None:
    outer = Value("outer")
    graph = Graph("inner")
    graph.append(Node("Relu", [outer], [Value("y")], name="relu"))
    with pytest.raises(GraphError, match="outer"):
        compile_graph(graph)


def test_nodes_whose_outputs_are_known_do_not_run() -> None:
    graph = Graph("known")
    made = Value("y", constant=X)
    graph.append(Node("Swirl", [], [made], name="swirl"))
    graph.outputs = [made]
    steps = compile_graph(graph)
    assert len(steps) == 0
    assert steps.run({})[0].tolist() == X.tolist()


def test_values_are_dropped_after_their_last_use() -> None:
    made, alive = [], []

    def make(x):
        fresh = np.zeros(2, np.float32)
        made.append(weakref.ref(fresh))
        return fresh

    def look(x):
        alive.append([array() is not None for array in made])
        return make(x)

    extensions = {("", "Make"): make, ("", "Look"): look}
    compile_graph(chain("Make", "Look", "Look"), extensions).run({"x": X})
    assert alive == [[True], [False, True]]


class TestWhatLeavesARun:
    VIEWS = """g (float[2,3] x) => (float[3,2] y, float[6] z, float[2,3] same) {
        y = Transpose(x)
        shape = Constant<value_ints = [6]>()
        z = Reshape(x, shape)
        same = Identity(x)
    }"""

    def test_outputs_share_memory_with_nothing(self) -> None:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        outputs = compile_text(self.VIEWS).run({"x": x})
        arrays = [x, *outputs]
        for index, array in enumerate(arrays):
            assert not any(np.shares_memory(array, other) for other in arrays[index + 1 :])
        assert all(array.flags.c_contiguous and array.flags.writeable for array in outputs)

    def test_a_constant_that_is_an_output_is_copied_each_time(self) -> None:
        constant = np.array([1.0, 2.0], np.float32)
        graph = Graph("constant")
        graph.outputs = [graph.add_initializer(Value("c", constant=constant))]
        steps = compile_graph(graph)
        steps.run({})[0][:] = 9.0
        assert steps.run({})[0].tolist() == [1.0, 2.0]
        assert constant.tolist() == [1.0, 2.0]

    def test_one_value_that_is_two_outputs_is_two_arrays(self) -> None:
        graph = chain("Neg")
        graph.outputs = [graph.outputs[0]] * 2
        first, second = compile_graph(graph).run({"x": X})
        assert not np.shares_memory(first, second)

    def test_items_of_a_sequence_are_detached_too(self) -> None:
        graph = chain("SequenceConstruct")
        ((item,),) = compile_graph(graph).run({"x": X})
        assert not np.shares_memory(item, X)


class TestConstants:
    def test_a_kernel_cannot_write_a_constant(self) -> None:
        def spoil(x):
            x += 1
            return x

        constant = np.array([1.0], np.float32)
        graph = Graph("spoil")
        given = graph.add_initializer(Value("c", constant=constant))
        graph.append(Node("Spoil", [given], [Value("y")], name="spoil"))
        with pytest.raises(TensorError, match="read-only"):
            compile_graph(graph, {("", "Spoil"): spoil}).run({})
        assert constant.tolist() == [1.0]
        assert constant.flags.writeable


class TestErrors:
    def test_an_error_names_node_operator_types_and_cause(self) -> None:
        steps = compile_text("g (float[2] x, float[M] y) => (float[N] z) { z = Add(x, y) }")
        with pytest.raises(TensorError) as caught:
            steps.run({"x": X, "y": np.zeros(3, np.float32)})
        text = str(caught.value)
        assert all(part in text for part in ("Add", "'Add_0'", "float32[2]", "float32[3]"))
        assert isinstance(caught.value.__cause__, ValueError)

    def test_memory_that_runs_out_is_the_devices_error(self) -> None:
        def greedy(x):
            raise MemoryError("no more")

        with pytest.raises(DeviceError, match="Greedy_0"):
            compile_graph(chain("Greedy"), {("", "Greedy"): greedy}).run({"x": X})

    def test_an_extension_that_returns_too_little_is_told_so(self) -> None:
        graph = chain("Two")
        node = next(graph.nodes)
        second = Value("second")
        fresh = Node("Two", node.inputs, [Value("first"), second], name="two")
        graph.append(fresh)
        graph.outputs = [second]
        with pytest.raises(TensorError, match="gave 1 outputs where 2 are used"):
            compile_graph(graph, {("", "Two"): lambda x: x}).run({"x": X})

    def test_numpy_warns_nobody(self) -> None:
        (made,) = compile_graph(chain("Log", "Sqrt")).run({"x": X})
        assert np.isnan(made[0])


class TestStopping:
    def test_stop_is_asked_before_each_node_and_ends_the_run(self) -> None:
        asked = []

        def stop() -> None:
            asked.append(True)
            if len(asked) == 3:
                raise RequestCancelledError("enough")

        ran = []

        def count(x):
            ran.append(True)
            return x

        steps = compile_graph(chain("Count", "Count", "Count", "Count"), {("", "Count"): count})
        with pytest.raises(RequestCancelledError, match="enough"):
            steps.run({"x": X}, stop)
        assert len(ran) == 2


class TestProfile:
    def test_each_node_of_the_graph_has_one_entry(self) -> None:
        graph = chain("Relu")
        value = graph.outputs[0]
        made = Value("z")
        graph.append(Node("Neg", [value], [made], name="neg", fused_from=["a", "b"]))
        graph.outputs = [made]
        profile: list = []
        compile_graph(graph).run({"x": X}, profile=profile)
        assert [(time.names, time.op) for time in profile] == [
            (("Relu_0",), "Relu"),
            (("a", "b"), "Neg"),
        ]
        times = [moment for time in profile for moment in (time.start_ns, time.end_ns)]
        assert times == sorted(times)


def test_threads_may_run_the_same_steps() -> None:
    steps = compile_graph(chain("Relu", "Neg", "Exp", "Sqrt", "Identity"))
    inputs = [np.full(2, value, np.float32) for value in range(4)]
    expected = [steps.run({"x": x})[0] for x in inputs]
    wrong = []

    def work(index: int) -> None:
        for _ in range(50):
            if not np.array_equal(steps.run({"x": inputs[index]})[0], expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
