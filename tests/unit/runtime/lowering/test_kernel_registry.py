"""What a registry of kernels takes, what it refuses and why, and what it lowers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioinfer.errors import DeviceError, GraphError, ModelError, UnsupportedOpError
from aioinfer.runtime.graph import DType, Graph, Model, Node, SequenceType, TensorType, Value
from aioinfer.runtime.lowering.kernel_registry import KernelRegistry
from aioinfer.runtime.lowering.node_operands import Lowering

FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16})
X = TensorType(DType.FLOAT32, (2, 3))


class Notes(Lowering):
    """A builder that notes what kernels have lowered."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(Model(graph, {"": 21}), "TOY.1", DType.FLOAT32)
        self.lowered: list[str] = []

    def define_constant(self, value: Value, array: np.ndarray[Any, Any]) -> None:
        raise AssertionError("no kernel here makes constants")


def note(node: Node, builder: Notes) -> None:
    builder.lowered.append(node.name)


def registry_of(**options: Any) -> KernelRegistry[Notes]:
    registry: KernelRegistry[Notes] = KernelRegistry("TOY", "no_package", {}, FLOATS)
    registry.kernel("ConvTranspose", "Relu", "Reshape", "Resize", **options)(note)
    return registry


def node_of(
    op_type: str = "Relu", kind: Any = X, *inputs: Value, domain: str = "", name: str = "n"
) -> Node:
    return Node(op_type, [Value("x", kind), *inputs], [Value("y")], name=name, domain=domain)


def graph_of(*nodes: Node) -> Graph:
    inputs = [value for node in nodes for value in node.inputs if value is not None]
    graph = Graph("g", list(dict.fromkeys(inputs)), [nodes[-1].outputs[0]])
    for node in nodes:
        graph.append(node)
    return graph


def test_what_no_kernel_counts_to_is_refused_before_it_is_loaded() -> None:
    """Another device of HETERO may count further."""
    registry, node = registry_of(), node_of()
    node.attributes["strides"] = [1 << 62]
    assert "strides is [4611686018427387904]" in str(registry.find_unsupported(node))


def test_both_names_of_the_standard_domain_are_one() -> None:
    registry = registry_of()
    found = registry.find_kernel(node_of())
    assert found is not None
    assert registry.find_kernel(node_of(domain="ai.onnx")) is found
    assert registry.find_kernel(node_of(domain="com.example")) is None


def test_a_domain_of_the_device_has_kernels_of_its_own() -> None:
    registry = registry_of(domain="toy")
    assert registry.find_kernel(node_of(domain="toy")) is not None
    assert registry.find_refusal(node_of()) == "TOY has no kernel for Relu"


@pytest.mark.parametrize(
    ("options", "kind", "reason"),
    [
        ({}, X, None),
        ({}, None, "the element type of 'x' is unknown"),
        ({}, TensorType(DType.INT8, None), "TOY has Relu for float16, float32, not for int8"),
        ({"dtypes": {DType.INT8}}, X, "TOY has Relu for int8, not for float32"),
        ({"dtypes": None}, TensorType(DType.INT8, None), None),
        ({"dtypes": None}, TensorType(DType.STRING, None), "TOY takes elements of 1 to 8 bytes"),
        ({"dtypes": None}, SequenceType(X), "TOY takes tensors only"),
        ({"refuses": lambda node: f"not {node.name}"}, X, "not n"),
    ],
)
def test_refusals(options: dict[str, Any], kind: Any, reason: str | None) -> None:
    found = registry_of(**options).find_refusal(node_of("Relu", kind))
    assert found is None if reason is None else reason in str(found)


def test_what_a_result_is_counts_as_well() -> None:
    node = node_of()
    node.outputs[0].type = TensorType(DType.STRING, None)
    assert "'y' is string" in str(registry_of(dtypes=None).find_refusal(node))


def test_a_shape_that_a_rule_tells_since_its_input_is_known_is_no_refusal() -> None:
    node = node_of()
    node.outputs[0].type = TensorType(DType.FLOAT32, (None, None))
    assert registry_of().find_refusal(node) is None


