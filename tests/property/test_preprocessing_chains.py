"""Random chains of declared steps give on OpenVINO and here the same numbers.

A declaration that either refuses is left out: what is refused is said in the unit tests. Elements
are floats all the way, since integers that lie half way are rounded by the last bit before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import aioinfer
import aioinfer.preprocess
from aioinfer.errors import AioInferError
from presence import skip_if_missing

ov = pytest.importorskip("openvino", reason="wants aioinfer[bench]")
ov_preprocess = pytest.importorskip("openvino.preprocess", reason="wants aioinfer[bench]")

CHAINS = 12
"""Of each seed."""
Call = tuple[str, str, tuple[Any, ...]]
"""Whose method, which one, and what it is given: names in place of each library's own things."""


class Chain:
    """A model's input, a tensor that is given for it, and the calls between."""

    def __init__(self, order: random.Random) -> None:
        self._order = order
        self._lengths = {
            "N": order.choice((1, 1, 2)),
            "C": order.choice((1, 3, 3, 4)),
            "H": order.randint(1, 12),
            "W": order.randint(1, 12),
        }
        model_layout = order.choice(("NCHW", "NHWC"))
        self.model: list[int | str] = [self._lengths[axis] for axis in model_layout]
        if order.random() < 0.3:
            opened = "HW" if order.random() < 0.7 else "N"
            self.model = [
                axis.lower() if axis in opened else self._lengths[axis] for axis in model_layout
            ]
        self._layout = order.choice(("NCHW", "NHWC", "NHWC", "CHWN", "NWHC"))
        self.dtype = order.choice(("u8", "f32", "f32", "i32"))
        self.calls: list[Call] = [
            ("tensor", "set_element_type", (self.dtype,)),
            ("tensor", "set_layout", (self._layout,)),
            ("model", "set_layout", (model_layout,)),
        ]
        self._say_shape()
        self.shape = [self._lengths[axis] for axis in self._layout]
        self._add("convert_element_type", "f32")
        for _ in range(order.randint(1, 6)):
            order.choice((self._move, self._count, self._resize, self._crop, self._pad))()
        self._add("convert_layout", model_layout)
        if "h" not in self.model:
            self._add("resize", order.choice(("LINEAR", "CUBIC", "NEAREST")))

    def _add(self, method: str, *given: Any) -> None:
        self.calls.append(("preprocess", method, given))

    def _say_shape(self) -> None:
        """Have the tensor's height and width be its own, known or not."""
        order, lengths = self._order, self._lengths
        way = order.random()
        if way < 0.4:
            return
        lengths["H"], lengths["W"] = order.randint(1, 14), order.randint(1, 14)
        if way < 0.7:
            self.calls.append(("tensor", "set_spatial_dynamic_shape", ()))
        else:
            given = (lengths["H"], lengths["W"])
            self.calls.append(("tensor", "set_spatial_static_shape", given))

    def _move(self) -> None:
        if self._order.random() < 0.5:
            self._layout = self._order.choice(("NCHW", "NHWC"))
            self._add("convert_layout", self._layout)
            return
        axes = self._order.sample(range(4), 4)
        self._layout = "".join(self._layout[axis] for axis in axes)
        self._add("convert_layout", axes)

    def _count(self) -> None:
        order = self._order
        if order.random() < 0.2:
            self._add("reverse_channels")
            return
        count = order.choice((1, self._lengths["C"]))
        numbers = [round(order.uniform(0.5, 9), 2) for _ in range(count)]
        self._add(order.choice(("mean", "scale")), numbers[0] if count == 1 else numbers)

    def _resize(self) -> None:
        order, lengths = self._order, self._lengths
        lengths["H"], lengths["W"] = order.randint(1, 15), order.randint(1, 15)
        way = order.choice(("LINEAR", "CUBIC", "NEAREST"))
        self._add("resize", way, lengths["H"], lengths["W"])

    def _crop(self) -> None:
        order, first, last = self._order, [], []
        for axis in self._layout:
            length, begin, end = self._lengths[axis], 0, self._lengths[axis]
            if axis in "HW":
                begin = order.randint(0, length - 1)
                end = order.randint(begin + 1, length)
                self._lengths[axis] = end - begin
            first.append(begin)
            last.append(end - length if end < length and order.random() < 0.3 else end)
        self._add("crop", first, last)

    def _pad(self) -> None:
        order, first, last = self._order, [], []
        for axis in self._layout:
            added = (order.randint(0, 2), order.randint(0, 2)) if axis in "HW" else (0, 0)
            self._lengths[axis] += sum(added)
            first.append(added[0])
            last.append(added[1])
        mode = order.choice(("CONSTANT", "CONSTANT", "REFLECT", "SYMMETRIC"))
        self._add("pad", first, last, order.choice((0.0, 1.5)), mode)

    def proto(self) -> onnx.ModelProto:
        """Give back what comes in, so that each element of it is seen."""
        return helper.make_model(
            helper.make_graph(
                [helper.make_node("Max", ["x", "x"], ["y"], "max")],
                "same",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.model)],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, self.model)],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )

    def declare(self, ppp: Any, steps: Any, things: Any) -> Any:
        """Make the calls on a library's PrePostProcessor; ``steps`` and ``things`` hold its own."""
        for whose, method, given in self.calls:
            found = list(given)
            match method:
                case "set_element_type" | "convert_element_type":
                    found[0] = getattr(things.Type, found[0])
                case "set_layout" | "convert_layout" if isinstance(found[0], str):
                    found[0] = things.Layout(found[0])
                case "resize":
                    found[0] = getattr(steps.ResizeAlgorithm, f"RESIZE_{found[0]}")
                case "pad":
                    found[3] = getattr(steps.PaddingMode, found[3])
            getattr(getattr(ppp.input(), whose)(), method)(*found)
        return ppp.build()

    def tensor(self) -> np.ndarray:
        least = 0 if self.dtype == "u8" else -100
        dtype = {"u8": np.uint8, "f32": np.float32, "i32": np.int32}[self.dtype]
        chance = np.random.default_rng(len(self.calls))
        return chance.integers(least, 256, self.shape).astype(dtype)


