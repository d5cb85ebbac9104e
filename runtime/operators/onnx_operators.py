"""The operators of onnx.reference, and the function bodies that ONNX's schemas define.

The only file here that loads onnx; it is imported when the first operator is made.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op as load_standard
from onnx.reference.ops.aionnx_preview_training import load_op as load_training
from onnx.reference.ops.aionnxml import load_op as load_ml

from ..graph import Node
from ..onnx_writer import node_to_proto
from .own.own_operators import find_own
from .plain_operators import Prepared

__all__ = ["find_missing", "make_onnx_operator"]

_LOADERS: dict[str, Callable[..., Any]] = {
    "": functools.partial(load_standard, evaluator_cls=ReferenceEvaluator),
    "ai.onnx.ml": load_ml,
    "ai.onnx.preview.training": load_training,
}
_WRONG = "onnx.reference computes it wrongly for some attributes; a device needs its own kernel"
_REFUSED = {
    ("", "AveragePool"): _WRONG,
    ("", "Conv"): _WRONG,
    ("", "ConvInteger"): _WRONG,
    ("", "ConvTranspose"): _WRONG,
    ("", "GlobalMaxPool"): _WRONG,
    ("", "LRN"): _WRONG,
    ("", "LpPool"): _WRONG,
    ("", "MaxPool"): _WRONG,
    ("", "QLinearConv"): _WRONG,
    ("ai.onnx.preview.training", "Gradient"): "it differentiates the graph around it",
}


def find_missing(node: Node, opsets: Mapping[str, int]) -> str | None:
    """Return why a node cannot be evaluated, or None: its type or its attributes."""
    version = _version(node.domain, opsets)
    reason = _find_missing(node.domain, node.op_type, version)
    if reason is not None:
        return reason
    required, known = _attribute_names(node.domain, node.op_type, version)
    for name in sorted(required - node.attributes.keys()):
        return f"its attribute {name!r} is missing"
    for name in sorted(node.attributes.keys() - known):
        return f"{node.op_type} of opset {version} has no attribute {name!r}"
    return None


@functools.cache
def _attribute_names(
    domain: str, op_type: str, version: int
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the required and of all attributes that a schema has."""
    attributes = defs.get_schema(op_type, version, domain).attributes
    required = frozenset(name for name, item in attributes.items() if item.required)
    return required, frozenset(attributes)


def make_onnx_operator(node: Node, opsets: Mapping[str, int]) -> Callable[..., tuple[Any, ...]]:
    """Bind a node to its class of onnx.reference, or to its function body."""
    return _bind(node_to_proto(node), dict(opsets))


def _version(domain: str, opsets: Mapping[str, int]) -> int:
    if domain in opsets:
        return opsets[domain]
    return max((schema.since_version for schema in _schemas_of(domain)), default=1)


@functools.cache
def _schemas_of(domain: str) -> tuple[defs.OpSchema, ...]:
    return tuple(schema for schema in defs.get_all_schemas() if schema.domain == domain)


@functools.cache
def _find_missing(domain: str, op_type: str, version: int) -> str | None:
    if (domain, op_type) in _REFUSED:
        return _REFUSED[domain, op_type]
    if domain not in _LOADERS:
        return f"domain {domain!r} is not one of ONNX's"
    if (domain, op_type) == ("", "ImageDecoder") and importlib.util.find_spec("PIL") is None:
        return "decoding images needs Pillow, which is not installed"
    if not defs.has(op_type, version, domain):
        return f"domain {domain or 'ai.onnx'!r} has no such operator in opset {version}"
    if find_own(domain, op_type) or _native_class(domain, op_type, version):
        return None
    schema: Any = defs.get_schema(op_type, version, domain)  # onnx's stubs lack what is asked here
    if schema.has_function or schema.has_context_dependent_function:
        return None
    return "onnx.reference does not implement it"


@functools.cache
def _native_class(domain: str, op_type: str, version: int) -> type[OpRun] | None:
    """Find onnx.reference's own class; None where there is none, or only a function body."""
    try:
        found = _LOADERS[domain](domain, op_type, version)
    except (NotImplementedError, RuntimeError, ValueError):
        return None
    return found if isinstance(found, type) else None


def _bind(proto: onnx.NodeProto, opsets: dict[str, int]) -> Callable[..., tuple[Any, ...]]:
    domain, version = proto.domain, _version(proto.domain, opsets)
    native = _native_class(domain, proto.op_type, version)
    if native is None:
        return _Function(proto, {**opsets, domain: version})
    run_params = {
        "log": lambda *_: None,
        "opsets": {**opsets, domain: version},
        "verbose": 0,
        "new_ops": {},
        "existing_functions": {},
        "evaluator_cls": ReferenceEvaluator,
    }
    op: Any = native
    return _Native(op(proto, run_params), proto)


