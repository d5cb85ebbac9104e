"""All models brought to one operator set, by onnx's own converter."""

from __future__ import annotations

import onnx
import onnx.defs
import onnx.helper

from ....errors import ModelError
from ...onnx_native.calls import convert_version
from ...onnx_native.guessed_types import has_guessed_types
from ...onnx_native.inference import drop_new_symbols, known_symbols, with_inferred_types
from ..origins import Origins
from .batched_scan import (
    BATCHED_OPSET,
    find_batched_scans,
    hide_batched_scans,
    split_batched_scans,
)
from .forgotten_operators import is_forgotten
from .naming import Snapshot, restore_names
from .old_meanings import find_old_meanings, restore_meanings
from .structure import all_nodes, all_tensors

__all__ = ["convert", "is_newest", "normalize_opsets", "read_opsets"]

_UNKNOWN_DOMAIN = "aioinfer.unknown"
_UNKNOWN_DTYPE_KEY = "aioinfer.float8e8m0"


def normalize_opsets(model: onnx.ModelProto) -> None:
    """Write the standard domain as ``""`` everywhere, and each domain's version once.

    Raises ModelError for versions that contradict each other or are newer than onnx knows, and for
    a model that uses standard operators and does not say of which version.
    """
    for function in model.functions:
        for node in all_nodes(function.node):
            node.domain = _domain(node.domain)
        _write_opsets(function, read_opsets(function))
    opsets = read_opsets(model)
    uses_standard = False
    for node in all_nodes(model.graph.node):
        node.domain = _domain(node.domain)
        uses_standard = uses_standard or not node.domain
    if uses_standard and "" not in opsets:
        if model.ir_version >= 3:
            raise ModelError("does not say of which opset its operators are")
        opsets[""] = 1  # the only one there was
    for domain, version in opsets.items():
        _check_known(domain, version)
    _write_opsets(model, opsets)


def _check_known(domain: str, version: int) -> None:
    newest = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": onnx.helper.VERSION_TABLE[-1][3]}
    label = domain or "ai.onnx"
    if version < 1:
        raise ModelError(f"has opset {version} of {label}; opsets start at 1")
    if domain in newest and version > newest[domain]:
        raise ModelError(
            f"has opset {version} of {label}, and onnx {onnx.__version__} knows it up to opset "
            f"{newest[domain]}; export it with opset {newest[domain]} or older"
        )


