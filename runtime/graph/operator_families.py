"""Modules that register something for operators, each imported when a model has one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from ...executors.late_imports import late_imports

__all__ = ["OperatorFamilies"]


class OperatorFamilies:
    """Which module of a package registers what is known of an operator.

    ``families`` are the operators by module, separated by spaces: ``Relu``, or ``domain::Relu``,
    or ``domain::*`` for all that a domain has. Thread-safe: who comes while a module is imported
    waits for its end, and so does a fork (``late_imports``).
    """

    def __init__(self, package: str | None, families: Mapping[str, str]) -> None:
        self._package = package
        self._not_imported: dict[tuple[str, str], str] = {}
        """The module by domain and operator."""
        for family, operators in families.items():
            for operator in operators.split():
                key = _key_of(operator)
                if key in self._not_imported:
                    raise ValueError(f"{operator} is in {self._not_imported[key]} and {family}")
                self._not_imported[key] = family

    def load(self, domain: str, op_type: str) -> None:
        """Have the module that registers an operator imported, if there is one."""
        if not self._not_imported:
            return
        for key in ((domain, op_type), (domain, _ALL)):
            family = self._not_imported.get(key)
            if family is not None:
                with late_imports:
                    import_module(f".{family}", self._package)
                self._not_imported.pop(key, None)

    def load_all(self) -> None:
        """Have all modules imported; for listings."""
        for family in set(self._not_imported.values()):
            with late_imports:
                import_module(f".{family}", self._package)
        self._not_imported.clear()


_ALL = "*"


def _key_of(operator: str) -> tuple[str, str]:
    domain, _, op_type = operator.rpartition("::")
    return domain, op_type
