"""Tests that cuDNN plans what is asked of it, for a GPU that is not there."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "plan: plans for a GPU by cuDNN, without one")
