"""Want of memory for a call of a package, on any thread: each of its functions may be made fail."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

__all__ = ["FailingCalls"]


class FailingCalls:
    """Once armed, the call with a number raises MemoryError, as Python without memory does.

    All functions and methods of the package are replaced while the test runs, so the threads that
    call them need not be known. One call fails each time.
    """

    def __init__(self, package: ModuleType, patch: pytest.MonkeyPatch) -> None:
        self._left = -1
        self.where = ""
        """The call that has failed; "" if there were fewer."""
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
        self._package = f"{package.__name__}."
        replaced: dict[FunctionType, Any] = {}
        for holder in self._holders():
            for name, item in list(vars(holder).items()):
                if isinstance(item, FunctionType) and self._is_of_package(item):
                    made = replaced.setdefault(item, self._failing(item))
                    patch.setattr(holder, name, made)

    def arm(self, number: int) -> None:
        self.where, self._left = "", number + 1

    def disarm(self) -> None:
        self._left = -1

    def _holders(self) -> Iterator[Any]:
        """List modules, which may have imported a function, and the package's own classes."""
        modules = [item for name, item in sys.modules.items() if name.startswith("aioinfer")]
        classes: dict[type, None] = {}
        for module in modules:
            yield module
            for item in vars(module).values():
                if isinstance(item, type) and item.__module__.startswith(self._package):
                    classes[item] = None
        yield from classes

    def _is_of_package(self, function: FunctionType) -> bool:
        is_ours = function.__module__.startswith(self._package)
        can_raise = function.__name__ != "__del__"  # what that raises goes to nobody
        return is_ours and can_raise and not hasattr(function, "__wrapped__")

    def _failing(self, function: FunctionType) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            if self._left > 0:
                self._left -= 1
                if not self._left:
                    self._left = -1
                    self.where = function.__qualname__
                    raise MemoryError(f"for {function.__qualname__}")
            return function(*args, **named)

        return call
