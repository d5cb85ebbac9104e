"""Which shapes a benchmark runs with: the options -shape and -b against a model's inputs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import nearest
from ..runtime.graph import Dim, TensorType, shape_text
from ..runtime.tensors.tensor import Port
from .arguments import OptionError

__all__ = ["ChosenShapes", "asked_shapes", "choose_shapes", "parse_shapes"]

_ITEM = re.compile(r"\s*(?P<name>[^\[\],]*?)\s*\[(?P<dims>[^\[\]]*)\]\s*(?P<comma>,|$)")

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class ChosenShapes:
    """The shape of each tensor input; ``batch`` items are in one inference.

    ``notes`` say what was chosen without being asked for.
    """

    shapes: Mapping[str, tuple[int, ...]]
    batch: int
    notes: tuple[str, ...]


def parse_shapes(text: str) -> Shapes:
    """Parse ``image[1,3,224,224],mask[1,128]``; the name "" stands for all inputs.

    Raises OptionError that says where the text breaks the grammar.
    """
    shapes: Shapes = {}
    place = 0
    while place < len(text) or not shapes:
        match = _ITEM.match(text, place)
        if match is None:
            raise OptionError(
                f"-shape {text!r}: cannot read {text[place:]!r}; write name[1,3,224,224] for each "
                f"input, with commas between"
            )
        name = match["name"]
        if name in shapes:
            raise OptionError(f"-shape {text!r}: {name or 'the shape of all inputs'!r} comes twice")
        shapes[name] = _lengths(match["dims"], text)
        if match["comma"] and match.end() == len(text):
            raise OptionError(f"-shape {text!r}: an input is missing after the last comma")
        place = match.end()
    if "" in shapes and len(shapes) > 1:
        raise OptionError(
            f"-shape {text!r}: a shape without a name is for all inputs, so it stands alone"
        )
    return shapes


def choose_shapes(
    ports: Sequence[Port],
    asked: Mapping[str, tuple[int, ...]],
    batch: int | None = None,
    known: Mapping[str, tuple[int, ...]] | None = None,
) -> ChosenShapes:
    """Give every tensor input a static shape.

    ``asked`` is what -shape says, ``batch`` what -b says, ``known`` the shapes of arrays that are
    given. A symbol has one length everywhere; what is not given is 1, with a note. Raises
    OptionError for an unknown input and for lengths that contradict the model or each other.
    """
    tensors = {port.name: port for port in ports if isinstance(port.type, TensorType)}
    binding = _Binding()
    for name, shape in _by_input(asked, tensors, ports).items():
        binding.take(tensors[name], shape, "-shape")
    for name, shape in (known or {}).items():
        binding.take(tensors[name], shape, "the given input")
    if batch is not None:
        binding.take_batch(list(tensors.values()), batch)
    shapes = {name: binding.shape_of(port) for name, port in tensors.items()}
    symbolic = [
        name for name, port in tensors.items() if port.shape and not isinstance(port.shape[0], int)
    ]
    return ChosenShapes(
        shapes,
        batch or (shapes[symbolic[0]][0] if symbolic else 1),
        tuple(binding.notes),
    )


def asked_shapes(
    ports: Sequence[Port], asked: Mapping[str, tuple[int, ...]], batch: int | None
) -> dict[str, tuple[Dim, ...]]:
    """Return what -shape and -b pin of each input, for ``Model.reshape``; the rest is None.

    They were checked by ``choose_shapes``.
    """
    tensors = {port.name: port for port in ports if isinstance(port.type, TensorType)}
    pinned: dict[str, tuple[Dim, ...]] = {**_by_input(asked, tensors, ports)}
    for name, port in tensors.items() if batch is not None else ():
        if name not in pinned and port.shape and not isinstance(port.shape[0], int):
            rest = (dim if isinstance(dim, int) else None for dim in port.shape[1:])
            pinned[name] = (batch, *rest)
    return pinned


class _Binding:
    """Lengths as they become known, by symbol, or by input and place where there is no symbol."""

    def __init__(self) -> None:
        self._known: dict[str | tuple[str, int], tuple[int, str]] = {}
        self._ranks: dict[str, int] = {}
        self.notes: list[str] = []

    def take(self, port: Port, shape: tuple[int, ...], source: str) -> None:
        said = f"{source} {port.name}{shape_text(shape)}"
        if port.shape is not None and len(port.shape) != len(shape):
            raise OptionError(f"{said}: the model wants {len(port.shape)} dimensions, {port}")
        self._ranks[port.name] = len(shape)
        for place, length in enumerate(shape):
            self._set(port, place, length, said)

    def take_batch(self, ports: Sequence[Port], batch: int) -> None:
        batched = [port for port in ports if port.shape and not isinstance(port.shape[0], int)]
        if not batched:
            raise OptionError(
                f"-b {batch}: no input has a first dimension that may change; the model's inputs "
                f"are {', '.join(map(str, ports)) or 'none'}"
            )
        for port in batched:
            self._set(port, 0, batch, f"-b {batch}")

    def shape_of(self, port: Port) -> tuple[int, ...]:
        if port.shape is None and port.name not in self._ranks:
            raise OptionError(
                f"input {port.name!r} has no known shape; give one with -shape "
                f"'{port.name}[...]', or an array with -i"
            )
        rank = len(port.shape) if port.shape is not None else self._ranks[port.name]
        lengths = [self._length(port, place) for place in range(rank)]
        shape = tuple(1 if length is None else length for length in lengths)
        if None in lengths:
            self.notes.append(
                f"{port}: lengths that were not given are 1, so {port.name}{shape_text(shape)}; "
                f"set them with -shape or -b"
            )
        return shape

    def _set(self, port: Port, place: int, length: int, source: str) -> None:
        dim = _dim(port, place)
        if isinstance(dim, int):
            known, owner = dim, f"the model, {port}"
        else:
            known, owner = self._known.setdefault(dim or (port.name, place), (length, source))
        if known != length:
            symbol = f" ({dim!r})" if isinstance(dim, str) else ""
            raise OptionError(
                f"{source}: dimension {place} of {port.name!r}{symbol} would be {length}, and it "
                f"is {known} in {owner}"
            )

    def _length(self, port: Port, place: int) -> int | None:
        dim = _dim(port, place)
        if isinstance(dim, int):
            return dim
        return self._known.get(dim or (port.name, place), (None, ""))[0]


def _dim(port: Port, place: int) -> Dim:
    return port.shape[place] if port.shape is not None else None


def _lengths(dims: str, text: str) -> tuple[int, ...]:
    if not dims.strip():
        return ()
    lengths = []
    for dim in dims.split(","):
        if not dim.strip().isascii() or not dim.strip().isdigit():
            raise OptionError(
                f"-shape {text!r}: {dim.strip()!r} is not a length; write whole numbers, 0 or more"
            )
        lengths.append(int(dim))
    return tuple(lengths)


def _by_input(
    asked: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Port], ports: Sequence[Port]
) -> Shapes:
    if "" in asked:
        return dict.fromkeys(tensors, asked[""])
    for name in asked:
        if name not in tensors:
            others = {port.name: port for port in ports}
            if name in others:
                raise OptionError(f"-shape: input {name!r} is no tensor: {others[name]}")
            raise OptionError(
                f"-shape: the model has no input {name!r}"
                + (nearest(name, tensors) or f"; it has {', '.join(map(str, ports)) or 'none'}")
            )
    return dict(asked)
