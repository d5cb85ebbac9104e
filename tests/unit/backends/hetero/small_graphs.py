"""Small models for HETERO's tests, written as `add@0 = Add(p, k)`: name, device, operator, inputs.

A node and what it makes have the same name. Names that begin with p are inputs and names that begin
with k are constants, all float32 of shape [2, 3]; every constant has content of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.auto.plugin import AutoPlugin
from aioinfer.backends.batch.plugin import BatchPlugin
from aioinfer.backends.hetero.plugin import HeteroPlugin
from aioinfer.backends.multi.plugin import MultiPlugin
from aioinfer.backends.reference.plugin import ReferencePlugin
from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader import read_model

SHAPE = (2, 3)
_NODE = re.compile(r"(\w+)@(\d) = (\w+)\((.*)\)")


def new_core() -> aioinfer.Core:
    """Make a Core that knows the plugins, installed or not."""
    core = aioinfer.Core()
    plugins = {
        "AUTO": AutoPlugin,
        "BATCH": BatchPlugin,
        "HETERO": HeteroPlugin,
        "MULTI": MultiPlugin,
        "REFERENCE": ReferencePlugin,
    }
    for name, plugin in plugins.items():
        if name not in core.plugin_names:
            core.register_plugin(name, plugin)
    return core


def graph(
    text: str, outputs: str, inputs: str | None = None, shape: Sequence[int | str] = SHAPE
) -> onnx.ModelProto:
    """Read nodes, one a line; outputs and inputs are names with blanks between."""
    nodes, used = [], []
    for name, _, op, arguments in _parsed(text):
        names = [item.strip() for item in arguments.split(",")]
        used += names
        nodes.append(helper.make_node(op, names, [name], name=name))
    inputs_ = inputs.split() if inputs is not None else sorted({n for n in used if n[0] == "p"})
    constants = sorted({name for name in used if name[0] == "k"})
    return helper.make_model(
        helper.make_graph(
            nodes,
            "small",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs_],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in outputs.split()],
            [
                numpy_helper.from_array(np.full((1, 3), 1.5 + index, np.float32), name)
                for index, name in enumerate(constants)
            ],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )


def model(text: str, outputs: str, inputs: str | None = None) -> Model:
    """As ``graph``, read."""
    return read_model(graph(text, outputs, inputs))


def affinity(text: str, plugin: str = "MOCK") -> dict[str, str]:
    """Tell the device of each node."""
    return {name: f"{plugin}.{number}" for name, number, _, _ in _parsed(text)}


def arrays(names: str = "p", seed: int = 0) -> dict[str, np.ndarray]:
    """Make an input for each name."""
    source = np.random.default_rng(seed)
    return {name: source.standard_normal(SHAPE).astype(np.float32) for name in names.split()}


def on_one_device(
    core: aioinfer.Core, proto: onnx.ModelProto | Model, inputs: Mapping[str, object]
) -> dict[str, np.ndarray]:
    """Compute what HETERO has to give, on REFERENCE alone."""
    with core.load_network(proto, "REFERENCE") as network:
        return network.create_infer_request().infer_sync(dict(inputs))


def _parsed(text: str) -> list[tuple[str, str, str, str]]:
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _NODE.fullmatch(line)
        assert match is not None, line
        found.append(match.groups())
    return found
