"""What prepares the input of Conv, Gemm or MatMul: CPU gives what REFERENCE gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer.backends.cpu.passes import shared_passes
from aioinfer.runtime.passes import default_passes, run_passes
from exhaustive import drawn
from unit.backends.cpu.comparing import assert_same_as_reference, model_of

EXAMPLES = settings(max_examples=drawn(80), derandomize=True)
FOLDS = ("batch normalization folding", "scale shift folding")


def drawn(shape, seed) -> np.ndarray:
    """Numbers away from zero, to divide by."""
    numbers = np.random.default_rng(seed).uniform(0.5, 2.0, shape)
    return (numbers * np.random.default_rng(seed + 1).choice([-1, 1], shape)).astype(np.float32)


def steps_of(kinds, shape, axis):
    """A chain of steps from ``x`` to ``v``, and their constants."""
    nodes, constants, last = [], {}, "x"
    count = shape[axis]
    along = (count, *[1] * (len(shape) - axis - 1))
    for index, (op, form) in enumerate(kinds):
        name = "v" if index == len(kinds) - 1 else f"v{index}"
        if op == "BatchNormalization":
            given = [f"{index}{part}" for part in "sbmv"]
            for place, item in enumerate(given):
                constants[item] = np.abs(drawn((count,), 10 * index + place))
            nodes.append(helper.make_node(op, [last, *given], [name]))
        else:
            dims = {"number": (), "one": (1,), "channels": along, "whole": (1,) * axis + along}
            is_plane = form == "plane"
            constants[f"{index}c"] = drawn(shape if is_plane else dims[form], 10 * index)
            operands = [last, f"{index}c"]
            is_left = op.startswith("reversed")
            nodes.append(
                helper.make_node(op.split()[-1], operands[::-1] if is_left else operands, [name])
            )
        last = name
    return nodes, constants


def prepared(kinds, op, attributes, groups, rank):
    """A model: x, its steps, and an operator with constant weights behind them."""
    shape = {"Conv": (2, 2 * groups, *[6] * rank), "Gemm": (5, 6), "MatMul": (2, 5, 6)}[op]
    axis = 1 if op != "MatMul" else 2
    kinds = [(name, form) for name, form in kinds if name != "BatchNormalization" or axis == 1]
    nodes, constants = steps_of(kinds or [("Mul", "number")], shape, axis)
    weights = (3 * groups, 2, *[3] * rank) if op == "Conv" else (6, 4)
    constants.update(w=drawn(weights, 77), b=drawn(weights[:1] if op == "Conv" else (4,), 78))
    given = ["v", "w"] if op == "MatMul" else ["v", "w", "b"]
    nodes.append(helper.make_node(op, given, ["y"], **attributes))
    inputs = {"x": drawn(shape, 99)}
    return model_of(nodes, inputs, constants=constants), inputs


@st.composite
def cases(draw):
    op = draw(st.sampled_from(["Conv", "Conv", "Gemm", "MatMul"]))
    rank, groups, attributes = draw(st.integers(1, 2)), 1, {}
    if op == "Conv":
        groups = draw(st.sampled_from([1, 1, 3]))
        pads = draw(st.sampled_from([None, [0] * 2 * rank, [1, 0] * rank]))
        attributes = {"group": groups, **({} if pads is None else {"pads": pads})}
        attributes |= {"strides": [draw(st.integers(1, 2))] * rank}
        if draw(st.integers(0, 4)) == 0:
            attributes.pop("pads", None)
            attributes["auto_pad"] = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    if op == "Gemm":
        attributes = {"alpha": draw(st.sampled_from([1.0, 0.5])), "beta": 2.0}
    ops = ["Mul", "Div", "Add", "Sub", "reversed Sub", "reversed Mul", "BatchNormalization"]
    forms = ["number", "one", "channels", "channels", "whole", "plane"]
    step = st.tuples(st.sampled_from(ops), st.sampled_from(forms))
    return draw(st.lists(step, min_size=1, max_size=3)), op, attributes, groups, rank


@EXAMPLES
@given(cases())
def test_any_prepared_input_equals_reference(core, case) -> None:
    assert_same_as_reference(core, *prepared(*case))


@pytest.mark.parametrize("form", ["number", "channels", "whole"])
@pytest.mark.parametrize("groups", [1, 3])
def test_normalised_images_are_convolved_in_one_node(core, form, groups) -> None:
    kinds = [("Sub", form), ("Div", form), ("BatchNormalization", "")]
    model, inputs = prepared(kinds, "Conv", {"group": groups}, groups, 2)
    read = core.read_model(model).copy()
    run_passes(read, (*default_passes(), *shared_passes()))
    assert [node.op_type for node in read.graph.nodes] == ["Conv"]
    assert_same_as_reference(core, model, inputs)
    apart = core.read_model(model).copy()
    run_passes(apart, (*default_passes(), *shared_passes(FOLDS)))
    assert [node.op_type for node in apart.graph.nodes] == [
        *["Sub", "Div", "BatchNormalization", "Conv"]
    ]
    assert_same_as_reference(core, model, inputs, CPU_DISABLED_PASSES=list(FOLDS))


def test_zeros_around_an_image_are_not_shifted(core) -> None:
    attributes = {"pads": [1, 1, 1, 1]}
    model, inputs = prepared([("Sub", "channels"), ("Div", "channels")], "Conv", attributes, 1, 2)
    read = core.read_model(model).copy()
    run_passes(read, (*default_passes(), *shared_passes()))
    assert [node.op_type for node in read.graph.nodes] == ["Sub", "Conv"]
    assert_same_as_reference(core, model, inputs)
