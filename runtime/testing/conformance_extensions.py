"""Operators that users bring along: beside the device, and on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

import numpy as np

from ...errors import NotSupportedError, TensorError
from ..devices.extension import Extension
from ..graph import TensorType
from .conformance_case import behaviour, expect_equal, expect_error
from .conformance_networks import bare_name, core_like, partner_of

if TYPE_CHECKING:
    import onnx

    from ..devices.core import Core

DOMAIN = "com.example"
FEEDS = tuple(np.linspace(-1, 1, rows * 3, dtype=np.float32).reshape(rows, 3) for rows in (2, 5, 1))


def _model() -> onnx.ModelProto:
    """Make y = relu(2 * twice(relu(x)) - relu(x)) of one operator that ONNX does not have."""
    from onnx import TensorProto, helper

    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["a"], "before"),
            helper.make_node("Scaled", ["a"], ["b"], "custom", domain=DOMAIN, factor=2),
            helper.make_node("Add", ["b", "b"], ["c"], "behind"),
            helper.make_node("Sub", ["c", "a"], ["d"], "beside"),
            helper.make_node("Relu", ["d"], ["y"], "last"),
        ],
        "custom_in_the_middle",
        [port("x", TensorProto.FLOAT, ["n", 3])],
        [port("y", TensorProto.FLOAT, ["n", 3])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _scaled(x: Any, *, factor: int) -> Any:
    if x.shape[0] == 1:
        raise ValueError("one row is too few")
    return x * np.float32(factor)


def _like_first(
    types: Sequence[TensorType | None], _attributes: Mapping[str, Any]
) -> Sequence[TensorType | None]:
    return types[:1]


def _check(core: Core, device: str, config: Mapping[str, Any]) -> None:
    with core.load_network(_model(), device, config) as network:
        request = network.create_infer_request()
        for x in FEEDS:
            if len(x) == 1:
                error = expect_error(
                    TensorError, lambda: request.infer_sync({"x": FEEDS[-1]}), "a failing kernel"
                )
                expect_equal(error.node, "custom", "the node of its error")
                continue
            found = request.infer_sync({"x": x})["y"]
            expect_equal(found, 3 * np.maximum(x, 0), f"'y' of {len(x)} rows on {device}")
        found = request.infer_sync({"x": FEEDS[0]})["y"]
        expect_equal(found, 3 * np.maximum(FEEDS[0], 0), "'y' after a failed run")


@behaviour
def _a_users_operator_runs_beside_the_device(core: Core, device: str) -> None:
    partner = partner_of(core, device)
    for rule in (_like_first, None):
        with core_like(core) as own:
            own.add_extension(Extension("Scaled", _scaled, DOMAIN, rule))
            answers = own.query_network(_model(), device)
            wanted = {name: device for name, answer in answers.items() if answer.supported}
            wanted["custom"] = partner
            _check(own, f"HETERO:{device},{partner}", {"AFFINITY": wanted})


@behaviour
def _a_users_operator_runs_on_a_device_that_takes_it(core: Core, device: str) -> None:
    with core_like(core) as own:
        try:
            own.add_extension(Extension("Scaled", _scaled, DOMAIN, _like_first), bare_name(device))
        except NotSupportedError as error:
            raise SkipTest(str(error)) from error
        _check(own, device, {})
