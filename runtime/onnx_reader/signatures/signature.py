"""What an operator's schema says of the form of a node: its inputs, outputs and attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ....errors import nearest

__all__ = ["UNLIMITED", "Signature", "find_mistake"]

UNLIMITED = 2**31 - 1


class Signature(NamedTuple):
    """The form of an operator of one opset.

    ``inputs`` has a letter for each: ``s``, which must be there, ``o``, which may be left out, and
    at the end ``v`` for any number. ``attributes`` gives the kind of each, as a word: ``int``,
    ``ints``, ``float``, ``string``, ``tensor``, ``graph``...
    """

    inputs: str
    input_counts: tuple[int, int]
    output_counts: tuple[int, int]
    attributes: Mapping[str, str] = MappingProxyType({})
    required: tuple[str, ...] = ()


def find_mistake(
    signature: Signature,
    inputs: Sequence[str],
    outputs: Collection[str],
    attributes: Mapping[str, str | None],
) -> str | None:
    """Return what of a node does not fit its operator, to follow the node's name; None if all does.

    Inputs that are left out are empty texts. ``attributes`` gives the kind of each; None fits any.
    Pure, O(inputs + attributes).
    """
    least, most = signature.input_counts
    if not least <= len(inputs) <= most:
        return f"has {_counted(len(inputs), 'input')}, and takes {_range(least, most)}"
    least, most = signature.output_counts
    if not least <= len(outputs) <= most:
        return f"has {_counted(len(outputs), 'output')}, and gives {_range(least, most)}"
    if "" in inputs:
        letters = signature.inputs
        for index, name in enumerate(inputs):
            if not name and letters[min(index, len(letters) - 1)] != "o":
                return f"lacks its input {index}, which is not optional"
    for name, kind in attributes.items():
        wanted = signature.attributes.get(name)
        if wanted is None:
            if name.startswith("__"):  # what runtimes note for themselves; onnx accepts them, too
                continue
            known = sorted(signature.attributes)
            hint = nearest(name, known) or f"; it has {known or 'none'}"
            return f"has no attribute {name!r}{hint}"
        if kind is not None and kind != wanted:
            return f"wants {_one(wanted)} for its attribute {name!r}, and has {_one(kind)}"
    for name in signature.required:
        if name not in attributes:
            return f"lacks its attribute {name!r}, {_one(signature.attributes[name])}"
    return None


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _range(least: int, most: int) -> str:
    if most == UNLIMITED:
        return f"at least {least}"
    return str(least) if least == most else f"{least} to {most}"


def _one(kind: str) -> str:
    kind = kind.replace("_", " ")
    if kind.endswith("s"):
        return kind
    return f"an {kind}" if kind == "int" else f"a {kind}"
