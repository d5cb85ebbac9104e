"""A BERT sentence encoder in plain numpy: one sentence at a time, so that there is no padding.

The oracle for the example's ONNX model, with which it shares nothing. Computes in float64.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LAYER_COUNT, HEAD_COUNT, EPSILON = 6, 12, 1e-12  # of all-MiniLM-L6-v2

erf = np.vectorize(math.erf, otypes=[np.float64])


class BertByHand:
    """weights: as Hugging Face names them."""

    def __init__(self, weights: Mapping[str, NDArray[np.float32]]) -> None:
        self._weights = {name: array.astype(np.float64) for name, array in weights.items()}

    def embed(self, token_ids: Sequence[int]) -> Array:
        """Give the normalised mean over the tokens' last hidden states: (hidden size,)."""
        tables = [f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position")]
        words, positions = (self._weights[name] for name in tables)
        token_type = self._weights["embeddings.token_type_embeddings.weight"][0]
        x = words[list(token_ids)] + positions[: len(token_ids)] + token_type
        x = self._normalized("embeddings.LayerNorm", x)
        for number in range(LAYER_COUNT):
            x = self._layer(f"encoder.layer.{number}.", x)
        mean = x.mean(axis=0)
        return np.asarray(mean / np.sqrt((mean**2).sum()))

    def _layer(self, prefix: str, x: Array) -> Array:
        query, key, value = (
            np.split(self._dense(f"{prefix}attention.self.{part}", x), HEAD_COUNT, axis=1)
            for part in ("query", "key", "value")
        )
        heads = [attend(*parts) for parts in zip(query, key, value, strict=True)]
        mixed = self._dense(f"{prefix}attention.output.dense", np.concatenate(heads, axis=1))
        x = self._normalized(f"{prefix}attention.output.LayerNorm", mixed + x)
        wide = self._dense(f"{prefix}intermediate.dense", x)
        wide = wide * 0.5 * (1 + erf(wide / math.sqrt(2)))
        narrow = self._dense(f"{prefix}output.dense", wide)
        return self._normalized(f"{prefix}output.LayerNorm", narrow + x)

    def _dense(self, name: str, x: Array) -> Array:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normalized(self, name: str, x: Array) -> Array:
        centered = x - x.mean(axis=1, keepdims=True)
        spread = np.sqrt((centered**2).mean(axis=1, keepdims=True) + EPSILON)
        return centered / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def attend(query: Array, key: Array, value: Array) -> Array:
    """One head of attention; all are (tokens, head size)."""
    weights = np.exp(query @ key.T / math.sqrt(query.shape[1]))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True) @ value)
