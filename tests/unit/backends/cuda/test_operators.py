"""Operators on maps, whatever is drawn, on CUDA's plans with real numbers against REFERENCE.

First each alone, by the generators of ``property/operators``; then networks of a few of them around
convolutions, so that all of them are asked for both orders of axes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinfer import Core
from aioinfer.backends.cuda.kernels.registry import KERNELS
from exhaustive import all_but
from property.operators.cases import FUSED, GENERATORS, Case
from property.test_operators import EXAMPLES, compare, element_types, several_cases
from unit.backends.comparing import assert_same_on, model_of, operator

ALONE = [
    *(("", op) for op in ("AveragePool", "BatchNormalization", "Conv", "ConvTranspose")),
    *(("", op) for op in ("GlobalAveragePool", "GlobalMaxPool", "MaxPool", "PRelu", "Resize")),
    ("aioinfer.accelerator", "Conv"),
    ("aioinfer.accelerator", "ConvTranspose"),
]


@pytest.mark.parametrize(("domain", "op_type"), ALONE)
def test_an_operator_gives_what_reference_gives(
    domain: str, op_type: str, stand_in_core: Core
) -> None:
    generator = (FUSED if domain else GENERATORS)[op_type]
    taken = element_types(domain, op_type, KERNELS.kernels[domain, op_type].dtypes)

    @EXAMPLES
    @given(cases=several_cases(op_type, generator, taken), is_dynamic=st.booleans())
    def check(cases: list[Case], is_dynamic: bool) -> None:
        compare(stand_in_core, "STANDIN", cases, is_dynamic)

    check()


class Drawn:
    """A network that grows map by map; maps are (batch, channels, rows, columns)."""

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        batch, rows, columns = (self.below(2) + 1, *self.chance.integers(9, 14, 2))
        shape = (batch, int(self.one_of([3, 4, 6])), int(rows), int(columns))
        self.inputs = {"x": self.chance.standard_normal(shape).astype(np.float32)}
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}
        for _ in range(12):
            name = str(self.one_of(list(self.shapes)[-4:]))
            step: Callable[[Drawn, str], None] = self.one_of(STEPS)
            step(self, name)

    def below(self, count: int) -> int:
        return int(self.chance.integers(count))

    def one_of(self, options: Any) -> Any:
        return options[self.below(len(options))]

    def constant(self, array: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def floats(self, *shape: int) -> str:
        return self.constant(self.chance.standard_normal(shape).astype(np.float32))

    def add(self, op_type: str, *inputs: str, shape: tuple[int, ...], **attributes: Any) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(operator(op_type, *inputs, outputs=[name], **attributes))
        self.nodes[-1].name = f"{op_type}_{len(self.nodes)}"
        self.shapes[name] = shape

    def model(self) -> Any:
        outputs = [
            name for name in list(self.shapes)[-1:] + list(self.shapes)[-5:-4] if name != "x"
        ]
        return model_of(self.nodes, self.inputs, outputs, self.constants)


def add_conv(net: Drawn, x: str) -> None:
    batch, channels, *places = net.shapes[x]
    groups = net.one_of([1, 1, channels, 2 if channels % 2 == 0 else 1])
    filters = groups * net.one_of([1, 2, 4])
    size, stride = net.one_of([1, 2, 3]), net.one_of([1, 1, 2])
    pads = [net.below(size) for _ in range(4)]
    made = [
        (length + pads[axis] + pads[axis + 2] - size) // stride + 1
        for axis, length in enumerate(places)
    ]
    if min(made) < 3:
        return
    inputs = [x, net.floats(filters, channels // groups, size, size)]
    inputs += [net.floats(filters)] if net.below(2) else []
    net.add(
        "Conv",
        *inputs,
        shape=(batch, filters, *made),
        group=groups,
        pads=pads,
        strides=[stride] * 2,
    )


def add_transposed(net: Drawn, x: str) -> None:
    batch, channels, rows, columns = net.shapes[x]
    groups = net.one_of([1, channels, 2 if channels % 2 == 0 else 1])
    filters, size = net.one_of([1, 3]), net.one_of([1, 2, 3])
    if rows > 8 or filters * groups > 12:
        return
    inputs = [x, net.floats(channels, filters, size, 2)]
    inputs += [net.floats(filters * groups)] if net.below(2) else []
    shape = (batch, filters * groups, (rows - 1) * 2 + size - 1, columns)
    if shape[2] >= 3:
        pads, strides = [1, 0, 0, 1], [2, 1]
        net.add("ConvTranspose", *inputs, shape=shape, group=groups, pads=pads, strides=strides)


def add_pool(net: Drawn, x: str) -> None:
    batch, channels, *places = net.shapes[x]
    op_type = net.one_of(["MaxPool", "AveragePool"])
    extra = {"count_include_pad": net.below(2)} if op_type == "AveragePool" else {}
    pads = [net.below(2) for _ in range(4)]
    made = [
        (length + pads[axis] + pads[axis + 2] - 2) // 2 + 1 for axis, length in enumerate(places)
    ]
    if min(made) >= 3:
        shape = (batch, channels, *made)
        net.add(op_type, x, shape=shape, kernel_shape=[2, 2], strides=[2, 2], pads=pads, **extra)


def add_activation(net: Drawn, x: str) -> None:
    net.add(net.one_of(["Relu", "Sigmoid", "HardSwish", "Tanh", "Neg"]), x, shape=net.shapes[x])


def add_sum(net: Drawn, x: str) -> None:
    alike = [name for name, shape in net.shapes.items() if shape == net.shapes[x]]
    net.add(net.one_of(["Add", "Mul", "Max"]), x, net.one_of(alike), shape=net.shapes[x])


def add_constant(net: Drawn, x: str) -> None:
    channels, rows, columns = net.shapes[x][1:]
    forms = [(channels, 1, 1), (1,), (rows, columns), (1, channels, 1, columns), (columns,), ()]
    net.add(net.one_of(["Add", "Mul"]), x, net.floats(*net.one_of(forms)), shape=net.shapes[x])


def add_gate(net: Drawn, x: str) -> None:
    shape = net.shapes[x]
    net.add("GlobalAveragePool", x, shape=(*shape[:2], 1, 1))
    gate = list(net.shapes)[-1]
    net.add("Mul", x, gate, shape=shape)
    del net.shapes[gate]


def add_concat(net: Drawn, x: str) -> None:
    batch, _, *places = net.shapes[x]
    alike = [
        name for name, shape in net.shapes.items() if (shape[0], *shape[2:]) == (batch, *places)
    ]
    names = [x, net.one_of(alike)]
    channels = sum(net.shapes[name][1] for name in names)
    if channels <= 24:
        net.add("Concat", *names, shape=(batch, channels, *places), axis=net.one_of([1, -3]))


def add_resize(net: Drawn, x: str) -> None:
    batch, channels, rows, columns = net.shapes[x]
    scales = net.constant(np.array([1, 1, 2, 1], np.float32))
    mode = net.one_of(["nearest", "linear"])
    if rows <= 10:
        net.add("Resize", x, "", scales, shape=(batch, channels, 2 * rows, columns), mode=mode)


def add_pad(net: Drawn, x: str) -> None:
    batch, channels, rows, columns = net.shapes[x]
    pads = net.constant(np.array([0, 1, 2, 0, 0, 0, 0, 1]))
    if rows <= 12 and channels <= 12:
        made = (batch, channels + 1, rows + 2, columns + 1)
        net.add("Pad", x, pads, shape=made, mode=net.one_of(["constant", "edge"]))


def add_slice(net: Drawn, x: str) -> None:
    batch, channels, rows, columns = net.shapes[x]
    ends = [net.constant(np.array(numbers)) for numbers in ([1, 0], [rows, channels], [-2, 1])]
    if rows >= 5:
        net.add("Slice", x, *ends, shape=(batch, channels, rows - 1, columns))


def add_softmax(net: Drawn, x: str) -> None:
    net.add("Softmax", x, shape=net.shapes[x], axis=net.one_of([1, 2, -1]))


def add_mean(net: Drawn, x: str) -> None:
    axes = net.one_of([[1], [2, 3], [-1]])
    shape = tuple(
        1 if axis in [a % 4 for a in axes] else length for axis, length in enumerate(net.shapes[x])
    )
    net.add("ReduceMean", x, net.constant(np.array(axes)), shape=shape)
    mean = list(net.shapes)[-1]
    net.add("Add", x, mean, shape=net.shapes[x])
    del net.shapes[mean]


def add_norm(net: Drawn, x: str) -> None:
    channels = net.shapes[x][1]
    inputs = [net.floats(channels), net.floats(channels), net.floats(channels)]
    variance = net.constant(np.abs(net.constants[net.floats(channels)]) + np.float32(0.5))
    net.add("BatchNormalization", x, *inputs, variance, shape=net.shapes[x])


def add_turns(net: Drawn, x: str) -> None:
    batch, channels, rows, columns = net.shapes[x]
    net.add("Transpose", x, shape=(batch, rows, columns, channels), perm=[0, 2, 3, 1])
    last = list(net.shapes)[-1]
    net.add("Softmax", last, shape=(batch, rows, columns, channels), axis=-1)
    softened = list(net.shapes)[-1]
    net.add("Transpose", softened, shape=net.shapes[x], perm=[0, 3, 1, 2])
    del net.shapes[last], net.shapes[softened]


def add_instances(net: Drawn, x: str) -> None:
    channels = net.shapes[x][1]
    inputs = net.floats(channels), net.floats(channels)
    net.add("InstanceNormalization", x, *inputs, shape=net.shapes[x])


STEPS = [
    *[add_conv] * 5,
    *(add_pool, add_activation, add_activation, add_sum, add_sum, add_constant, add_gate),
    *(add_concat, add_resize, add_pad, add_slice, add_softmax, add_mean, add_norm, add_turns),
    *(add_instances, add_transposed, add_transposed),
]


@pytest.mark.parametrize("seed", all_but([0, 1], range(16)))
def test_a_drawn_network_gives_what_reference_gives(seed: int, stand_in_core: Core) -> None:
    net = Drawn(seed)
    assert_same_on("STANDIN", stand_in_core, net.model(), net.inputs, bound=1e-4)
