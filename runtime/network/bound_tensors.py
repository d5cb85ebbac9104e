"""What is bound to the inputs and outputs of a request: memory of its caller, and its handles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import Place, TensorError, nearest, placed
from ..tensors.late_inputs import Late
from ..tensors.tensor import Port, Tensor, check_can_be_written, check_value
from .running_network import RunningNetwork

__all__ = ["BoundTensors"]

Access = Callable[[], None]
"""Raises RequestBusyError while a run uses what is bound; called before that is changed."""


class BoundTensors:
    """The tensors of one request; which one may change them when is the request's to say."""

    def __init__(self, network: RunningNetwork) -> None:
        self._network = network
        self._ports = {port.name: port for port in (*network.inputs, *network.outputs)}
        self._input_names = {port.name for port in network.inputs}
        self.handles: dict[str, Tensor] = {}
        """Those that were asked for, or written through, by name."""
        self.arrays: dict[str, Any] = {}
        """What each run reads or writes, by name; the same mapping as long as the request."""

    def bind(self, name: str, tensor: Any, access: Access) -> None:
        """Bind memory to an input or output, or take the binding back; raises TensorError."""
        port = self._port(name)
        if tensor is None:
            access()
            self.arrays.pop(name, None)
            self.handles.pop(name, None)
            return
        data = tensor
        if isinstance(tensor, Tensor):
            data = tensor.content if tensor.device else tensor.data
        if data is None:
            raise TensorError(
                f"the tensor for {name!r} has no memory; give it an array",
                tensor=name,
                **self._where,
            )
        self._refuse_free(name)
        kind = "input" if name in self._input_names else "output"
        place = f"set_tensor on network {self._network.name!r}"
        with placed(**self._where):
            array = check_value(
                data, port, place, self._network.adopt_array, may_stay=kind == "input"
            )
            if kind == "output":
                check_can_be_written(array, data, name)
        access()
        if isinstance(array, Late):
            array = array.kept
        # One in a device's memory is taken anew for each run, behind what its owner has enqueued.
        self.arrays[name] = self._handle(name).data = getattr(array, "given", array)

    def handle(self, name: str, access: Access) -> Tensor:
        """Return the handle on an input or output; memory is made for an input that has none."""
        port = self._port(name)
        self._refuse_free(name)
        access()
        handle = self._handle(name)
        if name in self._input_names and handle.content is None and port.dtype is not None:
            shape = port.shape
            if shape is not None and all(isinstance(dim, int) for dim in shape):
                handle.data = self.arrays[name] = self._network.input_memory(
                    handle.shape, port.dtype
                )
        return handle

    def show(self, results: Mapping[str, Any]) -> None:
        """Put the results of a run into the handles."""
        for name, handle in self.handles.items():
            if name in results:
                handle.data = results[name]

    def with_inputs(self, inputs: Any) -> Any:
        """Return what a caller gives, and for inputs that it leaves out what is bound to them."""
        bound = {name: self.arrays[name] for name in self._input_names & self.arrays.keys()}
        if inputs is None:
            return bound
        return {**bound, **inputs} if bound and isinstance(inputs, Mapping) else inputs

    def outputs(self) -> dict[str, Any]:
        """Return the memory that a run is to write, by output."""
        return {
            name: self._writable(name, array)
            for name, array in self.arrays.items()
            if name not in self._input_names
        }

    def _writable(self, name: str, bound: Any) -> Any:
        adopt = self._network.adopt_array
        if adopt is None or isinstance(bound, np.ndarray | list):
            return bound
        return adopt(bound, f"output {name!r}")

    def _handle(self, name: str) -> Tensor:
        if name not in self.handles:
            self.handles[name] = Tensor(port=self._ports[name])
        return self.handles[name]

    def _port(self, name: str) -> Port:
        try:
            return self._ports[name]
        except (KeyError, TypeError):  # no such name, or something that cannot be one
            raise TensorError(
                f"network {self._network.name!r} has no input or output {name!r}"
                f"{nearest(str(name), self._ports)}; it has {sorted(self._ports)}",
                tensor=str(name),
                **self._where,
            ) from None

    def _refuse_free(self, name: str) -> None:
        if name in self._network.free_inputs:
            raise TensorError(
                f"input {name!r} of network {self._network.name!r} is made by its preprocess "
                f"function, and has no tensor; give what that takes to infer or start_async",
                tensor=name,
                **self._where,
            )

    @property
    def _where(self) -> Place:
        return {"network": self._network.name, "device": self._network.device}
