"""What a request keeps from run to run, and what one run reads and leaves of it.

A run reads the tensors that the last successful one has left, and leaves new ones. They become the
request's when the run's outcome is settled as a success, by the thread that settles it and before
the request is idle; of any other run nothing stays. One that a device keeps in its own memory is
read there by the next run, as any output that stays is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ....errors import RequestBusyError, TensorError
from ...graph import shape_text
from ...tensors.device_array import AdoptArray, read_by
from ...tensors.kept_array import KeptArray
from ...tensors.late_inputs import LateInputs
from ...tensors.tensor import Port

__all__ = ["KeptStates", "NetworkStates", "RunStates", "zeros"]


class StatePair(NamedTuple):
    """An input and the output that the next run reads there; ``input.name`` names the state."""

    input: Port
    output: Port


class NetworkStates:
    """Which inputs and outputs of a network its requests keep to themselves, and what they have.

    Thread-safe.
    """

    def __init__(
        self,
        named: Mapping[str, str],
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        network: str,
        adopt_array: AdoptArray | None = None,
    ) -> None:
        ends = {port.name: port for port in outputs}
        self.pairs = tuple(
            StatePair(port, ends[named[port.name]]) for port in inputs if port.name in named
        )
        self.network = network
        self._adopt = adopt_array
        self.named = dict(named)
        self.by_name = {pair.input.name: pair for pair in self.pairs}
        made = {pair.output.name for pair in self.pairs}
        self.given = tuple(port for port in inputs if port.name not in self.by_name)
        """The inputs that callers give."""
        self.returned = tuple(port for port in outputs if port.name not in made)
        """The outputs that callers get."""
        counts = Counter(dim for port in inputs for dim in port.shape or ())
        in_states = {dim for pair in self.pairs for dim in pair.input.shape or ()}
        shared = {dim for dim in in_states if isinstance(dim, str) and counts[dim] > 1}
        self._shapes = [
            (port, places)
            for port in (*self.given, *(pair.input for pair in self.pairs))
            if (places := _places_of(port, shared))
        ]
        """The ports with lengths that have to agree, and where those are."""
        self._read = [(pair, _form(pair.input)) for pair in self.pairs]
        self._kept: WeakValueDictionary[int, KeptStates] = WeakValueDictionary()
        """What requests keep that are held, by identity."""
        self.is_released = False

    def of_request(self) -> KeptStates:
        """Make what a request keeps, for as long as it is held and the network is open."""
        kept = KeptStates(self)
        self._kept[id(kept)] = kept
        return kept

    def release(self) -> None:
        """Free what all requests keep, held or not; when no run is under way and none will be."""
        self.is_released = True
        for reference in self._kept.valuerefs():
            kept = reference()
            if kept is not None:
                kept.reset()

    def checker(self, check: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
        """Make the check of what callers give, of one that knows ``given`` alone."""

        def check_given(given: Any) -> dict[str, Any]:
            for name in self.by_name if isinstance(given, Mapping) else ():
                if name in given:
                    raise TensorError(
                        f"input {name!r} of network {self.network!r} is state, which each request "
                        f"keeps by itself, and is not given to a run; set the state of "
                        f"{name!r} in request.query_state(), or load with {{'STATE': {{}}}}",
                        tensor=name,
                    )
            return check(given)

        return check_given

    def bind(self, kept: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Put what is kept beside a run's other inputs; raises TensorError where they disagree."""
        lengths: dict[str, tuple[int, Port]] = {}
        for port, places in self._shapes:
            name = port.name
            array = kept.get(name) if name in self.by_name else inputs[name]
            if array is not None:
                self._agree(port, places, array, lengths)
        bound = LateInputs.joined(inputs, {})
        for name, pair in self.by_name.items():
            value = kept.get(name)
            if value is None:
                known = {dim: length for dim, (length, _) in lengths.items()}
                value = zeros(pair.input, known)
            elif self._adopt is not None and isinstance(value, KeptArray):
                value = read_by(self._adopt, value, f"the state {name!r}")
            bound[name] = value
        return bound

    def _agree(
        self,
        port: Port,
        places: Sequence[tuple[int, str]],
        array: Any,
        lengths: dict[str, tuple[int, Port]],
    ) -> None:
        shape = getattr(array, "shape", ())
        for axis, dim in places:
            if axis >= len(shape):
                continue
            length = shape[axis]
            bound, owner = lengths.setdefault(dim, (length, port))
            if bound != length:
                raise TensorError(
                    f"dimension {dim!r} is {length} in the state {port.name!r} that the "
                    f"request keeps, and {bound} in {owner.name!r}; give what fits, or begin anew "
                    f"with request.reset_state()",
                    tensor=port.name,
                    shape=shape,
                    wanted_shape=port.shape,
                )

    def take(self, results: dict[str, Any]) -> tuple[dict[str, Any], TensorError | None]:
        """Take the new states, by name, out of a run's results; say what is wrong with them."""
        made = {}
        for pair, _ in self._read:
            made[pair.input.name] = results.pop(pair.output.name)
        for pair, (rank, fixed) in self._read:
            shape = made[pair.input.name].shape
            if rank < 0:
                continue
            is_fit = len(shape) == rank
            for axis, length in fixed if is_fit else ():
                is_fit = is_fit and shape[axis] == length
            if not is_fit:
                port = pair.input
                return made, TensorError(
                    f"output {pair.output.name!r} is {shape_text(shape)} in this run of "
                    f"{self.network!r}, and cannot be the state {port.name!r}, which is "
                    f"{shape_text(port.shape or ())}",
                    tensor=port.name,
                    shape=shape,
                    wanted_shape=port.shape,
                )
        return made, None


