import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from aioinfer.errors import DeviceError, GraphError, ModelError
from aioinfer.runtime.graph import Graph, Model, Node
from aioinfer.runtime.passes import (
    DeadCode,
    GraphPatch,
    IdentityElimination,
    Pass,
    default_passes,
    find_bad_patch,
    run_passes,
)
from onnx_text import parse
from unit.runtime.passes.small_models import Rewrite, node_lines

IDENTITIES = """g (float[2] x) => (float[2] y) {
    a = Identity(x) b = Relu(a) c = Identity(b) d = Neg(c) e = Identity(d) y = Abs(e)
}"""


def _ticking() -> Callable[[], float]:
    ticks = iter(range(1000))
    return lambda: float(next(ticks))


def test_the_report_lists_passes_patches_rounds_and_removed_names() -> None:
    model = parse(IDENTITIES)
    model.node("Abs_0").fused_from = ("absolute",)

    report = run_passes(model, [IdentityElimination(), DeadCode()], clock=_ticking())

    assert str(report).splitlines() == [
        "2 passes, 3 patches, 2000.0 ms",
        "  identity elimination: 3 patches, 2 rounds, 1000.0 ms",
        "    skip Identity 'Identity_0'",
        "    skip Identity 'Identity_1'",
        "    skip Identity 'Identity_2'",
        "  dead code: 0 patches, 1 rounds, 1000.0 ms",
        "  removed: Identity_0, Identity_1, Identity_2",
    ]
    assert report.removed_names == ("Identity_0", "Identity_1", "Identity_2")
    assert [result.patch_count for result in report.results] == [3, 0]


def test_a_long_report_shows_the_first_patches_and_counts_the_rest() -> None:
    text = " ".join(f"v{i} = Identity(v{i - 1})" for i in range(1, 9))
    model = parse(f"g (float[2] v0) => (float[2] y) {{ {text} y = Abs(v8) }}")
    lines = str(run_passes(model, [IdentityElimination()])).splitlines()
    assert lines[6:8] == ["    skip Identity 'Identity_4'", "    and 3 more"]


def test_a_name_that_another_node_still_carries_is_not_removed() -> None:
    model = parse(IDENTITIES)
    model.node("Abs_0").fused_from = ("Abs_0", "Identity_0")
    report = run_passes(model, [IdentityElimination()])
    assert report.removed_names == ("Identity_1", "Identity_2")


@pytest.mark.parametrize("count", [0, 1, 2])
def test_stop_after_ends_the_run_after_that_many_patches(count: int) -> None:
    model = parse(IDENTITIES)
    report = run_passes(model, default_passes(), stop_after=count)
    assert (report.patch_count, report.stopped) == (count, True)
    assert len(model.graph.nodes_of("Identity")) == 3 - count


def test_stop_after_more_patches_than_there_are_runs_everything() -> None:
    report = run_passes(parse(IDENTITIES), default_passes(), stop_after=100)
    assert (report.patch_count, report.stopped) == (3, False)
    assert len(report.results) == len(default_passes())


def _negate_into_relu(graph: Graph) -> Iterator[GraphPatch]:
    """Wrong on purpose."""
    for node in graph.nodes_of("Neg"):
        new = Node("Relu", node.inputs, [type(node.outputs[0])("n")], name="bad")
        yield (
            GraphPatch(f"break {node.name!r}")
            .add(new)
            .replace(node.outputs[0], new.outputs[0])
            .remove(node)
        )


def test_a_bisect_finds_a_planted_bad_rewrite() -> None:
    text = " ".join(f"v{i} = {'Neg' if i == 5 else 'Identity'}(v{i - 1})" for i in range(1, 12))
    model = parse(f"g (float[2] v0) => (float[2] y) {{ {text} y = Abs(v11) }}")
    passes = [Rewrite(_negate_into_relu), IdentityElimination()]
    judged = []

    def has_neg(candidate: Model) -> bool:
        judged.append(candidate)
        return bool(candidate.graph.nodes_of("Neg"))

    assert find_bad_patch(model, passes, has_neg) == "patch 1, rewrite: break 'Neg_0'"
    assert len(judged) <= 6  # 11 patches
    late = [IdentityElimination(), Rewrite(_negate_into_relu)]
    assert find_bad_patch(model, late, has_neg) == "patch 11, rewrite: break 'Neg_0'"
    assert find_bad_patch(model, [IdentityElimination()], has_neg) is None
    assert has_neg(model)


def test_an_error_names_the_pass_the_patch_and_the_passes_before() -> None:
    def remove_relu(graph: Graph) -> Iterator[GraphPatch]:
        yield GraphPatch("drop the relu").remove(graph.nodes_of("Relu")[0])

    model = parse(IDENTITIES)
    with pytest.raises(GraphError) as caught:
        run_passes(model, [IdentityElimination(), Rewrite(remove_relu)])
    text = str(caught.value)
    assert "pass 'rewrite' failed in graph 'g', applying 'drop the relu' (patch 4 of" in text
    assert "passes that ran before: identity elimination" in text
    assert "node 'Neg_0' uses it" in str(caught.value.__cause__)


