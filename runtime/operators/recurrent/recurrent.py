"""LSTM, GRU and RNN, one time step after the other, as ONNX's formulas have them.

Sizes: T time steps, N sequences, I inputs, H hidden units; D is 2 for ``bidirectional``, else 1. Of
x, starts and results T comes before N; with ``layout`` 1 N comes first. ``recurrent_layer`` says
what the lengths of sequences mean. float16 and bfloat16 are computed in float32.

As in onnxruntime, ``clip`` bounds what goes into the gates, but not LSTM's cell on its way into h.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..own.own_operators import own
from ..plain_operators import Array
from .recurrent_activations import Activation, activation_sets
from .recurrent_layer import RecurrentLayer, States, Step

__all__ = ["gru", "lstm", "rnn"]


@own("LSTM", since=7, later={"layout": 14}, takes_output_count=True)
def lstm(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    peepholes: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_count: int = 3,
) -> tuple[Array, ...]:
    """Run an LSTM layer; gives Y (T, D, N, H), Y_h and Y_c (D, N, H).

    x: (T, N, I). w: (D, 4H, I) and r: (D, 4H, H), of input, output, forget and cell gate. bias:
    (D, 8H), for w and for r. lengths: (N,). initial_h, initial_c: (D, N, H). peepholes: (D, 3H), of
    input, output and forget gate. Raises ValueError for shapes or attributes that do not fit.
    """
    layer = RecurrentLayer.of(x, w, r, bias, lengths, 4, direction, hidden_size, layout)
    bounded = _bounds(clip)
    hidden = layer.hidden
    peeps = layer.parameter("P", peepholes, (layer.directions, 3 * hidden))
    sets = activation_sets(
        activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh", "Tanh")
    )

    def step_of(d: int) -> Step:
        recurrent, (f, g, h) = layer.r[d].T, sets[min(d, len(sets) - 1)]
        peep_i, peep_o, peep_f = np.split(peeps[d], 3)
        has_peeps = peepholes is not None  # without them, an infinite cell gives no NaN

        def step(gates: Array, states: States) -> States:
            state, cell = states
            i, o, forget, new = np.split(gates + state @ recurrent, 4, axis=-1)
            if has_peeps:
                i, forget = i + peep_i * cell, forget + peep_f * cell
            i = f(bounded(i))
            forget = 1 - i if input_forget else f(bounded(forget))
            cell = forget * cell + i * g(bounded(new))
            if has_peeps:
                o = o + peep_o * cell
            return f(bounded(o)) * h(cell), cell

        return step

    added = layer.bias[:, : 4 * hidden] + layer.bias[:, 4 * hidden :]
    return layer.run(added, [initial_h, initial_c], step_of)[:output_count]


@own("GRU", since=7, later={"layout": 14}, takes_output_count=True)
def gru(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_count: int = 2,
) -> tuple[Array, ...]:
    """Run a GRU layer; gives Y (T, D, N, H) and Y_h (D, N, H).

    x: (T, N, I). w: (D, 3H, I) and r: (D, 3H, H), of update, reset and hidden gate. bias: (D, 6H),
    for w and for r. lengths: (N,). initial_h: (D, N, H). With ``linear_before_reset`` the reset
    gate acts behind r and its bias. Raises ValueError for shapes or attributes that do not fit.
    """
    layer = RecurrentLayer.of(x, w, r, bias, lengths, 3, direction, hidden_size, layout)
    bounded = _bounds(clip)
    hidden = layer.hidden
    sets = activation_sets(activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh"))
    added, late = layer.bias[:, : 3 * hidden].copy(), layer.bias[:, 5 * hidden :]
    added[:, : 2 * hidden] += layer.bias[:, 3 * hidden : 5 * hidden]
    if not linear_before_reset:
        added[:, 2 * hidden :] += late

    def step_of(d: int) -> Step:
        early, last = layer.r[d, : 2 * hidden].T, layer.r[d, 2 * hidden :].T
        f, g = sets[min(d, len(sets) - 1)]

        def step(gates: Array, states: States) -> States:
            (state,) = states
            both = gates[:, : 2 * hidden] + state @ early
            update, reset = np.split(f(bounded(both)), 2, axis=-1)
            if linear_before_reset:
                recurrent = reset * (state @ last + late[d])
            else:
                recurrent = (reset * state) @ last
            new = g(bounded(gates[:, 2 * hidden :] + recurrent))
            return ((1 - update) * new + update * state,)

        return step

    return layer.run(added, [initial_h], step_of)[:output_count]


@own("RNN", since=7, later={"layout": 14}, takes_output_count=True)
def rnn(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_count: int = 2,
) -> tuple[Array, ...]:
    """Run a layer with one gate; gives Y (T, D, N, H) and Y_h (D, N, H).

    x: (T, N, I). w: (D, H, I). r: (D, H, H). bias: (D, 2H), for w and for r. lengths: (N,).
    initial_h: (D, N, H). Raises ValueError for shapes or attributes that do not fit.
    """
    layer = RecurrentLayer.of(x, w, r, bias, lengths, 1, direction, hidden_size, layout)
    bounded = _bounds(clip)
    sets = activation_sets(activations, activation_alpha, activation_beta, ("Tanh",))

    def step_of(d: int) -> Step:
        recurrent = layer.r[d].T
        f: Activation = sets[min(d, len(sets) - 1)][0]
        return lambda gates, states: (f(bounded(gates + states[0] @ recurrent)),)

    added = layer.bias[:, : layer.hidden] + layer.bias[:, layer.hidden :]
    return layer.run(added, [initial_h], step_of)[:output_count]


def _bounds(clip: float | None) -> Activation:
    """Return what ``clip`` does to the sums that go into the gates' functions."""
    if clip is None:
        return lambda x: x
    if not clip > 0:
        raise ValueError(f"clip is {clip}; a number above 0 is wanted, or none")
    return lambda x: np.clip(x, -clip, clip)
