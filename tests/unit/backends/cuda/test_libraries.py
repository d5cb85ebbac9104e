"""The table of NVIDIA's libraries: each operation has its module, and what is not there is said."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from aioinfer.backends.cuda import libraries
from aioinfer.backends.cuda.libraries import OPERATIONS, find_libraries, plan_operation
from aioinfer.runtime.accelerator.driver import DriverError
from aioinfer.runtime.accelerator.library_operation import LibraryOperation

NAMES = [f"{library}_{label}" for library, labels in OPERATIONS.items() for label in labels]


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_has_a_module(name: str) -> None:
    module = importlib.import_module(f"aioinfer.backends.cuda.libraries.{name}")
    assert callable(module.is_installed)
    assert callable(module.plan)


def test_a_library_is_found_where_all_of_its_operations_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def module(library: str, label: str) -> Any:
        if library == "cublaslt":
            raise OSError("half an installation")
        return SimpleNamespace(is_installed=lambda: label != "attention")

    monkeypatch.setattr(libraries, "_module", module)
    assert find_libraries() == {"cublas"}


@pytest.mark.parametrize(("library", "label"), [("cublas", "conv"), ("mkl", "matmul")])
def test_an_operation_that_no_library_has_is_refused(library: str, label: str) -> None:
    with pytest.raises(DriverError, match=f"'{library}' has no operation '{label}'"):
        plan_operation(LibraryOperation.of(library, label), 0)