class KeptStates:
    """The states of one request, by name; those that are not here are as at the start.

    Read and changed by the request while it is idle, and by the thread that settles its run.
    """

    def __init__(self, states: NetworkStates) -> None:
        self.states = states
        self.values: dict[str, Any] = {}
        self.run_count = 0
        """Runs that have left their states here."""

    def begin(self) -> RunStates:
        """Make what one run reads and leaves."""
        return RunStates(self)

    def reset(self) -> None:
        """Have all states as at the start."""
        self.values.clear()


class RunStates:
    """The states of one run: ``bind`` it, ``take`` what its stages have made, then ``settle``."""

    def __init__(self, kept: KeptStates) -> None:
        self._kept, self._states = kept, kept.states
        self._made: dict[str, Any] | None = None
        self._bound_at = -1

    def bind(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Add the states to a run's inputs, which are checked; raises TensorError."""
        self._bound_at = self._kept.run_count
        return self._states.bind(self._kept.values, inputs)

    def check_is_current(self) -> None:
        """Raise RequestBusyError if another run of the request has ended since ``bind``."""
        if self._bound_at not in (-1, self._kept.run_count):
            raise RequestBusyError(
                f"another thread has run this request of {self._states.network!r} meanwhile, and "
                f"its state has changed; wait for that run, or use another request",
                state="busy",
            )

    def take(self, results: dict[str, Any]) -> TensorError | None:
        """Take the new states out of a run's results; return why they cannot be the next inputs."""
        if self._made is not None:
            return None
        made, wrong = self._states.take(results)
        if wrong is None:
            self._made = made
        return wrong

    def part(self) -> None:
        """Have later runs share no memory with this one, which goes on unnoticed on its device."""
        kept = self._kept.values
        kept.update({name: it.copy() for name, it in kept.items() if isinstance(it, np.ndarray)})
        kept.update({name: it.parted() for name, it in kept.items() if isinstance(it, KeptArray)})

    def settle(self, *, has_succeeded: bool) -> None:
        """Have the request keep what was made, or forget it; when nothing works for the run."""
        made, self._made = self._made, {}
        if has_succeeded and made:
            self._kept.values.update(made)
            self._kept.run_count += 1


def zeros(port: Port, lengths: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """Make what a state starts as; what is open has the length that its name stands for, or 0."""
    dims = [dim if isinstance(dim, int) else lengths.get(dim or "", 0) for dim in port.shape or ()]
    return np.zeros(dims, port.dtype)


def _places_of(port: Port, symbols: Collection[str]) -> list[tuple[int, str]]:
    """List the axes of a port whose lengths have one of these names."""
    found = enumerate(port.shape or ())
    return [(axis, dim) for axis, dim in found if isinstance(dim, str) and dim in symbols]


def _form(port: Port) -> tuple[int, list[tuple[int, int]]]:
    """Return the rank, below 0 if it is not known, and the axes of fixed length."""
    if port.shape is None:
        return -1, []
    found = enumerate(port.shape)
    return len(port.shape), [(axis, dim) for axis, dim in found if isinstance(dim, int)]
