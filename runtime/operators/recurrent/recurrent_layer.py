"""What LSTM, GRU and RNN have in common: sizes, checks, and the walk over the time steps.

Sizes: T time steps, N sequences, I inputs, H hidden units, G gates; D is 2 for ``bidirectional``,
else 1. A sequence that is shorter than T keeps its state in the steps behind its end, in which Y is
0. So the states after the last step are those after its own last element, and backwards it starts
there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..plain_operators import Array

__all__ = ["RecurrentLayer", "States", "Step"]

States = tuple[Array, ...]
Step = Callable[[Array, States], States]
"""``step(what x adds to the gates, states) -> states``: (N, G * H) and (N, H); Y has the first."""

_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


@dataclass(frozen=True)
class RecurrentLayer:
    """What the three operators have in common, in the type that is computed in, T before N."""

    x: Array
    w: Array
    r: Array
    bias: Array
    is_active: Array | None
    """(T, N, 1): where a step is an element of its sequence; None if all are."""

    is_reverse: bool
    is_batch_first: bool
    dtype: np.dtype
    """The type of the results."""

    @classmethod
    def of(
        cls,
        x: Array,
        w: Array,
        r: Array,
        bias: Array | None,
        lengths: Array | None,
        gate_count: int,
        direction: str,
        hidden_size: int | None,
        layout: int,
    ) -> RecurrentLayer:
        if direction not in _DIRECTIONS or layout not in (0, 1):
            raise ValueError(
                f"direction is {direction!r} and layout {layout}; direction is one of "
                f"{', '.join(_DIRECTIONS)}, and layout 0 or 1"
            )
        if x.ndim != 3 or r.ndim != 3:
            raise ValueError(f"X has shape {x.shape} and R {r.shape}; both need 3 axes")
        directions, hidden = _DIRECTIONS[direction], r.shape[2]
        if hidden_size not in (None, hidden):
            raise ValueError(f"hidden_size is {hidden_size}, but R has shape {r.shape}")
        _check("W", w, (directions, gate_count * hidden, x.shape[2]))
        _check("R", r, (directions, gate_count * hidden, hidden))
        work = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        ordered = np.asarray(x.swapaxes(0, 1) if layout else x, work)
        layer = cls(
            x=ordered,
            w=np.asarray(w, work),
            r=np.asarray(r, work),
            bias=np.zeros((directions, 2 * gate_count * hidden), work),
            is_active=_active_steps(lengths, *ordered.shape[:2]),
            is_reverse=direction == "reverse",
            is_batch_first=bool(layout),
            dtype=x.dtype,
        )
        layer.bias[...] = layer.parameter("B", bias, layer.bias.shape)
        return layer

    @property
    def directions(self) -> int:
        return len(self.r)

    @property
    def hidden(self) -> int:
        return int(self.r.shape[2])

    def parameter(self, name: str, given: Array | None, shape: tuple[int, ...]) -> Array:
        """Return an optional input of this shape; zeros where it is not given."""
        if given is None:
            return np.zeros(shape, self.x.dtype)
        _check(name, given, shape)
        return np.asarray(given, self.x.dtype)

    def run(
        self, added: Array, starts: Sequence[Array | None], step_of: Callable[[int], Step]
    ) -> tuple[Array, ...]:
        """Return Y and the last states; ``added`` (D, G * H) is the bias that goes with w."""
        time, batch, inputs = self.x.shape
        states = [self._start(name, given) for name, given in zip("hc", starts, strict=False)]
        y = np.zeros((time, self.directions, batch, self.hidden), self.x.dtype)
        rows = self.x.reshape(time * batch, inputs)
        for d in range(self.directions):
            gates = (rows @ self.w[d].T + added[d]).reshape(time, batch, added.shape[1])
            given = tuple(part[d] for part in states)
            ends = self._walk(gates, given, step_of(d), y[:, d], self.is_reverse or d == 1)
            for part, end in zip(states, ends, strict=True):
                part[d] = end
        if self.is_batch_first:
            y, states = y.transpose(2, 0, 1, 3), [part.swapaxes(0, 1) for part in states]
        return tuple(part.astype(self.dtype, copy=False) for part in (y, *states))

    def _start(self, name: str, given: Array | None) -> Array:
        batch = self.x.shape[1]
        shape = (self.directions, batch, self.hidden)
        if not self.is_batch_first:
            return self.parameter(f"initial_{name}", given, shape).copy()
        shape = (batch, self.directions, self.hidden)
        return self.parameter(f"initial_{name}", given, shape).swapaxes(0, 1).copy()

    def _walk(
        self, gates: Array, states: States, step: Step, y: Array, is_backwards: bool
    ) -> States:
        """Write ``y`` (T, N, H) for one direction, and give the states after its last step."""
        for t in range(len(gates))[:: -1 if is_backwards else 1]:
            made = step(gates[t], states)
            if self.is_active is None:
                states, y[t] = made, made[0]
                continue
            is_active = self.is_active[t]
            states = tuple(
                np.where(is_active, new, old) for new, old in zip(made, states, strict=True)
            )
            np.copyto(y[t], made[0], where=is_active)
        return states


def _check(name: str, given: Array, shape: tuple[int, ...]) -> None:
    if given.shape != shape:
        raise ValueError(f"{name} has shape {given.shape}; {shape} is wanted")


def _active_steps(lengths: Array | None, time: int, batch: int) -> Array | None:
    if lengths is None:
        return None
    _check("sequence_lens", lengths, (batch,))
    if ((lengths < 0) | (lengths > time)).any():
        raise ValueError(f"sequence_lens are {lengths.tolist()}; they are from 0 to {time} here")
    return np.arange(time)[:, None, None] < lengths[:, None]
