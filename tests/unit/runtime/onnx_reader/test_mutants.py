"""Small models of every family with something missing, too much or of another kind.

Each mutant ends in an answer or in an error of ours, on every device, and never in any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.errors import AioInferError

DEVICES = ("CPU", "REFERENCE", "HETERO:CPU,REFERENCE")
MUTANTS_A_TEST = 20  # of each family on each device, other ones on each: a second or two
LEAST_MUTANTS = 1000
FLOATS = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return FLOATS.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def node(op_type: str, *constants: np.ndarray | str, outputs: int = 1, **attributes: Any) -> Any:
    """Give an operator on x and these constants; a text is the name of a value, or no input."""
    return op_type, constants, outputs, attributes


FAMILIES: dict[str, tuple[tuple[int, ...], list[Any]]] = {
    "convolutions": (
        (1, 4, 6, 6),
        [
            node("Conv", floats(4, 4, 3, 3), floats(4), pads=[1, 1, 1, 1], strides=[1, 1]),
            node("Relu"),
            node("ConvTranspose", floats(4, 4, 2, 2), strides=[2, 2]),
            node("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
            node("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            node("GlobalAveragePool"),
            node("Flatten", axis=1),
        ],
    ),
    "normalizations": (
        (2, 4, 6),
        [
            node("BatchNormalization", floats(4), floats(4), floats(4), np.ones(4, np.float32)),
            node("InstanceNormalization", floats(4), floats(4)),
            node("LayerNormalization", floats(6), floats(6), axis=-1),
            node("GroupNormalization", floats(4), floats(4), num_groups=2),
            node("LRN", size=3),
            node("LpNormalization", axis=1),
            node("Softmax", axis=1),
        ],
    ),
    "products": (
        (4, 8),
        [
            node("MatMul", floats(8, 6)),
            node("Gemm", floats(6, 8), floats(8), transB=0),
            node("Einsum", floats(8, 3), equation="ij,jk->ik"),
        ],
    ),
    "elementwise": (
        (2, 3, 4),
        [
            node("Add", floats(4)),
            node("LeakyRelu", alpha=0.1),
            node("Clip", np.float32(-1), np.float32(1)),
            node("Max", floats(3, 1)),
            node("Pow", np.float32(2)),
            node("Cast", to=TensorProto.DOUBLE),
            node("Cast", to=TensorProto.FLOAT),
            node("Gelu", approximate="tanh"),
        ],
    ),
    "movement": (
        (2, 4, 4),
        [
            node("Transpose", perm=[1, 0, 2]),
            node("Reshape", ints(0, -1)),
            node("Slice", ints(0), ints(3), ints(0), ints(1)),
            node("Gather", ints(0, 2), axis=0),
            node("Concat", floats(2, 8), axis=0),
            node("Pad", ints(0, 1, 1, 0), np.float32(1), mode="constant"),
            node("Tile", ints(1, 2)),
            node("Expand", ints(2, 1, 1)),
            node("Unsqueeze", ints(0)),
            node("Squeeze", ints(0)),
        ],
    ),
    "choices": (
        (3, 4),
        [
            node("TopK", ints(2), outputs=2, axis=1),
            node("GatherElements", np.zeros((3, 2), np.int64), axis=1),
            node("ScatterND", np.array([[0]], np.int64), floats(1, 2)),
            node("CumSum", np.array(1, np.int64), exclusive=1),
            node("Trilu", np.array(0, np.int64), upper=1),
            node("Split", ints(1, 2), outputs=2, axis=0),
        ],
    ),
    "reductions": (
        (2, 3, 4),
        [
            node("ReduceMean", ints(1), keepdims=1),
            node("ReduceSum", ints(-1), keepdims=1, noop_with_empty_axes=0),
            node("ArgMax", axis=0, keepdims=1),
            node("Cast", to=TensorProto.FLOAT),
        ],
    ),
    "sampling": (
        (1, 4, 4, 4),
        [
            node("Resize", "", np.array([1, 1, 2, 2], np.float32), mode="nearest"),
            node("DepthToSpace", blocksize=2, mode="DCR"),
            node("SpaceToDepth", blocksize=2),
        ],
    ),
    "quantization": (
        (2, 4),
        [
            node("QuantizeLinear", np.float32(0.1), np.uint8(128), axis=1),
            node("DequantizeLinear", np.float32(0.1), np.uint8(128), axis=1),
        ],
    ),
    "recurrent": (
        (3, 2, 4),
        [
            node("LSTM", floats(1, 12, 4), floats(1, 12, 3), floats(1, 24), hidden_size=3),
            node("Squeeze", ints(1)),
            node("GRU", floats(1, 6, 3), floats(1, 6, 2), hidden_size=2),
            node("Squeeze", ints(1)),
            node("RNN", floats(1, 2, 2), floats(1, 2, 2), hidden_size=2),
        ],
    ),
}


def proto(shape: tuple[int, ...], chain: list[Any]) -> onnx.ModelProto:
    """Make a model of a chain of nodes, each on the first output of the one before."""
    nodes, constants, last = [], [], "x"
    for index, (op_type, given, output_count, attributes) in enumerate(chain):
        inputs = [last]
        for place, constant in enumerate(given):
            name = f"c{index}_{place}"
            if isinstance(constant, str):
                inputs.append(constant)
                continue
            constants.append(numpy_helper.from_array(np.asarray(constant), name))
            inputs.append(name)
        outputs = [f"t{index}_{place}" for place in range(output_count)]
        nodes.append(helper.make_node(op_type, inputs, outputs, name=f"n{index}", **attributes))
        last = outputs[0]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes, "mutant", [x], [helper.make_empty_tensor_value_info(last)], constants
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def loop_proto() -> onnx.ModelProto:
    """Make a model of a loop, a branch and a scan, each with bodies."""
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x) => (float[3] y) <int64 trip = {2}, bool go = {1}, float zero = {0}> {
            [loop] s, all = Loop (trip, go, x) <body = b (int64 i, bool c, float[3] a)
                => (bool d, float[3] e, float[3] f) { d = Identity(c) e = Add(a, x) f = Neg(e) }>
            [if] t = If (go) <then_branch = t () => (float[3] o) { o = Relu(s) },
                              else_branch = e () => (float[3] p) { p = Neg(s) }>
            [scan] u, y = Scan <num_scan_inputs = 1, body = q (float a, float b)
                => (float c, float d) { c = Add(a, b) d = Identity(c) }> (zero, t)
        }""")


