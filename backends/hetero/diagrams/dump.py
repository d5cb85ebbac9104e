"""Writing the diagrams of a partition into a folder."""

from __future__ import annotations

import re
from pathlib import Path

from ....errors import PropertyError
from ..partition import Partition
from .diagram import affinity_svg, subgraphs_svg
from .dot import affinity_dot, subgraphs_dot

__all__ = ["dump_diagrams"]


def dump_diagrams(partition: Partition, folder: str) -> list[Path]:
    """Write four files, make the folder if it is not there, and list what was written.

    Raises PropertyError if the folder cannot be written to.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", partition.model) or "model"
    texts = {
        f"hetero_affinity_{name}.dot": affinity_dot(partition),
        f"hetero_affinity_{name}.svg": affinity_svg(partition),
        f"hetero_subgraphs_{name}.dot": subgraphs_dot(partition),
        f"hetero_subgraphs_{name}.svg": subgraphs_svg(partition),
    }
    try:
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (place / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PropertyError(
            f"HETERO: cannot write diagrams to DUMP_GRAPH={folder!r}: {error}; give a folder that "
            f"can be written to, or ''",
            "DUMP_GRAPH",
            "HETERO",
            value=folder,
        ) from error
    return [place / file for file in texts]
