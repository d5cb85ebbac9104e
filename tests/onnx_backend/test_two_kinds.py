"""onnx's backend suite cut between two devices that differ in what they support.

Every other node goes to ONNXRUNTIME where it says that it can run it, the rest to REFERENCE: what a
device does not refuse must load in any cut around it. It takes minutes, so it belongs to the run
of the suite on that HETERO: ``make conformance DEVICE=HETERO:ONNXRUNTIME,REFERENCE``, which alone
collects it (``conftest.py``).
"""

from collections.abc import Iterator

import onnx
import pytest

import aioinfer
from onnx_backend.cases import Suite, passing_names

DEVICE = "HETERO:ONNXRUNTIME,REFERENCE"
LEAST_PARTITIONED_MODEL_COUNT = 350

_partitioned: list[str] = []


def _load(core: aioinfer.Core, proto: onnx.ModelProto) -> aioinfer.ExecutableNetwork:
    model = core.read_model(proto)
    answers = core.query_network(model, "ONNXRUNTIME")
    names = [node.name for node in model.graph.nodes]
    # What onnx's converter has inserted is no node of the file, and nobody answers for it.
    able = {name for name, answer in answers.items() if answer.supported}
    affinity = {
        name: "REFERENCE" if index % 2 or name not in able else "ONNXRUNTIME"
        for index, name in enumerate(names)
    }
    if len(names) > 1:
        _partitioned.append(model.name)
    return core.load_network(model, DEVICE, {"AFFINITY": affinity})


SUITE = Suite(_load)


@pytest.fixture(scope="module", autouse=True)
def _closed_core() -> Iterator[None]:
    yield
    SUITE.core.close()


@pytest.mark.parametrize("name", passing_names(DEVICE))
def test_a_case_that_passes_uncut_passes_in_pieces(name: str) -> None:
    SUITE.run(name)


def test_the_suite_was_really_cut() -> None:
    assert len(_partitioned) >= LEAST_PARTITIONED_MODEL_COUNT
