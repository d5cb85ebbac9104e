"""Runs of pieces and steps that stay on their caller's thread, and which do not."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.cpu.pieces.pieced_network import PiecedNetwork
from onnx_text import parse_proto

W = np.random.default_rng(7).normal(size=(4, 4)).astype(np.float32)
WORDS = np.array(["hat", "coat", "shoe", "glove"], object)
OPTIONS: dict[str, Any] = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
CALLERS, WORKERS = "CPU.0.caller", "CPU.0.0"

LABELLED = """g (float[N,4] x, float[4,4] w, string[4] words) => (string[N] label) {
    scores = MatMul(x, w)
    best = ArgMax<axis = 1, keepdims = 0>(scores)
    label = Gather(words, best)
}"""

COUNTED = """g (int64 n, float[1,4] x, float[4,4] w) => (float[1,4] y) {
    go = Constant<value = bool {1}>()
    y = Loop(n, go, x) <
        body = b (int64 i, bool c, float[1,4] s) => (bool c2, float[1,4] s2) {
            c2 = Identity(c)
            m = MatMul(s, w)
            s2 = Tanh(m)
        }
    >
}"""


def rows(count: int) -> np.ndarray[Any, Any]:
    return np.arange(4 * count, dtype=np.float32).reshape(count, 4) - 5


def load(core: aioinfer.Core, text: str, **config: Any) -> PiecedNetwork:
    model = parse_proto(text, 18, ir_version=9)
    made = core.load_network(model, "CPU", OPTIONS | config)
    assert isinstance(made, PiecedNetwork)
    return made


def lanes(network: PiecedNetwork) -> list[str]:
    return [span.lane for span in network.trace()]


def be_short(network: PiecedNetwork, given: dict[str, Any]) -> None:
    """Have runs like these be known to be short: by decree, so that no clock decides a test."""
    assert network.admission.gate is not None
    network.admission.gate.time_of(given).is_short = True


def check(network: PiecedNetwork, found: Any, given: dict[str, Any]) -> None:
    best = (given["x"] @ W).argmax(1)
    assert found["label"].tolist() == [WORDS[place] for place in best]


def test_a_short_run_whose_plans_are_there_stays_with_its_caller() -> None:
    given = {"x": rows(3), "w": W, "words": WORDS}
    with aioinfer.Core() as core, load(core, LABELLED) as network:
        request = network.create_infer_request()
        check(network, request.infer_sync(given), given)
        be_short(network, given)
        check(network, request.infer_sync(given), given)
        check(network, asyncio.run(network.infer(given)), given)
        assert lanes(network) == [WORKERS, CALLERS, CALLERS]
        assert network.statistics().finished_request_count == 3


def test_a_plan_that_is_missing_is_waited_for_by_a_worker() -> None:
    given = {"x": rows(2), "w": W, "words": WORDS}
    with aioinfer.Core() as core, load(core, LABELLED) as network:
        request = network.create_infer_request()
        be_short(network, given)
        check(network, request.infer_sync(given), given)
        check(network, request.infer_sync(given), given)
        assert lanes(network) == [WORKERS, CALLERS]
        assert network.statistics().finished_request_count == 2


def test_a_plan_for_a_team_is_run_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    text = LABELLED.replace("[4,4]", "[256,256]").replace("N,4", "N,256").replace("[4]", "[256]")
    given = {
        "x": np.ones((256, 256), np.float32),
        "w": np.eye(256, dtype=np.float32),
        "words": np.array([str(number) for number in range(256)], object),
    }
    with aioinfer.Core() as core, load(core, text, INFERENCE_NUM_THREADS=2) as network:
        request = network.create_infer_request()
        request.infer_sync(given)
        (plan,) = network._pieces[0].plans.plans()
        assert plan.thread_count == 2
        be_short(network, given)
        for _ in range(3):
            assert request.infer_sync(given)["label"].tolist() == ["0"] * 256
        assert lanes(network) == [WORKERS] * 4
        assert network.team_shapes == {((256, 256), (256, 256), (256,))}
        runs: list[bool] = []
        steps = network.steps
        walk = type(steps).run_within
        monkeypatch.setattr(
            type(steps), "run_within", lambda *args: runs.append(True) or walk(*args)
        )
        request.infer_sync(given)
        assert runs == [True], "a run for a worker began on its caller's thread"


def test_an_error_names_its_node_as_on_a_worker() -> None:
    given = {"x": rows(1), "w": W, "words": WORDS[:1]}
    with aioinfer.Core() as core, load(core, LABELLED) as network:
        request, texts = network.create_infer_request(), []
        for _ in range(2):
            with pytest.raises(aioinfer.errors.AioInferError) as raised:
                request.infer_sync(given)
            texts.append(str(raised.value))
            be_short(network, given)
        assert texts[0] == texts[1]
        assert network.admission.run_count == 0


def test_a_loop_is_never_the_callers() -> None:
    with aioinfer.Core() as core, load(core, COUNTED) as network:
        assert network.inline_route is None


def test_a_warm_up_binds_plans_to_the_lane_of_callers() -> None:
    shapes = {"x": (2, 4)}
    config = {"INPUT_SHAPES": [shapes]}
    given = {"x": rows(2), "w": W, "words": WORDS}
    with aioinfer.Core() as core, load(core, LABELLED, **config) as network:
        network.warm_up([shapes])
        be_short(network, given)
        check(network, network.create_infer_request().infer_sync(given), given)
        assert lanes(network) == [CALLERS]
