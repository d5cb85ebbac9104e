"""Which outputs of a model become which of its inputs, as STATE or the model itself says. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....errors import AioInferError, ModelError, PropertyError, nearest
from ....executors.late_imports import late_imports
from ...graph import DType, Model, TensorType, Value
from ...properties.properties import OUTPUT_LOCATION, STATE, Configuration

__all__ = ["STATE_KEY", "find_pairs", "problem_of_types"]

STATE_KEY = "aioinfer.state"
"""The key of a model's metadata that pairs stand under, as a JSON object: {"past": "present"}."""


def find_pairs(model: Model, config: Configuration) -> Mapping[str, str]:
    """Return the pairs of a model, input -> output.

    Those of STATE, or, if that is not given, of the model's metadata. Raises PropertyError or
    ModelError for names that it has not, and for ends that cannot hold the same tensor, and
    PropertyError for an OUTPUT_LOCATION of one that callers do not get.
    """
    given = config.value_or_default(STATE)
    named = _pairs_of_metadata(model) if isinstance(given, str) else given
    if not named:
        return {}
    inputs = {value.name: value for value in model.inputs}
    outputs = {value.name: value for value in model.outputs}
    problem = _problem_of_names(named, inputs, outputs) or next(
        filter(None, (problem_of_types(inputs[a], outputs[b]) for a, b in named.items())), ""
    )
    if problem:
        raise _error(model, config, problem, is_property=given is named)
    locations = config.value_or_default(OUTPUT_LOCATION)
    for name, output in named.items():
        if output in locations:
            raise PropertyError(
                f"{config.device}: {OUTPUT_LOCATION.key} names {output!r}, which is the state "
                f"{name!r} and no result: it stays where the next run reads it; leave it out, or "
                f"take the pair out of STATE and hand the tensor on yourself",
                OUTPUT_LOCATION.key,
                config.device,
                value=dict(locations),
                network=model.name,
            )
    return named


def _pairs_of_metadata(model: Model) -> Mapping[str, str]:
    text = model.metadata.get(STATE_KEY)
    if text is None:
        return {}
    with late_imports:
        import json

    try:
        pairs = json.loads(text)
        if not isinstance(pairs, dict) or not all(isinstance(to, str) for to in pairs.values()):
            raise ValueError("it is no object of texts")
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"the metadata {STATE_KEY!r} of model {model.name!r} is not what it is to be, "
            f'{{"input": "output"}} as JSON: {error}; correct it, or load with STATE',
            network=model.name,
        ) from error
    return pairs


def _problem_of_names(
    named: Mapping[str, str], inputs: Mapping[str, Value], outputs: Mapping[str, Value]
) -> str:
    for name, output in named.items():
        for end, known, kind in ((name, inputs, "input"), (output, outputs, "output")):
            if end not in known:
                return f"there is no {kind} {end!r}{nearest(end, known)}; it has {sorted(known)}"
    used: dict[str, str] = {}
    for name, output in named.items():
        if used.setdefault(output, name) != name:
            return f"output {output!r} is to feed both {used[output]!r} and {name!r}"
    return ""


def problem_of_types(source: Value, target: Value) -> str:
    """Return why an output cannot be what an input reads in the next run; "" if it can."""
    ends = f"input {source.name!r} is {source.type}, and output {target.name!r} {target.type}"
    before, after = source.type, target.type
    if not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return f"{ends}; both are to be tensors of known type"
    if before.dtype != after.dtype:
        return f"{ends}; the element types differ"
    if before.dtype is DType.STRING:
        return f"{ends}; text cannot be state"
    if before.shape is None:
        return f"{ends}; how many axes the state has must be known"
    return "" if after.shape is None or _may_feed(before.shape, after.shape) else f"{ends}; {_WHY}"


_WHY = "lengths may differ only where they are open"


def _may_feed(before: Sequence[object], after: Sequence[object]) -> bool:
    return len(before) == len(after) and all(
        not isinstance(old, int) or not isinstance(new, int) or old == new
        for old, new in zip(before, after, strict=True)
    )


def _error(
    model: Model, config: Configuration, problem: str, *, is_property: bool
) -> AioInferError:
    if is_property:
        return PropertyError(
            f"STATE does not fit model {model.name!r}: {problem}",
            STATE.key,
            config.device,
            value=config[STATE],
            network=model.name,
        )
    return ModelError(
        f"the metadata {STATE_KEY!r} of model {model.name!r} does not fit it: {problem}; load it "
        f"with {{'STATE': {{}}}} to be given all inputs, or with pairs of your own",
        network=model.name,
    )
