"""What nodes of old opsets compute, where onnx's converter overlooks that the operator has changed.

It turns an Upsample, and a Resize of opset 10, into a newer Resize without a word on coordinates,
whose default is another one since opset 11; gives the bounds of a Clip, attributes until opset 10,
the type float32, whatever they bound; keeps the number of a Pad that needs none; leaves a Hardmax
alone, which until opset 12 took all axes from one on as a single one; and a GroupNormalization,
which until opset 20 had one scale for a group. Such nodes are noted by name before the conversion.
What has become of them gets the old meaning back afterwards, also in bodies. Where the converter
knows no such node, it is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from ..origins import Origins
from .forgotten_operators import is_forgotten, remember
from .node_writer import NodeWriter
from .structure import all_nodes, body_protos, value_names

__all__ = ["find_old_meanings", "restore_meanings"]

_SCALES = 2

Constants = Mapping[str, onnx.TensorProto]


def find_old_meanings(model: onnx.ModelProto, version: int) -> dict[str, onnx.NodeProto]:
    """Copy the nodes of this opset that the converter does not keep, by their unique names."""
    found: dict[str, onnx.NodeProto] = {}
    has_halves = _has_halves(model.graph)
    for node in all_nodes(model.graph.node):
        last, _ = _OLD.get(node.op_type, (0, None))
        if node.op_type == "Clip" and not has_halves:
            continue  # its bounds become float32, as nearly all inputs are
        if is_forgotten(node, version) or (not node.domain and version <= last):
            found[node.name] = onnx.NodeProto()
            found[node.name].CopyFrom(node)
    return found


def restore_meanings(
    graph: onnx.GraphProto,
    originals: Mapping[str, onnx.NodeProto],
    origins: Origins,
    version: int,
    outer: Constants | None = None,
) -> None:
    """Give the noted nodes of a converted graph, and of its bodies, their old meaning back.

    version: the opset that the model had. All nodes have names. Nodes that are added stand for the
    one that they serve.
    """
    if not originals:
        return
    constants = {**(outer or {}), **dict(_constants(graph))}
    taken = set(value_names(graph))
    makers = {name: node.name for node in graph.node for name in node.output}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for _, body in body_protos(node):
            restore_meanings(body, originals, origins, version, constants)
        writer = NodeWriter(node, origins, taken)
        original = originals.get(node.name)
        if original is not None and is_forgotten(original, version):
            remember(writer, original)
        elif original is not None:
            _, restore = _OLD[original.op_type]
            restore(writer, _Past(original, version, constants))
        elif node.op_type == "Reshape":
            _keep_empty_axes(writer, originals.get(makers.get(node.input[0], "")))
        nodes += [*writer.before, node, *writer.after]
    del graph.node[:]
    graph.node.extend(nodes)


@dataclass(frozen=True)
class _Past:
    """A node as it was, the model's opset, and the small constants that it can see by now."""

    node: onnx.NodeProto
    version: int
    constants: Constants

    def integer(self, name: str, default: int) -> int:
        """Read an attribute."""
        return next((int(item.i) for item in self.node.attribute if item.name == name), default)


def _flatten_around(writer: NodeWriter, past: _Past) -> None:
    """Have a Hardmax see two axes, the second of which is all that were one."""
    node = writer.node
    axis, given, made = past.integer("axis", 1), node.input[0], node.output[0]
    if axis != -1:
        shape = writer.put_before("Shape", given)
        node.input[0] = writer.put_before("Flatten", given, axis=axis)
        node.output[0] = writer.free_name("flat")
        writer.put_after("Reshape", node.output[0], shape, output=made, allowzero=1)
    writer.set_attributes(axis=-1)


def _keep_empty_axes(writer: NodeWriter, original: onnx.NodeProto | None) -> None:
    """Have the Reshape that the converter puts behind a Softmax keep axes that are empty."""
    if original is not None and writer.node.output[0] == original.output[0]:
        writer.set_attributes(allowzero=1)


def _keep(_writer: NodeWriter, _past: _Past) -> None:
    """Leave a node as it is; only what was put behind it counts."""