@pytest.mark.parametrize("shape", [None, (2, None), ("n",)])
def test_a_result_whose_shape_no_rule_tells_is_refused(shape: Any) -> None:
    node = node_of("Reshape", X, Value("s", TensorType(DType.INT64, (2,))))
    node.outputs[0].type = TensorType(DType.FLOAT32, shape)
    assert "leave open which shape 'y' has" in str(registry_of().find_refusal(node))
    assert registry_of(constant_inputs=(1,)).find_refusal(node) is None
    node = node_of("Relu", TensorType(DType.FLOAT32, ("n", 3)))
    node.outputs[0].type = TensorType(DType.FLOAT32, shape)
    assert registry_of().find_refusal(node) is None


def transposed(kind: TensorType, *more: Value, **attributes: Any) -> Node:
    inputs = [Value("x", kind), Value("w", TensorType(DType.FLOAT32, (4, 3, 2, 2))), *more]
    node = Node("ConvTranspose", inputs, [Value("y")], attributes, name="up")
    node.outputs[0].type = TensorType(DType.FLOAT32, (None, None, None, None))
    return node


@pytest.mark.parametrize("batch", [1, "n", None])
def test_attributes_that_leave_a_shape_open_are_named_whatever_lengths_a_run_brings(
    batch: Any,
) -> None:
    kind = TensorType(DType.FLOAT32, (batch, 4, 9, 8))
    node = transposed(kind, strides=[4, 4], auto_pad="SAME_UPPER")
    assert registry_of().find_refusal(node) == (
        "its attributes (auto_pad, strides) leave open which shape 'y' has"
    )
    assert registry_of().find_refusal(transposed(kind, strides=[4, 4])) is None


@pytest.mark.parametrize("bias", [(3,), ("m",), (None,)])
@pytest.mark.parametrize("batch", [1, "n"])
def test_a_bias_that_is_an_input_tells_no_shape(batch: Any, bias: Any) -> None:
    kind = TensorType(DType.FLOAT32, (batch, 4, 9, 8))
    given = Value("b", TensorType(DType.FLOAT32, bias))
    node = transposed(kind, given, strides=[4, 4], auto_pad="SAME_UPPER")
    assert "leave open which shape 'y' has" in str(registry_of().find_refusal(node))
    assert registry_of().find_refusal(transposed(kind, given, strides=[4, 4])) is None


@pytest.mark.parametrize("given", [DType.INT64, DType.FLOAT32])
def test_a_vector_that_may_tell_the_shape_is_no_reason(given: DType) -> None:
    """Reshape is told lengths, Resize factors; how many there are may be known or not."""
    for op_type, index in (("Reshape", 1), ("Resize", 2)):
        for length in (2, "k"):
            inputs: list[Value | None] = [Value("x", TensorType(DType.FLOAT32, ("n", 3)))]
            inputs += [None] * (index - 1)
            inputs.append(Value("told", TensorType(given, (length,))))
            node = Node(op_type, inputs, [Value("y")], name="n")
            node.outputs[0].type = TensorType(DType.FLOAT32, (None, None))
            assert registry_of().find_refusal(node) is None


def test_an_output_that_attributes_leave_open_is_refused_when_its_plan_is_made() -> None:
    node = transposed(
        TensorType(DType.FLOAT32, (1, 4, 9, 8)), strides=[4, 4], auto_pad="SAME_LOWER"
    )
    graph = graph_of(node)
    with pytest.raises(UnsupportedOpError, match="leave open which shape 'y' has") as raised:
        registry_of().refuse_open_outputs(graph, "TOY.1")
    assert (raised.value.node, raised.value.device) == ("up", "TOY.1")
    node.outputs[0].type = TensorType(DType.FLOAT32, (1, 3, 36, 32))
    registry_of().refuse_open_outputs(graph, "TOY.1")


def test_lengths_of_a_run_that_may_contradict_each_other_are_no_refusal() -> None:
    node = transposed(TensorType(DType.FLOAT32, (1, "c", 9, 8)))
    assert registry_of().find_refusal(node) is None


def test_an_input_that_has_to_be_known_is_named() -> None:
    registry = registry_of(dtypes=None, constant_inputs=(1,))
    few, many = TensorType(DType.INT64, (2,)), TensorType(DType.INT64, (1000,))
    asked = node_of("Reshape", X, Value("shape", few))
    assert registry.find_unsupported(asked) is None
    assert registry.shape_tensors(graph_of(asked)) == ["shape"]
    refused = node_of("Reshape", X, Value("shape", many))
    assert registry.find_refusal(refused) is None
    assert "'shape'" in str(registry.find_unsupported(refused))
    assert registry.find_unknown(refused, of_a_piece=True) is None