def all_nodes(graph: onnx.GraphProto) -> Iterator[NodeProto]:
    for found in graph.node:
        yield found
        for attribute in found.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


Change = Callable[[onnx.ModelProto], None]


def changes(model: onnx.ModelProto) -> Iterator[tuple[str, Change]]:
    """Give what is to be done to a copy of a model, one thing at a time, with its name."""
    for number, found in enumerate(all_nodes(model.graph)):

        def at(change: Callable[[NodeProto], Any], number: int = number) -> Change:
            return lambda copied: change([*all_nodes(copied.graph)][number]) and None

        def pop(found: NodeProto, index: int) -> None:
            del found.input[index]

        def empty(found: NodeProto, index: int) -> None:
            found.input[index] = ""

        what = f"{found.op_type} {number}"
        for index in range(len(found.input)):
            yield f"{what} without input {index}", at(lambda n, i=index: pop(n, i))
            yield f"{what} with no input {index}", at(lambda n, i=index: empty(n, i))
        yield f"{what} with one more input", at(lambda n: n.input.append("x"))
        yield f"{what} without outputs", at(lambda n: n.ClearField("output"))
        yield f"{what} with one more output", at(lambda n: n.output.append("surplus"))
        yield f"{what} with an unknown attribute", at(lambda n: n.attribute.add(name="q", type=2))
        for index, attribute in enumerate(found.attribute):
            place = f"{what} {attribute.name}"
            for name, change in attribute_changes(attribute):

                def alter(
                    found: NodeProto,
                    index: int = index,
                    change: Callable[[AttributeProto], Any] | None = change,
                ) -> None:
                    if change is None:
                        del found.attribute[index]
                    else:
                        change(found.attribute[index])

                yield f"{place} {name}", at(alter)
    for index, tensor in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        for name, other in tensor_changes(array):
            made = numpy_helper.from_array(np.ascontiguousarray(other), tensor.name)
            yield (
                f"constant {tensor.name} {name}",
                lambda copied, i=index, made=made: copied.graph.initializer[i].CopyFrom(made),
            )


def attribute_changes(
    attribute: AttributeProto,
) -> Iterator[tuple[str, Callable[[AttributeProto], Any] | None]]:
    def become(value: Any) -> Callable[[AttributeProto], Any]:
        made = helper.make_attribute(attribute.name, value)
        return lambda target: target.CopyFrom(made)

    yield "left out", None
    for value in (3, -1, 2**40, 0.5, "text", [1], [-7, 9, 3], [0.5], 0, [0, 0]):
        yield f"= {value!r}", become(value)


def tensor_changes(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield "empty", array.reshape(-1)[:0]
    yield "a scalar", array.reshape(-1)[0]
    yield "flat and longer", np.concatenate([array.reshape(-1)] * 2)
    yield "of one more axis", array[None]
    yield "of integers", array.astype(np.int32)
    yield "large", np.full_like(array, 100)
    yield "negative", (-1 - np.abs(array.astype(np.int16))).astype(array.dtype)


def models() -> dict[str, onnx.ModelProto]:
    return {
        **{name: proto(*family) for name, family in FAMILIES.items()},
        "control flow": loop_proto(),
    }


MODELS = models()


def test_there_are_mutants_enough_and_the_models_are_right() -> None:
    assert sum(1 for model in MODELS.values() for _ in changes(model)) > LEAST_MUTANTS
    with aioinfer.Core() as core:
        for model in MODELS.values():
            core.load_network(model, "REFERENCE").close()


def _sample(model: onnx.ModelProto, device: str) -> list[tuple[str, Change]]:
    """Take every n-th change, for each device from another one on."""
    everything = list(changes(model))
    step = max(1, len(everything) // MUTANTS_A_TEST)
    return everything[DEVICES.index(device) * step // len(DEVICES) :: step]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", MODELS)
def test_a_mutant_is_computed_or_refused_by_an_error_of_ours(family: str, device: str) -> None:
    model = MODELS[family]
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = FLOATS.standard_normal(shape).astype(np.float32)
    wrong: list[str] = []
    with aioinfer.Core() as core:
        reason = core.why_missing(device.partition(":")[0])
        if reason is not None:
            pytest.skip(reason)
        for name, change in _sample(model, device):
            mutant = onnx.ModelProto()
            mutant.CopyFrom(model)
            change(mutant)
            try:
                with core.load_network(mutant.SerializeToString(), device) as network:
                    network.create_infer_request().infer_sync(x, deadline_s=20.0)
            except AioInferError:
                pass
            except Exception as error:
                wrong.append(f"{name}: {error!r}")
    assert not wrong, "\n".join(wrong)
