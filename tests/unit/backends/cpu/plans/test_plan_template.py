"""Plans by template: the same as plans that are built for their lengths alone, and as right."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.backends.cpu.compiler import MOST_TEMPLATES, Compiler
from aioinfer.backends.cpu.executable_network import CpuNetwork
from aioinfer.backends.cpu.kernels.registry import KERNELS
from aioinfer.backends.cpu.kernels.windows import convolution_primitives
from aioinfer.backends.cpu.onednn.traced import TracedDesc, TracedPrimitiveDesc
from aioinfer.backends.cpu.onednn.traced_engine import TracedEngine
from aioinfer.backends.cpu.plans.operand_layout import Operand
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.plans.steps import NativeStep, PrimitiveStep
from aioinfer.errors import AioInferError, DeviceError, TensorError
from aioinfer.runtime import onnx_native
from aioinfer.runtime.graph.sym_array import SymArray
from aioinfer.runtime.graph.sym_int import ClosedTrace
from unit.backends.cpu.compiled_plans import BoundPlan, compiler_of, constants_of

node = helper.make_node
RNG = np.random.default_rng(7)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Shapes = Mapping[str, tuple[int, ...]]


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def model_of(
    nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], constants: dict[str, np.ndarray]
) -> Any:
    """Make a model of open lengths whose output is ``y``."""
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def perceptron() -> Any:
    nodes = [
        node("Gemm", ["x", "w", "b"], ["h"], "first"),
        node("Relu", ["h"], ["r"], "relu"),
        node("MatMul", ["r", "v"], ["m"], "second"),
        node("Softmax", ["m"], ["y"], "softmax"),
    ]
    constants = {"w": weights(24, 40), "b": weights(40), "v": weights(40, 7)}
    return model_of(nodes, {"x": (FLOAT, ["n", 24])}, constants)


def convolutions() -> Any:
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"], "relu"),
        node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "v"], ["d"], "next", auto_pad="SAME_UPPER"),
        node("Add", ["d", "p"], ["a"], "add"),
        node("GlobalAveragePool", ["a"], ["g"], "mean"),
        node("Flatten", ["g"], ["y"], "flatten"),
    ]
    constants = {"w": weights(16, 3, 3, 3), "v": weights(16, 16, 3, 3)}
    return model_of(nodes, {"x": (FLOAT, ["n", 3, "h", "w"])}, constants)


def attention() -> Any:
    """A layer as PyTorch exports it: shapes computed, a table sliced, a mask made of lengths."""
    nodes = [
        node("Shape", ["i"], ["s"], "shape"),
        node("Gather", ["s", "zero"], ["n"], "batch", axis=0),
        node("Gather", ["s", "one"], ["l"], "length", axis=0),
        node("Unsqueeze", ["n", "first"], ["n1"], "n1"),
        node("Unsqueeze", ["l", "first"], ["l1"], "l1"),
        node("Gather", ["table", "i"], ["words"], "words"),
        node("Slice", ["places", "first", "l1", "second"], ["ids"], "places of it"),
        node("Gather", ["position", "ids"], ["where"], "positions"),
        node("Add", ["words", "where"], ["e"], "embed"),
        node("Concat", ["n1", "l1", "four", "minus"], ["split"], "to heads", axis=0),
        *(node("MatMul", ["e", f"w{k}"], [f"{k}0"], f"{k}0") for k in "qkv"),
        *(node("Reshape", [f"{k}0", "split"], [f"{k}1"], f"{k}1") for k in "qkv"),
        node("Transpose", ["q1"], ["q"], "q", perm=[0, 2, 1, 3]),
        node("Transpose", ["k1"], ["k"], "k", perm=[0, 2, 3, 1]),
        node("Transpose", ["v1"], ["v"], "v", perm=[0, 2, 1, 3]),
        node("MatMul", ["q", "k"], ["scores"], "scores"),
        node("Concat", ["l1", "l1"], ["square"], "square", axis=0),
        node(
            "ConstantOfShape",
            ["square"],
            ["ones"],
            "ones",
            value=numpy_helper.from_array(np.array([-9.0], np.float32)),
        ),
        node("Trilu", ["ones", "one"], ["later"], "later", upper=1),
        node("Add", ["scores", "later"], ["masked"], "mask"),
        node("Softmax", ["masked"], ["p"], "softmax", axis=-1),
        node("MatMul", ["p", "v"], ["c"], "context"),
        node("Transpose", ["c"], ["t"], "back", perm=[0, 2, 1, 3]),
        node("Concat", ["n1", "l1", "width"], ["joined"], "from heads", axis=0),
        node("Reshape", ["t", "joined"], ["y"], "out"),
    ]
    constants = {
        "zero": np.array(0), "one": np.array(1), "first": integers(0), "second": integers(1),
        "four": integers(4), "minus": integers(-1), "width": integers(32),
        "table": weights(50, 32), "position": weights(64, 32), "places": np.arange(64)[None],
        **{f"w{k}": weights(32, 32) for k in "qkv"},
    }  # fmt: skip
    return model_of(nodes, {"i": (INT64, ["n", "l"])}, constants)


def rows() -> Any:
    """What native kernels compute: norms, reductions, broadcasts, joins and cuts."""
    nodes = [
        node("LayerNormalization", ["x", "scale", "shift"], ["m"], "norm"),
        node("ReduceMean", ["m"], ["r"], "mean", axes=[1], keepdims=1),
        node("Sub", ["m", "r"], ["d"], "centre"),
        node("Concat", ["d", "x"], ["c"], "join", axis=1),
        node("Split", ["c"], ["a", "b"], "cut", axis=2),
        node("Mul", ["a", "b"], ["p"], "gate"),
        node("Tanh", ["p"], ["t"], "tanh"),
        node("Pad", ["t", "pads"], ["q"], "pad"),
        node("Transpose", ["q"], ["y"], "turn", perm=[1, 0, 2]),
    ]
    constants = {"scale": weights(8), "shift": weights(8), "pads": integers(0, 1, 0, 0, 2, 0)}
    return model_of(nodes, {"x": (FLOAT, ["n", "l", 8])}, constants)


MODELS = {
    "perceptron": (perceptron, [(1,), (3,), (8,), (300,)]),
    "convolutions": (convolutions, [(1, 8, 8), (2, 9, 12), (5, 16, 10), (3, 11, 30)]),
    "attention": (attention, [(1, 5), (2, 9), (3, 33), (4, 12), (2, 60)]),
    "rows": (rows, [(1, 1), (2, 3), (4, 9), (3, 20)]),
}


def shapes_of(compiler: Compiler, lengths: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    free: dict[str, int] = {}
    given = iter(lengths)
    found = {}
    for value in compiler._model.inputs:
        dims: Any = value.type.shape  # type: ignore[union-attr]
        for dim in dims:
            if isinstance(dim, str) and dim not in free:
                free[dim] = next(given)
        found[value.name] = tuple(free.get(dim, dim) for dim in dims)
    return found


def told(plan: Plan) -> list[Any]:
    """Tell all that a plan does, with buffers by the order in which they are met."""
    known: dict[int, int] = {}

    def place(operand: Operand) -> Any:
        buffer, layout = operand.buffer, operand.layout
        number = known.setdefault(id(buffer), len(known))
        array = buffer.array if plan.weights == () else None
        content = None if array is None or buffer.kind != "constant" else array.tobytes()
        lies = layout.shape, layout.dtype, layout.strides, layout.size_bytes, layout.tag
        return number, buffer.kind, buffer.size_bytes, content, operand.offset_bytes, lies

    found: list[Any] = [[*map(place, plan.inputs)], [*map(place, plan.outputs)]]
    for step in plan.steps:
        if isinstance(step, NativeStep):
            found.append((step.origin, step.kernel, step.parameters, [*map(place, step.operands)]))
        else:
            assert isinstance(step, PrimitiveStep)
            arguments = [(role, place(operand)) for role, operand in step.arguments]
            found.append((step.origin, step.implementation, arguments))
    layouts = {name: str(layout) for name, layout in plan.layouts.items()}
    return [*found, plan.arena_bytes, plan.thread_count, plan.id, layouts, plan.output_forms]


def from_scratch(compiler: Compiler, shapes: Shapes) -> Plan:
    builder = compiler._builder(shapes, {}, compiler.engine)
    builder.keeps_gaps = True  # as a template does
    with compiler.engine.with_threads(builder.thread_count):
        return builder.build(KERNELS.lower)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_a_template_makes_the_plan_that_is_built_for_these_lengths(
    core: Core, name: str, threads: int
) -> None:
    make, signatures = MODELS[name]
    compiler = compiler_of(core, make(), threads=threads)
    compiler.compile(shapes_of(compiler, signatures[0]), {})
    assert not compiler._templates
    for lengths in (*signatures[1:], *reversed(signatures)):
        shapes = shapes_of(compiler, lengths)
        plan = compiler.compile(shapes, {})
        assert told(plan) == told(from_scratch(compiler, shapes)), lengths
    assert compiler._templates


@pytest.mark.parametrize("name", MODELS)
async def test_answers_are_those_of_reference(core: Core, name: str) -> None:
    make, signatures = MODELS[name]
    proto = make()
    async with (
        core.load_network(proto, "CPU") as ours,
        core.load_network(proto, "REFERENCE") as reference,
    ):
        for lengths in signatures:
            assert isinstance(ours, CpuNetwork)
            shapes = shapes_of(ours._compiler, lengths)
            inputs: dict[str, Any] = {
                port.name: RNG.integers(0, 50, shapes[port.name])
                if port.dtype == np.int64
                else RNG.standard_normal(shapes[port.name]).astype(np.float32)
                for port in ours.inputs
            }
            wanted, found = await reference.infer(inputs), await ours.infer(inputs)
            np.testing.assert_allclose(found["y"], wanted["y"], rtol=2e-4, atol=2e-5)


def test_what_the_library_does_not_offer_is_looked_for_without_a_trace(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first choice stays what it is, though its later choices were walked through."""
    monkeypatch.setattr(
        convolution_primitives, "wanted_implementation", lambda *_: "no such implementation"
    )
    compiler = compiler_of(core, convolutions())
    for lengths in ((1, 8, 8), (2, 9, 12), (5, 16, 10)):
        shapes = shapes_of(compiler, lengths)
        assert told(compiler.compile(shapes, {})) == told(from_scratch(compiler, shapes))
    assert compiler._templates


