"""Inputs whose number of axes the model leaves open, held against what its operators take.

onnxruntime looks at what it knows when it loads a model. Some of its kernels for stored numbers do
not look again, and end the process for an input of a rank that they have no code for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import AioInferError, TensorError
from ...runtime.graph import Model, TensorType, shape_text
from ...runtime.passes import specialize
from ...runtime.type_inference import ContradictionError

__all__ = ["OpenRanks"]

_MOST_KNOWN = 256


class OpenRanks:
    """Knows which ranks fit a model; each is looked at once. Thread-safe."""

    def __init__(self, model: Model, network: str, device: str) -> None:
        self._model, self._network, self._device = model, network, device
        kinds = {value.name: value.type for value in model.inputs}
        self._tensors = [name for name, kind in kinds.items() if isinstance(kind, TensorType)]
        self._open = [
            name
            for name, kind in kinds.items()
            if isinstance(kind, TensorType) and kind.shape is None
        ]
        self._known: set[tuple[int, ...]] = set()

    def __bool__(self) -> bool:
        """True if there is such an input."""
        return bool(self._open)

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise TensorError for inputs that make a node impossible, as far as our rules tell."""
        ranks = tuple([len(inputs[name].shape) for name in self._open])
        if ranks in self._known:
            return
        shapes = {name: tuple(inputs[name].shape) for name in self._tensors}
        try:
            specialize(self._model, shapes, (), check=False)
        except ContradictionError as error:
            given = ", ".join(f"{name!r} {shape_text(shape)}" for name, shape in shapes.items())
            raise TensorError(
                f"inputs {given} do not fit the model: {error}",
                network=self._network,
                device=self._device,
            ) from error
        except TensorError:
            raise
        except AioInferError:
            pass  # what our rules cannot tell is onnxruntime's to refuse
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(ranks)
