"""Subgraphs as ONNX files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..runtime.graph import Model, constant_values

__all__ = ["save_subgraphs"]

INLINE_BYTES = 1 << 30  # a proto cannot be saved beyond 2 GB; half leaves room for the rest of it


def save_subgraphs(subgraphs: Sequence[tuple[str, Model]], folder: Path) -> list[Path]:
    """Write each (device, model) as ``<number>_<device>.onnx`` and list the files.

    Makes the folder if it is not there; weights over 1 GB go into a file of their own beside the
    model. Raises OSError.
    """
    import onnx

    from ..runtime.onnx_writer import write_model

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, (device, model) in enumerate(subgraphs):
        path = folder / f"{number:03d}_{re.sub(r'[^A-Za-z0-9.-]+', '_', device)}.onnx"
        weights = path.with_suffix(".weights")
        weights.unlink(missing_ok=True)  # onnx would append to it
        constants = (value.constant for value in constant_values(model.graph))
        size_bytes = sum(array.nbytes for array in constants if array is not None)
        onnx.save_model(
            write_model(model),
            path,
            save_as_external_data=size_bytes > INLINE_BYTES,
            location=weights.name,
        )
        written.append(path)
    return written
