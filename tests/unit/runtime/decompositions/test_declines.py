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
    constants = {"w": np.ones((4, 1, 6), np.uint8), "s": np.ones(4, np.float32)}
    model = contrib_model(
        *("MatMulNBits", ["x", "w", "s"], {"x": x}, constants, np.float32),
        **{"K": 8, "N": 4, "bits": 3, "block_size": 16},
    )
    with pytest.raises(UnsupportedOpError, match="there are 3 bits in blocks of 16"):
        core.load_network(model, device)
    with pytest.raises(UnsupportedOpError, match=r"MatMulNBits .*cannot be written by others"):
        core.load_network(model, device)


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("op_type", ["QLinearSigmoid", "QLinearGlobalAveragePool"])
@pytest.mark.parametrize("wrong", ["xs", "ys"])
def test_stored_numbers_have_scales_of_float32(
    core: Core, device: str, op_type: str, wrong: str
) -> None:
    x = np.ones((1, 2, 3, 3), np.uint8)
    constants = {name: np.float32(0.5).reshape(()) for name in ("xs", "ys")}
    constants |= {name: np.uint8(1).reshape(()) for name in ("xz", "yz")}
    constants[wrong] = constants[wrong].astype(np.float16)
    operands = ["x", "xs", "xz", "ys", "yz"]
    model = contrib_model(op_type, operands, {"x": x}, constants, np.uint8)
    with pytest.raises(UnsupportedOpError, match=f"'{wrong}' is float16, and has to be float32"):
        core.load_network(model, device)


def test_a_model_laid_out_for_one_processor_says_so(core: Core) -> None:
    x, w = np.ones((1, 8, 4, 4), np.float32), np.ones((8, 8, 3, 3), np.float32)
    model = contrib_model(
        "Conv", ["x", "w"], {"x": x}, {"w": w}, np.float32, domain="com.microsoft.nchwc"
    )
    with pytest.raises(UnsupportedOpError, match="level 'all'; save it at 'extended'"):
        core.load_network(model, "CPU")