def test_plans_of_a_template_compute_with_the_same_packed_weights(core: Core) -> None:
    compiler = compiler_of(core, perceptron())
    counts = (300, 400, 500, 600)
    plans = [compiler.compile({"x": (n, 24)}, {}) for n in counts]
    assert len(compiler._templates) == 1
    for plan, count in zip(plans, counts, strict=True):
        BoundPlan(plan).run({"x": RNG.standard_normal((count, 24)).astype(np.float32)})
    arrays = [{*map(id, constants_of(plan, 7 * 40 * 4))} for plan in plans]
    assert arrays[0] == arrays[1] == arrays[2] == arrays[3]
    assert len(arrays[0]) == 2


def test_lengths_that_contradict_each_other_are_refused_as_ever(core: Core) -> None:
    compiler = compiler_of(core, convolutions())
    for lengths in ((1, 8, 8), (2, 9, 9), (3, 10, 10)):
        compiler.compile({"x": (lengths[0], 3, *lengths[1:])}, {})
    assert compiler._templates
    with pytest.raises(TensorError, match="axis 1"):
        compiler.compile({"x": (2, 4, 8, 8)}, {})


def test_an_input_of_any_rank_takes_each_rank(core: Core) -> None:
    inputs: dict[str, Any] = {"x": (FLOAT, ["n", 2]), "at": (INT64, None)}
    model = model_of([node("Gather", ["x", "at"], ["y"], "take", axis=0)], inputs, {})
    with core.load_network(model, "CPU") as network:
        request = network.create_infer_request()
        for rows, shape in ((2, (3,)), (2, (5,)), (3, (5, 1)), (4, ()), (3, (2, 2, 2))):
            x, at = weights(rows, 2), np.full(shape, rows - 1)
            outputs = request.infer_sync({"x": x, "at": at})
            np.testing.assert_array_equal(outputs["y"], x[at])


