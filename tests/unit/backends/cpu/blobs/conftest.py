"""A Core for each test of exported plans."""

from collections.abc import Iterator

import pytest

import aioinfer


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made
