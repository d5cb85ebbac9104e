"""Well-known networks in small, with sane weights: CPU gives what onnxruntime gives."""

import numpy as np
import pytest

from aioinfer import Core
from exhaustive import all_but
from unit.benchmarks.small_networks import BATCH, MODELS, SMALL, TOKENS, inputs_of

onnxruntime = pytest.importorskip("onnxruntime")

F32_BOUND, BF16_BOUND = 1e-5, 1e-1
FEW = ["resnet50", "shufflenet_v2", "bert_base", "lstm_tagger"]
MODES = [
    {"INFERENCE_NUM_THREADS": 1},
    {"INFERENCE_NUM_THREADS": 2},
    {"PERFORMANCE_HINT": "THROUGHPUT"},
]


def _fixed(name: str) -> bytes:
    sequence = {"sequence": TOKENS} if "sequence" in MODELS[name].dynamic else {}
    content: bytes = SMALL[name](batch=BATCH, **sequence).SerializeToString()
    return content


def _free(name: str) -> bytes:
    content: bytes = SMALL[name](**{dim: dim for dim in MODELS[name].dynamic}).SerializeToString()
    return content


def _wanted(name: str) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(_fixed(name))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs_of(name)), strict=True))


def _assert_close(
    found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], bound: float
) -> None:
    assert found.keys() == wanted.keys()
    for name, expected in wanted.items():
        assert found[name].shape == expected.shape
        error = np.abs(found[name] - expected).max() / np.abs(expected).max()
        assert error <= bound, f"{name}: {error:.3g} of the largest value"


@pytest.mark.parametrize("config", all_but(MODES[1:2], MODES), ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_a_network_gives_what_onnxruntime_gives(
    core: Core, name: str, config: dict[str, object]
) -> None:
    with core.load_network(_fixed(name), "CPU", config) as network:
        _assert_close(
            network.create_infer_request().infer_sync(inputs_of(name)), _wanted(name), F32_BOUND
        )


@pytest.mark.parametrize("name", all_but(FEW, SMALL))
def test_a_network_of_open_lengths_gives_the_same(core: Core, name: str) -> None:
    with core.load_network(_free(name), "CPU") as network:
        request = network.create_infer_request()
        _assert_close(request.infer_sync(inputs_of(name)), _wanted(name), F32_BOUND)
        one = {key: array[:1] for key, array in inputs_of(name).items()}
        first = {key: array[:1] for key, array in _wanted(name).items()}
        _assert_close(request.infer_sync(one), first, F32_BOUND)
        assert network.get_metric("PLAN_COUNT") == 2


@pytest.mark.parametrize("name", all_but(FEW, SMALL))
def test_a_network_in_bfloat16_stays_near(core: Core, name: str) -> None:
    if "BF16" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this CPU has no bfloat16 instructions")
    config = {"INFERENCE_PRECISION_HINT": "bf16"}
    with core.load_network(_fixed(name), "CPU", config) as network:
        found = network.create_infer_request().infer_sync(inputs_of(name))
        _assert_close(found, _wanted(name), BF16_BOUND)
