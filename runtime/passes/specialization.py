"""A model for the input shapes at hand: shape arithmetic folds away, and the rest is static.

With the input shapes known, shape inference and folding help each other: a ``Shape`` folds once its
input's type is static, and inference passes a ``Reshape`` once its target is a constant. So they
alternate until neither finds more, and onnx is asked for what is left. What the file says about the
types of intermediate values is forgotten first: it was written for other shapes, and where it
disagrees with the inputs it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ...executors.late_imports import late_imports
from ..graph import (
    Dim,
    Graph,
    Model,
    TensorType,
    Value,
    ValueType,
)
from ..graph.traversal import all_nodes
from ..type_inference import (
    apply_user_rules,
    correct_graph_types,
    find_rule,
    has_static_types,
    infer_graph_types,
    infer_told_types,
)
from ..type_inference.declared_lengths import with_declared_symbols
from ..type_inference.promised_types import keep_promises
from ..type_inference.rules import STANDARD_DOMAINS
from .cleanup.constant_folding import ConstantFolding
from .default_passes import default_passes
from .input_binding import bind_shape, bound_input_shapes, symbol_bindings
from .rewriting.pass_base import Pass
from .rewriting.pass_pipeline import run_passes
from .rewriting.pass_report import PassReport

__all__ = ["infer_afresh", "specialize", "specialize_with_report"]


def specialize(
    model: Model,
    input_shapes: Mapping[str, Sequence[int]],
    passes: Sequence[Pass] | None = None,
    *,
    check: bool = True,
    is_last: bool = False,
) -> Model:
    """Copy a model for these input shapes, with all types static as far as shapes determine them.

    ``input_shapes`` is by input name; inputs that are static already, or whose symbols the others
    determine, may be left out. The copy shares the bytes of constants; outputs keep their names and
    the model given is not changed. What depends on data (NonZero and what follows from it), and
    inputs that are left open, stay dynamic. ``passes`` replace the ones that run every round, and
    ``check`` is that of ``run_passes``. Raises TensorError for shapes that contradict the model or
    each other, naming both, and ContradictionError for a node that they make impossible. Needs onnx
    where our own type rules do not suffice. With ``is_last`` nothing else is made of the model: one
    whose types are static already is rewritten itself, or left as it is if it ``is_settled``:
    ``passes`` are then among those that have found nothing.
    """
    return specialize_with_report(model, input_shapes, passes, check=check, is_last=is_last)[0]


def specialize_with_report(
    model: Model,
    input_shapes: Mapping[str, Sequence[int]],
    passes: Sequence[Pass] | None = None,
    *,
    check: bool = True,
    is_last: bool = False,
    is_inferred: bool = False,
) -> tuple[Model, PassReport]:
    """Specialise, and return what was rewritten; ``passes`` replace the ones that run every round.

    The report's ``removed_names`` belong to ``map_to_original`` as those of any other run.
    ``is_inferred`` says of a model for no shapes in particular, of which nothing else is made, that
    its types are those which inference gives: it is rewritten itself.
    """
    chosen = default_passes() if passes is None else tuple(passes)
    bindings = symbol_bindings(model.inputs, input_shapes)
    report = PassReport()
    is_known = is_inferred or (
        is_last and has_static_types([*model.inputs, *_derived_values(model.graph)])
    )
    if is_known and model.is_settled:
        return model, report

    def infer(model: Model) -> None:
        nonlocal report
        report = report.then(_infer_and_fold(model, chosen))

    if is_known:
        special = model  # nothing is left to infer
    else:
        shapes = bound_input_shapes(model.inputs, input_shapes)
        special = model.copy()
        for value in special.graph.inputs:
            if value.name in shapes and isinstance(value.type, TensorType):
                value.type = TensorType(value.type.dtype, shapes[value.name])
        infer_afresh(special, bindings, infer)
    report = report.then(run_passes(special, chosen, check=check))
    patch_count = report.patch_count
    # A round resolves one step of shape arithmetic: a few in most models, one or two for each layer
    # where a layer's arithmetic starts from the lengths that the one before has made.
    for _ in list(special.graph.nodes):
        if not patch_count:
            break
        if not has_static_types(_derived_values(special.graph)):
            _infer(special)
        found = run_passes(special, chosen, check=check)
        report = report.then(found)
        patch_count = found.patch_count
    return special, report


def _infer(model: Model) -> None:
    if not infer_graph_types(model.graph, leaves_lengths=True):
        _infer_by_onnx(model)


def _infer_by_onnx(model: Model) -> None:
    """Ask onnx, and again for what is behind each operator of which only a user's rule tells."""
    with late_imports:
        from ..onnx_native import infer_types

    user_rule_count = sum(node.type_rule is not None for node in all_nodes(model.graph))
    for _ in range(user_rule_count + 1):
        infer_types(model)
        is_new = apply_user_rules(model.graph)
        correct_graph_types(model.graph)
        if not is_new:
            break


def _infer_and_fold(model: Model, passes: Sequence[Pass]) -> PassReport:
    """Infer by our own rules, which go on behind what folds, and by onnx where nothing folds.

    Folding is that of ``passes``.
    """
    folding = [item for item in passes if isinstance(item, ConstantFolding)]
    report = PassReport()
    while not infer_graph_types(model.graph):
        infer_told_types(model.graph)
        found = run_passes(model, folding, check=False)
        report = report.then(found)
        if not found.patch_count:
            _infer(model)
            break
    return report


def infer_afresh(
    model: Model, bindings: Mapping[str, Dim], infer: Callable[[Model], None] = _infer
) -> None:
    """Infer all types from the inputs on; what inference cannot tell stays as the file has it.

    ``infer`` infers the types of values that have none.

    ``bindings``: what symbols of the types that stay have become. Raises ContradictionError.

    That is the element type and the rank, and of what bodies promise (see ``promised_values``)
    also lengths, inside the body. Of what an operator with a rule makes, not even the rank: such
    operators may run on devices that allocate by types.
    """
    declared: dict[Value, ValueType] = {}
    for value in _derived_values(model.graph):
        if value.type is None:
            continue
        value.type = declared[value] = _bind_type(value.type, bindings)
        # Other operators have no inference: the file is all that tells what they make.
        if value.producer is None or value.producer.domain in STANDARD_DOMAINS:
            value.type = None
    infer(model)
    untold = [value for value in declared if value.type is None]
    for value in untold:
        value.type = _without_proof(value, declared[value])
    if keep_promises(model.graph, declared) or untold:
        infer(model)
        keep_promises(model.graph, declared)  # inference walks branches anew
    for value in model.graph.outputs:
        value.type = with_declared_symbols(value.type, declared.get(value))


def _without_proof(value: Value, known: ValueType) -> ValueType:
    """Return what is believed of the file's word on a value of which inference tells nothing."""
    is_ruled = value.producer is not None and find_rule(value.producer) is not None
    return TensorType(known.dtype) if is_ruled and isinstance(known, TensorType) else known


def _derived_values(graph: Graph) -> Iterator[Value]:
    """Walk what nodes make and what bodies are given: everything but inputs and constants.

    A loop's counter is not derived: it has the shape in which the body wants it.
    """
    for node in all_nodes(graph):
        yield from node.outputs
        for body in node.bodies():
            yield from body.inputs[node.op == "Loop" :]


def _bind_type(known: ValueType, bindings: Mapping[str, Dim]) -> ValueType:
    if isinstance(known, TensorType):
        if known.shape is None:
            return known
        return TensorType(known.dtype, bind_shape(known.shape, bindings))
    element = known.element and _bind_type(known.element, bindings)
    return known.with_element(element)