def test_an_exception_inside_a_pass_is_named_too() -> None:
    def stumble(graph: Graph) -> Iterator[GraphPatch]:
        raise ZeroDivisionError("oops")
        yield

    with pytest.raises(GraphError, match=r"looking for its next patch .*oops") as caught:
        run_passes(parse(IDENTITIES), [Rewrite(stumble)])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_graph_broken_by_a_pass_is_laid_at_its_door() -> None:
    def reverse(graph: Graph) -> Iterator[GraphPatch]:
        relu, last = graph.nodes_of("Relu")[0], graph.nodes_of("Abs")[0]
        if last.inputs[0] is not relu.outputs[0]:
            new = Node("Exp", last.outputs, [type(relu.outputs[0])("late")], name="late")
            yield (
                GraphPatch("turn round")
                .add(new, before=relu)
                .replace(relu.outputs[0], new.outputs[0])
            )
            last.replace_input(0, relu.outputs[0])

    with pytest.raises(GraphError, match="broken after pass 'rewrite', last patch 'turn round'"):
        run_passes(parse(IDENTITIES), [Rewrite(reverse)])


def test_a_graph_that_is_broken_from_the_start_is_said_to_be() -> None:
    model = parse(IDENTITIES)
    model.node("Neg_0").name = "Abs_0"
    with pytest.raises(GraphError, match="broken before the first pass"):
        run_passes(model, default_passes())


def test_passes_that_undo_each_other_do_not_run_forever() -> None:
    def flip(graph: Graph) -> Iterator[GraphPatch]:
        relu = next(graph.nodes)
        new = Node("Flip", relu.inputs, [type(relu.outputs[0])("n")], name="flip")
        yield GraphPatch("flip").add(new).replace(relu.outputs[0], new.outputs[0]).remove(relu)

    with pytest.raises(GraphError, match=r"still finds something after .* last 'flip'"):
        run_passes(parse(IDENTITIES), [Rewrite(flip)])


def test_a_requirement_that_does_not_hold_is_named() -> None:
    class NeedsShapes(Rewrite):
        name = "needs shapes"
        requires = frozenset({"static shapes"})

    model = parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    message = r"'needs shapes' requires 'static shapes', .*'x' is float32\[N\]"
    with pytest.raises(GraphError, match=message):
        run_passes(model, [NeedsShapes(lambda graph: iter(()))])


def test_a_guarantee_that_is_not_kept_is_named() -> None:
    class Lazy(Rewrite):
        name = "lazy"
        guarantees = frozenset({"no dead nodes"})

    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x) y = Relu(x) }")
    with pytest.raises(GraphError, match=r"'lazy' guarantees 'no dead nodes', .*'Neg_0'"):
        run_passes(model, [Lazy(lambda graph: iter(()))])
    run_passes(model, [Lazy(lambda graph: iter(()))], check=False)


def test_an_unknown_property_is_refused_where_the_pass_is_defined() -> None:
    with pytest.raises(GraphError, match="'static shape'; did you mean 'static shapes'"):

        class Mistyped(Pass):
            requires = frozenset({"static shape"})


def test_bodies_are_rewritten_unless_the_pass_stays_out() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = t () => (float[2] p) { a = Identity(x) p = Neg(a) },
            else_branch = e () => (float[2] q) { q = Exp(x) dead = Sin(x) }
        >
    }"""

    class Outside(IdentityElimination):
        enters_bodies = False

    model = parse(text)
    assert run_passes(model, [Outside()]).patch_count == 0
    report = run_passes(model, default_passes())
    bodies = model.node("If_0").attributes
    assert [line.split("  #")[0] for line in node_lines(bodies["then_branch"])] == ["p = Neg(x)"]
    assert [line.split("  #")[0] for line in node_lines(bodies["else_branch"])] == ["q = Exp(x)"]
    assert len(report.removed_names) == 2


class Relus(Rewrite):
    """Notes the graphs that it is asked about."""

    wanted_ops = frozenset({"Relu"})

    def __init__(self) -> None:
        self.seen: list[str] = []
        super().__init__(self._note)

    def _note(self, graph: Graph) -> Iterator[GraphPatch]:
        self.seen.append(graph.name)
        yield from ()


@pytest.mark.parametrize(
    ("made", "seen"), [("a = Neg(x)", []), ("a = Relu(x)", ["g", "t", "e"]), ("a = Abs(x)", [])]
)
def test_a_pass_is_not_asked_where_no_node_is_of_its_operators(made: str, seen: list[str]) -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = t () => (float[2] p) { MADE p = Neg(a) },
            else_branch = e () => (float[2] q) { q = Exp(x) }
        >
    }"""
    relus = Relus()
    report = run_passes(parse(text.replace("MADE", made)), [relus])
    assert relus.seen == seen
    assert [result.round_count for result in report.results] == [bool(seen)]