def _resize_as_before(writer: NodeWriter, past: _Past) -> None:
    """Have a Resize put the first elements onto each other, and round as onnxruntime does.

    The nearest element is the one before if an axis grows, and the one behind if it shrinks. Axes
    do not depend on each other, so what does both becomes two nodes.
    """
    node = writer.node
    writer.set_attributes(coordinate_transformation_mode="asymmetric")
    if any(item.name == "mode" and item.s != b"nearest" for item in node.attribute):
        return
    tensor = past.constants.get(node.input[_SCALES])
    scales = None if tensor is None else onnx.numpy_helper.to_array(tensor)
    if past.node.op_type == "Upsample" or (scales is not None and (scales >= 1).all()):
        writer.set_attributes(nearest_mode="floor")
    elif scales is not None and (scales <= 1).all():
        writer.set_attributes(nearest_mode="ceil")
    else:
        one = writer.constant(1, np.float32)
        growth = writer.put_before("Max", node.input[_SCALES], one)
        shrinkage = writer.put_before("Min", node.input[_SCALES], one)
        made, node.output[0] = node.output[0], writer.free_name("grown")
        node.input[_SCALES] = growth
        writer.set_attributes(nearest_mode="floor")
        writer.put_after(
            "Resize",
            *(node.output[0], "", shrinkage),
            output=made,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="ceil",
        )


def _bound_in_own_type(writer: NodeWriter, past: _Past) -> None:
    """Give the bounds of a Clip, which were attributes, the type of what they bound."""
    node = writer.node
    for index in range(1, len(node.input)):
        if node.input[index]:
            node.input[index] = writer.put_before("CastLike", node.input[index], node.input[0])


def _fill_nothing(writer: NodeWriter, past: _Past) -> None:
    """Drop the number of a Pad that repeats elements, which is no attribute any more."""
    kept = [item for item in writer.node.attribute if item.name != "value"]
    del writer.node.attribute[:]
    writer.node.attribute.extend(kept)


def _scale_channels(writer: NodeWriter, past: _Past) -> None:
    """Repeat what a GroupNormalization has for each group, as often as that has channels."""
    node = writer.node
    groups = writer.constant([past.integer("num_groups", 1)], np.int64)
    channels = writer.put_before("Shape", node.input[0], start=1, end=2)
    one = writer.constant([1], np.int64)
    column = writer.constant([-1, 1], np.int64)
    in_group = writer.put_before("Div", channels, groups)
    repeats = writer.put_before("Concat", one, in_group, axis=0)
    row = writer.constant([-1], np.int64)
    for index in (1, 2):
        upright = writer.put_before("Reshape", node.input[index], column)
        node.input[index] = writer.put_before(
            "Reshape", writer.put_before("Expand", upright, repeats), row
        )


def _drop_nothing(writer: NodeWriter, past: _Past) -> None:
    """Give a Dropout the mask that it had, of zeros: of its own type, and of bool in opset 10."""
    node = writer.node
    if len(past.node.output) < 2 or not past.node.output[1]:
        return
    given, mask = node.input[0], past.node.output[1]
    del node.output[1:]
    shape = writer.put_before("Shape", given)
    if past.version < 10:
        zeros = writer.put_before("ConstantOfShape", shape)
        writer.put_after("CastLike", zeros, given, output=mask)
    else:
        no = onnx.helper.make_tensor("", onnx.TensorProto.BOOL, [1], [False])
        writer.put_after("ConstantOfShape", shape, output=mask, value=no)


_Restore = Callable[[NodeWriter, _Past], None]

_OLD: Mapping[str, tuple[int, _Restore]] = {
    "Clip": (10, _bound_in_own_type),
    "Dropout": (11, _drop_nothing),
    "GroupNormalization": (20, _scale_channels),
    "Hardmax": (12, _flatten_around),
    "LogSoftmax": (12, _keep),
    "Pad": (10, _fill_nothing),
    "Resize": (10, _resize_as_before),
    "Softmax": (12, _keep),
    "Upsample": (9, _resize_as_before),
}
"""By operator: the last opset with the old meaning, and how to give it back."""


def _has_halves(graph: onnx.GraphProto) -> bool:
    """True if a graph, without its bodies, names a type of 16 or 64 bits that Clip had."""
    types = {tensor.data_type for tensor in graph.initializer}
    types |= {info.type.tensor_type.elem_type for info in graph.input}
    types |= {item.i for node in graph.node if node.op_type == "Cast" for item in node.attribute}
    return not types.isdisjoint((onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE))


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """List the small constants of a graph that no caller replaces."""
    given = {info.name for info in graph.input}
    tensors = [(tensor.name, tensor) for tensor in graph.initializer if tensor.name not in given]
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            tensors += [(node.output[0], item.t) for item in node.attribute if item.HasField("t")]
    for name, tensor in tensors:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            yield name, tensor
