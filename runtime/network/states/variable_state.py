"""VariableState: one state of a request, for callers to read, set and reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...tensors.kept_array import KeptArray
from ...tensors.tensor import Port, check_value
from .kept_states import zeros

__all__ = ["VariableState"]


class VariableState:
    """One state of a request: the tensor that its next run reads where the model has an input.

    Made by ``request.query_state()``. Each method raises RequestBusyError while a run of the
    request is under way, and ClosedError once its network is closed, which frees all states.
    """

    def __init__(
        self, port: Port, values: dict[str, Any], access: Callable[[], None], network: str
    ) -> None:
        self.name = port.name
        """That of the model's input."""
        self._port, self._values, self._network = port, values, network
        self._access = access

    @property
    def state(self) -> np.ndarray[Any, Any]:
        """A copy of what the next run reads; set it to an array, which is copied, for another.

        Reading one that lies in a device's memory downloads it, and blocks; the next run uploads
        one that was set. Before the first run it is zeros with 0 for each open length. Setting it
        raises TensorError for an array of another type or shape than the model's input.
        """
        self._access()
        value = self._values.get(self.name)
        if value is None:
            return zeros(self._port, {})
        return np.array(value.host() if isinstance(value, KeptArray) else value, order="C")

    @state.setter
    def state(self, given: Any) -> None:
        array = check_value(given, self._port, f"state of network {self._network!r}")
        copied = np.array(array, order="C")
        self._access()
        self._values[self.name] = copied

    def reset(self) -> None:
        """Have the next run start from zeros; what is open has the length of its name, or 0."""
        self._access()
        self._values.pop(self.name, None)

    def __repr__(self) -> str:
        return f"<VariableState {self.name!r}>"
