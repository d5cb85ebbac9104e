"""States that grow on CUDA's plans: on the stand-in, which has its kernels and its libraries."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.opencl.test_states import DECODER, PAIRS
from unit.backends.states_in_place import CHECKS, FORMS

F32 = {"INFERENCE_PRECISION_HINT": "f32"}


@pytest.mark.parametrize("check", CHECKS)
def test_a_state_grows_in_place(stand_in_core: Core, check: str) -> None:
    CHECKS[check](stand_in_core, FORMS["grows"], "STANDIN")


def test_a_decoder_multiplies_states_where_they_lie(stand_in_core: Core) -> None:
    with (
        stand_in_core.load_network(DECODER, "STANDIN", {**PAIRS, **F32}) as network,
        stand_in_core.load_network(DECODER, "REFERENCE", PAIRS) as oracle,
    ):
        request, other = network.create_infer_request(), oracle.create_infer_request()
        random = np.random.default_rng(3)
        for step in range(50):
            x = random.normal(size=(1, 1 + step % 2, 8)).astype(np.float32)
            y = request.infer_sync({"x": x})["y"]
            np.testing.assert_allclose(y, other.infer_sync({"x": x})["y"], rtol=1e-3, atol=1e-4)
        for state, expected in zip(request.query_state(), other.query_state(), strict=True):
            np.testing.assert_allclose(state.state, expected.state, rtol=1e-5, atol=1e-6)