def test_a_pass_that_finds_all_in_one_walk_is_asked_once() -> None:
    class FindsAll(Rewrite):
        finds_all = True

    text = "g (float[2] x) => (float[2] y) { a = Neg(x) y = Neg(a) }"
    for kind, rounds in ((Rewrite, 2), (FindsAll, 1)):
        report = run_passes(parse(text), [kind(_negate_into_relu)])
        assert (report.patch_count, report.results[0].round_count) == (2, rounds)


def test_a_pass_is_asked_about_what_one_before_it_has_made() -> None:
    relus, model = Relus(), parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    run_passes(model, [relus, Rewrite(_negate_into_relu), relus])
    assert relus.seen == ["g"]


def test_a_pass_that_is_not_asked_is_held_to_what_it_requires_and_guarantees() -> None:
    class Promising(Relus):
        guarantees = frozenset({"no dead nodes"})

    class Demanding(Relus):
        requires = frozenset({"no dead nodes"})

    text = "g (float[2] x) => (float[2] y) { a = Neg(x) y = Abs(x) }"
    for item, verb in ((Promising(), "guarantees"), (Demanding(), "requires")):
        with pytest.raises(GraphError, match=f"{verb} 'no dead nodes'"):
            run_passes(parse(text), [item])


def test_what_is_rewritten_is_not_settled() -> None:
    model = parse(IDENTITIES)
    model.is_settled = True
    run_passes(model, [DeadCode()])
    assert model.is_settled
    run_passes(model, [IdentityElimination()])
    assert not model.is_settled


def test_a_body_inside_a_removed_body_is_not_visited() -> None:
    seen = []

    def drop_outer(graph: Graph) -> Iterator[GraphPatch]:
        seen.append(graph.name)
        for node in graph.nodes_of("If"):
            yield GraphPatch("drop").replace(node.outputs[0], node.dependencies()[1]).remove(node)

    text = """g (bool c, float[2] x) => (float[2] y) {
        z = If (c) <
            then_branch = t () => (float[2] p) { p = Neg(x) },
            else_branch = e () => (float[2] q) { q = Exp(x) }
        >
        y = Relu(z)
    }"""
    run_passes(parse(text), [Rewrite(drop_outer)])
    assert seen == ["g", "g"]


def test_importing_the_passes_loads_no_onnx() -> None:
    code = "import sys, aioinfer.runtime.passes; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_pass_without_memory_and_one_that_finds_the_model_wrong_keep_their_class() -> None:
    def failing(error: Exception) -> Rewrite:
        def stumble(graph: Graph) -> Iterator[GraphPatch]:
            raise error
            yield

        return Rewrite(stumble)

    with pytest.raises(DeviceError, match=r"^pass 'rewrite' failed .* not enough memory \(1 TiB\)"):
        run_passes(parse(IDENTITIES), [failing(MemoryError("1 TiB"))])
    wrong = ModelError("the model is wrong")
    with pytest.raises(ModelError, match="the model is wrong") as caught:
        run_passes(parse(IDENTITIES), [failing(wrong)])
    assert caught.value is wrong
    assert caught.value.__notes__[0].startswith("pass 'rewrite' failed in graph 'g', looking")


def test_a_pass_that_cannot_be_bound_is_named() -> None:
    class Unbound(IdentityElimination):
        def bind(self, model: Model) -> Pass:
            raise KeyError("opset")

    with pytest.raises(GraphError, match="'identity elimination' failed before its first patch"):
        run_passes(parse(IDENTITIES), [Unbound()])


class Cleaning(Relus):
    """A pass that finds nothing in a clean model."""

    wanted_ops = None
    cleans = True


def test_a_pass_that_cleans_is_asked_of_a_clean_model_only_after_another_has_changed_it() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Relu(x) b = Identity(a) y = Neg(b) }")
    model.is_clean, before, after = True, Cleaning(), Cleaning()
    quiet = Relus()
    run_passes(model, [quiet, before], check=False)
    assert quiet.seen
    assert not before.seen
    assert model.is_clean
    run_passes(model, [before, Rewrite(_skip_identities), after], check=False)
    assert not before.seen
    assert after.seen
    assert not model.is_clean


def _skip_identities(graph: Graph) -> Iterator[GraphPatch]:
    for node in graph.nodes_of("Identity"):
        value = node.inputs[0]
        assert value is not None
        yield GraphPatch("skip").replace(node.outputs[0], value).remove(node)
