"""If, Loop, Scan and SequenceMap, in all their forms."""

import numpy as np
import pytest

from aioinfer.errors import GraphError, RequestCancelledError, TensorError
from unit.backends.reference.graphs import compile_text

TRUE, FALSE = np.array(True), np.array(False)
X = np.array([1.0, 2.0], np.float32)


def test_if_takes_one_branch_and_sees_outer_values() -> None:
    steps = compile_text("""g (bool c, float[2] x) => (float[2] y) {
        twice = Add(x, x)
        y = If(c) <
            then_branch = a () => (float[2] t) { t = Neg(twice) },
            else_branch = b () => (float[2] e) { e = Identity(x) }
        >
    }""")
    assert steps.run({"c": TRUE, "x": X})[0].tolist() == [-2.0, -4.0]
    (same,) = steps.run({"c": np.array([False]), "x": X})
    assert same.tolist() == X.tolist()
    assert not np.shares_memory(same, X)


def test_a_branch_may_return_an_outer_value_or_a_constant() -> None:
    steps = compile_text("""g (bool c, float[2] x) => (float[2] y) {
        y = If(c) <
            then_branch = a () => (float[2] t) { t = Constant<value_floats = [5.0, 6.0]>() },
            else_branch = b () => (float[2] x) { }
        >
    }""")
    first = steps.run({"c": TRUE, "x": X})[0]
    first[:] = 0.0
    assert steps.run({"c": TRUE, "x": X})[0].tolist() == [5.0, 6.0]
    assert steps.run({"c": FALSE, "x": X})[0].tolist() == X.tolist()


def test_a_condition_of_several_elements_is_refused() -> None:
    steps = compile_text("""g (bool[N] c) => (float[1] y) {
        y = If(c) <
            then_branch = a () => (float[1] t) { t = Constant<value_floats = [1.0]>() },
            else_branch = b () => (float[1] e) { e = Constant<value_floats = [2.0]>() }
        >
    }""")
    with pytest.raises(TensorError, match="one element"):
        steps.run({"c": np.array([True, False])})


def test_bodies_nest_and_capture_through_each_other() -> None:
    steps = compile_text("""g (int64 n, bool c, float[2] x) => (float[2] y) {
        y = Loop(n, c, x) <body = outer (int64 i, bool go, float[2] s) => (bool on, float[2] t) {
            on = Identity(go)
            t = If(c) <
                then_branch = a () => (float[2] u) { u = Add(s, x) },
                else_branch = b () => (float[2] v) { v = Sub(s, x) }
            >
        }>
    }""")
    assert steps.run({"n": np.array(3), "c": TRUE, "x": X})[0].tolist() == [4.0, 8.0]


