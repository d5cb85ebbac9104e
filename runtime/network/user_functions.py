"""The functions that a user puts around a network, and what callers give to them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...errors import PropertyError, TensorError, nearest
from ..runs.bindings import Results
from ..tensors.device_array import AdoptArray
from ..tensors.late_inputs import LateInputs
from ..tensors.tensor import Port, check_inputs, check_symbols, inputs_by_name
from .callbacks import is_asynchronous

__all__ = ["Postprocess", "Preprocess", "UserFunctions"]

Preprocess = Callable[[Any], Mapping[str, Any]] | Mapping[str, Callable[[Any], Any]]
"""A function of all inputs, by name, that returns the network's; or one for each of some inputs."""

Postprocess = Callable[[dict[str, Any]], Any]
"""A function of the network's outputs by name, whose result is what callers get."""


@dataclass(frozen=True)
class UserFunctions:
    """What stands before and behind a network of these inputs; None: nothing.

    ``adopt`` takes arrays in the memory of the network's device. Raises PropertyError for what is
    no function, a coroutine function, and an unknown input.
    """

    ports: Sequence[Port]
    network: str
    device: str
    preprocess: Preprocess | None = None
    postprocess: Postprocess | None = None
    adopt: AdoptArray | None = None

    def __post_init__(self) -> None:
        preprocess = self.preprocess
        if isinstance(preprocess, Mapping):
            known = [port.name for port in self.ports]
            for name, function in preprocess.items():
                if name not in known:
                    raise PropertyError(
                        f"preprocess has a function for {name!r}, and network {self.network!r} has "
                        f"no such input{nearest(str(name), known)}; it has {known}",
                        "preprocess",
                        self.device,
                        value=name,
                        network=self.network,
                    )
                self._check_function(function, f"preprocess[{name!r}]")
        elif preprocess is not None:
            self._check_function(preprocess, "preprocess")
        if self.postprocess is not None:
            self._check_function(self.postprocess, "postprocess")

    def _check_function(self, given: Any, what: str) -> None:
        if not callable(given):
            wanted = "give a function"
            if what == "preprocess":
                wanted += ", or a mapping input name -> function"
            problem = f"is {type(given).__name__}; {wanted}"
        elif is_asynchronous(given):
            problem = (
                "is a coroutine function; give a plain one, which runs on a thread beside the "
                "event loops, and await what it needs before infer"
            )
        else:
            return
        raise PropertyError(
            f"{what} of network {self.network!r} {problem}",
            what.partition("[")[0],
            self.device,
            value=given,
            network=self.network,
        )

    @property
    def free_inputs(self) -> frozenset[str]:
        """The inputs for which callers may give anything, as a function makes them."""
        if self.preprocess is None:
            return frozenset()
        if isinstance(self.preprocess, Mapping):
            return frozenset(self.preprocess)
        return frozenset(port.name for port in self.ports)

    def take(self, given: Any) -> dict[str, Any]:
        """Turn what a caller gave into name -> value; tensors that no function makes are checked.

        ``given``: a mapping by name, a sequence in order, or what the only input's function takes,
        whatever it is. Raises TensorError.
        """
        if len(self.ports) == 1 and not isinstance(given, Mapping):
            named: dict[Any, Any] = {self.ports[0].name: given}
        else:
            named = dict(inputs_by_name(given, self.ports, self.network))
        if not isinstance(self.preprocess, Mapping):
            return named
        values = {name: named.pop(name) for name in self.preprocess if name in named}
        missing = [name for name in self.preprocess if name not in values]
        if missing:
            raise TensorError(
                f"input {missing[0]!r} of network {self.network!r} is missing; its preprocess "
                f"function wants a value",
                tensor=missing[0],
                network=self.network,
            )
        tensors = [port for port in self.ports if port.name not in self.preprocess]
        arrays = check_inputs(named, tensors, self.network, self.adopt, is_run=True)
        return LateInputs.joined(arrays, values)

    def prepare(self, taken: Mapping[str, Any], *, is_here: bool = False) -> dict[str, Any]:
        """Call what stands before the network, and check what it returns like a caller's inputs.

        Raises TensorError, and whatever the function raises. On a caller's thread (``is_here``)
        what another device has kept is left for later, as downloading it blocks.
        """
        preprocess = self.preprocess
        assert preprocess is not None
        with _named("preprocess", self.network):
            if not isinstance(preprocess, Mapping):
                made = preprocess(taken)
                return check_inputs(made, self.ports, self.network, self.adopt, is_run=is_here)
            named = {name: function(taken[name]) for name, function in preprocess.items()}
            ports = [port for port in self.ports if port.name in preprocess]
            checked = check_inputs(named, ports, self.network, self.adopt, is_run=is_here)
            arrays = LateInputs.joined(taken, checked)
            check_symbols(arrays, self.ports)
            return arrays

    def prepare_here(self, given: Any) -> dict[str, Any]:
        """Turn what a caller gave into the network's inputs at once, on the caller's thread."""
        return self.prepare(self.take(given), is_here=True)

    def handle(self, outputs: dict[str, Any]) -> Results:
        """Call what stands behind the network."""
        assert self.postprocess is not None
        with _named("postprocess", self.network):
            return self.postprocess(outputs)


@contextmanager
def _named(stage: str, network: str) -> Iterator[None]:
    """Note on an error of a user's function where it was raised."""
    try:
        yield
    except BaseException as error:
        note = f"in stage {stage!r} of network {network!r}"
        if note not in getattr(error, "__notes__", ()):  # a function may raise the same one again
            error.add_note(note)
        raise
