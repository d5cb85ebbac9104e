"""Model-local functions, inlined by onnx so that each node still knows the call it came from.

The inliner renames what it inlines, forgets the defaults of attributes, loses outputs that are
inputs, and leaves functions of another opset alone. So each call first gets a function of its own
in which all that is settled: a copy whose attributes are those of the call and whose nodes have
their final names, ``call/inner``, which they carry along as metadata. Calls inside get copies, too,
so recursion and explosive nesting are found here and not by the C++ part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
import onnx.defs

from ....errors import ModelError
from ...onnx_native import calls as native
from ..origins import Origins
from .naming import Snapshot, name_nodes, restore_names
from .opset_conversion import convert, read_opsets
from .schema_signature import check_signatures
from .structure import all_nodes

__all__ = ["inline_functions"]

NODE_LIMIT = 200_000  # a few kB of functions that call each other twice could become 2^100 nodes

_DOMAIN = "aioinfer.inlined"
_NAME_KEY = "aioinfer.name"
_Key = tuple[str, str, str]


def inline_functions(model: onnx.ModelProto, origins: Origins) -> onnx.ModelProto:
    """Replace every call of a model-local function by its nodes; the model itself is used up.

    All nodes of the main graph have names and origins; afterwards, too. If a function is written
    for another standard opset than the model, the parts are converted one by one first. Raises
    ModelError for functions that call themselves, that become too many nodes or that onnx cannot
    inline.
    """
    if not model.functions:
        return model
    copies = _copy_per_call(model, origins)
    del model.functions[:]
    model.opset_import.add(domain=_DOMAIN, version=1)
    snapshot = Snapshot.of(model.graph)
    standard = read_opsets(model).get("", onnx.defs.onnx_opset_version())
    if any(read_opsets(copied).get("", standard) != standard for copied in copies):
        model = convert(model, origins)
        copies = [_converted(copied, model.ir_version, origins) for copied in copies]
    model.functions.extend(copies)
    opsets = read_opsets(model)
    for function in copies:
        for domain, version in read_opsets(function).items():
            if opsets.setdefault(domain, version) == version:
                continue
            raise ModelError(
                f"uses opset {opsets[domain]} of {domain!r}, but opset {version} in a function"
            )
    del model.opset_import[:]
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    inlined = _inline(model)
    restore_names(inlined.graph, snapshot, origins)
    return inlined


def _inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """Have onnx inline all functions, and take the nodes' names from their metadata."""
    for holder in (model.graph, *model.functions):
        for node in all_nodes(holder.node):
            node.metadata_props.add(key=_NAME_KEY, value=node.name)
    inlined = native.inline_functions(model)
    del inlined.functions[:]
    for node in all_nodes(inlined.graph.node):
        if node.domain == _DOMAIN:
            raise ModelError("has a function that onnx's inliner leaves alone")
        names = [entry.value for entry in node.metadata_props if entry.key == _NAME_KEY]
        node.name = names[0] if names else ""
        del node.metadata_props[:]
    for index in reversed(range(len(inlined.opset_import))):
        if inlined.opset_import[index].domain == _DOMAIN:
            del inlined.opset_import[index]
    return inlined


def _converted(
    function: onnx.FunctionProto, ir_version: int, origins: Origins
) -> onnx.FunctionProto:
    """Bring one function to the newest standard opset; its types are not known."""
    model = onnx.ModelProto(ir_version=ir_version, opset_import=function.opset_import)
    model.graph.name = function.name
    model.graph.node.extend(function.node)
    for name in function.input:
        model.graph.input.add(name=name)
    for name in function.output:
        model.graph.output.add(name=name)
    model = convert(model, origins)
    result = onnx.FunctionProto(
        domain=function.domain,
        name=function.name,
        input=function.input,
        output=function.output,
        opset_import=model.opset_import,
    )
    for tensor in model.graph.initializer:  # a function has none; the converter may add some
        result.node.add(op_type="Constant", output=[tensor.name]).attribute.add(
            name="value", type=onnx.AttributeProto.TENSOR, t=tensor
        )
    result.node.extend(model.graph.node)
    return result


