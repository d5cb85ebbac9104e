"""Collected by .ci/run only: the suite beside this test tests the installed wheel."""

import importlib
import sysconfig
from pathlib import Path

import pytest

PARTS = ["aioinfer", "aioinfer.backends", "aioinfer.executors", "aioinfer.runtime"]


@pytest.mark.parametrize("name", PARTS)
def test_the_package_is_imported_from_site_packages(name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file is not None
    assert Path(file).resolve().is_relative_to(Path(sysconfig.get_path("purelib")).resolve())