def read_opsets(holder: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """Read the versions by domain; raises ModelError if one has two."""
    opsets: dict[str, int] = {}
    for item in holder.opset_import:
        domain = _domain(item.domain)
        if opsets.setdefault(domain, item.version) != item.version:
            raise ModelError(
                f"has opset {opsets[domain]} and opset {item.version} of {domain or 'ai.onnx'}"
            )
    return opsets


def _write_opsets(holder: onnx.ModelProto | onnx.FunctionProto, opsets: dict[str, int]) -> None:
    del holder.opset_import[:]
    for domain, version in opsets.items():
        holder.opset_import.add(domain=domain, version=version)


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def is_newest(model: onnx.ModelProto) -> bool:
    """True if its standard operators, if it has any, are of the newest opset that onnx knows."""
    target = onnx.defs.onnx_opset_version()
    return read_opsets(model).get("", target) == target


def convert(model: onnx.ModelProto, origins: Origins) -> onnx.ModelProto:
    """Bring a model to the newest standard opset that onnx knows; the model itself is used up.

    Functions are inlined, all nodes have names; afterwards, too. Operators that were never in the
    standard are left as they are. Raises ModelError where onnx's converter cannot.
    """
    if is_newest(model):
        return model
    target, version = onnx.defs.onnx_opset_version(), read_opsets(model)[""]
    meanings = find_old_meanings(model, version)
    if not _needs_converter(model, version, target):
        _write_opsets(model, {**read_opsets(model), "": target})
        restore_meanings(model.graph, meanings, origins, version)
        return model
    snapshot, symbols = Snapshot.of(model.graph), known_symbols(model)
    untold = _outputs_without_shape(model) if has_guessed_types(model) else frozenset()
    _hide_unknown_operators(model, version)
    _hide_unknown_dtypes(model)
    scans = find_batched_scans(model) if version == BATCHED_OPSET else frozenset()
    if scans:
        model = with_inferred_types(model)  # the converter asks for the ranks of what they make
        hide_batched_scans(model, scans)
    try:
        converted = convert_version(model, target)
    except ModelError as error:
        raise ModelError(
            f"onnx cannot convert it from opset {version} to opset {target}: {_tail(error)}"
        ) from error
    for node in all_nodes(converted.graph.node):
        if node.domain == _UNKNOWN_DOMAIN:
            node.domain = ""
    _show_unknown_dtypes(converted)
    drop_new_symbols(converted, symbols)
    opsets = read_opsets(converted)
    opsets.pop(_UNKNOWN_DOMAIN, None)
    _write_opsets(converted, opsets)
    restore_names(converted.graph, snapshot, origins)
    restore_meanings(converted.graph, meanings, origins, version)
    split_batched_scans(converted, scans, origins)
    for info in converted.graph.output:  # the converter writes down what it infers
        if info.name in untold and info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    return converted


def _needs_converter(model: onnx.ModelProto, version: int, target: int) -> bool:
    """True if an operator is another one by now; the converter's time grows with the square."""
    used = {node.op_type for node in all_nodes(model.graph.node) if not node.domain}
    return any(_has_changed(op_type, version, target) for op_type in used)


def _has_changed(op_type: str, version: int, target: int) -> bool:
    """Compare what an operator is in two opsets; one that came in between has changed, too."""
    if not _has_schema(op_type, version):
        return onnx.defs.has(op_type)
    versions = {onnx.defs.get_schema(op_type, opset).since_version for opset in (version, target)}
    return len(versions) > 1


def _outputs_without_shape(model: onnx.ModelProto) -> frozenset[str]:
    tensors = ((info.name, info.type.tensor_type) for info in model.graph.output)
    return frozenset(name for name, proto in tensors if not proto.HasField("shape"))


def _hide_unknown_operators(model: onnx.ModelProto, version: int) -> None:
    # The converter stops at the first of ONNX's operators that it does not know, and passes others.
    found = False
    for node in all_nodes(model.graph.node):
        is_hidden = is_forgotten(node, version)
        if node.domain or (_has_schema(node.op_type, version) and not is_hidden):
            continue
        if onnx.defs.has(node.op_type) and not is_hidden:
            first = onnx.defs.get_schema(node.op_type).since_version
            raise ModelError(
                f"node {node.name!r} is a {node.op_type}, which came with a later opset (now of "
                f"opset {first}), but the model says opset {version}"
            )
        node.domain = _UNKNOWN_DOMAIN
        found = True
    if found:
        model.opset_import.add(domain=_UNKNOWN_DOMAIN, version=1)


def _hide_unknown_dtypes(model: onnx.ModelProto) -> None:
    # Of this element type the converter takes no tensors, although their data is elsewhere.
    for tensor in (*model.graph.initializer, *all_tensors(model.graph.node)):
        if tensor.data_type == onnx.TensorProto.FLOAT8E8M0:
            tensor.data_type = onnx.TensorProto.UINT8
            tensor.external_data.add(key=_UNKNOWN_DTYPE_KEY, value="")


def _show_unknown_dtypes(model: onnx.ModelProto) -> None:
    for tensor in (*model.graph.initializer, *all_tensors(model.graph.node)):
        if any(entry.key == _UNKNOWN_DTYPE_KEY for entry in tensor.external_data):
            tensor.data_type = onnx.TensorProto.FLOAT8E8M0


def _has_schema(op_type: str, version: int) -> bool:
    try:
        onnx.defs.get_schema(op_type, version)
    except onnx.defs.SchemaError:
        return False
    return True


def _tail(error: ModelError) -> str:
    """Cut the C++ file name and function off a message of the converter."""
    return str(error).rpartition("failed: ")[2].strip()
