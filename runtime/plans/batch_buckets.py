"""Batch sizes that plans are made for: a run of fewer rows is padded up to the next of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..graph import Model
from ..tensors.tensor import Port
from .batch_axis import BatchAxis, find_batch_axis

__all__ = ["BatchBuckets", "Padding", "bucket_of", "choose_buckets"]

Signature = tuple[tuple[int, ...] | None, ...]


def bucket_of(batch: int, buckets: Sequence[int]) -> int:
    """Choose the least of ascending buckets that holds a batch; above the last, and 0, itself."""
    place = bisect_left(buckets, batch)
    return batch if batch == 0 or place == len(buckets) else buckets[place]


@dataclass(frozen=True, slots=True)
class Padding:
    """A run of ``rows`` in a plan for ``bucket`` rows, which are more."""

    rows: int
    bucket: int

    def visible_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Cut a shape of the plan, led by the batch, to what the run's own rows make of it."""
        return (shape[0] // self.bucket * self.rows, *shape[1:])


class BatchBuckets:
    """The buckets of one network, whose ``axis`` says what is padded. Immutable, so thread-safe."""

    def __init__(self, sizes: Sequence[int], axis: BatchAxis, ports: Sequence[Port]) -> None:
        self.sizes = tuple(sizes)
        self.inputs, self.outputs = frozenset(axis.inputs), frozenset(axis.outputs)
        self._names = axis.inputs
        self._places = [place for place, port in enumerate(ports) if port.name in self.inputs]

    def signature_of_plan(self, signature: Signature) -> Signature:
        """Round the batch of input shapes up; shapes that do not agree on one stay as they are."""
        shapes = [signature[place] for place in self._places]
        batches = {shape[0] for shape in shapes if shape}
        if len(batches) != 1:
            return signature
        (batch,) = batches
        bucket = bucket_of(batch, self.sizes)
        padded = list(signature)
        for place, shape in zip(self._places, shapes, strict=True):
            padded[place] = (bucket, *(shape or ())[1:])
        return tuple(padded)

    def padding_of(self, inputs: Mapping[str, Any]) -> Padding | None:
        """Return how a run with these arrays is padded; None if it fills its plan."""
        batches = {int(inputs[name].shape[0]) for name in self._names}
        batch = batches.pop()
        bucket = bucket_of(batch, self.sizes)
        return None if batches or batch == bucket else Padding(batch, bucket)


def choose_buckets(
    model: Model,
    ports: Sequence[Port],
    sizes: Sequence[int],
    shape_tensors: Collection[str] = (),
) -> tuple[BatchBuckets | None, str]:
    """Return the buckets of a network, or None and the reason why every batch has its own plan.

    ``sizes`` ascend; none of them says that no buckets are wanted. Pure.
    """
    if not sizes:
        return None, "no buckets are set"
    found = find_batch_axis(model, shape_tensors)
    if isinstance(found, str):
        return None, found
    return BatchBuckets(sizes, found, ports), ""