def test_lengths_that_the_model_refuses_do_not_end_the_tracing(core: Core) -> None:
    nodes = [node("Add", ["a", "b"], ["s"], "add"), node("Relu", ["s"], ["y"], "relu")]
    proto = model_of(nodes, {"a": (FLOAT, ["n", 8]), "b": (FLOAT, ["m", 8])}, {})
    compiler = compiler_of(core, proto)
    compiler.compile({"a": (2, 8), "b": (2, 8)}, {})
    for count in range(3, 9):
        with pytest.raises(AioInferError, match="do not broadcast"):
            compiler.compile({"a": (count, 8), "b": (count + 1, 8)}, {})
    for count in (5, 6):
        compiler.compile({"a": (count, 8), "b": (count, 8)}, {})
        for other in range(20, 26):
            with pytest.raises(AioInferError, match="do not broadcast"):
                compiler.compile({"a": (other, 8), "b": (other + 1, 8)}, {})
    assert len(compiler._templates) == 1


def test_a_model_that_needs_many_templates_is_bounded(core: Core) -> None:
    """Each length is printed into a constant's content, which a kernel asks for."""
    nodes = [
        node("Shape", ["x"], ["s"], "shape"),
        node("Gather", ["s", "first"], ["n"], "n", axis=0),
        node("Cast", ["n"], ["f"], "cast", to=FLOAT),
        node("Div", ["x", "f"], ["y"], "mean"),
    ]
    compiler = compiler_of(core, model_of(nodes, {"x": (FLOAT, ["n", 4])}, {"first": integers(0)}))
    for count in range(2, MOST_TEMPLATES + 6):
        plan = compiler.compile({"x": (count, 4)}, {})
        (found,) = BoundPlan(plan).run({"x": np.ones((count, 4), np.float32)})
        np.testing.assert_allclose(found, 1 / count, rtol=1e-6)
    assert len(compiler._templates) <= MOST_TEMPLATES


