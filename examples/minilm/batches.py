"""Put sentences of different lengths into batches, as the encoder wants them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def group_by_length(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Split the indices of lengths into groups of at most size, each of similar lengths."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + size] for start in range(0, len(order), size)]


def make_inputs(token_ids: Sequence[Sequence[int]]) -> dict[str, NDArray[np.int64]]:
    """Give the encoder's inputs for sentences of any lengths, padded to the longest.

    token_ids: one list of ids for each sentence. Returns new arrays int64 (sentences, tokens).
    """
    shape = len(token_ids), max(map(len, token_ids))
    inputs = {name: np.zeros(shape, np.int64) for name in ("input_ids", "attention_mask")}
    for row, ids in enumerate(token_ids):
        inputs["input_ids"][row, : len(ids)] = ids
        inputs["attention_mask"][row, : len(ids)] = 1
    return inputs
