"""A property that is computed once for an object, as Python has it from 3.12 on: without a lock.

Python 3.11 holds one lock for all objects of a class while it computes, and a child that is forked
meanwhile finds it held for ever. Threads that ask at a time may compute it twice, and get one.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801
        """As that of ``functools``, but for the lock."""

        def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
            name = self.attrname
            if instance is None or name is None:
                return super().__get__(instance, owner)
            known = instance.__dict__
            return known[name] if name in known else known.setdefault(name, self.func(instance))