def test_tracing_is_tried_again_after_lengths_that_no_template_served(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small lengths are printed into a constant's content; from ten on it is always ten."""
    nodes = [
        node("Shape", ["x"], ["s"], "shape"),
        node("Gather", ["s", "first"], ["n"], "n", axis=0),
        node("Min", ["n", "most"], ["m"], "bounded"),
        node("Cast", ["m"], ["f"], "cast", to=FLOAT),
        node("Div", ["x", "f"], ["y"], "mean"),
    ]
    constants = {"first": integers(0), "most": integers(10)}
    compiler = compiler_of(core, model_of(nodes, {"x": (FLOAT, ["n", 4])}, constants))
    built: list[int] = []
    make = compiler._builder
    monkeypatch.setattr(compiler, "_builder", lambda *given: built.append(0) or make(*given))
    for count in range(2, 10):
        compiler.compile({"x": (count, 4)}, {})
    assert len(built) == 1 + 3 + 4, "three attempts, then each length is built alone"
    for count in range(20, 40):
        plan = compiler.compile({"x": (count, 4)}, {})
        (found,) = BoundPlan(plan).run({"x": np.ones((count, 4), np.float32)})
        np.testing.assert_allclose(found, 0.1, rtol=1e-6)
    assert len(built) == 8 + 1, "the next attempt serves all that come"


def test_want_of_memory_while_tracing_is_an_error_of_ours(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: object) -> None:
        raise MemoryError("traced")

    with core.load_network(perceptron(), "CPU", {"INFERENCE_NUM_THREADS": 1}) as network:
        request = network.create_infer_request()
        request.infer_sync(np.zeros((2, 24), np.float32))
        with monkeypatch.context() as patched:
            patched.setattr(TracedEngine, "primitive_desc", lacking)
            with pytest.raises(DeviceError, match="memory"):
                request.infer_sync(np.zeros((300, 24), np.float32))
        request.infer_sync(np.zeros((300, 24), np.float32))


def test_a_stride_serves_odd_and_even_lengths(core: Core) -> None:
    """What the last window sees of the padding differs; the steps do not."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("MaxPool", ["c"], ["p"], "pool", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]),
        node("Conv", ["p", "v"], ["y"], "same", auto_pad="SAME_UPPER", strides=[2, 2]),
    ]
    constants = {"w": weights(16, 3, 3, 3), "v": weights(16, 16, 3, 3)}
    proto = model_of(nodes, {"x": (FLOAT, ["n", 3, "h", "w"])}, constants)
    compiler = compiler_of(core, proto)
    compiler.compile({"x": (2, 3, 64, 64)}, {})
    for size in ((33, 34), (34, 33), (35, 41), (36, 47), (37, 50), (51, 38), (44, 45)):
        shapes = {"x": (2, 3, *size)}
        plan = compiler.compile(shapes, {})
        assert told(plan) == told(from_scratch(compiler, shapes))
        x = RNG.standard_normal(shapes["x"]).astype(np.float32)
        for found, wanted in zip(
            BoundPlan(plan).run({"x": x}),
            BoundPlan(from_scratch(compiler, shapes)).run({"x": x}),
            strict=True,
        ):
            np.testing.assert_array_equal(found, wanted)
    assert len(compiler._templates) == 1


def padded(k: int, source: str) -> list[Any]:
    """Pad to the next multiple of eight and by one more, as PyTorch writes it: by a matrix."""
    return [
        node("Shape", [source], [f"s{k}"], f"shape {k}"),
        node("Gather", [f"s{k}", "second"], [f"l{k}"], f"length {k}", axis=0),
        node("Mod", [f"l{k}", "eight"], [f"over{k}"], f"over {k}"),
        node("Sub", ["nine", f"over{k}"], [f"rest{k}"], f"rest {k}"),
        node("Concat", [f"rest{k}", "zero", "zero", "zero"], [f"list{k}"], f"list {k}", axis=0),
        node("Reshape", [f"list{k}", "pairs"], [f"matrix{k}"], f"matrix {k}"),
        node("Transpose", [f"matrix{k}"], [f"turned{k}"], f"transpose {k}", perm=[1, 0]),
        node("Reshape", [f"turned{k}", "flat"], [f"all{k}"], f"all {k}"),
        node("Slice", [f"all{k}", "zero", "one"], [f"some{k}"], f"some {k}"),
        node("Concat", ["zero"] * 4 + [f"some{k}", "zero"], [f"pads{k}"], f"pads {k}", axis=0),
        node("Pad", [source, f"pads{k}"], [f"x{k}"], f"pad {k}"),
    ]


def test_pads_that_are_computed_by_a_matrix_need_no_inference_of_onnx(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule of ours follows a matrix; what it holds is known once it has been folded."""
    nodes = [
        node("Relu", ["x"], ["r"], "relu"),
        *padded(0, "r"),
        *padded(1, "x0"),
        node("Reshape", ["x1", "rows"], ["y"], "out"),
    ]
    constants = {
        "second": integers(1), "eight": integers(8), "nine": integers(9), "zero": integers(0),
        "one": integers(1), "pairs": integers(2, 2), "flat": integers(-1), "rows": integers(-1, 8),
    }  # fmt: skip
    compiler = compiler_of(core, model_of(nodes, {"x": (FLOAT, ["n", "l", 8])}, constants))
    monkeypatch.setattr(onnx_native, "infer_types", lambda model: pytest.fail("onnx is asked"))
    for count, length in ((2, 5), (3, 5)):
        plan = from_scratch(compiler, {"x": (count, length, 8)})
        (found,) = BoundPlan(plan).run({"x": np.ones((count, length, 8), np.float32)})
        assert (found.shape, found.sum()) == ((count * 17, 8), count * 40)


def test_closing_drops_templates(core: Core) -> None:
    compiler = compiler_of(core, perceptron())
    for count in (2, 30, 40):
        compiler.compile({"x": (count, 24)}, {})
    assert compiler._templates
    compiler.close()
    assert not compiler._templates


@pytest.mark.parametrize("name", MODELS)
def test_closing_frees_traces_without_the_collector(core: Core, name: str) -> None:
    make, signatures = MODELS[name]
    compiler = compiler_of(core, make())
    gc.collect()
    gc.disable()
    try:
        for lengths in signatures:
            compiler.compile(shapes_of(compiler, lengths), {})
        assert compiler._templates
        compiler.close()
        del compiler
        kinds = ClosedTrace, SymArray, TracedDesc, TracedPrimitiveDesc, TracedEngine
        assert [item for item in gc.get_objects() if type(item) in kinds] == []
    finally:
        gc.enable()


async def test_a_network_keeps_as_many_plans_as_it_is_told(core: Core) -> None:
    config = {"PLAN_CACHE_COUNT": 3, "INFERENCE_NUM_THREADS": 1}
    async with core.load_network(perceptron(), "CPU", config) as network:
        for count in range(200, 210):
            await network.infer({"x": np.zeros((count, 24), np.float32)})
        plans = network.statistics().plans
        assert (plans.kept_count, plans.build_count, plans.eviction_count) == (3, 10, 7)
        assert plans.kept_bytes > 0
        assert isinstance(network, CpuNetwork)
        held = list(network._programs._lanes.values())
        assert all(len(lane.programs) <= 4 for lane in held)
    config = {"PLAN_CACHE_BYTES": 1}
    async with core.load_network(perceptron(), "CPU", config) as network:
        for count in (200, 300, 400):
            await network.infer({"x": np.zeros((count, 24), np.float32)})
        assert network.statistics().plans.kept_count == 1
