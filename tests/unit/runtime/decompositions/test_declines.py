"""A node that no decomposition can write: devices say why in their refusals."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.errors import UnsupportedOpError
from unit.runtime.decompositions.contrib_models import contrib_model


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_a_refusal_tells_why_a_node_is_not_decomposed(core: Core, device: str) -> None:
    x = np.ones((2, 8), np.float32)
    constants = {
        "w": np.ones((4, 1, 4), np.uint8),
        "s": np.ones(4, np.float32),
        "order": np.zeros(8, np.int32),
    }
    model = contrib_model(
        *("MatMulNBits", ["x", "w", "s", "", "order"], {"x": x}, constants, np.float32),
        **{"K": 8, "N": 4, "bits": 4, "block_size": 16},
    )
    with pytest.raises(UnsupportedOpError, match="its weights have an order of their own"):
        core.load_network(model, device)
    with pytest.raises(UnsupportedOpError, match=r"MatMulNBits .*cannot be written by others"):
        core.load_network(model, device)


def test_a_model_laid_out_for_one_processor_says_so(core: Core) -> None:
    x, w = np.ones((1, 8, 4, 4), np.float32), np.ones((8, 8, 3, 3), np.float32)
    model = contrib_model(
        "Conv", ["x", "w"], {"x": x}, {"w": w}, np.float32, domain="com.microsoft.nchwc"
    )
    with pytest.raises(UnsupportedOpError, match="level 'all'; save it at 'extended'"):
        core.load_network(model, "CPU")
