"""The table of NVIDIA's libraries: each operation has its module, and what is not there is said."""

from __future__ import annotations

import importlib
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.backends.cuda import libraries
from aioinfer.backends.cuda.libraries import OPERATIONS, find_libraries, plan_operation

NAMES = [f"{library}_{label}" for library, labels in OPERATIONS.items() for label in labels]


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_has_a_module(name: str) -> None:
    module = importlib.import_module(f"aioinfer.backends.cuda.libraries.{name}")
    assert callable(module.find_missing)
    assert callable(module.plan)


def test_a_library_is_found_where_all_of_its_operations_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def module(library: str, label: str) -> Any:
        if library == "cublaslt":
            raise OSError("half an installation")
        return SimpleNamespace(find_missing=lambda: "no engine" if label == "attention" else None)

    monkeypatch.setattr(libraries, "_module", module)
    with caplog.at_level(logging.INFO, "aioinfer"):
        assert find_libraries() == {"cublas"}
    assert [record.getMessage() for record in caplog.records] == [
        "CUDA does without cublaslt: OSError: half an installation",
        "CUDA does without cudnn: no engine",
    ]


@pytest.mark.parametrize(("library", "label"), [("cublas", "conv"), ("mkl", "matmul")])
def test_an_operation_that_no_library_has_is_refused(library: str, label: str) -> None:
    with pytest.raises(DriverError, match=f"'{library}' has no operation '{label}'"):
        plan_operation(LibraryOperation.of(library, label), 0)
