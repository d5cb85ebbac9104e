import numpy as np
import pytest

from aioinfer.runtime.graph import DType, Model, Node, TensorType, Value
from aioinfer.runtime.passes import ConstantFolding, DeadCode, PassReport, run_passes
from onnx_text import parse
from unit.runtime.passes.small_models import constants, node_lines, value_of


def fold(model: Model, **options) -> PassReport:
    return run_passes(model, [ConstantFolding(**options), DeadCode()])


def test_nodes_of_constants_become_constants() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {10, 20}> {
            a = Add(w, v)
            b = Mul(a, w)
            y = Add(x, b)
        }"""
    )
    report = fold(model)
    assert str(model).splitlines() == [
        "graph g {",
        "  input %x: float32[2]",
        "  constant %b: float32[2] = [11.0,44.0]",
        "  %y: float32[2] = Add(%x, %b)  # Add_1",
        "  return %y",
        "}",
    ]
    assert report.removed_names == ("Add_0", "Mul_0")


def test_folded_arrays_are_read_only_and_contiguous() -> None:
    model = parse(
        """g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1, 2, 3, 4}> {
            t = Transpose(w)
            y = Add(x, t)
        }"""
    )
    fold(model)
    array = value_of(model, "t").constant
    assert array.tolist() == [[1, 3], [2, 4]]
    assert array.flags.c_contiguous
    assert not array.flags.writeable


def test_constants_that_are_handed_through_stay_the_same_array() -> None:
    numbers = ", ".join(map(str, range(100)))
    model = parse(
        f"""g (float[100] x) => (float[100] y) <float[100] w = {{{numbers}}}> {{
            v = Identity(w)
            a = Add(x, v)
            y = Mul(a, w)
        }}"""
    )
    source = value_of(model, "w").constant
    source.flags.writeable = False
    run_passes(model, [ConstantFolding()])
    assert value_of(model, "v").constant is source


def test_an_output_of_the_graph_may_become_a_constant_of_the_same_name() -> None:
    model = parse("g () => (float[2] y) <float[2] w = {1, 2}> { y = Neg(w) }")
    fold(model)
    assert node_lines(model) == []
    assert constants(model) == {"y": [-1.0, -2.0]}
    assert [value.name for value in model.outputs] == ["y"]


def test_all_outputs_of_a_node_fold_together() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) <float[4] w = {1, 2, 3, 4}> {
            a, b = Split<num_outputs=2>(w)
            c = Add(x, a)
            y = Add(c, b)
        }"""
    )
    fold(model)
    assert constants(model) == {"a": [1.0, 2.0], "b": [3.0, 4.0]}


def test_constant_nodes_fold() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    node = Node("Constant", [], [Value("c")], {"value_ints": [1, 2]}, name="c0")
    model.graph.insert_before(model.node("Neg_0"), node)
    cast = Node("Cast", node.outputs, [Value("f")], {"to": 1}, name="cast")
    model.graph.insert_before(model.node("Neg_0"), cast)
    model.node("Neg_0").replace_input(0, cast.outputs[0])
    fold(model)
    assert constants(model) == {"y": [-1.0, -2.0]}


SHAPES = """g (float[N,3,4] x) => ({result} y) {{
    s = Shape(x)
    start = Constant<value_ints=[1]>()
    two = Constant<value_ints=[2]>()
    end = Constant<value_ints=[3]>()
    one = Constant<value_int=1>()
    zero = Constant<value_int=0>()
    last = Constant<value_ints=[3]>()
    far = Constant<value_int=9>()
    axes = Constant<value_ints=[0]>()
    both = Constant<value_ints=[2,1]>()
    {nodes}
}}"""


@pytest.mark.parametrize(
    ("nodes", "result", "content"),
    [
        ("y = Gather(s, one)", "int64", 3),
        ("y = Gather(s, both)", "int64[2]", [4, 3]),
        ("y = Slice(s, start, end)", "int64[2]", [3, 4]),
        ("y = Shape<start=1>(x)", "int64[2]", [3, 4]),
        ("y = Shape<start=-2, end=-1>(x)", "int64[1]", [3]),
        ("a = Gather(s, one) y = Unsqueeze(a, axes)", "int64[1]", [3]),
        ("a = Slice(s, start, two) y = Squeeze(a)", "int64", 3),
        ("a = Identity(s) y = Gather(a, one)", "int64", 3),
        ("a = Cast<to=6>(s) y = Gather(a, one)", "int32", 3),
        ("a = Concat<axis=0>(axes, s) y = Gather(a, last)", "int64[1]", [4]),
        ("a = Gather(s, one) b = Reshape(a, start) y = Identity(b)", "int64[1]", [3]),
    ],
)
def test_what_is_picked_from_a_shape_folds_if_these_lengths_are_known(
    nodes: str, result: str, content
) -> None:
    model = parse(SHAPES.format(nodes=nodes, result=result))
    fold(model)
    assert node_lines(model) == []
    assert constants(model) == {"y": content}


