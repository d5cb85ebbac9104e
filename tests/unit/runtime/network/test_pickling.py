import copy
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.errors import NotSupportedError

DIGITS = Path(__file__).parents[4] / "examples" / "digits" / "digits.onnx"
WAYS = [ForkingPickler.dumps, copy.copy, copy.deepcopy]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_cannot_be_pickled_or_copied_says_what_to_do(way: Callable[[Any], object]) -> None:
    with Core() as core, core.load_network(DIGITS, "REFERENCE") as network:
        with pytest.raises(NotSupportedError, match="make one of its own in another process"):
            way(core)
        with pytest.raises(NotSupportedError, match=r"'digits' on .* load the model from its file"):
            way(network)
        with pytest.raises(NotSupportedError, match=r"<InferRequest 0 .*create_infer_request"):
            way(network.create_infer_request())


@pytest.mark.parametrize("way", WAYS[1:], ids=lambda way: way.__name__)
def test_what_was_refused_goes_on(way: Callable[[Any], object]) -> None:
    with Core() as core, core.load_network(DIGITS, "REFERENCE") as network:
        with pytest.raises(NotSupportedError):
            way(network)
        request = network.create_infer_request()
        assert request.infer_sync(np.zeros((1, 1, 8, 8), np.float32))["logits"].shape == (1, 10)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_a_network_tells_can_be_sent(way: Callable[[Any], object]) -> None:
    with Core() as core, core.load_network(DIGITS, "REFERENCE") as network:
        network.create_infer_request().infer_sync(np.zeros((1, 1, 8, 8), np.float32))
        for told in (network.statistics(), network.trace(), network.inputs):
            assert way(told)
