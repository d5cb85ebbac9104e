from aioinfer.runtime.passes import DeadCode, run_passes
from onnx_text import parse
from unit.runtime.passes.small_models import constants, node_lines


def test_a_dead_chain_goes_in_one_round_with_its_constants() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) <float[2] used = {1, 2}, float[2] lost = {3, 4}> {
            a = Add(x, lost)
            b = Neg(a)
            y = Add(x, used)
            c = Mul(b, y)
        }"""
    )
    report = run_passes(model, [DeadCode()])
    assert node_lines(model) == ["y = Add(x, used)  # Add_1"]
    assert list(constants(model)) == ["used"]
    assert report.results[0].round_count == 2  # the second finds nothing
    assert report.removed_names == ("Mul_0", "Neg_0", "Add_0")
    assert report.results[0].patches == (
        "remove Mul 'Mul_0'",
        "remove Neg 'Neg_0'",
        "remove Add 'Add_0'",
        "drop 1 unused constants",
    )


def test_a_node_with_one_needed_output_stays() -> None:
    model = parse(
        """g (float[4] x) => (float[2] y) {
            a, y = Split<num_outputs=2>(x)
        }"""
    )
    assert run_passes(model, [DeadCode()]).patch_count == 0


def test_what_only_a_body_uses_is_alive() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            a = Relu(x)
            y = If (c) <
                then_branch = t () => (float[2] p) { p = Add(a, w) },
                else_branch = e () => (float[2] q) { q = Exp(x) }
            >
        }"""
    )
    assert run_passes(model, [DeadCode()]).patch_count == 0


def test_a_dead_branch_takes_along_what_only_it_used() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
            a = Relu(x)
            b = If (c) <
                then_branch = t () => (float[2] p) { p = Neg(a) },
                else_branch = e () => (float[2] q) { q = Exp(x) }
            >
            y = Abs(x)
        }"""
    )
    run_passes(model, [DeadCode()])
    assert node_lines(model) == ["y = Abs(x)  # Abs_0"]


def test_an_unused_input_stays_part_of_the_interface() -> None:
    model = parse("g (float[2] x, float[2] unused) => (float[2] y) { y = Abs(x) }")
    run_passes(model, [DeadCode()])
    assert [value.name for value in model.inputs] == ["x", "unused"]
