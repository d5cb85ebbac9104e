"""Models whose sizes or flow depend on data, on CPU alone, beside onnxruntime."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import aioinfer
from aioinfer.backends.cpu.pieces.pieced_network import PiecedNetwork
from aioinfer.errors import (
    ClosedError,
    PropertyError,
    RequestCancelledError,
    TensorError,
    UnsupportedOpError,
)
from aioinfer.runtime.operators.images import box_suppression
from onnx_text import parse_proto
from resident_memory import resident_bytes

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

RNG = np.random.default_rng(7)
W = RNG.normal(size=(4, 4)).astype(np.float32)
WORDS = np.array(["hat", "coat", "shoe", "glove"], object)

ROWS = """g (float[N,4] x, float[4,4] w) => (float[M,4] y) {
    axes = Constant<value_ints = [1]>()
    zero = Constant<value_ints = [0]>()
    before = MatMul(x, w)
    sums = ReduceSum<keepdims = 0>(x, axes)
    places = NonZero(sums)
    flat = Squeeze(places, zero)
    chosen = Gather(before, flat)
    product = MatMul(chosen, w)
    y = Relu(product)
}"""

BRANCHES = """g (bool c, float[2,4] x, float[4,4] w) => (float[A,B] y) {
    twice = Add(x, x)
    y = If(c) <
        then_branch = a () => (float[2,4] t) { m = MatMul(twice, w) t = Relu(m) },
        else_branch = b () => (float[1,4] e) {
            axes = Constant<value_ints = [0]>()
            e = ReduceMax<keepdims = 1>(x, axes)
        }
    >
}"""

GROWING = """g (int64 n, float[1,4] x, float[4,4] w) => (float[A,4] y, float[K,1,4] all) {
    go = Constant<value = bool {1}>()
    y, all = Loop(n, go, x) <
        body = b (int64 i, bool c, float[1,4] s) => (bool c2, float[1,4] s2, float[1,4] o) {
            c2 = Identity(c)
            m = MatMul(s, w)
            axes = Constant<value_ints = [0]>()
            o = ReduceMax<keepdims = 1>(m, axes)
            s2 = Concat<axis = 0>(s, x)
        }
    >
}"""

SCANNED = """g (float[2,4] h, float[T,2,4] x, float[4,4] w) => (float[2,4] last, float[T,2,4] all) {
    last, all = Scan<num_scan_inputs = 1, body = b (float[2,4] s, float[2,4] v)
        => (float[2,4] s2, float[2,4] o) {
            m = MatMul(s, w)
            k = Add(m, v)
            s2 = Tanh(k)
            o = Identity(s2)
        }
    >(h, x)
}"""

NESTED = """g (int64 n, float[2,4] x, float[4,4] w) => (float[2,4] y) {
    go = Constant<value = bool {1}>()
    y = Loop(n, go, x) <
        body = b (int64 i, bool c, float[2,4] s) => (bool c2, float[2,4] s2) {
            c2 = Identity(c)
            two = Constant<value = int64 {2}>()
            rest = Mod(i, two)
            odd = Cast<to = 9>(rest)
            s2 = If(odd) <
                then_branch = t () => (float[2,4] r) { m = MatMul(s, w) r = Tanh(m) },
                else_branch = e () => (float[2,4] q) { q = Add(s, x) }
            >
        }
    >
}"""

SLICED = """g (int64 n, float[8,4] x) => (float[K,1,4] all) {
    go = Constant<value = bool {1}>()
    all = Loop(n, go) <
        body = b (int64 i, bool c) => (bool c2, float[1,4] o) {
            c2 = Identity(c)
            axes = Constant<value_ints = [0]>()
            one = Constant<value = int64 {1}>()
            first = Unsqueeze(i, axes)
            next = Add(i, one)
            last = Unsqueeze(next, axes)
            o = Slice(x, first, last, axes)
        }
    >
}"""

SEQUENCES = """g (float[N,4] x) => (float[M,4] y) {
    one = Constant<value = int64 {1}>()
    parts = SplitToSequence<axis = 0>(x, one)
    first = SequenceAt(parts, zero)
    more = SequenceInsert(parts, first)
    y = ConcatFromSequence<axis = 0>(more)
}""".replace("{\n    one", "{\n    zero = Constant<value = int64 {0}>()\n    one")


def rows(count: int, kept: float = 0.6) -> np.ndarray:
    mask = RNG.random((count, 1)) < kept
    return (RNG.normal(size=(count, 4)) * mask).astype(np.float32)


def feeds_of(name: str) -> list[dict[str, np.ndarray]]:
    x = RNG.normal(size=(2, 4)).astype(np.float32)
    counts = [np.array(count, np.int64) for count in (3, 0, 1, 5)]
    made: dict[str, list[dict[str, np.ndarray]]] = {
        "rows": [{"x": rows(count), "w": W} for count in (5, 1, 9, 0, 5)]
        + [{"x": np.zeros((3, 4), np.float32), "w": W}],
        "branches": [{"c": np.array(c), "x": x, "w": W} for c in (True, False, True)],
        "growing": [{"n": count, "x": x[:1], "w": W} for count in counts],
        "scanned": [
            {"h": x, "x": RNG.normal(size=(t, 2, 4)).astype(np.float32), "w": W} for t in (3, 1, 6)
        ],
        "nested": [{"n": count, "x": x, "w": W} for count in counts],
        "sliced": [{"n": count, "x": rows(8)} for count in counts],
        "sequences": [{"x": rows(count, 1.0)} for count in (1, 4)],
    }
    return made[name]


TEXTS = {
    "rows": ROWS,
    "branches": BRANCHES,
    "growing": GROWING,
    "scanned": SCANNED,
    "nested": NESTED,
    "sliced": SLICED,
    "sequences": SEQUENCES,
}


LABELLED = """g (float[N,4] x, float[4,4] w, string[4] words)
=> (string[N] label, seq(map(int64, float)) chances) {
    scores = MatMul(x, w)
    rows = Softmax<axis = 1>(scores)
    places = ArgMax<axis = 1, keepdims = 0>(scores)
    label = Gather(words, places)
    chances = ai.onnx.ml.ZipMap<classlabels_int64s = [3, 1, 4, 5]>(rows)
}"""
SPELLED = """g (string[N] x) => (string[N,1] y, int64[N,1] found) {
    lower = StringNormalizer<case_change_action = "LOWER">(x)
    shape = Constant<value_ints = [-1, 1]>()
    y = Reshape(lower, shape)
    found = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_int64s = [7, 8]>(y)
}"""


def proto(name: str) -> onnx.ModelProto:
    return parse_proto(TEXTS[name], 18, ir_version=9)


def by_onnxruntime(
    model: onnx.ModelProto, feeds: Sequence[Mapping[str, np.ndarray]]
) -> list[list[np.ndarray]]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [session.run(None, dict(given)) for given in feeds]


def assert_same(found: Mapping[str, Any], wanted: Sequence[np.ndarray]) -> None:
    for (name, have), want in zip(found.items(), wanted, strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype), name
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", TEXTS)
def test_cpu_alone_answers_as_onnxruntime(name: str) -> None:
    model, feeds = proto(name), feeds_of(name)
    wanted = by_onnxruntime(model, feeds)
    with aioinfer.Core() as core:
        assert all(core.query_network(model, "CPU").values())
        with core.load_network(model, "CPU") as network:
            assert isinstance(network, PiecedNetwork)
            for given, want in zip(feeds, wanted, strict=True):
                assert_same(network.create_infer_request().infer_sync(given), want)


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_exported_is_compiled_again(name: str) -> None:
    feeds = feeds_of(name)
    with aioinfer.Core() as core, core.load_network(proto(name), "CPU") as network:
        wanted = [network.create_infer_request().infer_sync(given) for given in feeds]
        with core.import_network(network.export()) as imported:
            for given, want in zip(feeds, wanted, strict=True):
                found = imported.create_infer_request().infer_sync(given)
                assert_same(found, [*want.values()])


def test_texts_and_maps_behind_a_plan_are_steps() -> None:
    model, feeds = parse_proto(LABELLED, 18, ir_version=9), {"w": W, "words": WORDS}
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    with aioinfer.Core() as core, core.load_network(model, "CPU") as network:
        request = network.create_infer_request()
        for count in (1, 3):
            given = {"x": rows(count), **feeds}
            label, chances = by_onnxruntime(model, [given])[0]
            found = request.infer_sync(given)
            assert found["label"].tolist() == list(label)
            assert found["chances"] == [pytest.approx(row, rel=1e-5) for row in chances]


def test_texts_that_come_in_are_read_by_steps() -> None:
    model = parse_proto(SPELLED, 18, ir_version=9)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    with aioinfer.Core() as core, core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync({"x": np.array(["A", "b"], object)})
    assert found["y"].tolist() == [["a"], ["b"]]
    assert found["found"].tolist() == [[7], [8]]


def test_what_is_slow_is_planned_and_the_rest_are_steps() -> None:
    with aioinfer.Core() as core, core.load_network(proto("rows"), "CPU") as network:
        assert "2 pieces are planned" in network.explain()
        assert "3 nodes" in network.explain()
        for _ in range(3):
            network.create_infer_request().infer_sync({"x": np.ones((3, 4), np.float32), "w": W})
        assert network.statistics().plans.build_count == 2
        assert network.get_metric("PLAN_COUNT") == 2


def test_a_body_makes_one_plan_for_all_iterations() -> None:
    feeds = {"n": np.array(50), "x": np.ones((2, 4), np.float32), "w": W / 10}
    with aioinfer.Core() as core, core.load_network(proto("nested"), "CPU") as network:
        network.create_infer_request().infer_sync(feeds)
        plans = network.statistics().plans
        assert (plans.build_count, plans.hit_count) == (1, 24)


def test_the_times_of_nodes_are_those_of_pieces_and_steps() -> None:
    config = {"PERF_COUNT": True}
    with aioinfer.Core() as core, core.load_network(proto("rows"), "CPU", config) as network:
        request = network.create_infer_request()
        request.infer_sync({"x": np.ones((3, 4), np.float32), "w": W})
        found = request.profiling()
        ops = [item.op for item in found]
        assert "NonZero" in ops
        assert not any("Piece" in op for op in ops)
        assert all(before.end_ns <= after.start_ns for before, after in itertools.pairwise(found))


def endless() -> onnx.ModelProto:
    """A loop that goes on for as long as its state is under a bound that it never reaches."""
    return parse_proto(
        """g (float[2,4] x, float[4,4] w) => (float[2,4] y) {
            go = Constant<value = bool {1}>()
            y = Loop(, go, x) <
                body = b (int64 i, bool c, float[2,4] s) => (bool c2, float[2,4] s2) {
                    c2 = Identity(c)
                    s2 = MatMul(s, w)
                }
            >
        }""",
        18,
        ir_version=9,
    )


def test_an_endless_loop_ends_when_it_is_cancelled() -> None:
    feeds = {"x": np.zeros((2, 4), np.float32), "w": W}
    answered = threading.Event()
    errors: list[BaseException | None] = []
    with aioinfer.Core() as core, core.load_network(endless(), "CPU") as network:
        request = network.create_infer_request()

        def note(_request: Any, error: BaseException | None) -> None:
            errors.append(error)
            answered.set()

        request.set_callback(note)
        request.start_async(feeds)
        request.cancel()
        assert answered.wait(60)
        assert isinstance(errors[0], RequestCancelledError)
        again = network.create_infer_request()
        again.start_async(feeds)
        while not network.statistics().plans.hit_count:
            assert not again.wait(0.0)
        again.cancel()
        with pytest.raises(RequestCancelledError):
            again.wait()


def test_an_error_inside_a_body_names_its_node() -> None:
    model = parse_proto(
        """g (int64 n, int64[1] at, float[8,4] x) => (float[1,4] y) {
            go = Constant<value = bool {1}>()
            start = Constant<value = float[1,4] {0, 0, 0, 0}>()
            y = Loop(n, go, start) <
                body = b (int64 i, bool c, float[1,4] s) => (bool c2, float[1,4] s2) {
                    c2 = Identity(c)
                    [inner_gather] r = Gather(x, at)
                    s2 = Add(s, r)
                }
            >
        }""",
        18,
        ir_version=9,
    )
    given = {"n": np.array(2), "at": np.array([99]), "x": rows(8)}
    with aioinfer.Core() as core, core.load_network(model, "CPU") as network:
        with pytest.raises(TensorError, match="inner_gather"):
            network.create_infer_request().infer_sync(given)
        given["at"] = np.array([1])
        network.create_infer_request().infer_sync(given)


def test_a_branch_of_another_type_than_declared_is_an_error() -> None:
    """A piece reads the bytes of what was declared, and of nothing else."""
    wrong = helper.make_node("Cast", ["x"], ["e"], "cast", to=onnx.TensorProto.DOUBLE)
    right = helper.make_node("Identity", ["x"], ["t"], "same")
    out = [helper.make_tensor_value_info(name, 1, [2, 4]) for name in "te"]
    nodes = [
        helper.make_node(
            "If",
            ["c"],
            ["v"],
            "if",
            then_branch=helper.make_graph([right], "then", [], [out[0]]),
            else_branch=helper.make_graph([wrong], "else", [], [out[1]]),
        ),
        helper.make_node("MatMul", ["v", "w"], ["y"], "product"),
    ]
    ports = {
        "c": helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
        "x": helper.make_tensor_value_info("x", 1, [2, 4]),
        "w": helper.make_tensor_value_info("w", 1, [4, 4]),
    }
    graph = helper.make_graph(
        nodes,
        "wrong",
        [*ports.values()],
        [helper.make_tensor_value_info("y", 1, [2, 4])],
        value_info=[helper.make_tensor_value_info("v", 1, [2, 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    feeds = {"x": np.ones((2, 4), np.float32), "w": W}
    with aioinfer.Core() as core, core.load_network(model, "CPU") as network:
        network.create_infer_request().infer_sync({"c": np.array(True), **feeds})
        with pytest.raises(TensorError, match="float64"):
            network.create_infer_request().infer_sync({"c": np.array(False), **feeds})


def test_bound_outputs_are_written_and_must_fit() -> None:
    with aioinfer.Core() as core, core.load_network(proto("rows"), "CPU") as network:
        request = network.create_infer_request()
        memory = np.empty((3, 4), np.float32)
        request.set_tensor("y", memory)
        assert request.infer_sync({"x": np.ones((3, 4), np.float32), "w": W})["y"] is memory
        with pytest.raises(TensorError, match="bound"):
            request.infer_sync({"x": np.ones((2, 4), np.float32), "w": W})


KEEPING = """g (float[N,4] x, float[K,4] past, float[4,4] w) => (float[M,4] present, float[M,4] y) {
    axes = Constant<value_ints = [1]>()
    zero = Constant<value_ints = [0]>()
    sums = ReduceSum<keepdims = 0>(x, axes)
    places = NonZero(sums)
    flat = Squeeze(places, zero)
    chosen = Gather(x, flat)
    present = Concat<axis = 0>(past, chosen)
    y = MatMul(present, w)
}"""

LATE = """made = MatMul(present, w)
    checked = Checked(made)
    y = Identity(checked)"""


@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,REFERENCE"])
def test_a_request_keeps_the_rows_that_each_run_has_chosen(device: str) -> None:
    model = parse_proto(KEEPING, 18, ir_version=9)
    given = [rows(count) for count in (4, 1, 6)]
    kept = np.zeros((0, 4), np.float32)
    config = {"STATE": {"past": "present"}}
    with aioinfer.Core() as core, core.load_network(model, device, config) as network:
        request = network.create_infer_request()
        for x in given:
            kept = np.concatenate([kept, x[x.sum(axis=1) != 0]])
            assert_same(request.infer_sync({"x": x, "w": W}), [kept @ W])
        request.reset_state()
        assert_same(request.infer_sync({"x": kept, "w": W}), [kept @ W])


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["failed", "cancelled"])
def test_a_run_of_pieces_that_ends_badly_leaves_the_rows_as_they_were(is_cancelled: bool) -> None:
    """The state has been made by one piece when another step is under way, and ends badly."""
    begun, may_end, fails = threading.Event(), threading.Event(), [False]

    def checked(x: np.ndarray) -> np.ndarray:
        if fails[0]:
            begun.set()
            assert may_end.wait(60)
            if not is_cancelled:
                raise ValueError("not now")
        return x

    model = parse_proto(KEEPING.replace("y = MatMul(present, w)", LATE), 18, ir_version=9)
    with aioinfer.Core() as core:
        extension = aioinfer.Extension("Checked", checked, infer_types=lambda types, _: [types[0]])
        core.add_extension(extension, "CPU")
        with core.load_network(model, "CPU", {"STATE": {"past": "present"}}) as network:
            assert isinstance(network, PiecedNetwork)
            request, kept = network.create_infer_request(), np.zeros((0, 4), np.float32)
            for step in range(8):
                x = rows(1 + step % 3)
                if step % 2:
                    fails[0] = True
                    begun.clear(), may_end.clear()
                    request.start_async({"x": x + 1, "w": W})
                    assert begun.wait(60)
                    if is_cancelled:
                        request.cancel()
                    may_end.set()
                    with pytest.raises(RequestCancelledError if is_cancelled else TensorError):
                        request.wait()
                    fails[0] = False
                    assert network.admission.wait_until_over(60)
                    np.testing.assert_array_equal(request.query_state()[0].state, kept)
                kept = np.concatenate([kept, x[x.sum(axis=1) != 0]])
                assert_same(request.infer_sync({"x": x, "w": W}), [kept @ W])


def test_shapes_of_a_warm_up_are_checked_and_planned() -> None:
    shapes = {"INPUT_SHAPES": [{"x": [3, 4]}]}
    with aioinfer.Core() as core:
        with core.load_network(proto("rows"), "CPU", shapes) as network:
            assert network.get_metric("PLAN_COUNT") >= 1
        with pytest.raises(PropertyError, match="INPUT_SHAPES"):
            core.load_network(proto("rows"), "CPU", {"INPUT_SHAPES": [{"x": [3, 5]}]})


def test_a_loop_without_iterations_needs_the_type_of_what_it_collects() -> None:
    feeds = {"n": np.array(0), "x": np.ones((1, 4), np.float32), "w": W}
    with aioinfer.Core() as core, core.load_network(proto("growing"), "CPU") as network:
        found = network.create_infer_request().infer_sync(feeds)
        assert found["all"].shape == (0, 1, 4)
        assert found["all"].dtype == np.float32


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("shape", [[3, 1], [3, 1, 7], [3, 1, 4, 1]])
def test_what_a_body_makes_counts_more_than_what_is_declared_of_its_loop(
    device: str, shape: list[int]
) -> None:
    wrong = proto("growing")
    del wrong.graph.output[1].type.tensor_type.shape.dim[:]
    for length in shape:
        wrong.graph.output[1].type.tensor_type.shape.dim.add(dim_value=length)
    with aioinfer.Core() as core, core.load_network(wrong, device) as network:
        request = network.create_infer_request()
        for count in (2, 0):
            feeds = {"n": np.array(count), "x": np.ones((1, 4), np.float32), "w": W}
            assert request.infer_sync(feeds)["all"].shape == (count, 1, 4)


def test_a_detector_of_many_choices_is_one_part() -> None:
    """Three dozen NonZero with a Gather and a product behind each, on the devices of AUTO."""
    nodes, parts = [], []
    for index in range(36):
        made = [f"{kind}{index}" for kind in ("above", "places", "flat", "rows", "part")]
        above, places, flat, chosen, part = made
        nodes += [
            helper.make_node("Greater", ["scores", f"bound{index}"], [above], f"greater{index}"),
            helper.make_node("NonZero", [above], [places], f"nonzero{index}"),
            helper.make_node("Squeeze", [places, "zero"], [flat], f"squeeze{index}"),
            helper.make_node("Gather", ["boxes", flat], [chosen], f"gather{index}"),
            helper.make_node("Mul", [chosen, f"bound{index}"], [part], f"mul{index}"),
        ]
        parts.append(part)
    nodes.append(helper.make_node("Concat", parts, ["all"], "concat", axis=0))
    nodes.append(helper.make_node("MatMul", ["all", "w"], ["y"], "product"))
    bounds = [
        onnx.numpy_helper.from_array(np.array(index / 36, np.float32), f"bound{index}")
        for index in range(36)
    ]
    zero = onnx.numpy_helper.from_array(np.array([0]), "zero")
    weight = onnx.numpy_helper.from_array(W, "w")
    graph = helper.make_graph(
        nodes,
        "detector",
        [
            helper.make_tensor_value_info("scores", 1, ["n"]),
            helper.make_tensor_value_info("boxes", 1, ["n", 4]),
        ],
        [helper.make_tensor_value_info("y", 1, ["m", 4])],
        [*bounds, zero, weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    feeds = [
        {"scores": RNG.random(n).astype(np.float32), "boxes": rows(n, 1.0)} for n in (20, 7, 1)
    ]
    wanted = by_onnxruntime(model, feeds)
    with aioinfer.Core() as core:
        for device in ("HETERO:CPU,REFERENCE", "AUTO:CPU,REFERENCE"):
            with core.load_network(model, device) as network:
                devices = [name.split(".")[0] for name in network.execution_devices]
                assert devices == ["CPU"]
                assert "182 nodes" in network.explain()
                for given, want in zip(feeds, wanted, strict=True):
                    assert_same(network.create_infer_request().infer_sync(given), want)


def test_a_users_operator_in_a_body_is_refused_by_name() -> None:
    model = parse_proto(
        """g (bool c, float[2,4] x) => (float[2,4] y) {
            y = If(c) <
                then_branch = a () => (float[2,4] t) { [inner] t = com.acme.Swirl(x) },
                else_branch = b () => (float[2,4] e) { e = Neg(x) }
            >
        }""",
        18,
        ir_version=9,
    )
    with aioinfer.Core() as core:
        swirl = aioinfer.Extension("Swirl", lambda x: x, "com.acme", lambda kinds, _: kinds)
        core.add_extension(swirl, "CPU")
        (answer,) = core.query_network(model, "CPU").values()
        assert not answer.supported
        assert "'inner'" in answer.reason
        with pytest.raises(UnsupportedOpError, match="main graph only"):
            core.load_network(model, "CPU")


def test_closing_ends_an_endless_loop() -> None:
    with aioinfer.Core() as core:
        network = core.load_network(endless(), "CPU")
        request = network.create_infer_request()
        request.start_async({"x": np.zeros((2, 4), np.float32), "w": W})
        assert network.close(drain=False, timeout_s=60)
        with pytest.raises(ClosedError):
            request.wait()


def test_a_closed_network_keeps_no_weights_whoever_holds_it() -> None:
    size = 2048
    text = NESTED.replace("2,4", f"2,{size}").replace("4,4", f"{size},{size}")
    model = parse_proto(text.replace(f", float[{size},{size}] w)", ")"), 18, ir_version=9)
    weight = np.eye(size, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    source = model.SerializeToString()
    feeds = {"n": np.array(3), "x": np.ones((2, size), np.float32)}
    gc.disable()
    try:
        with aioinfer.Core() as core:
            core.load_network(source, "CPU").close()  # what a process has once
            before = resident_bytes()
            network = core.load_network(source, "CPU")
            network.create_infer_request().infer_sync(feeds)
            assert resident_bytes() - before >= weight.nbytes
            network.close()
            assert resident_bytes() - before < weight.nbytes // 2
            assert network.is_closed
    finally:
        gc.enable()


def test_boxes_are_suppressed_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("numpy held the boxes against each other")

    text = """g (float[1,N,4] boxes, float[1,2,N] scores, int64 limit, float overlap)
        => (int64[M,3] y) { y = NonMaxSuppression(boxes, scores, limit, overlap) }"""
    low = RNG.random((1, 300, 2), np.float32)
    boxes = np.concatenate([low, low + RNG.random((1, 300, 2), np.float32) / 4], axis=2)
    scores = RNG.random((1, 2, 300), np.float32)
    feeds = {
        "boxes": boxes,
        "scores": scores,
        "limit": np.array(70, np.int64),
        "overlap": np.array(0.4, np.float32),
    }
    model = parse_proto(text, 18, ir_version=9).SerializeToString()
    (wanted,) = ort.InferenceSession(model).run(None, feeds)
    monkeypatch.setattr(box_suppression, "keep", refuse)
    with aioinfer.Core() as core, core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync(feeds)["y"]
    np.testing.assert_array_equal(found, wanted)
