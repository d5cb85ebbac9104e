"""What makes a valid model a wrong one: each mutation is a function of a draft, by a table.

A mutation returns what it did in a few words, or None where it found nothing to change. Those of
``CONTENT`` change what parameters hold and keep nodes as they are: they work on the inputs of a
run, too.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, defs

from .draft import Draft, elem_type_of, tensor_type
from .extremes import (
    any_dtype,
    extreme_array,
    extreme_float,
    extreme_integer,
    extreme_list,
    filled,
)

__all__ = ["CONTENT", "STRUCTURE", "mutate"]

Mutation = Callable[[Draft, Random], str | None]
CONTENT: list[tuple[int, Mutation]] = []
STRUCTURE: list[tuple[int, Mutation]] = []

_MOST_ELEMENTS = 20_000
_MOST_AXES = 64
"""More than these numpy does not have."""

_LARGE = 1e6
_SHARE_IN_BODIES = 0.8
"""Of the changes to a node with bodies."""


def mutate(draft: Draft, rng: Random, table: list[tuple[int, Mutation]]) -> None:
    """Change a draft in one way, which its notes tell; one without nodes stays as it is."""
    if not draft.nodes:
        return
    for _ in range(20):
        weights = [weight for weight, _ in table]
        (_, change) = rng.choices(table, weights)[0]
        note = change(draft, rng)
        if note is not None:
            draft.notes.append(f"{change.__name__.strip('_')}: {note}")
            return


def _content(weight: int) -> Callable[[Mutation], Mutation]:
    return _into(weight, CONTENT, STRUCTURE)


def _structure(weight: int) -> Callable[[Mutation], Mutation]:
    return _into(weight, STRUCTURE)


def _into(weight: int, *tables: list[tuple[int, Mutation]]) -> Callable[[Mutation], Mutation]:
    def register(change: Mutation) -> Mutation:
        for table in tables:
            table.append((weight, change))
        return change

    return register


def _parameter(draft: Draft, rng: Random, kinds: str = "") -> str | None:
    names = [
        name for name in draft.tensors() if not kinds or draft.parameters[name].dtype.kind in kinds
    ]
    return rng.choice(names) if names else None


@_content(5)
def _length(draft: Draft, rng: Random) -> str | None:
    name = _parameter(draft, rng)
    if name is None or not draft.parameters[name].ndim:
        return None
    array = draft.parameters[name]
    axis = rng.randrange(array.ndim)
    shape = list(array.shape)
    shape[axis] = rng.choice(
        (0, 1, 2, 3, shape[axis] + 1, max(shape[axis] - 1, 0), shape[axis] * 2, 17, 300)
    )
    if shape[axis] == array.shape[axis] or np.prod(shape) > _MOST_ELEMENTS:
        return None
    draft.parameters[name] = filled(rng, tuple(shape), array)
    return f"{name} {list(array.shape)} becomes {shape}"


@_content(4)
def _rank(draft: Draft, rng: Random) -> str | None:
    name = _parameter(draft, rng)
    if name is None:
        return None
    array = draft.parameters[name]
    ways: list[tuple[int, ...]] = [(1, *array.shape), (*array.shape, 1), (array.size,), ()]
    if array.ndim:
        ways += [array.shape[1:], array.shape[:-1], (*array.shape, 2), (2, *array.shape)]
    if rng.random() < 0.1:
        ways = [(*array.shape, *[1] * rng.choice((5, 8, 12, 33, 60)))]
    shape = rng.choice(ways)[:_MOST_AXES]
    if shape == array.shape or np.prod(shape) > _MOST_ELEMENTS:
        return None
    draft.parameters[name] = filled(rng, tuple(shape), array)
    return f"{name} {list(array.shape)} becomes {list(shape)}"


@_content(3)
def _element_count(draft: Draft, rng: Random) -> str | None:
    """Make a parameter of one axis, such as a bias or a list of axes, longer or shorter."""
    names = [name for name in draft.tensors() if draft.parameters[name].ndim == 1]
    if not names:
        return None
    name = rng.choice(names)
    array = draft.parameters[name]
    count = rng.choice((0, 1, array.size - 1, array.size + 1, array.size * 2, 64, 1000))
    if count < 0 or count == array.size:
        return None
    draft.parameters[name] = filled(rng, (count,), array)
    return f"{name} of {array.size} has {count} elements"


@_content(2)
def _turned(draft: Draft, rng: Random) -> str | None:
    name = _parameter(draft, rng)
    if name is None or draft.parameters[name].ndim < 2:
        return None
    array = draft.parameters[name]
    draft.parameters[name] = np.ascontiguousarray(array.T)
    return f"{name} is transposed" if array.shape != array.T.shape else None


@_content(4)
def _integers(draft: Draft, rng: Random) -> str | None:
    name = _parameter(draft, rng, "iu")
    if name is None or not draft.parameters[name].size:
        return None
    array = draft.parameters[name]
    if rng.random() < 0.5:
        draft.parameters[name] = extreme_array(rng, array)
    else:
        changed = extreme_list(rng, array.reshape(-1).tolist()[:1000])
        limits = np.iinfo(array.dtype)
        changed = [min(max(number, int(limits.min)), int(limits.max)) for number in changed]
        made = np.array(changed, array.dtype)
        draft.parameters[name] = made.reshape(array.shape) if made.size == array.size else made
    return f"{name} = {draft.parameters[name].reshape(-1)[:8].tolist()}"


@_content(2)
def _floats(draft: Draft, rng: Random) -> str | None:
    name = _parameter(draft, rng, "fV")
    if name is None or not draft.parameters[name].size:
        return None
    draft.parameters[name] = extreme_array(rng, draft.parameters[name])
    draft.has_extremes = True
    return f"{name} has extreme values"


@_content(2)
def _element_type(draft: Draft, rng: Random) -> str | None:
    name = _parameter(draft, rng)
    if name is None or draft.parameters[name].dtype.hasobject:
        return None
    array, dtype = draft.parameters[name], any_dtype(rng)
    if dtype == array.dtype:
        return None
    with np.errstate(all="ignore"):
        draft.parameters[name] = np.nan_to_num(array.astype(np.float64)).astype(dtype)
    return f"{name} of {array.dtype} becomes {dtype}"


def _node(draft: Draft, rng: Random) -> NodeProto:
    place = rng.randrange(len(draft.nodes))
    node = NodeProto()
    node.CopyFrom(draft.nodes[place])
    draft.nodes[place] = node  # the base's own stays as it is
    bodies = [item.g for item in node.attribute if item.HasField("g") and item.g.node]
    while bodies and rng.random() < _SHARE_IN_BODIES:
        node = rng.choice(rng.choice(bodies).node)
        bodies = [item.g for item in node.attribute if item.HasField("g") and item.g.node]
    return node


def _schema(draft: Draft, node: NodeProto) -> defs.OpSchema | None:
    try:
        return defs.get_schema(node.op_type, draft.opsets.get(node.domain, 1), node.domain)
    except defs.SchemaError:
        return None


@_structure(8)
def _attribute(draft: Draft, rng: Random) -> str | None:
    node = _node(draft, rng)
    schema = _schema(draft, node)
    given = {attribute.name: attribute for attribute in node.attribute}
    known = sorted(set(schema.attributes) | set(given)) if schema else sorted(given)
    if not known:
        return None
    name = rng.choice(known)
    kind = int(given[name].type if name in given else schema.attributes[name].type.value)
    if name in given:
        node.attribute.remove(given[name])
        if rng.random() < 0.1:
            return f"{node.op_type} without {name}"
    value = _attribute_value(rng, kind, given.get(name))
    if value is None:
        return None
    node.attribute.append(_make_attribute(name, value))
    numbers = value if isinstance(value, list) else [value]
    if any(isinstance(number, float) and not abs(number) < _LARGE for number in numbers):
        draft.has_extremes = True
    return f"{node.op_type}.{name} = {str(value)[:80]}"


def _attribute_value(rng: Random, kind: int, old: AttributeProto | None) -> Any:
    if rng.random() < 0.1:
        kind = rng.choice((1, 2, 3, 6, 7, 8))  # another type than the operator's
    if kind == AttributeProto.INT:
        return extreme_integer(rng)
    if kind == AttributeProto.FLOAT:
        return extreme_float(rng)
    if kind == AttributeProto.INTS:
        return extreme_list(rng, list(old.ints) if old is not None else [1, 1])
    if kind == AttributeProto.FLOATS:
        return [extreme_float(rng) for _ in range(rng.randrange(6))]
    if kind == AttributeProto.STRING:
        return rng.choice(("", "nonsense", "SAME_UPPER", "linear", "cubic", "wrap", "none", "add"))
    if kind == AttributeProto.STRINGS:
        return [rng.choice(("", "Relu", "Tanh", "nonsense")) for _ in range(rng.randrange(4))]
    return None


def _make_attribute(name: str, value: Any) -> AttributeProto:
    made = AttributeProto(name=name)
    if isinstance(value, list):
        if value and isinstance(value[0], str):
            made.type = AttributeProto.STRINGS
            made.strings.extend(text.encode() for text in value)
        elif value and isinstance(value[0], float):
            made.type = AttributeProto.FLOATS
            made.floats.extend(value)
        else:
            made.type = AttributeProto.INTS
            made.ints.extend(value)
    elif isinstance(value, str):
        made.type, made.s = AttributeProto.STRING, value.encode()
    elif isinstance(value, float):
        made.type, made.f = AttributeProto.FLOAT, value
    else:
        made.type, made.i = AttributeProto.INT, value
    return made


@_structure(2)
def _input_missing(draft: Draft, rng: Random) -> str | None:
    node = _node(draft, rng)
    if not node.input:
        return None
    place = rng.randrange(len(node.input))
    if rng.random() < 0.5:
        del node.input[place:]
        return f"{node.op_type} has only {place} inputs"
    node.input[place] = ""
    return f"{node.op_type} without input {place}"


@_structure(1)
def _input_extra(draft: Draft, rng: Random) -> str | None:
    node = _node(draft, rng)
    if not draft.parameters:
        return None
    extra = rng.choice(list(draft.parameters))
    node.input.extend([extra] * rng.choice((1, 1, 2, 5)))
    return f"{node.op_type} reads {extra} as input {len(node.input) - 1}"


@_structure(1)
def _inputs_swapped(draft: Draft, rng: Random) -> str | None:
    node = _node(draft, rng)
    if len(node.input) < 2:
        return None
    one, two = rng.sample(range(len(node.input)), 2)
    node.input[one], node.input[two] = node.input[two], node.input[one]
    return f"{node.op_type}'s inputs {one} and {two} are swapped"


@_structure(1)
def _input_again(draft: Draft, rng: Random) -> str | None:
    """Have a node read one value twice, or its own result."""
    node = _node(draft, rng)
    if not node.input:
        return None
    names = [*draft.parameters, *(name for other in draft.nodes for name in other.output if name)]
    if not names:  # a case without parameters, whose only results have lost their names
        return None
    place, name = rng.randrange(len(node.input)), rng.choice(names)
    if node.input[place] == name:
        return None
    node.input[place] = name
    return f"{node.op_type} reads {name} as input {place}"


@_structure(1)
def _outputs(draft: Draft, rng: Random) -> str | None:
    node = _node(draft, rng)
    way = rng.randrange(4)
    if way == 0:
        node.output.extend([f"more{number}" for number in range(rng.choice((1, 2, 5)))])
        if rng.random() < 0.5:
            draft.outputs.append(node.output[-1])
        return f"{node.op_type} has {len(node.output)} outputs"
    if way == 1 and len(node.output) > 1:
        dropped = node.output.pop()
        draft.outputs = [name for name in draft.outputs if name != dropped]
        return f"{node.op_type} has only {len(node.output)} outputs"
    if way == 2 and node.output:
        place = rng.randrange(len(node.output))
        dropped, node.output[place] = node.output[place], ""
        if rng.random() < 0.8:
            draft.outputs = [name for name in draft.outputs if name != dropped]
        return f"{node.op_type} without output {place}"
    if way == 3 and node.output and draft.parameters:
        node.output[0] = rng.choice(list(draft.parameters))
        return f"{node.op_type} writes {node.output[0]}"
    return None


@_structure(1)
def _operator(draft: Draft, rng: Random) -> str | None:
    """Put another operator in the place of one."""
    node = _node(draft, rng)
    if not _OPERATORS:
        _OPERATORS.extend(sorted({schema.name for schema in defs.get_all_schemas()}))
    old, node.op_type = node.op_type, rng.choice(_OPERATORS)
    return f"{old} becomes {node.op_type}"


_OPERATORS: list[str] = []


@_structure(1)
def _opset(draft: Draft, rng: Random) -> str | None:
    if "" not in draft.opsets:
        return None
    old, draft.opsets[""] = draft.opsets[""], rng.choice((13, 17, 18, 21, 23, 26, 11, 9, 7, 1, 0))
    return f"opset {old} becomes {draft.opsets['']}" if old != draft.opsets[""] else None


@_structure(4)
def _declared(draft: Draft, rng: Random) -> str | None:
    """Declare a result, or a value in between, with a type that it does not have."""
    made = [name for node in draft.nodes for name in node.output if name]
    if not made:
        return None
    name = rng.choice(made)
    right = draft.results.get(name)
    elem = elem_type_of(right) if isinstance(right, np.ndarray) else 1
    shape = tuple(right.shape) if isinstance(right, np.ndarray) else (1,)
    way = rng.randrange(7)
    if way == 0:
        shape = (1,)
    elif way == 1:
        shape = (*shape, 2)
    elif way == 2:
        shape = shape[:-1]
    elif way == 3:
        shape = tuple(length + rng.choice((0, 1, 5, 300)) for length in shape)
    elif way == 4:
        elem = rng.choice((1, 2, 6, 7, 9, 10, 11, 16, 0, 99, 8))
    elif way == 5:
        shape = tuple(rng.choice((0, -1, 2**31, 2**62)) for _ in shape) or (2**40,)
    else:
        shape = ()
    kind = tensor_type(elem, shape)
    if name in draft.outputs:
        draft.declared[name] = kind
    else:
        draft.hints[name] = kind
    return f"{name} is declared {elem}{list(shape)}"


@_structure(1)
def _output_unmade(draft: Draft, rng: Random) -> str | None:
    """Ask for a parameter, or for what nobody makes, as an output."""
    name = rng.choice(["nobody", *draft.parameters, *draft.parameters])
    draft.outputs.append(name)
    return f"{name} is an output"


@_structure(1)
def _declared_otherwise(draft: Draft, rng: Random) -> str | None:
    """Declare an input with a type or shape that is not the one of what is given."""
    names = [name for name in draft.tensors() if name not in draft.constants]
    if not names:
        return None
    name = rng.choice(names)
    array = draft.parameters[name]
    shape: tuple[int | str, ...] = array.shape
    elem = elem_type_of(array)
    if rng.random() < 0.5:
        elem = rng.choice((1, 6, 7, 9, 10, 11, 0, 99))
    else:
        shape = (*shape, rng.choice((1, "n", 2**40, 0)))
    draft.declared[name] = tensor_type(elem, shape)
    return f"{name} is declared {elem}{list(shape)}"