def of_openvino(chain: Chain, tensor: np.ndarray) -> np.ndarray | None:
    core = ov.Core()
    try:
        read = core.read_model(chain.proto().SerializeToString())
        model = chain.declare(ov_preprocess.PrePostProcessor(read), ov_preprocess, ov)
        exact = {"INFERENCE_PRECISION_HINT": "f32"}
        found: np.ndarray = core.compile_model(model, "CPU", exact)([tensor])[0]
    except RuntimeError:
        return None
    return found


def of_ours(chain: Chain, tensor: np.ndarray, core: aioinfer.Core, device: str) -> Any:
    names = aioinfer.preprocess
    try:
        model = chain.declare(
            aioinfer.PrePostProcessor(core.read_model(chain.proto())), names, names
        )
        with core.load_network(model, device) as network:
            return network.create_infer_request().infer_sync(tensor)["y"]
    except AioInferError:
        return None


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as core:
        yield core


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize("seed", range(6))
def test_a_chain_gives_what_it_gives_on_openvino(
    seed: int, device: str, core: aioinfer.Core
) -> None:
    skip_if_missing(core, device)
    order, compared = random.Random(seed), 0
    for _ in range(CHAINS):
        chain = Chain(order)
        tensor = chain.tensor()
        wanted, made = of_openvino(chain, tensor), of_ours(chain, tensor, core, device)
        if wanted is None or made is None:
            continue
        compared += 1
        assert made.shape == wanted.shape, chain.calls
        largest = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(
            made, wanted, rtol=1e-4, atol=1e-4 * largest, err_msg=str(chain.calls)
        )
    assert compared >= CHAINS // 2
