"""Which input or output is being prepared, as errors name it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ...errors import AioInferError, TensorError

__all__ = ["PortName", "said_of_port"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class PortName:
    """An input or an output of the model, before anything is done to it."""

    kind: str
    """``input`` or ``output``."""
    name: str
    index: int

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"

    @contextmanager
    def named(self, place: str) -> Iterator[None]:
        """Put the port and the place before the message of an error of ours."""
        try:
            yield
        except AioInferError as error:
            raise TensorError(f"{self}, {place}: {error}", tensor=self.name) from error


class _HasPort(Protocol):
    _port: PortName


Owner = TypeVar("Owner", bound=_HasPort)


def said_of_port(
    method: Callable[Concatenate[Owner, P], R],
) -> Callable[Concatenate[Owner, P], R]:
    """Make errors of a method name its port, and itself."""

    @functools.wraps(method)
    def checked(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._port.named(method.__name__):
            return method(self, *args, **kwargs)

    return checked
