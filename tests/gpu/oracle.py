"""What a network gives in float64, and how far from it a device is.

The oracle is REFERENCE, whose kernels are numpy's, on the same model with float64 in place of
float32 everywhere: weights, inputs, outputs and casts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from models import MODELS
from onnx import TensorProto, numpy_helper

from aioinfer import Core

__all__ = ["Drawn", "drawn", "in_float64", "relative_error"]

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Drawn:
    """A network with inputs, and what it gives for them in float64."""

    model: onnx.ModelProto
    inputs: Arrays
    wanted: Arrays


@functools.cache
def model_named(name: str) -> onnx.ModelProto:
    return MODELS[name].build()


@functools.cache
def drawn(name: str, seed: int) -> Drawn:
    """Draw inputs for a network of the benchmarks, of one image or sentence."""
    model = model_named(name)
    inputs = MODELS[name].inputs(np.random.default_rng(seed), 1)
    return Drawn(model, inputs, in_float64(model, inputs))


def in_float64(model: onnx.ModelProto, inputs: Arrays) -> Arrays:
    """Run a model on REFERENCE with float64 for float32."""
    given = {
        name: array.astype(np.float64) if array.dtype == np.float32 else array
        for name, array in inputs.items()
    }
    with Core() as core, core.load_network(widened(model), "REFERENCE") as network:
        return network.create_infer_request().infer_sync(given)


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model without subgraphs, with float64 in place of float32."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del wide.graph.value_info[:]
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return wide


def relative_error(found: Arrays, wanted: Arrays) -> float:
    """Give the largest ||found - wanted|| / ||wanted|| of all outputs; inf where one is not finite.

    Raises AssertionError if names or shapes differ.
    """
    assert found.keys() == wanted.keys()
    errors = []
    for name, array in wanted.items():
        assert found[name].shape == array.shape, name
        wide = found[name].astype(np.float64)
        if not np.isfinite(wide).all():
            return float("inf")
        norm = max(float(np.linalg.norm(array.ravel())), 1e-30)
        errors.append(float(np.linalg.norm((wide - array).ravel())) / norm)
    return max(errors)