class TestLoop:
    COUNT = """g (int64 n, bool c, float[2] x) => (float[2] y, float[K, 2] seen, int64[K] counts) {
        y, seen, counts = Loop(n, c, x) <
            body = b (int64 i, bool go, float[2] s)
                => (bool on, float[2] t, float[2] item, int64 number) {
                limit = Constant<value_float = 6.0>()
                axes = Constant<value_ints = [0]>()
                t = Add(s, x)
                total = ReduceSum<keepdims = 0>(t, axes)
                on = Less(total, limit)
                item = Identity(s)
                number = Identity(i)
            }
        >
    }"""

    def test_the_trip_count_ends_it(self) -> None:
        steps = compile_text(self.COUNT)
        y, seen, counts = steps.run({"n": np.array(1), "c": TRUE, "x": X})
        assert y.tolist() == [2.0, 4.0]
        assert seen.tolist() == [[1.0, 2.0]]
        assert counts.tolist() == [0]

    def test_the_condition_ends_it(self) -> None:
        y, seen, counts = compile_text(self.COUNT).run({"n": np.array(99), "c": TRUE, "x": X})
        assert y.tolist() == [2.0, 4.0]
        assert (seen.shape, counts.shape) == ((1, 2), (1,))

    @pytest.mark.parametrize(
        "inputs", [{"n": np.array(0), "c": TRUE}, {"n": np.array(5), "c": FALSE}]
    )
    def test_no_iteration_gives_the_initial_state_and_empty_outputs_of_their_types(
        self, inputs
    ) -> None:
        y, seen, counts = compile_text(self.COUNT).run({**inputs, "x": X})
        assert y.tolist() == X.tolist()
        assert (seen.shape, seen.dtype) == ((0, 2), np.float32)
        assert (counts.shape, counts.dtype) == ((0,), np.int64)

    @pytest.mark.parametrize(
        ("inner", "outer", "shape"),
        [
            ("float[3]", "float[K, 3]", (0, 3)),
            ("float", "float[K]", (0,)),
            ("float[M, 3]", "float[K, M, 3]", (0, 0, 3)),
            ("float[M, L]", "float[K, L, 3]", (0, 0, 3)),
            ("float[M]", "float[K, 3]", (0, 3)),
        ],
    )
    def test_no_iteration_gives_the_shape_that_body_or_result_is_declared_with(
        self, inner, outer, shape
    ) -> None:
        steps = compile_text(f"""g (int64 n, float[A] x, int64[B] target) => ({outer} seen) {{
            seen = Loop(n, "") <body = b (int64 i, bool go) => (bool on, {inner} item) {{
                on = Identity(go)
                item = Reshape(x, target)
            }}>
        }}""")
        inputs = {"n": np.array(0), "x": np.zeros(3, np.float32), "target": np.array([-1])}
        (seen,) = steps.run(inputs)
        assert (seen.shape, seen.dtype) == (shape, np.float32)

    def test_scalars_are_stacked_to_rank_one(self) -> None:
        steps = compile_text("""g (int64 n) => (int64[K] counts) {
            counts = Loop(n, "") <body = b (int64 i, bool go) => (bool on, int64 number) {
                on = Identity(go)
                number = Mul(i, i)
            }>
        }""")
        assert steps.run({"n": np.array(4)})[0].tolist() == [0, 1, 4, 9]

    def test_without_a_trip_count_only_the_condition_ends_it(self) -> None:
        steps = compile_text("""g (bool c, int64 x) => (int64 y) {
            y = Loop("", c, x) <body = b (int64 i, bool go, int64 s) => (bool on, int64 t) {
                one = Constant<value_int = 1>()
                limit = Constant<value_int = 10>()
                t = Add(s, one)
                on = Less(t, limit)
            }>
        }""")
        assert steps.run({"c": TRUE, "x": np.array(0)})[0].tolist() == 10

    def test_a_counter_that_is_declared_with_one_element_has_it(self) -> None:
        steps = compile_text("""g (int64 n) => (int64[K, 1] counts) {
            counts = Loop(n, "") <body = b (int64[1] i, bool go) => (bool on, int64[1] number) {
                on = Identity(go)
                number = Identity(i)
            }>
        }""")
        assert steps.run({"n": np.array([3])})[0].tolist() == [[0], [1], [2]]

    def test_a_state_may_be_a_sequence(self) -> None:
        steps = compile_text("""g (int64 n, float[2] x) => (seq(float[2]) y) {
            empty = SequenceEmpty()
            y = Loop(n, "", empty) <
                body = b (int64 i, bool go, seq(float[2]) s) => (bool on, seq(float[2]) t) {
                    on = Identity(go)
                    t = SequenceInsert(s, x)
                }
            >
        }""")
        (made,) = steps.run({"n": np.array(3), "x": X})
        assert [item.tolist() for item in made] == [X.tolist()] * 3
        assert not np.shares_memory(made[0], made[1])

    def test_a_state_may_be_an_empty_optional(self) -> None:
        steps = compile_text("""g (int64 n, optional(float[2]) o, float[2] x) => (float[2] y) {
            y = Loop(n, "", o) <
                body = b (int64 i, bool go, optional(float[2]) s) => (bool on, float[2] t) {
                    on = Identity(go)
                    is_there = OptionalHasElement(s)
                    t = If(is_there) <
                        then_branch = a () => (float[2] u) {
                            element = OptionalGetElement(s)
                            u = Add(element, x)
                        },
                        else_branch = c () => (float[2] v) { v = Identity(x) }
                    >
                }
            >
        }""")
        assert steps.run({"n": np.array(3), "o": None, "x": X})[0].tolist() == [3.0, 6.0]
        assert steps.run({"n": np.array(1), "o": X, "x": X})[0].tolist() == [2.0, 4.0]

    def test_outputs_that_change_their_shape_cannot_be_stacked(self) -> None:
        steps = compile_text("""g (int64 n, float[N] x) => (float[N] y, float[K, M] all) {
            y, all = Loop(n, "", x) <
                body = b (int64 i, bool go, float[N] s) => (bool on, float[M] t, float[M] item) {
                    on = Identity(go)
                    t = Concat<axis = 0>(s, s)
                    item = Identity(t)
                }
            >
        }""")
        with pytest.raises(TensorError, match="different shapes"):
            steps.run({"n": np.array(2), "x": X})

    def test_a_run_is_stopped_inside_an_endless_loop(self) -> None:
        steps = compile_text("""g (bool c, float[2] x) => (float[2] y) {
            y = Loop("", c, x) <
                body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t) {
                    on = Identity(go)
                    t = Identity(s)
                }
            >
        }""")
        asked = []

        def stop() -> None:
            asked.append(True)
            if len(asked) > 50:
                raise RequestCancelledError("enough")

        with pytest.raises(RequestCancelledError, match="enough"):
            steps.run({"c": TRUE, "x": X}, stop)

    def test_a_loop_whose_body_has_no_node_asks_for_the_stop_too(self) -> None:
        steps = compile_text("""g (int64 n, bool c, float[2] x) => (float[2] y) {
            y = Loop(n, c, x) <
                body = b (int64 i, bool go, float[2] s) => (bool go, float[2] s) { }
            >
        }""")
        asked = []
        steps.run({"n": np.array(50), "c": TRUE, "x": X}, lambda: asked.append(True))
        assert len(asked) > 50

    def test_an_error_inside_names_the_inner_node_once(self) -> None:
        steps = compile_text("""g (int64 n, float[N] x, float[M] z) => (float[K] y) {
            y = Loop(n, "", x) <
                body = b (int64 i, bool go, float[K] s) => (bool on, float[K] t) {
                    on = Identity(go)
                    t = Add(s, z)
                }
            >
        }""")
        with pytest.raises(TensorError, match=r"^Add \(node 'Loop_0/body/Add_0'\)"):
            steps.run({"n": np.array(1), "x": X, "z": np.zeros(3, np.float32)})

    def test_the_profile_has_the_loop_and_not_its_iterations(self) -> None:
        profile: list = []
        inputs = {"n": np.array(1), "c": TRUE, "x": X}
        compile_text(self.COUNT).run(inputs, profile=profile)
        assert [time.op for time in profile] == ["Loop"]