@pytest.mark.parametrize(
    ("nodes", "result"),
    [
        ("y = Gather(s, zero)", "int64"),
        ("y = Slice(s, axes, end)", "int64[3]"),
        ("y = Size(x)", "int64"),
        ("y = Gather(s, far)", "int64"),
        ("a = Concat<axis=0>(axes, s) y = Gather(a, both)", "int64[2]"),
        ("y = Identity(s)", "int64[3]"),
    ],
)
def test_what_depends_on_an_open_length_stays(nodes: str, result: str) -> None:
    model = parse(SHAPES.format(nodes=nodes, result=result))
    fold(model)
    assert node_lines(model)[-1].startswith("y = ")


def test_size_of_a_static_tensor_folds() -> None:
    model = parse("g (float[2,3] x) => (int64 y) { y = Size(x) }")
    fold(model)
    assert constants(model) == {"y": 6}


def test_shape_arithmetic_with_ranges_and_filled_tensors_folds() -> None:
    model = parse(
        """g (float[2,3] x) => (int64[3] y) {
            s = Shape<start=1>(x)
            c = ConstantOfShape<value = int64[1] {7}>(s)
            zero = Constant<value_int=0>()
            one = Constant<value_int=1>()
            n = Gather(s, zero)
            r = Range(zero, n, one)
            y = Add(c, r)
        }"""
    )
    fold(model)
    assert constants(model) == {"y": [7, 8, 9]}


@pytest.mark.parametrize(
    "node",
    [
        "y = RandomNormal<shape=[2]>()",
        "y = RandomUniform<shape=[2], seed=1.0>()",
        "y = RandomNormalLike(w)",
        "y = RandomUniformLike(w)",
        "y = Bernoulli(w)",
        "y = Dropout(w, half, true)",
        "a = Cast<to=1>(w) s = SequenceConstruct(a, a) y = SequenceAt(s, zero)",
        "y = com.acme.Swirl(w)",
    ],
)
def test_random_operators_sequences_and_foreign_operators_stay(node: str) -> None:
    model = parse(
        f"""g () => (float[2] y)
            <float[2] w = {{1, 0}}, float half = {{0.5}}, bool true = {{1}}, int64 zero = {{0}}> {{
            {node}
        }}"""
    )
    fold(model)
    assert node_lines(model)[-1].startswith("y = ")


def test_control_flow_stays_but_its_bodies_are_folded() -> None:
    model = parse(
        """g () => (float[2] y) <bool c = {1}, float[2] w = {1, 2}> {
            y = If (c) <
                then_branch = t () => (float[2] p) { p = Neg(w) },
                else_branch = e () => (float[2] q) { q = Exp(w) }
            >
        }"""
    )
    fold(model)
    (node,) = model.graph.nodes
    body = node.attributes["then_branch"]
    assert len(body) == 0
    assert body.outputs[0].constant.tolist() == [-1.0, -2.0]
    assert body.outputs[0].name == "p"


def test_a_large_result_is_left_to_run_time() -> None:
    text = """g (float[N] x) => (float[N] y) <int64[1] n = {100}> {
        c = ConstantOfShape(n)
        y = Add(x, c)
    }"""
    model = parse(text)
    fold(model, limit_bytes=399)
    assert node_lines(model)[0].startswith("c = ConstantOfShape")
    fold(model, limit_bytes=400)
    assert node_lines(model) == ["y = Add(x, c)  # Add_0"]


def test_a_result_no_larger_than_its_inputs_folds_at_any_size() -> None:
    model = parse(
        """g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
            n = Neg(w)
            y = Add(x, n)
        }"""
    )
    fold(model, limit_bytes=0)
    assert constants(model) == {"n": [-1.0, -2.0, -3.0, -4.0]}


