"""The signatures of ONNX's operators, without onnx."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from .signature import UNLIMITED, Signature
from .signature_rows import ROWS

__all__ = ["find_signature", "row", "unwrapped"]

_Versions = list[tuple[int, Signature]]

_parsed: dict[str, _Versions] = {}


def find_signature(op_type: str, opset: int) -> Signature | None:
    """Return the signature that an operator has in an opset from OLDEST_OPSET to NEWEST_OPSET.

    None for an operator that the opset does not have. Any thread.
    """
    versions = _parsed.get(op_type)
    if versions is None:
        rows = _rows().get(op_type)
        if rows is None:
            return None
        versions = _parsed[op_type] = [_parse(line) for line in rows]
    found = None
    for since, signature in versions:
        if since > opset:
            break
        found = signature
    return found


def row(op_type: str, since: int, signature: Signature) -> str:
    """Write a signature as a row: ``Conv 1 sso 1-1 group:int``, with ``!`` behind what is required.

    The letters of ``Signature.inputs`` are followed, if any number may come, by the least of those.
    """
    inputs = signature.inputs or "-"
    if inputs.endswith("v"):
        inputs += str(signature.input_counts[0] - len(inputs) + 1)
    least, most = signature.output_counts
    outputs = f"{least}-{'*' if most == UNLIMITED else most}"
    attributes = [
        f"{name}:{kind}{'!' * (name in signature.required)}"
        for name, kind in signature.attributes.items()
    ]
    return " ".join([op_type, str(since), inputs, outputs, *attributes])


def unwrapped(text: str) -> list[str]:
    """Return the rows of a table in which what goes on in the next line is indented there."""
    return text.replace("\n ", "").strip().splitlines()


@functools.cache
def _rows() -> Mapping[str, Sequence[str]]:
    rows: dict[str, list[str]] = {}
    for line in unwrapped(ROWS):
        rows.setdefault(line[: line.index(" ")], []).append(line)
    return rows


def _parse(line: str) -> tuple[int, Signature]:
    _, since, inputs, outputs, *attributes = line.split()
    letters = inputs.rstrip("-*0123456789")
    least = most = len(letters)
    if letters.endswith("v"):
        least, most = least - 1 + int(inputs[least:]), UNLIMITED
    else:
        least = len(letters.rstrip("o"))
    fewest, _, highest = outputs.partition("-")
    counts = int(fewest), UNLIMITED if highest == "*" else int(highest)
    pairs = [item.partition(":")[::2] for item in attributes]
    return int(since), Signature(
        letters,
        (least, most),
        counts,
        {name: kind.rstrip("!") for name, kind in pairs},
        tuple(name for name, kind in pairs if kind.endswith("!")),
    )
