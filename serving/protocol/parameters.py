"""What the parameters of a request ask for. Pure."""

from __future__ import annotations

from typing import TypedDict

from .call import SequencePlace
from .fields import Fields
from .refusal import RefusedError

__all__ = ["RequestParameters", "read_request_parameters"]

_OF_TENSORS = "shared_memory_region"
_LONGEST_ID = 256
_WITH_A_MEANING = frozenset(
    {_OF_TENSORS, "priority", "timeout", "max_steps"}
    | {"sequence_id", "sequence_start", "sequence_end"}
)


class RequestParameters(TypedDict):
    """The parts of an InferCall that parameters say."""

    level: int
    timeout_us: int
    sequence: SequencePlace | None
    step_count: int


_PLAIN: RequestParameters = {"level": 0, "timeout_us": 0, "sequence": None, "step_count": 0}


def read_request_parameters(parameters: Fields) -> RequestParameters:
    """Read the parameters of a whole request. Raises RefusedError that names the parameter."""
    if parameters.has_none_of(_WITH_A_MEANING):
        return _PLAIN
    if parameters.has(_OF_TENSORS):
        raise RefusedError("belongs to an input or output", field=parameters.field(_OF_TENSORS))
    return RequestParameters(
        level=parameters.count("priority"),
        timeout_us=parameters.count("timeout"),
        sequence=_sequence(parameters),
        step_count=parameters.count("max_steps"),
    )


def _sequence(parameters: Fields) -> SequencePlace | None:
    """Return the place in a sequence; None without a ``sequence_id``, which 0 and "" are, too."""
    start = parameters.flag("sequence_start", default=False)
    end = parameters.flag("sequence_end", default=False)
    given = parameters.any("sequence_id")
    name: int | str
    if isinstance(given, str):
        name = given
        if len(name) > _LONGEST_ID:
            text = f"{len(name)} characters; at most {_LONGEST_ID} are taken"
            raise RefusedError(text, field=parameters.field("sequence_id"))
    else:
        name = parameters.count("sequence_id", most=(1 << 64) - 1)
    if name:
        return SequencePlace(name, start, end)
    if start or end:
        raise RefusedError("is missing", field=parameters.field("sequence_id"))
    return None
