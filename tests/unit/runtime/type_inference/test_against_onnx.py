"""Our types beside those that onnx infers: its own backend suite, and the benchmarks' networks.

Where our rules tell a type at all, it is onnx's or a more exact one. The two lists below say how
far the rules reach; both may only get better.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.backend.test
import pytest

from aioinfer.backends.accelerator.kernels.registry import KERNELS as ACCELERATOR_KERNELS
from aioinfer.backends.cpu.kernels.registry import KERNELS as CPU_KERNELS
from aioinfer.backends.cuda.kernels.registry import KERNELS as CUDA_KERNELS
from aioinfer.runtime.graph import Graph, Model, Node, TensorType, Value, is_static
from aioinfer.runtime.lowering.kernel_registry import KernelRegistry
from aioinfer.runtime.onnx_native import infer_types
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model
from aioinfer.runtime.passes import specialize
from aioinfer.runtime.type_inference import find_rule, infer_graph_types
from exhaustive import all_but
from unit.benchmarks.small_networks import BATCH, MODELS, SMALL, TOKENS, inputs_of

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
DATA = Path(onnx.backend.test.__file__).parent / "data"

LEAST_TYPED_MODEL_COUNT = 1319
"""Models of the suite, of 1818, whose types our rules tell. Most of the others have no rule, or
shapes that come from an input."""

UNRULED = """
ConcatFromSequence If ImageDecoder Loop NegativeLogLikelihoodLoss Optional OptionalGetElement
OptionalHasElement Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
SequenceLength SequenceMap SoftmaxCrossEntropyLoss SplitToSequence StringNormalizer StringSplit
"""
"""Operators of the newest operator set without a rule: with bodies (``branches`` has If), of
sequences, and what is rare."""

PARTS = 8
FEW = ["mobilenet_v2", "bert_base", "lstm_tagger"]


def derived_values(graph: Graph) -> Iterator[Value]:
    for node in graph.nodes:
        yield from node.outputs


def forget_types(graph: Graph) -> None:
    for value in derived_values(graph):
        value.type = None


def differences(found: Graph, expected: Graph) -> list[str]:
    """List the values whose type in the one graph is neither the other's nor a more exact one."""
    pairs = zip(derived_values(found), derived_values(expected), strict=True)
    return [
        f"{value.name}: {value.type}, onnx: {other.type}"
        for value, other in pairs
        if not is_as_exact(value, other)
    ]


def is_as_exact(value: Value, other: Value) -> bool:
    ours, theirs = value.type, other.type
    if theirs is None:
        return True
    if not isinstance(ours, TensorType) or not isinstance(theirs, TensorType):
        return False
    if ours.dtype is not theirs.dtype or ours.shape is None or theirs.shape is None:
        return ours.dtype is theirs.dtype and theirs.shape is None
    if len(ours.shape) != len(theirs.shape):
        return False
    pairs = zip(ours.shape, theirs.shape, strict=True)
    return all(a == b or b is None or (isinstance(a, int) and isinstance(b, str)) for a, b in pairs)


@functools.cache
def suite(part: int) -> tuple[int, list[str]]:
    """Read a part of onnx's suite; how many models are typed, and what onnx says otherwise."""
    files = sorted(file for kind in KINDS for file in (DATA / kind).glob("*/model.onnx"))
    count, different = 0, []
    for file in files[part::PARTS]:
        model = read_model(file)
        typed = model.copy()
        forget_types(typed.graph)
        if infer_graph_types(typed.graph):
            count += 1
            wrong = differences(typed.graph, model.graph)
            different += [f"{file.parent.name}: {text}" for text in wrong]
    return count, different


@pytest.mark.parametrize("part", all_but([0], range(PARTS)))
def test_no_type_in_the_suite_differs_from_onnx(part: int) -> None:
    assert suite(part)[1] == []


@pytest.mark.exhaustive
def test_most_of_the_suite_is_typed() -> None:
    assert sum(suite(part)[0] for part in range(PARTS)) >= LEAST_TYPED_MODEL_COUNT


def test_operators_without_a_rule_are_listed() -> None:
    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.domain]
    names = {schema.name for schema in schemas if not schema.deprecated}
    nodes = [Node(name, (), (), name="node") for name in names]
    assert {node.op_type for node in nodes if find_rule(node) is None} == set(UNRULED.split())


@pytest.mark.parametrize("kernels", [CPU_KERNELS, ACCELERATOR_KERNELS, CUDA_KERNELS])
def test_what_has_a_kernel_that_believes_types_has_a_rule(kernels: KernelRegistry[Any]) -> None:
    nodes = [
        Node(op_type, (), (), name="node") for domain, op_type in kernels.kernels if not domain
    ]
    assert nodes
    assert [node.op_type for node in nodes if find_rule(node) is None] == []


def static_network(name: str) -> Model:
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    return read_any_model(SMALL[name](batch=BATCH, **sequence))


def symbolic_network(name: str) -> Model:
    """Read a network that does not say which symbols its outputs have: that is no inference's."""
    proto = SMALL[name](**{dim: dim for dim in MODELS[name].dynamic})
    for info in proto.graph.output:
        info.type.tensor_type.ClearField("shape")
    return read_any_model(proto)


@pytest.mark.parametrize("name", all_but(FEW, SMALL))
def test_a_static_network_is_typed_as_onnx_does(name: str) -> None:
    model = static_network(name)
    typed = model.copy()
    forget_types(typed.graph)
    assert infer_graph_types(typed.graph)
    assert differences(typed.graph, model.graph) == []
    assert all(is_static(value.type.shape) for value in derived_values(typed.graph))


@pytest.mark.parametrize("name", all_but(FEW, SMALL))
def test_a_symbolic_network_is_typed_as_onnx_does(name: str) -> None:
    model = symbolic_network(name)
    typed = model.copy()
    forget_types(typed.graph)
    assert infer_graph_types(typed.graph)
    assert differences(typed.graph, model.graph) == []


@pytest.mark.parametrize("name", all_but(FEW, SMALL))
def test_a_specialised_network_is_typed_as_onnx_does(name: str) -> None:
    shapes = {key: array.shape for key, array in inputs_of(name).items()}
    model = specialize(symbolic_network(name), shapes)
    typed = model.copy()
    forget_types(model.graph)
    infer_types(model)
    forget_types(typed.graph)
    assert infer_graph_types(typed.graph)
    found = [value.type for value in derived_values(typed.graph)]
    assert found == [value.type for value in derived_values(model.graph)]
    assert all(is_static(value.type.shape) for value in derived_values(typed.graph))


@pytest.mark.parametrize("name", all_but(FEW, SMALL))
def test_a_symbolic_network_is_typed_for_the_shapes_at_hand(name: str) -> None:
    model = symbolic_network(name)
    for value in model.graph.inputs:
        value.type = TensorType(value.type.dtype, inputs_of(name)[value.name].shape)
    forget_types(model.graph)
    assert infer_graph_types(model.graph)
    assert all(is_static(value.type.shape) for value in derived_values(model.graph))