@pytest.mark.parametrize(
    "node",
    [
        "ConstantOfShape(huge)",
        "Expand(one, huge)",
        "Tile(one, huge)",
        "Range(zero, most, step)",
        "Pad(one, pads)",
        "OneHot(zeros, most, values)",
    ],
)
def test_a_small_model_cannot_ask_for_a_huge_constant(node: str) -> None:
    model = parse(
        f"""g () => (float[N] y) <int64[1] huge = {{4}}, float[1] one = {{1}},
            int64 zero = {{0}}, int64 most = {{4}}, int64 step = {{1}}, int64[2] pads = {{0, 4}},
            int64[1] zeros = {{0}}, float[2] values = {{0, 1}}
        > {{ a = {node} y = Cast<to=1>(a) }}"""
    )
    for value in model.graph.initializers.values():
        value.constant = np.where(value.constant == 4, 4 * 10**12, value.constant)
    for value in model.node("Cast_0").inputs:
        value.type = None  # the limit must not rest on types, which come from the file
    fold(model)
    assert len(model.graph) == 2


def test_a_kernel_that_fails_leaves_its_node_in_place() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, int64[1] bad = {3}> {
            r = Gather(w, bad)
            y = Add(x, r)
        }"""
    )
    report = fold(model)
    assert report.patch_count == 0
    assert node_lines(model)[0] == "r = Gather(w, bad)  # Gather_0"


def test_a_result_of_another_type_than_the_graph_expects_is_not_taken() -> None:
    model = parse("g () => (float[2] y) <float[2] w = {1, 2}> { y = Neg(w) }")
    model.outputs[0].type = TensorType(DType.FLOAT64, (2,))
    assert fold(model).patch_count == 0


@pytest.mark.parametrize("op_type", ["Neg", "Exp"])
@pytest.mark.parametrize("shape", [(3,), (1, 2), ()])
def test_a_result_of_another_shape_than_the_graph_expects_is_not_taken(
    shape: tuple[int], op_type: str
) -> None:
    model = parse(f"g () => (float[2] y) <float[2] w = {{1, 2}}> {{ y = {op_type}(w) }}")
    model.outputs[0].type = TensorType(DType.FLOAT32, shape)
    assert fold(model).patch_count == 0


@pytest.mark.parametrize("shape", [None, ("n",), (None,)])
def test_a_result_of_a_shape_that_was_open_is_taken(shape: tuple[str | None] | None) -> None:
    model = parse("g () => (float[2] y) <float[2] w = {1, 2}> { y = Neg(w) }")
    model.outputs[0].type = TensorType(DType.FLOAT32, shape)
    fold(model)
    assert constants(model) == {"y": [-1.0, -2.0]}


def test_operators_to_keep_are_kept() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) <uint8[2] w = {1, 2}, float scale = {0.5}> {
            d = DequantizeLinear(w, scale)
            y = Add(x, d)
        }"""
    )
    fold(model, keep_ops=["DequantizeLinear"])
    assert len(model.graph) == 2
    fold(model)
    assert constants(model) == {"d": [0.5, 1.0]}


def test_strings_fold() -> None:
    model = parse("g (string[2] x) => (string[2] y) { y = Identity(x) }")
    words = np.array(["a", "b"], object)
    words_value = model.graph.add_initializer(Value("w", constant=words))
    model.node("Identity_0").replace_input(0, words_value)
    fold(model)
    assert constants(model) == {"y": ["a", "b"]}
    assert value_of(model, "y").type == TensorType(DType.STRING, (2,))


def test_bfloat16_folds() -> None:
    model = parse("g () => (bfloat16[2] y) <float[2] w = {1, 2}> { y = Cast<to=16>(w) }")
    fold(model)
    assert value_of(model, "y").constant.dtype == DType.BFLOAT16.numpy


def test_a_recurrent_layer_of_constants_folds_with_its_lengths() -> None:
    model = parse(
        """g () => (float[2,1,2,1] y)
        <float[2,2,1] x = {1, 4, 2, 5}, float[1,1,1] w = {1}, float[1,1,1] r = {10},
         int32[2] lengths = {2, 1}> {
            y = RNN<activations=["Relu"], hidden_size=1, direction="reverse">(x, w, r, , lengths)
        }"""
    )
    fold(model)
    assert node_lines(model) == []
    assert constants(model) == {"y": [[[[21.0], [4.0]]], [[[2.0], [0.0]]]]}