class TestScan:
    @staticmethod
    def sums(attributes: str = "") -> str:
        return f"""g (float[2] s, float[A, B] x) => (float[2] y, float[C, D] all) {{
            y, all = Scan<num_scan_inputs = 1 {attributes},
                body = b (float[2] state, float[2] item) => (float[2] next, float[2] out) {{
                    next = Add(state, item)
                    out = Identity(next)
                }}
            >(s, x)
        }}"""

    ZERO = np.zeros(2, np.float32)
    ROWS = np.array([[1, 10], [2, 20], [3, 30]], np.float32)

    def test_rows_are_scanned_and_results_stacked(self) -> None:
        y, all_sums = compile_text(self.sums()).run({"s": self.ZERO, "x": self.ROWS})
        assert y.tolist() == [6.0, 60.0]
        assert all_sums.tolist() == [[1.0, 10.0], [3.0, 30.0], [6.0, 60.0]]

    def test_another_axis_may_be_scanned_and_made(self) -> None:
        text = self.sums(", scan_input_axes = [1], scan_output_axes = [-1]")
        y, all_sums = compile_text(text).run({"s": self.ZERO, "x": self.ROWS.T.copy()})
        assert y.tolist() == [6.0, 60.0]
        assert all_sums.tolist() == [[1.0, 3.0, 6.0], [10.0, 30.0, 60.0]]

    def test_both_directions_may_be_backward(self) -> None:
        text = self.sums(", scan_input_directions = [1], scan_output_directions = [1]")
        _, all_sums = compile_text(text).run({"s": self.ZERO, "x": self.ROWS})
        assert all_sums.tolist() == [[6.0, 60.0], [5.0, 50.0], [3.0, 30.0]]

    def test_no_rows_give_the_state_and_an_empty_tensor(self) -> None:
        x = np.zeros((0, 2), np.float32)
        y, all_sums = compile_text(self.sums()).run({"s": self.ZERO + 1, "x": x})
        assert y.tolist() == [1.0, 1.0]
        assert all_sums.shape == (0, 2)

    def test_items_of_a_vector_are_arrays_of_rank_zero(self) -> None:
        steps = compile_text("""g (float[N] x) => (float[N] y) {
            y = Scan<num_scan_inputs = 1, body = b (float item) => (float out) {
                out = Mul(item, item)
            }>(x)
        }""")
        assert steps.run({"x": X})[0].tolist() == [1.0, 4.0]

    def test_an_axis_that_is_not_there_is_refused(self) -> None:
        steps = compile_text(self.sums(", scan_input_axes = [1]"))
        with pytest.raises(TensorError, match="axis 1"):
            steps.run({"s": self.ZERO, "x": np.zeros(2, np.float32)})

    def test_inputs_of_different_lengths_are_refused(self) -> None:
        steps = compile_text("""g (float[N] a, float[M] b) => (float[K] y) {
            y = Scan<num_scan_inputs = 2, body = c (float p, float q) => (float out) {
                out = Add(p, q)
            }>(a, b)
        }""")
        with pytest.raises(TensorError, match=r"\[2, 3\]"):
            steps.run({"a": X, "b": np.zeros(3, np.float32)})

    def test_as_many_axes_as_scanned_inputs_are_needed(self) -> None:
        with pytest.raises(GraphError, match="scan_output_axes"):
            compile_text(self.sums(", scan_output_axes = [0, 0]"))