def _copy_per_call(model: onnx.ModelProto, origins: Origins) -> list[onnx.FunctionProto]:
    """Make each call, in the model and in copies, call a copy of its own; return the copies."""
    library: dict[_Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if key in library:
            raise ModelError(f"defines function {function.name!r} twice")
        library[key] = function
    _check_sizes(model.graph.node, library)
    opsets = read_opsets(model)
    copies: list[onnx.FunctionProto] = []
    waiting = [model.graph.node]
    while waiting:
        for node in all_nodes(waiting.pop()):
            key = _key(node)
            if key in library:
                copied = _copy_for(node, library[key], f"call_{len(copies)}")
                inherited = origins[node.name]
                name_nodes(copied.node, origins, f"{node.name}/", inherited=inherited)
                check_signatures(copied.node, {**opsets, **read_opsets(copied)})
                copies.append(copied)
                waiting.append(copied.node)
    return copies


def _key(node: onnx.NodeProto) -> _Key:
    return (node.domain, node.op_type, node.overload)


def _check_sizes(
    nodes: Iterable[onnx.NodeProto], library: Mapping[_Key, onnx.FunctionProto]
) -> None:
    """Raise ModelError for functions that call themselves, or that become too many nodes."""
    calls = {
        key: [_key(node) for node in all_nodes(function.node)] for key, function in library.items()
    }
    sizes: dict[_Key, int] = {}
    for root in library:
        path = {root: iter(calls[root])} if root not in sizes else {}
        while path:
            caller, rest = next(reversed(path.items()))
            callee = next((key for key in rest if key in library and key not in sizes), None)
            if callee is None:
                sizes[caller] = sum(1 + sizes.get(key, 0) for key in calls[caller])
                del path[caller]
            elif callee in path:
                raise ModelError(f"has a function {callee[1]!r} that calls itself")
            else:
                path[callee] = iter(calls[callee])
    if sum(sizes.get(_key(node), 1) for node in all_nodes(nodes)) > NODE_LIMIT:
        raise ModelError(
            f"has over {NODE_LIMIT} nodes when its functions are inlined, and aioinfer reads no "
            f"more; have fewer functions call each other, or split the model"
        )


def _copy_for(call: onnx.NodeProto, function: onnx.FunctionProto, name: str) -> onnx.FunctionProto:
    """Copy a function for one call, with the call's attributes filled in; the call then uses it."""
    if len(call.input) > len(function.input) or len(call.output) > len(function.output):
        raise ModelError(
            f"node {call.name!r} gives or takes more than its function {function.name!r}"
        )
    copied = onnx.FunctionProto()
    copied.CopyFrom(function)
    given = {item.name: item for item in function.attribute_proto}
    given.update((item.name, item) for item in call.attribute)
    for node in all_nodes(copied.node):
        _fill_in_attributes(node, given)
    _separate_outputs(copied)
    del copied.attribute[:]
    del copied.attribute_proto[:]
    del copied.value_info[:]
    copied.ClearField("overload")
    copied.domain, copied.name = _DOMAIN, name
    copied.opset_import.add(domain=_DOMAIN, version=1)
    del call.attribute[:]
    call.ClearField("overload")
    call.domain, call.op_type = _DOMAIN, name
    return copied


def _fill_in_attributes(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references to attributes of the function; those that are not given go away."""
    if not any(item.ref_attr_name for item in node.attribute):
        return
    filled = []
    for item in node.attribute:
        found = given.get(item.ref_attr_name) if item.ref_attr_name else item
        if found is not None:
            own = onnx.AttributeProto()
            own.CopyFrom(found)
            own.name = item.name
            filled.append(own)
    del node.attribute[:]
    node.attribute.extend(filled)


def _separate_outputs(function: onnx.FunctionProto) -> None:
    """Make every output by a node of its own, also one that is an input or named twice."""
    taken = {*function.input, *(name for node in function.node for name in node.output)}
    seen = set(function.input)
    for index, name in enumerate(function.output):
        if name in seen:
            fresh = _free_name(f"{name}_out", taken)
            function.node.add(op_type="Identity", input=[name], output=[fresh])
            function.output[index] = fresh
        seen.add(function.output[index])


def _free_name(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name
