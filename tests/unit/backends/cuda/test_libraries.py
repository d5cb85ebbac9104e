"""The table of NVIDIA's libraries: each operation has its module, and what is not there is said."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.backends.cuda import cupy_driver, libraries
from aioinfer.backends.cuda.libraries import OPERATIONS, find_libraries, plan_operation
from aioinfer.backends.cuda.libraries.library_errors import warnings_are_no_errors

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
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "CUDA does without cublaslt: OSError: half an installation"),
        ("INFO", "CUDA does without cudnn: no engine"),
    ]


def test_a_library_that_warns_is_there_though_warnings_are_errors(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def find_missing() -> None:
        warnings.warn("nvmath was built for another numpy", UserWarning, stacklevel=1)

    monkeypatch.setattr(
        libraries, "_module", lambda library, label: SimpleNamespace(find_missing=find_missing)
    )
    warnings.simplefilter("error")
    assert find_libraries() == OPERATIONS.keys()
    assert "another numpy" in str(recwarn.pop(UserWarning).message)
    with pytest.raises(UserWarning, match="another numpy"):
        find_missing()


def test_where_warnings_are_no_errors_their_filters_are_let_alone() -> None:
    warnings.resetwarnings()
    before = warnings.filters
    with warnings_are_no_errors():
        assert warnings.filters is before


@pytest.mark.usefixtures("recwarn")
def test_two_threads_that_look_for_libraries_leave_the_filters_as_they_were() -> None:
    warnings.simplefilter("error")
    before = list(warnings.filters)
    entered = [warnings_are_no_errors() for _ in range(2)]
    first_is_in, second_may_end = threading.Event(), threading.Event()

    def second() -> None:
        first_is_in.wait(20.0)
        with entered[1]:
            second_may_end.wait(20.0)

    with ThreadPoolExecutor(1) as other:
        ended = other.submit(second)
        with entered[0]:
            first_is_in.set()
            wait([ended], 0.05)  # so that the second comes in meanwhile, if it can
        second_may_end.set()
        ended.result(20.0)
    assert list(warnings.filters) == before


def test_cupy_is_imported_though_it_warns_and_warnings_are_errors(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, tmp_path: Path
) -> None:
    text = "import warnings\nwarnings.warn('several CuPy packages are installed')\n"
    (tmp_path / "cupy.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(cupy_driver, "refuse_without_driver", lambda: None)
    warnings.simplefilter("error")
    cupy_driver.CupyDriver()
    assert "several" in str(recwarn.pop(UserWarning).message)
    del sys.modules["cupy"]


@pytest.mark.parametrize(("library", "label"), [("cublas", "conv"), ("mkl", "matmul")])
def test_an_operation_that_no_library_has_is_refused(library: str, label: str) -> None:
    with pytest.raises(DriverError, match=f"'{library}' has no operation '{label}'"):
        plan_operation(LibraryOperation.of(library, label), 0)
