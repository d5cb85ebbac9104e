"""The step that a function of the user's makes over the graph API."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import TensorError
from ..graph import Value
from .new_nodes import new_nodes
from .state import State

__all__ = ["CustomStep", "apply_custom"]

CustomStep = Callable[[Value], Value]
"""Given the tensor so far, makes nodes that stand in no graph, and returns the last one's value."""


def apply_custom(state: State, function: CustomStep) -> State:
    """Call a user's function that makes nodes; infers the types that it has left out.

    Raises TensorError for what is no value, or belongs to a graph already.
    """
    before = state.value
    known = before.name, before.type
    made = function(before)
    if (before.name, before.type) != known:
        before.name, before.type = known
        raise TensorError(
            f"the function of custom() has changed the tensor that it was given, {before.name!r}; "
            f"it makes new nodes, and returns the Value of the last one"
        )
    if not isinstance(made, Value):
        raise TensorError(
            f"the function of custom() returned {type(made).__name__}; it returns the Value that "
            f"its last Node makes"
        )
    for node in new_nodes([made], [before]):
        state.infer_types(node)
    return state.of(made)
