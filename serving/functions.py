"""Functions before and behind a model, by the names under which ``model.toml`` asks for them.

A model directory runs no code of its own: it names functions of modules that the operator of the
server has allowed, and of these only what was declared here. Their clients' side is declared, too,
as that is what the protocol tells of the model, and what requests are held against.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import AioInferError, PropertyError, nearest
from ..runtime.graph import TensorType
from ..runtime.network.callbacks import is_asynchronous
from ..runtime.tensors.tensor import Port
from .protocol.datatypes import DATATYPES

__all__ = [
    "NO_FUNCTIONS",
    "AllowedFunctions",
    "ModelFunctions",
    "ServedFunction",
    "postprocess",
    "preprocess",
]

Kind = Literal["preprocess", "postprocess"]
Tensors = Mapping[str, tuple[str, Sequence[int]]]
"""By name, a datatype of the protocol and a shape, in which -1 is any length."""


@dataclass(frozen=True)
class ServedFunction:
    """A function that models may name, and what its clients give or get."""

    function: Callable[[dict[str, Any]], Mapping[str, Any]]
    kind: Kind
    ports: tuple[Port, ...]

    def __call__(self, given: dict[str, Any]) -> Mapping[str, Any]:
        name = getattr(self.function, "__qualname__", repr(self.function))
        try:
            made = self.function(given)
        except Exception:
            raise
        except BaseException as error:  # sys.exit() would end the server, and answer no client
            raise AioInferError(f"{self.kind} {name} raised {type(error).__name__}") from error
        if not isinstance(made, Mapping):
            raise PropertyError(
                f"{self.kind} {name} returns {type(made).__name__}, and no mapping", self.kind
            )
        return made


def preprocess(takes: Tensors) -> Callable[[Callable[[Any], Any]], ServedFunction]:
    """Declare a function that makes a model's inputs of what clients give.

    takes: what clients give: ``{"image": ("BYTES", [-1])}``. The function is called with arrays by
    name, on several threads at once, and returns the model's inputs by name; elements of BYTES are
    ``bytes``. It refuses what a client gave by TensorError or RefusedError; anything else that it
    raises is the server's fault. Raises PropertyError for what is no datatype or shape, and for a
    coroutine function.
    """
    ports = _ports(takes, "takes")
    return lambda function: _declared(function, "preprocess", ports)


def postprocess(gives: Tensors) -> Callable[[Callable[[Any], Any]], ServedFunction]:
    """Declare a function that makes what clients get of a model's outputs.

    gives: what clients get. The function is called with the outputs by name, on several threads at
    once, and returns what it gives by name; elements of BYTES may be ``str`` or ``bytes``. Raises
    PropertyError for what is no datatype or shape, and for a coroutine function.
    """
    ports = _ports(gives, "gives")
    return lambda function: _declared(function, "postprocess", ports)


def _declared(
    function: Callable[[Any], Any], kind: Kind, ports: tuple[Port, ...]
) -> ServedFunction:
    if is_asynchronous(function):
        raise PropertyError(
            f"a {kind} is a plain function, which runs on a thread beside the event loop; "
            f"{function.__qualname__} is a coroutine function",
            kind,
        )
    return ServedFunction(function, kind, ports)


def _ports(tensors: Tensors, what: str) -> tuple[Port, ...]:
    ports = []
    for name, declared in tensors.items() if isinstance(tensors, Mapping) else ():
        if not isinstance(name, str) or not isinstance(declared, tuple) or len(declared) != 2:
            raise PropertyError(f"{what}: {name!r} is {declared!r}, not (datatype, shape)", what)
        datatype, shape = declared
        if not isinstance(datatype, str) or datatype not in DATATYPES:
            known = ", ".join(DATATYPES)
            raise PropertyError(f"{what}: {name!r} is {datatype!r}, none of {known}", what)
        if not isinstance(shape, Sequence) or not all(map(_is_length, shape)):
            raise PropertyError(
                f"{what}: {name!r} has shape {shape!r}; give lengths, and -1 for any", what
            )
        dims = tuple(None if length == -1 else length for length in shape)
        ports.append(Port(name, TensorType(DATATYPES[datatype], dims)))
    if not ports:
        raise PropertyError(f"{what} names no tensor", what)
    return tuple(ports)


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= -1


@dataclass(frozen=True)
class ModelFunctions:
    """What stands before and behind one model; None: nothing."""

    preprocess: ServedFunction | None = None
    postprocess: ServedFunction | None = None

    def behind(self, model: str) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Return the function behind the model, whose result is checked against its declaration.

        It raises PropertyError for a result that was not declared so.
        """
        declared = self.postprocess
        if declared is None:
            return None

        def checked(outputs: dict[str, Any]) -> dict[str, Any]:
            made = declared(outputs)
            return {port.name: _checked(model, port, made) for port in declared.ports}

        return checked


