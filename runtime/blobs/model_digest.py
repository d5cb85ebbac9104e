"""A model's content as one number: graph, types, metadata and the bytes of all constants."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ..graph import Model
from .graph_record import write_model_record
from .network_record import plain_value
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


def model_digest(model: Model, facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a model and of facts beside it, in hexadecimal.

    The same for equal content, wherever it was read from and whatever it is called. Raises
    NotSupportedError for an attribute that no blob can hold.
    """
    digest = _Digest()
    digest.add_json("facts", plain_value(facts))
    write_model_record(digest, model, name="")
    return digest.hash.hexdigest()