class _Native:
    """An operator of onnx.reference that keeps the types which the schema ties to its inputs.

    Its attributes are fixed when it is made and ``run`` builds its own arguments, so that threads
    may share it.
    """

    __slots__ = ("_run", "_ties")

    def __init__(self, op: Any, proto: onnx.NodeProto) -> None:
        self._run = op.run
        self._ties = _type_ties(proto)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        outputs: tuple[Any, ...] = self._run(*inputs)
        for output, source in self._ties:
            if source < len(inputs) and output < len(outputs):
                given, made = inputs[source], outputs[output]
                if (
                    isinstance(given, np.ndarray)
                    and isinstance(made, np.ndarray)
                    and made.dtype != given.dtype
                ):
                    outputs = (*outputs[:output], made.astype(given.dtype), *outputs[output + 1 :])
        return outputs


def _type_ties(proto: onnx.NodeProto) -> tuple[tuple[int, int], ...]:
    """List (output, input) pairs that the schema gives one type variable."""
    domain = proto.domain
    try:
        schema = defs.get_schema(proto.op_type, domain)
    except defs.SchemaError:
        return ()
    variables = {constraint.type_param_str for constraint in schema.type_constraints}
    first_input: dict[str, int] = {}
    for index, given in enumerate(schema.inputs):
        if given.type_str in variables and given.is_homogeneous:
            first_input.setdefault(given.type_str, index)
    return tuple(
        (index, first_input[made.type_str])
        for index, made in enumerate(schema.outputs)
        if made.type_str in first_input
    )


class _Function:
    """An operator that ONNX defines by a body of other operators.

    Some bodies depend on the types of the inputs, so one is built for each combination that comes;
    there are no more of them than element types. Two threads may build the same one; either serves.
    """

    __slots__ = ("_bodies", "_opsets", "_proto", "_schema")

    def __init__(self, proto: onnx.NodeProto, opsets: dict[str, int]) -> None:
        self._proto, self._opsets = proto, opsets
        self._schema: Any = defs.get_schema(proto.op_type, opsets[proto.domain], proto.domain)
        self._bodies: dict[tuple[np.dtype | None, ...], _Body] = {}

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        key = tuple(None if item is None else item.dtype for item in inputs)
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = _Body(self._expand(key), self._proto, self._opsets)
        return body(*inputs)

    def _expand(self, dtypes: Sequence[np.dtype | None]) -> onnx.FunctionProto:
        if self._schema.has_function:
            body: onnx.FunctionProto = self._schema.function_body
            return body
        types = [
            onnx.TypeProto()
            if dtype is None
            else onnx.helper.make_tensor_type_proto(
                onnx.helper.np_dtype_to_tensor_dtype(dtype), None
            )
            for dtype in dtypes
        ]
        found = self._schema.get_context_dependent_function(
            self._proto.SerializeToString(), [item.SerializeToString() for item in types]
        )
        function = onnx.FunctionProto()
        function.ParseFromString(found)
        return function


class _Body:
    """A function's nodes, bound to the attributes of the node that calls it."""

    __slots__ = ("_inputs", "_outputs", "_steps")

    def __init__(
        self, function: onnx.FunctionProto, caller: onnx.NodeProto, opsets: dict[str, int]
    ) -> None:
        versions = {**opsets, **{item.domain: item.version for item in function.opset_import}}
        given = _attributes_of(caller, function)
        self._inputs, self._outputs = tuple(function.input), tuple(function.output)
        self._steps = []
        for node in function.node:
            bound = _with_attributes(node, given)
            own = None if bound.attribute else find_own(bound.domain, bound.op_type)
            if own is None or isinstance(own, Prepared):
                operator = _bind(bound, versions)
            else:
                operator = _one_output(own)
            self._steps.append((operator, bound.input[:], bound.output[:]))

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        values: dict[str, Any] = {"": None, **dict.fromkeys(self._inputs)}
        values.update(zip(self._inputs, inputs, strict=False))
        for operator, given, made in self._steps:
            outputs = operator(*[values[name] for name in given])
            values.update(zip(made, outputs, strict=False))
        return tuple(values[name] for name in self._outputs)


def _one_output(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    return lambda *inputs: (function(*inputs),)


def _attributes_of(
    caller: onnx.NodeProto, function: onnx.FunctionProto
) -> dict[str, onnx.AttributeProto]:
    """Collect what the caller gives, and the defaults of the function and of its schema."""
    schema = defs.get_schema(caller.op_type, caller.domain)
    given = {
        name: item.default_value
        for name, item in schema.attributes.items()
        if item.default_value.type
    }
    given.update({item.name: item for item in function.attribute_proto})
    given.update({item.name: item for item in caller.attribute})
    return given


def _with_attributes(
    node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]
) -> onnx.NodeProto:
    """Copy a node of a body, with references to the caller's attributes replaced by these."""
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            bound.attribute.append(attribute)
        elif attribute.ref_attr_name in given:
            copied = bound.attribute.add()
            copied.CopyFrom(given[attribute.ref_attr_name])
            copied.name = attribute.name
    return bound