def test_a_graph_is_asked_about_as_a_whole() -> None:
    registry = registry_of(dtypes=None, constant_inputs=(1,))
    many = TensorType(DType.INT64, (1000,))

    def reshape() -> Node:
        return node_of("Reshape", X, Value("shape", many), name="reshape")

    graph = graph_of(node_of(), reshape(), node_of("Det", X, name="det"))
    assert list(registry.unsupported_nodes(graph)) == ["reshape", "det"]
    with pytest.raises(UnsupportedOpError, match=r"TOY\.0 cannot run Det .*'det'"):
        registry.refuse_unsupported(graph, "TOY.0")
    registry.refuse_unsupported(graph_of(node_of(), reshape()), "TOY.0")


def test_a_node_is_lowered_by_its_kernel_or_refused() -> None:
    registry, node = registry_of(), node_of(name="relu")
    builder = Notes(graph_of(node))
    registry.lower(node, builder)
    assert builder.lowered == ["relu"]
    with pytest.raises(UnsupportedOpError, match=r"TOY\.1 cannot run Det .*no kernel for Det"):
        registry.lower(node_of("Det"), builder)
    with pytest.raises(UnsupportedOpError, match="not for int8"):
        registry.lower(node_of("Relu", TensorType(DType.INT8, None)), builder)


def test_a_family_is_imported_by_the_first_question_about_an_operator_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("", ".registry", ".activations", ".sums"):
        monkeypatch.delitem(sys.modules, f"toy_kernels{name}", raising=False)
    package = tmp_path / "toy_kernels"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "registry.py").write_text(
        "from aioinfer.runtime.lowering.kernel_registry import KernelRegistry\n"
        "families = {'activations': 'Relu Elu', 'sums': 'Add'}\n"
        "KERNELS = KernelRegistry('TOY', __package__, families, ())\n"
    )
    (package / "sums.py").write_text(
        "from .registry import KERNELS\nKERNELS.kernel('Add')(print)\n"
    )
    (package / "activations.py").write_text(
        "from .registry import KERNELS\nKERNELS.kernel('Relu', dtypes=None)(print)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from toy_kernels.registry import KERNELS

    assert "toy_kernels.activations" not in sys.modules
    assert KERNELS.find_refusal(node_of()) is None
    assert "toy_kernels.sums" not in sys.modules
    assert KERNELS.kernels.keys() == {("", "Relu"), ("", "Add")}


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (
            IndexError("tuple index"),
            GraphError,
            r"Relu \(node 'n'\) on \('x' float32\[2,3\]\) for",
        ),
        (AssertionError(), GraphError, "failed with AssertionError: no reason given"),
        (MemoryError("1 GiB"), DeviceError, r"node 'n'.*there is not enough memory \(1 GiB\)"),
        (RecursionError(), ModelError, "too deep"),
    ],
)
def test_what_a_kernel_raises_becomes_an_error_that_names_the_node(
    raised: Exception, kind: type[Exception], text: str
) -> None:
    def stumble(node: Node, _builder: Notes) -> None:
        raise raised

    registry: KernelRegistry[Notes] = KernelRegistry("TOY", "no_package", {}, FLOATS)
    registry.kernel("Relu")(stumble)
    node = node_of()
    with pytest.raises(kind, match=text) as caught:
        registry.lower(node, Notes(graph_of(node)))
    assert caught.value.__cause__ is raised


def test_an_error_of_ours_passes_a_kernel_as_it_is() -> None:
    refusal = UnsupportedOpError("n", "Relu", "TOY.1", "it is Monday")

    def refuse(_node: Node, _builder: Notes) -> None:
        raise refusal

    registry: KernelRegistry[Notes] = KernelRegistry("TOY", "no_package", {}, FLOATS)
    registry.kernel("Relu")(refuse)
    node = node_of()
    with pytest.raises(UnsupportedOpError) as caught:
        registry.lower(node, Notes(graph_of(node)))
    assert caught.value is refusal


def test_a_kernel_that_cannot_judge_a_node_names_it() -> None:
    def stumble(node: Node) -> str | None:
        return str(node.attributes["axis"])

    with pytest.raises(GraphError, match=r"Relu \(node 'n'\).*KeyError: 'axis'"):
        registry_of(refuses=stumble).find_unsupported(node_of())