NO_FUNCTIONS = ModelFunctions()


def _checked(model: str, port: Port, made: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    if port.name not in made:
        raise _wrong_result(model, f"no {port.name!r}")
    wanted, shape = port.dtype, port.shape
    assert wanted is not None
    assert shape is not None
    value = made[port.name]
    is_texts = wanted.kind == "O"
    array = np.asarray(value, object) if is_texts else np.asarray(value)
    if not isinstance(value, np.ndarray | np.generic) and _holds(wanted, array):
        array = np.asarray(value, wanted)
    if array.dtype != wanted:
        raise _wrong_result(model, f"{port.name!r} of {array.dtype}, and declares {wanted}")
    if is_texts and not all(isinstance(item, str | bytes) for item in array.ravel()):
        raise _wrong_result(model, f"{port.name!r} with elements that are no texts")
    fits = array.ndim == len(shape) and all(
        want is None or length == want for length, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        declared = [-1 if want is None else want for want in shape]
        raise _wrong_result(model, f"{port.name!r} of {list(array.shape)}, and declares {declared}")
    return array


def _holds(wanted: np.dtype[Any], array: np.ndarray[Any, Any]) -> bool:
    """Return whether a list of such numbers may be one of the wanted type: none is cut."""
    kinds = {"b": "b", "i": "iu", "u": "iu"}.get(wanted.kind, "fiu")
    return array.size == 0 or array.dtype.kind in kinds


def _wrong_result(model: str, what: str) -> PropertyError:
    return PropertyError(f"postprocess of model {model!r} returns {what}", "postprocess")


class AllowedFunctions:
    """The functions of some modules, by names such as ``module:function``.

    The modules are imported, as any: what they do then they do. Raises PropertyError for one that
    cannot be imported, or declares no function.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._functions: dict[str, ServedFunction] = {}
        for module in modules:
            try:
                imported = importlib.import_module(module)
            except (ImportError, TypeError, ValueError) as error:  # the last two: '' and '.name'
                raise PropertyError(f"--functions {module}: {error}", "--functions") from error
            found = {
                f"{module}:{name}": value
                for name, value in vars(imported).items()
                if isinstance(value, ServedFunction)
            }
            if not found:
                raise PropertyError(
                    f"--functions {module}: it declares no function; decorate one with "
                    f"aioinfer.serving.preprocess or postprocess",
                    "--functions",
                )
            self._functions.update(found)

    def find(self, model: str, before: str | None, behind: str | None) -> ModelFunctions:
        """Return what a model's settings name. Raises PropertyError for what is not allowed."""
        return ModelFunctions(
            self._named(model, "preprocess", before), self._named(model, "postprocess", behind)
        )

    def _named(self, model: str, kind: Kind, name: str | None) -> ServedFunction | None:
        if name is None:
            return None
        found = self._functions.get(name)
        if found is not None and found.kind == kind:
            return found
        known = [other for other, each in self._functions.items() if each.kind == kind]
        if found is not None:
            problem = f"which is a {found.kind}"
        elif known:
            problem = f"which is not allowed{nearest(name, known)}; allowed are {sorted(known)}"
        else:
            problem = "and none is allowed; allow its module with --functions MODULE"
        raise PropertyError(
            f"model.toml of {model!r}: {kind} is {name!r}, {problem}", kind, value=name
        )
