"""What cuDNN is to compute, as data: tensors, steps, and which engines must not be used.

A description is made by pure functions, built by ``cudnn_builder``, and goes as JSON to the
processes that build plans. So this module and that one import nothing of aioinfer, and are loaded
there without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "GraphDescription",
    "PlanCandidate",
    "StepDescription",
    "TensorDescription",
    "channels_last",
]


@dataclass(frozen=True)
class TensorDescription:
    """A tensor in memory: ``uid`` is its number in plans, ``dims`` are in the order N, C, H, W.

    ``strides`` are in elements; its type is the graph's.
    """

    uid: int
    name: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> int:
        """How many elements there are from its first to its last one."""
        return 1 + sum((n - 1) * step for n, step in zip(self.dims, self.strides, strict=True))


@dataclass(frozen=True)
class StepDescription:
    """One call of the frontend, named like its method, whose result later steps call ``result``.

    ``inputs`` maps its parameters to the names of tensors, scalars and earlier results;
    ``settings`` are its other parameters. Of a method with several results the first is meant.
    """

    operator: str
    result: str
    inputs: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class GraphDescription:
    """A whole operation.

    ``tensors`` stand in the order of the launch's arguments; ``output`` is the one of them that
    the last step writes. ``scalars`` are float32 constants by name. ``excluded_notes`` names
    numerical notes of engines that are not to be used, ``workspace_bytes`` is the most that a
    plan may ask for.
    """

    name: str
    summary: str
    dtype: str
    tensors: tuple[TensorDescription, ...]
    scalars: tuple[tuple[str, float], ...]
    steps: tuple[StepDescription, ...]
    output: str
    excluded_notes: tuple[str, ...]
    workspace_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return it as what ``json.dumps`` takes."""
        fields = dict(vars(self))
        fields["tensors"] = [vars(tensor) for tensor in self.tensors]
        fields["steps"] = [vars(step) for step in self.steps]
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> GraphDescription:
        """Read what ``to_json`` gave, after JSON has made lists of its tuples."""
        plain = {key: _tuples(value) for key, value in fields.items()}
        plain["tensors"] = tuple(TensorDescription(**_plain(item)) for item in fields["tensors"])
        plain["steps"] = tuple(StepDescription(**_plain(item)) for item in fields["steps"])
        return cls(**plain)


@dataclass(frozen=True)
class PlanCandidate:
    """One built plan, in the order in which cuDNN's heuristics recommend them.

    ``engine`` and ``knobs`` name it for the same version of cuDNN. ``blob`` is the plan: code for
    one version and one kind of GPU.
    """

    name: str
    engine: int
    knobs: tuple[tuple[str, int], ...]
    workspace_bytes: int
    blob: bytes


def channels_last(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense tensor of dims N, C, H, W that lies in memory as N, H, W, C."""
    _, channels, height, width = dims
    return channels * height * width, 1, channels * width, channels


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _tuples(value) for key, value in fields.items()}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
