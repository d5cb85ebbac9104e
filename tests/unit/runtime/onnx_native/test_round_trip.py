import functools

import onnx.backend.test.loader as suite
import pytest

from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model
from aioinfer.runtime.onnx_writer import write_model
from exhaustive import all_but
from unit.runtime.onnx_native.same_models import first_difference

KINDS = ["simple", "pytorch-converted", "pytorch-operator"]
# A dozen parts, so that a failure names a part and a hang costs only one.
PART_COUNT = 12


@functools.cache
def node_cases() -> list[suite.TestCase]:
    return suite.load_model_tests(kind="node")


def read_case(case: suite.TestCase) -> Model:
    if case.model is not None:
        return read_any_model(case.model)
    return read_model(f"{case.model_dir}/model.onnx")


def assert_survives(cases: list[suite.TestCase]) -> None:
    differences = {}
    for case in cases:
        model = read_case(case)
        again = read_any_model(write_model(model))
        if found := first_difference(model, again):
            differences[case.name] = found
    assert differences == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_written_and_read_again_is_the_same(kind: str) -> None:
    assert_survives(suite.load_model_tests(kind=kind))


@pytest.mark.parametrize("part", all_but([0], range(PART_COUNT)))
def test_a_node_case_that_is_written_and_read_again_is_the_same(part: int) -> None:
    assert_survives(node_cases()[part::PART_COUNT])