class TestSequenceMap:
    def test_a_tensor_beside_the_sequence_is_given_to_each_item(self) -> None:
        steps = compile_text("""g (seq(float[2]) s, float[2] x) => (seq(float[2]) y) {
            y = SequenceMap(s, x) <body = b (float[2] item, float[2] other) => (float[2] out) {
                out = Add(item, other)
            }>
        }""")
        (made,) = steps.run({"s": [X, 2 * X], "x": X})
        assert [item.tolist() for item in made] == [[2.0, 4.0], [3.0, 6.0]]
        assert steps.run({"s": [], "x": X}) == [[]]

    def test_a_second_sequence_is_walked_beside_the_first(self) -> None:
        steps = compile_text("""g (seq(float[2]) s, seq(float[2]) t)
                => (seq(float[2]) y, seq(float[2]) z) {
            y, z = SequenceMap(s, t) <
                body = b (float[2] p, float[2] q) => (float[2] sum, float[2] difference) {
                    sum = Add(p, q)
                    difference = Sub(p, q)
                }
            >
        }""")
        sums, differences = steps.run({"s": [X, X], "t": [X, 3 * X]})
        assert [item.tolist() for item in sums] == [[2.0, 4.0], [4.0, 8.0]]
        assert [item.tolist() for item in differences] == [[0.0, 0.0], [-2.0, -4.0]]
        with pytest.raises(TensorError, match=r"\[2, 1\]"):
            steps.run({"s": [X, X], "t": [X]})

    def test_a_body_sees_outer_values(self) -> None:
        steps = compile_text("""g (seq(float[2]) s, float[2] x) => (seq(float[2]) y) {
            twice = Add(x, x)
            y = SequenceMap(s) <body = b (float[2] item) => (float[2] out) {
                out = Add(item, twice)
            }>
        }""")
        assert steps.run({"s": [X], "x": X})[0][0].tolist() == [3.0, 6.0]
