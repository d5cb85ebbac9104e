import pytest

from aioinfer.runtime.passes import IdentityElimination, run_passes
from onnx_text import parse
from unit.runtime.passes.small_models import node_lines

MODEL = """g (float[N,3,1] x) => (float[N,3,1] y) <
    int64[3] same = {{0, 3, 1}}, int64[3] inferred = {{-1, 3, 1}}, int64[3] other = {{3, 0, 1}},
    int64[3] two_open = {{-1, 0, 1}}, int64[2] ones = {{1, 1}}, int64[3] wide = {{1, 1, 2}},
    int64[4] more_axes = {{1, 1, 1, 1}}, int64[6] no_pads = {{0, 0, 0, 0, 0, 0}},
    int64[6] pads = {{0, 0, 0, 0, 0, 1}}, int64[3] once = {{1, 1, 1}}, float half = {{0.5}},
    bool true = {{1}}, bool false = {{0}}, double sample = {{1}}
> {{
    a = Relu(x)
    b = {node}
    y = Abs(b)
}}"""


@pytest.mark.parametrize(
    "node",
    [
        "Identity(a)",
        "Dropout(a)",
        "Dropout(a, half, false)",
        "Cast<to=1>(a)",
        "CastLike(a, half)",
        "Reshape(a, same)",
        "Reshape(a, inferred)",
        "Reshape(a, two_open)",
        "Transpose<perm=[0,1,2]>(a)",
        "Concat<axis=1>(a)",
        "Expand(a, ones)",
        "Expand(a, once)",
        "Pad(a, no_pads)",
        "Tile(a, once)",
        "Sum(a)",
        "Max(a)",
    ],
)
def test_a_node_that_changes_nothing_is_skipped(node: str) -> None:
    model = parse(MODEL.format(node=node))
    report = run_passes(model, [IdentityElimination()])
    assert node_lines(model) == ["a = Relu(x)  # Relu_0", "y = Abs(a)  # Abs_0"]
    assert len(report.removed_names) == 1


@pytest.mark.parametrize(
    "node",
    [
        "Dropout(a, half, true)",
        "Cast<to=11>(a)",
        "CastLike(a, sample)",
        "Reshape(a, other)",
        "Reshape<allowzero=1>(a, same)",
        "Transpose<perm=[1,0,2]>(a)",
        "Transpose<perm=[0,2,1]>(a)",
        "Transpose(a)",
        "Concat<axis=1>(a, a)",
        "Expand(a, wide)",
        "Expand(a, more_axes)",
        "Pad(a, pads)",
        "Tile(a, wide)",
        "Sum(a, a)",
        "Neg(a)",
    ],
)
def test_a_node_that_may_change_something_stays(node: str) -> None:
    model = parse(MODEL.format(node=node).replace("=> (float[N,3,1] y)", "=> (float y)"))
    assert run_passes(model, [IdentityElimination()]).patch_count == 0


def test_moving_an_axis_of_length_one_is_no_change_if_the_shape_stays() -> None:
    model = parse(
        """g (float[1,1,5] x) => (float[1,1,5] y) {
            a = Transpose<perm=[1,0,2]>(x) y = Abs(a)
        }"""
    )
    assert run_passes(model, [IdentityElimination()]).patch_count == 1


def test_swapping_two_axes_of_equal_length_is_a_change() -> None:
    model = parse("g (float[2,2] x) => (float[2,2] y) { a = Transpose<perm=[1,0]>(x) y = Abs(a) }")
    assert run_passes(model, [IdentityElimination()]).patch_count == 0


def test_a_dropout_whose_mask_is_needed_stays() -> None:
    model = parse("g (float[2] x) => (float[2] y, bool[2] m) { a, m = Dropout(x) y = Abs(a) }")
    assert run_passes(model, [IdentityElimination()]).patch_count == 0


def test_a_dropout_whose_mask_nobody_needs_goes() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a, m = Dropout(x) y = Abs(a) }")
    assert run_passes(model, [IdentityElimination()]).patch_count == 1


def test_outputs_keep_their_names() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Relu(x) b = Identity(a) y = Identity(b) }")
    run_passes(model, [IdentityElimination()])
    assert node_lines(model) == ["y = Relu(x)  # Relu_0"]


def test_a_value_that_becomes_an_output_serves_its_other_users_on() -> None:
    model = parse(
        "g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) y = Identity(a) z = Neg(a) }"
    )
    run_passes(model, [IdentityElimination()])
    assert node_lines(model) == ["y = Relu(x)  # Relu_0", "z = Neg(y)  # Neg_0"]


@pytest.mark.parametrize(
    "graph",
    [
        "g (float[2] x) => (float[2] y) { y = Identity(x) }",
        "g () => (float[2] y) <float[2] w = {1, 2}> { y = Identity(w) }",
        "g (float[2] x) => (float[2] a, float[2] y) { a = Relu(x) y = Identity(a) }",
    ],
)
def test_an_output_stays_apart_from_inputs_constants_and_other_outputs(graph: str) -> None:
    model = parse(graph)
    before = node_lines(model)
    assert run_passes(model, [IdentityElimination()]).patch_count == 0
    assert node_lines(model) == before


def test_of_two_identities_on_one_value_one_takes_the_name_and_the_other_stays() -> None:
    model = parse(
        "g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) y = Identity(a) z = Identity(a) }"
    )
    run_passes(model, [IdentityElimination()])
    assert node_lines(model) == ["y = Relu(x)  # Relu_0", "z = Identity(y)  # Identity_1"]


def test_a_body_does_not_return_a_value_from_outside() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
            a = Relu(x)
            y = If (c) <
                then_branch = t () => (float[2] p) { p = Identity(a) },
                else_branch = e () => (float[2] q) { b = Exp(x) q = Identity(b) }
            >
        }"""
    )
    run_passes(model, [IdentityElimination()])
    bodies = model.node("If_0").attributes
    assert [node.op_type for node in bodies["then_branch"].nodes] == ["Identity"]
    assert [node.op_type for node in bodies["else_branch"].nodes] == ["Exp"]
    assert [value.name for value in bodies["else_branch"].outputs] == ["q"]
