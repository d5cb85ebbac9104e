"""A model's content as one number: graph, types, metadata and the bytes of all constants."""

from __future__ import annotations

import hashlib

from ..graph import Model
from .graph_record import write_model_record
from .writer import BlobWriter

__all__ = ["model_digest"]


class _Digest(BlobWriter):
    """Takes frames for their content alone."""

    def __init__(self) -> None:
        super().__init__()
        self.hash = hashlib.sha256()

    def _add(self, name: str, content: bytes | memoryview) -> None:
        self.hash.update(f"{name} {len(content)} ".encode())
        self.hash.update(content)


def model_digest(model: Model) -> str:
    """Return the SHA-256 of a model, in hexadecimal.

    The same for equal content, wherever it was read from and whatever it is called. Raises
    NotSupportedError for an attribute that no blob can hold.
    """
    digest = _Digest()
    write_model_record(digest, model, name="")
    return digest.hash.hexdigest()
