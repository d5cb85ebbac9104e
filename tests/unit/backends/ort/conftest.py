"""A Core for the tests of ONNXRUNTIME."""

from collections.abc import Iterator

import pytest

import aioinfer


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made
