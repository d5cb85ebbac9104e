"""The fuzzer draws the same cases again, tells what is wrong, and outlives what it tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import aioinfer
from aioinfer.backends.reference.plugin import ReferencePlugin
from aioinfer.errors import ModelError
from aioinfer.runtime.devices.extension import Extension
from aioinfer.runtime.devices.plugin import CoreHandle
from aioinfer.runtime.onnx_native.helper_process import EndedError, Helper
from fuzz import __main__ as fuzz_main
from fuzz import pool, rounding
from fuzz.acceptance import Acceptance
from fuzz.asked_once import asked_once
from fuzz.bases import Base
from fuzz.contrib_bases import load_contrib_bases
from fuzz.drawing import Case, Draw, Run, draw_case
from fuzz.flow_bases import load_flow_bases
from fuzz.guarded import GuardedMemory
from fuzz.oracle import Failure, Finding, Outcome, judge
from fuzz.quantized_bases import load_quantized_bases
from fuzz.rounding import nearby_cases, without_rounding

MakePlugin = Callable[[CoreHandle, str], ReferencePlugin]
Y = np.array([1, 2], np.float32)
OURS = Failure(True, "TensorError", "no")
CASE = Case(
    1, 0, "case", ("Relu",), b"", (Run({}, is_valid=True),), (), False, True, False, thread_count=1
)


def base() -> Base:
    text = (
        "<ir_version: 10, opset_import: ['' : 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }"
    )
    model = onnx.parser.parse_model(text.replace("'", '"'))
    types = {info.name: info.type for info in (*model.graph.input, *model.graph.output)}
    return Base("relu", "Relu", model, {"x": Y}, {"y": Y}, (14, 21), types)


def outcome(run: Any) -> Outcome:
    return Outcome(runs=[run])


def test_a_case_is_the_same_every_time() -> None:
    bases = [base()]
    for index in range(200):
        one, other = draw_case(bases, 3, index), draw_case(bases, 3, index)
        assert (one.model, str(one)) == (other.model, str(other))
    assert len({draw_case(bases, 3, index).model for index in range(200)}) > 100


def test_a_model_without_nodes_is_drawn_as_it_is() -> None:
    relu = base()
    relu.model.graph.ClearField("node")
    assert {len(draw_case([relu], 3, index).op_types) for index in range(200)} >= {0}


@pytest.mark.parametrize(
    ("got", "wanted", "category"),
    [
        ({"y": Y}, {"y": Y}, None),
        ({"y": Y + 1}, {"y": Y}, "differs"),
        ({"y": Y[:1]}, {"y": Y}, "differs"),
        ({"y": Y.astype(np.float64)}, {"y": Y}, "differs"),
        ({"z": Y}, {"y": Y}, "differs"),
        ({"y": Y}, OURS, "accepted"),
        (OURS, {"y": Y}, "refused"),
        (OURS, OURS, None),
        (Failure(False, "KeyError", "x", "a.py:f:1"), OURS, "raw"),
        (Failure(True, "UnsupportedOpError", "no", is_refusal=True), {"y": Y}, None),
        (Failure(True, "DeviceError", "this device has no axes longer than 9"), {"y": Y}, None),
    ],
)
def test_an_outcome_is_judged_by_that_of_reference(
    got: Any, wanted: Any, category: str | None
) -> None:
    found = judge(CASE, "CPU", outcome(got), outcome(wanted))
    assert [finding.category for finding in found] == ([category] if category else [])


@pytest.mark.parametrize("dtype", [np.int8, np.float16])
def test_results_are_compared_to_their_last_element(dtype: Any) -> None:
    wanted = np.ones((3, 1 << 19), dtype)
    got = wanted.copy()
    assert judge(CASE, "CPU", outcome({"y": got}), outcome({"y": wanted})) == []
    got[-1, -1] = 3
    (found,) = judge(CASE, "CPU", outcome({"y": got}), outcome({"y": wanted}))
    assert found.detail == "value 3 instead of 1 (output y)"


def test_a_product_may_leave_the_floats_on_its_way_and_nothing_else_may() -> None:
    wanted, got = {"y": np.float32([1, 2])}, {"y": np.float32([np.nan, 2])}
    for op_types, found_count in ((("Add", "ReduceProd"), 0), (("Add",), 1)):
        case = replace(CASE, op_types=op_types)
        assert len(judge(case, "CPU", outcome(got), outcome(wanted))) == found_count


def test_normalisations_one_after_the_other_magnify_what_rounding_leaves() -> None:
    wanted, got = {"y": np.float32([0, 1e-2])}, {"y": np.float32([1e-3, 1e-2])}
    for op_types, found_count in ((("LayerNormalization",) * 2, 0), (("LayerNormalization",), 1)):
        case = replace(CASE, op_types=op_types)
        assert len(judge(case, "CPU", outcome(got), outcome(wanted))) == found_count


def test_an_error_after_a_wrong_run_means_that_the_network_is_unusable() -> None:
    case = replace(CASE, runs=(Run({}, is_valid=False), Run({}, is_valid=True)))
    wanted = Outcome(runs=[OURS, {"y": Y}])
    (found,) = judge(case, "CPU", Outcome(runs=[OURS, OURS]), wanted)
    assert found.category == "unusable"


def test_memory_is_guarded_on_either_side() -> None:
    guarded = GuardedMemory(place_count=2, place_bytes=4096)
    for at_end in (True, False):
        placed = guarded.place(Y, at_end=at_end)
        np.testing.assert_array_equal(placed, Y)
        assert placed.ctypes.data % 4096 == (4096 - Y.nbytes if at_end else 0)


def test_a_death_is_a_finding_and_the_cases_behind_it_are_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_batch(
        _draw: Draw, indices: range, _devices: Sequence[str], progress: Any, say: int
    ) -> None:
        for index in indices:
            progress.note(index, 1)
            if index == 2:
                os._exit(7)
            if index == 5:
                line = (
                    b'{"index": 5, "category": "raw", "device": "CPU", "group": "g", "detail": "d"}'
                )
                os.write(say, line + b"\n")

    monkeypatch.setattr("fuzz.worker.run_batch", run_batch)
    told: list[tuple[int, Finding]] = []
    batches = iter([range(0, 4), range(4, 6)])
    acceptance = pool.run_cases(
        lambda _: CASE, batches, ["REFERENCE", "CPU"], 2, lambda *item: told.append(item)
    )
    assert acceptance.case_count == 6
    found = {index: (finding.category, finding.device) for index, finding in told}
    assert found == {2: ("died", "CPU"), 5: ("raw", "CPU")}


def break_devices(
    monkeypatch: pytest.MonkeyPatch,
    names: Sequence[str],
    plugin: MakePlugin,
) -> None:
    """Put a broken device in the place of each of these while cases are run."""

    def open_core(_devices: Sequence[str]) -> aioinfer.Core:
        core = aioinfer.Core()
        for name in names:
            core.unregister_plugin(name)
            core.register_plugin(name, plugin)
        return core

    monkeypatch.setattr("fuzz.worker.open_core", open_core)


class AnyProperty(ReferencePlugin):
    """A device that takes whatever properties the device in whose place it is takes."""

    def check_values(self, config: Any) -> None:
        pass


def refusing(is_refused: Callable[[aioinfer.Model], bool]) -> MakePlugin:
    """Make a device that finds a fault in these models."""

    class Refusing(AnyProperty):
        def compile_network(self, model: aioinfer.Model, config: Any) -> aioinfer.ExecutableNetwork:
            if is_refused(model):
                raise ModelError("no model is good enough")
            return super().compile_network(model, config)

    return Refusing


def halving(core: CoreHandle, name: str) -> ReferencePlugin:
    """Make a device whose Tanh is wrong."""
    plugin = AnyProperty(core, name)
    plugin.add_extension(Extension("Tanh", lambda x: x / 2))
    return plugin


@pytest.mark.parametrize("names", [["REFERENCE", "CPU"], ["CPU"]])
def test_devices_that_refuse_what_is_known_to_be_good_end_the_fuzzer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], names: list[str]
) -> None:
    break_devices(monkeypatch, names, refusing(lambda _: True))
    assert fuzz_main.main(["--devices", "CPU"]) == 1
    said = capfd.readouterr().out
    assert "nothing else is worth running" in said
    for name in ("REFERENCE", "CPU"):
        assert (f"refused {name} perceptron" in said) is (name in names)


def test_devices_that_are_wrong_alike_end_the_fuzzer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    break_devices(monkeypatch, ["REFERENCE", "CPU"], halving)
    assert fuzz_main.main(["--devices", "CPU"]) == 1
    said = capfd.readouterr().out
    assert "differs REFERENCE open" in said
    assert "differs CPU open" in said
    assert "perceptron" not in said


@pytest.mark.exhaustive
def test_devices_that_refuse_all_other_valid_cases_alike_fail_the_fuzzer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    is_drawn = refusing(lambda model: model.producer == "fuzz")
    break_devices(monkeypatch, ["REFERENCE", "CPU"], is_drawn)
    monkeypatch.setattr(fuzz_main, "load_bases", lambda: [base()])
    assert fuzz_main.main(["--cases", "250", "--devices", "CPU", "--jobs", "1"]) == 1
    said = capfd.readouterr().out
    assert " 0 findings" in said
    assert said.count("this run proves nothing") == 2


@pytest.mark.parametrize(
    ("device", "given", "accepted", "is_short"),
    [
        ("REFERENCE", 100, 94, True),
        ("REFERENCE", 100, 95, False),
        ("REFERENCE", 99, 0, False),
        ("HETERO:CPU,REFERENCE", 1000, 900, True),
        ("CPU", 100, 49, True),
        ("CPU", 100, 50, False),
    ],
)
def test_a_device_that_accepts_too_little_of_enough_is_told(
    device: str, given: int, accepted: int, is_short: bool
) -> None:
    acceptance = Acceptance([device])
    acceptance.add(device, given - 50, accepted - accepted // 2)
    acceptance.add(device, 50, accepted // 2)
    assert acceptance.shortfalls() == [device] * is_short
    assert f"{accepted} of {given} valid runs" in acceptance.describe()[0]


def test_quantised_models_to_begin_with_give_the_same_numbers_everywhere() -> None:
    with aioinfer.Core() as core:
        for made in load_quantized_bases():
            run_time = "x" if "x" in made.inputs else "q"
            constants = {name: item for name, item in made.inputs.items() if name != run_time}
            model = onnx.ModelProto()
            model.CopyFrom(made.model)
            (left,) = [item for item in model.graph.input if item.name == run_time]
            del model.graph.input[:]
            model.graph.input.append(left)
            model.graph.initializer.extend(
                onnx.numpy_helper.from_array(item, name) for name, item in constants.items()
            )
            for device in ("REFERENCE", "CPU"):
                with core.load_network(model, device) as network:
                    request = network.create_infer_request()
                    found = request.infer_sync({run_time: made.inputs[run_time]})
                np.testing.assert_allclose(
                    found["y"], made.outputs["y"], 1e-5, 1e-6, err_msg=made.name
                )


@pytest.mark.parametrize("made", load_flow_bases(), ids=lambda made: made.name)
def test_models_of_several_nodes_give_what_onnxruntime_gives(made: Base) -> None:
    given = {name: x for name, x in made.inputs.items() if name not in made.states}
    config = {"STATE": dict(made.states)} if made.states else {}
    wanted = {name: x for name, x in made.outputs.items() if name not in made.states.values()}
    with aioinfer.Core() as core, core.load_network(made.model, "CPU", config) as network:
        found = network.create_infer_request().infer_sync(given)
    assert list(found) == list(wanted)
    for name, x in wanted.items():
        least = 2e-2 if x.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(found[name], x, least, least)


def test_drawn_cases_reach_bodies_states_and_operators_of_onnxruntime() -> None:
    bases = [*load_flow_bases(), *load_contrib_bases()]
    cases = [draw_case(bases, 5, index) for index in range(300)]
    assert any(case.states and len(case.runs) >= 3 for case in cases)
    assert {"Loop", "If", "Einsum", "NonZero", "MatMulNBits"} <= {
        op_type for case in cases for op_type in case.op_types
    }


def test_a_difference_counts_where_it_is_more_than_rounding_scatters() -> None:
    right = {"y": np.float32([0, 0]), "n": np.uint8([7, 7])}
    near = [{"y": np.float32([1e-3, 0]), "n": np.uint8([8, 7])}]
    found = {"y": np.float32([3e-3, 3e-3]), "n": np.uint8([8, 8])}
    left = without_rounding(right, found, near)
    np.testing.assert_array_equal(left["y"], np.float32([0, 3e-3]))
    np.testing.assert_array_equal(left["n"], np.uint8([7, 8]))


@pytest.mark.parametrize(
    ("again", "scattered", "is_explained"),
    [
        ({"y": Y + 1}, {"y": Y + 1}, True),
        ({"y": Y + 1}, {"y": Y}, False),
        ({"y": Y}, {"y": Y + 1}, False),  # a race, which is not seen again
        (OURS, {"y": Y + 1}, False),
        ({"y": Y - 9}, {"y": Y * np.float32(np.inf)}, False),
    ],
)
def test_rounding_explains_what_differs_again_and_lies_where_reference_scatters(
    again: Any, scattered: Any, is_explained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = replace(CASE, index=1)
    found = {"REFERENCE": {0: {"y": Y}, 1: scattered}, "CPU": {0: again}}
    monkeypatch.setattr(rounding, "nearby_cases", lambda _: [near])
    monkeypatch.setattr(
        rounding, "run_case", lambda _, device, case, *__: outcome(found[device][case.index])
    )
    assert rounding.is_within_rounding(None, CASE, "CPU") is is_explained


def test_each_difference_of_a_group_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def is_upheld(case: Case, _: Finding) -> bool:
        looked.append(case.index)
        return case.index == 99

    monkeypatch.setattr(fuzz_main, "is_upheld", is_upheld)
    report = fuzz_main.Report(lambda index: replace(CASE, index=index), is_strict=False)
    for index in range(100):
        report.tell(index, Finding("differs", "CPU", "Relu", "by 3", is_suspect=True))
    assert looked == list(range(100))
    assert report.summary() == 1


def test_cases_nearby_are_off_by_a_unit_of_the_last_place() -> None:
    x = np.float32([0.5, 2, 1e-30, 70000])
    given = {"x": x, "n": np.array([3])}
    case = replace(CASE, model=base().model.SerializeToString(), runs=(Run(given, is_valid=True),))
    found = [near.runs[0].feeds for near in nearby_cases(case)]
    assert all(item["n"] is given["n"] for item in found)
    apart = [np.abs(item["x"] - x) / np.spacing(x) for item in found]
    assert all((item <= 1).all() for item in apart)
    assert any(item.any() for item in apart)


def test_helpers_are_asked_the_same_once_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[tuple[int, int, bytes]] = []

    def exchange(
        self: Helper, call: int, argument: int, content: bytes, limit_s: float
    ) -> tuple[bool, bytes]:
        questions.append((call, argument, content))
        if content == b"ends":
            raise EndedError("ended")
        return content != b"wrong", content

    monkeypatch.setattr(Helper, "exchange", exchange)
    helper = Helper()
    with asked_once() as forget:
        for content in (b"right", b"wrong", b"right", b"wrong"):
            assert helper.exchange(0, 1, content, 1.0) == (content != b"wrong", content)
        assert questions == [(0, 1, b"right"), (0, 1, b"wrong")]
        helper.exchange(1, 1, b"right", 1.0)
        forget()
        helper.exchange(1, 1, b"right", 1.0)
        assert questions[2:] == [(1, 1, b"right")] * 2
        for _ in range(2):
            with pytest.raises(EndedError):
                helper.exchange(0, 0, b"ends", 1.0)
        assert questions[4:] == [(0, 0, b"ends")] * 2
    assert Helper.exchange is exchange
