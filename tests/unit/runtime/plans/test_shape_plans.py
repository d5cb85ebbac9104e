"""Which plans are built, and when: by shapes, by the content of some inputs, ahead or on demand."""

import gc

import numpy as np
import pytest

from aioinfer.errors import DeviceError, GraphError, ModelError, PropertyError, TensorError
from aioinfer.executors import ManualExecutor
from aioinfer.runtime.plans.shape_plans import ShapePlans
from aioinfer.runtime.tensors.tensor import ports_of
from aioinfer.runtime.type_inference import ContradictionError
from onnx_text import parse


class Builds:
    """Notes what was built; a plan is the number of its build."""

    def __init__(self, text: str, content: list[str] | None = None) -> None:
        model = parse(text)
        self.made: list[tuple[dict, dict]] = []
        self.executor = ManualExecutor("compile")
        self.plans: ShapePlans[int] = ShapePlans(
            model, ports_of(model.inputs), "CPU", self._build, self.executor, content or []
        )

    def _build(self, shapes: dict, contents: dict) -> int:
        self.made.append((shapes, {name: array.tolist() for name, array in contents.items()}))
        return len(self.made)

    def plan(self, **inputs: np.ndarray) -> int:
        pending = self.plans.request(inputs)
        while not pending.is_ready:
            self.executor.release()
        if pending.error is not None:
            raise pending.error
        return pending.plan


STATIC = "g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }"
DYNAMIC = "g (float[n,3] x, float[n] z) => (float[n,3] y) { y = Relu(x) }"
CONTENT = "g (float[a,b] x, int64[r] s) => (float[c,d] y) { y = Reshape(x, s) }"


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_a_static_model_is_built_ahead() -> None:
    builds = Builds(STATIC)
    assert builds.plans.compile_ahead([]) == [1]
    assert builds.made == [({"x": (2, 3)}, {})]
    assert builds.plan(x=zeros(2, 3)) == 1
    assert len(builds.plans) == 1


def test_a_dynamic_model_is_built_once_for_each_signature() -> None:
    builds = Builds(DYNAMIC)
    assert builds.plans.compile_ahead([]) == []
    assert [builds.plan(x=zeros(n, 3), z=zeros(n)) for n in (1, 2, 1, 2, 3)] == [1, 2, 1, 2, 3]
    assert len(builds.plans) == 3
    statistics = builds.plans.statistics()
    assert (statistics.kept_count, statistics.build_count) == (3, 3)
    assert statistics.build_s > 0
    assert (statistics.hit_count, statistics.miss_count, statistics.eviction_count) == (2, 3, 0)


def test_shapes_asked_for_are_completed_by_their_symbols() -> None:
    builds = Builds(DYNAMIC)
    assert builds.plans.compile_ahead([{"x": (4, 3)}, {"z": (4,)}, {"x": (5, 3)}]) == [1, 2]
    assert builds.made[0] == ({"x": (4, 3), "z": (4,)}, {})
    assert builds.plan(x=zeros(5, 3), z=zeros(5)) == 2


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (4, 2)}, "cannot have the shape"),
        ({"w": (4,)}, "no input 'w'"),
        ({"x": (4, 3), "z": (5,)}, "would be 4"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict, message: str) -> None:
    with pytest.raises(PropertyError, match=message):
        Builds(DYNAMIC).plans.compile_ahead([shapes])


def test_shapes_that_leave_an_input_open_are_refused() -> None:
    with pytest.raises(PropertyError, match=r"leaves input .* open"):
        Builds(CONTENT).plans.compile_ahead([{"x": (2, 3)}])


def test_content_is_part_of_the_key() -> None:
    builds = Builds(CONTENT, ["s"])
    x = zeros(2, 3)
    contents = ([3, 2], [6, 1], [3, 2], [6], [])
    numbers = [builds.plan(x=x, s=np.array(content, np.int64)) for content in contents]
    assert numbers == [1, 2, 1, 3, 4]
    assert [content for _, content in builds.made] == [
        {"s": [3, 2]},
        {"s": [6, 1]},
        {"s": [6]},
        {"s": []},
    ]


def test_nothing_is_built_ahead_of_content() -> None:
    builds = Builds("g (float[2,3] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }", ["s"])
    assert builds.plans.compile_ahead([]) == []
    assert builds.made == []


class Impossible(Builds):
    """Finds with every plan that the model contradicts itself."""

    def _build(self, shapes: dict, contents: dict) -> int:
        raise ContradictionError("Add (node 'a') cannot be computed: [2] and [3] do not broadcast")


def test_a_contradiction_that_a_run_brings_is_a_tensor_error_that_shows_its_inputs() -> None:
    with pytest.raises(TensorError, match=r"inputs 'x' \[4,3\], 'z' \[4\] do not fit .*node 'a'"):
        Impossible(DYNAMIC).plan(x=zeros(4, 3), z=zeros(4))
    with pytest.raises(TensorError, match=r"'s' = \[2, 4\] do not fit .*node 'a'"):
        Impossible(CONTENT, ["s"]).plan(x=zeros(2, 3), s=np.array([2, 4]))


def test_a_contradiction_of_shapes_asked_for_is_a_bad_value() -> None:
    with pytest.raises(PropertyError, match=r"INPUT_SHAPES: .*'x' \[4,3\].*node 'a'"):
        Impossible(DYNAMIC).plans.compile_ahead([{"x": (4, 3)}])


def test_a_static_network_that_contradicts_itself_is_a_bad_model() -> None:
    with pytest.raises(ModelError, match="node 'a'"):
        Impossible(STATIC).plans.compile_ahead([])


@pytest.mark.parametrize(
    ("raised", "kind"), [(KeyError("w"), GraphError), (MemoryError("9 GiB"), DeviceError)]
)
def test_a_plan_that_cannot_be_built_names_model_device_and_inputs(
    raised: Exception, kind: type[Exception]
) -> None:
    builds = Builds(DYNAMIC)
    left = [raised]

    def build(shapes: dict, contents: dict) -> int:
        if left:
            raise left.pop()
        return 1

    builds.plans._build = build
    with pytest.raises(
        kind, match=r"^compiling model 'g' for CPU and inputs 'x' \[2,3\], 'z'"
    ) as caught:
        builds.plan(x=zeros(2, 3), z=zeros(2))
    assert caught.value.__cause__ is raised
    assert builds.plan(x=zeros(2, 3), z=zeros(2)) == 1


def test_no_full_collection_begins_while_a_plan_is_built(monkeypatch) -> None:
    builds, seen = Builds(DYNAMIC), []
    build = builds.plans._build
    monkeypatch.setattr(
        builds.plans, "_build", lambda *given: (seen.append(gc.get_threshold()[2]), build(*given))
    )
    before = gc.get_threshold()
    builds.plan(x=zeros(1, 3), z=zeros(1))
    assert seen[0] > 1_000_000
    assert gc.get_threshold() == before
