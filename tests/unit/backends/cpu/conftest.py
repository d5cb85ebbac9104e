"""Skips what needs oneDNN where it is not."""

from pathlib import Path

import pytest

from unit.backends.cpu.comparing import missing_reason

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing_reason()
    if reason is None:
        return
    for item in items:
        if _HERE in item.path.parents and "needs_no_library" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason=reason))
